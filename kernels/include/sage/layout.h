// The contract between quantisers, attention kernels and any emulation of them: how Q, K and V are
// grouped, scaled and ordered, and how P is rounded and summed. Plain data, compiles without CUDA.
//
// Algorithm: SageAttention (arXiv 2410.02367), SageAttention2 (arXiv 2411.10958).
#pragma once
#include <array>
#include <cstdint>

#include "sage/types.h"

#ifdef __CUDACC__
#define SAGE_HOST_DEVICE __host__ __device__
#else
#define SAGE_HOST_DEVICE
#endif

namespace sage {

enum class Granularity { kPerThread, kPerWarp, kPerBlock };  // tokens per INT8 scale of Q and K
enum class Smooth { kNone, kMean, kSampled };                // channel offset removed, per sequence
enum class Rotate { kNone, kHadamard };                      // orthonormal, on both Q and K
enum class PvType { kFp8E4m3, kFp16 };                       // operands of the P V product
enum class PMode { kExp2, kLinear };                         // P = exp2(s), or codes linear in s
enum class VScale { kPerChannel, kPerHead };

// What the user may choose. A kernel that cannot do a choice says so (AttentionKernel::supports).
struct SageSettings {
  Granularity qk_granularity = Granularity::kPerThread;
  Smooth smooth_k = Smooth::kMean;
  // None: an offset moves 16-bit inputs off e4m3's symmetric grid, and the rounding of all values
  // is then biased the same way: relative L1 0.064 instead of 0.043 at 128k keys of N(0, 1) on an
  // H200. A mean in V is kept by promote_keys.
  Smooth smooth_v = Smooth::kNone;
  // FP8 codes of V: their mean over a sequence is put right in the output, see QuantizeVParams.
  bool correct_v = true;
  Rotate rotate = Rotate::kNone;
  VScale v_scale = VScale::kPerChannel;
  PvType pv = PvType::kFp8E4m3;
  PMode p = PMode::kExp2;
};

// Which tokens of a block share one scale. Blocks restart at every sequence start.
enum class GroupPattern {
  kAll,      // group 0
  kRowMod8,  // group r % 8: rows {r, r+8, ...}, the rows one lane owns in an mma A fragment
  kPairMod4  // group (r % 8) / 2: keys {8i+2t, 8i+2t+1}, the columns one lane owns in a C fragment
};

struct ScaleGroups {
  int block_tokens = 32;
  int groups_per_block = 8;
  GroupPattern pattern = GroupPattern::kRowMod8;
};
// The bindings make a member that is not compared an error.
constexpr bool operator==(const ScaleGroups& a, const ScaleGroups& b) {
  const auto& [block_tokens, groups_per_block, pattern] = a;
  return block_tokens == b.block_tokens && groups_per_block == b.groups_per_block &&
         pattern == b.pattern;
}

SAGE_HOST_DEVICE constexpr int group_in_block(GroupPattern pattern, int row) {
  return pattern == GroupPattern::kAll       ? 0
         : pattern == GroupPattern::kRowMod8 ? row % 8
                                             : row % 8 / 2;
}

// Per-sequence blocks of a packed tensor need no prefix sum: sequence b, whose first token is
// packed row cu_start, owns blocks [first_block, first_block + ceil(len / block)), and these ranges
// never overlap, because floor(cu/block) + b grows by at least ceil(len/block) from b to b + 1.
SAGE_HOST_DEVICE constexpr int64_t first_block(int64_t cu_start, int64_t sequence, int block) {
  return cu_start / block + sequence;
}
// Upper bound over all sequences: the block count to allocate, and to launch.
SAGE_HOST_DEVICE constexpr int64_t block_count(int64_t total_tokens, int64_t batch, int block) {
  return total_tokens / block + batch;
}

// Scale tensors are fp32 [num_heads, scale_rows]: one row of scales per head.
SAGE_HOST_DEVICE constexpr int64_t scale_rows(ScaleGroups g, int64_t total_tokens, int64_t batch) {
  return block_count(total_tokens, batch, g.block_tokens) * g.groups_per_block;
}
SAGE_HOST_DEVICE constexpr int64_t scale_row(ScaleGroups g, int64_t cu_start, int64_t sequence,
                                             int64_t token_in_sequence) {
  return (first_block(cu_start, sequence, g.block_tokens) + token_in_sequence / g.block_tokens) *
             g.groups_per_block +
         group_in_block(g.pattern, static_cast<int>(token_in_sequence % g.block_tokens));
}

// The "moving reference" form of the online softmax, in codes: eighths of an octave above the
// smallest normal of e4m3 times 2^-7, so that P = 2^(code / 8 - 7) and 126 is the largest finite P.
// Per query row, R (whole octaves, so that every rescaling is exact) starts with the first tile_k
// keys and is looked at again with every further tile_k keys, unmasked keys only, in order:
//
//   code(key) = 8 * (log2(e) * s[key] - R); lead = the largest of the tile. No key: nothing
//   happens. first tile:                         R = ceil((lead at R = 0 - top) / 8); highest = R
//   lead > max_code or lead < low_code: R = max(R + ceil((lead - top) / 8), highest - span_octaves)
//                                       highest = max(highest, R)
//   if R moved: what the row has summed since its last promotion is promoted (the accumulator is 0
//   from then on), and the promoted sums are multiplied by 2^(R before - R), the exponent clamped
//   to [-126, 126]. Then P of the tile is made with the new R. A NaN scale makes its scores and
//   their P NaN, and is no lead.
//
// PMode::kLinear, all fp32 but for the last line, which is exact before its one rounding (double):
//   unit  = max(fma(q_scale * f, k_scale, 3) - 3, 2^-22)      f = fp32(sm_scale * 8 * log2(e))
//   const = fma(-12582912, unit, -8 * R)
//   code  = round_half_even((12582912 + dot) * unit + const)  P's byte: clamped to [0, 255]
// PMode::kExp2: unit = max(q_scale * f / 8 * k_scale, 2^-60), const = fma(-12582912, unit, -7 - R),
//   x = fma(12582912 + dot, unit, const), P's byte = e4m3(2^x), code = 8 * (x + 7); after R moved
//   in this tile, x + (R before - R).
struct MovingReference {
  bool used = false;  // false: m is the running maximum, see p_offset
  int max_code = 126;
  int top_code = 102;
  int low_code = 46;
  int span_octaves = 40;
};
constexpr bool operator==(const MovingReference& a, const MovingReference& b) {
  const auto& [used, max_code, top_code, low_code, span_octaves] = a;
  return used == b.used && max_code == b.max_code && top_code == b.top_code &&
         low_code == b.low_code && span_octaves == b.span_octaves;
}

// Everything that fixes the numbers a kernel produces.
struct AttentionLayout {
  int head_dim = 128;    // padded: channels of Q and K codes
  int head_dim_v = 128;  // padded: channels of V codes
  int tile_q = 128;      // query rows of one CTA
  int tile_k = 64;       // keys between two updates of the running maximum
  ScaleGroups q_groups;
  ScaleGroups k_groups;

  // V codes. FP8: tiles [tile][num_kv_heads][head_dim_v][v_tile_keys] of e4m3, keys innermost, keys
  // past the sequence's end are code 0. Position p of a tile holds key
  // (p - p % kKeyOrder) + v_key_order[p % kKeyOrder]. FP16: rows
  // [total_kv][num_kv_heads][head_dim_v].
  static constexpr int kKeyOrder = 16;
  PvType pv = PvType::kFp8E4m3;
  int v_tile_keys = 64;
  std::array<uint8_t, kKeyOrder> v_key_order{};
  float v_code_max =
      448.0f;  // FP8: scale = amax / v_code_max. FP16: scale = 2^ceil(log2 amax)/v_code_max

  // P = 2^(s - m + p_offset), rounded to the PV type; m is the running maximum in base 2, unless a
  // moving reference replaces both.
  PMode p = PMode::kExp2;
  float p_offset = 8.807f;
  MovingReference reference;

  // O accumulates promote_keys keys in the tensor core, whose adder keeps accumulator_bits fraction
  // bits (0: plain fp32), then is added to fp32 registers. Intervals start at the sequence's first
  // key. row_sum_promoted: the denominator is one more column of the same product (V code 1.0),
  // with the same loss; else it is an fp32 sum of the rounded P.
  int promote_keys = 64;
  int accumulator_bits = 0;
  bool row_sum_promoted = false;
  // Subtracted from the natural logarithm of the denominator in the LSE: linear codes overstate P
  // by (1 + f) / 2^f, f the fraction of the octave, 1.0407 on average.
  float lse_bias = 0.0f;
};
bool operator==(const AttentionLayout& a, const AttentionLayout& b);

}  // namespace sage
