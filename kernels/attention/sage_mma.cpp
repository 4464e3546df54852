#include "attention/sage_mma.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "status.h"

namespace sage {
namespace {

constexpr Granularity kGranularities[] = {Granularity::kPerThread, Granularity::kPerWarp,
                                          Granularity::kPerBlock};

constexpr int padded(int head_dim) {
  return head_dim <= 64 ? 64 : 128;
}

// A lane's C fragment of Q K^T holds keys 2t, 2t + 1 of each block of 8; its A fragment of P V
// wants four consecutive positions 4t .. 4t + 3. So those hold the lane's keys of two blocks.
constexpr std::array<uint8_t, AttentionLayout::kKeyOrder> fp8_key_order() {
  std::array<uint8_t, AttentionLayout::kKeyOrder> order{};
  for (int p = 0; p < AttentionLayout::kKeyOrder; ++p) {
    const int lane = p / 4, block = p % 4 / 2, element = p % 2;
    order[static_cast<size_t>(p)] = static_cast<uint8_t>(block * 8 + lane * 2 + element);
  }
  return order;
}

constexpr std::array<uint8_t, AttentionLayout::kKeyOrder> identity_key_order() {
  std::array<uint8_t, AttentionLayout::kKeyOrder> order{};
  for (int p = 0; p < AttentionLayout::kKeyOrder; ++p)
    order[static_cast<size_t>(p)] = static_cast<uint8_t>(p);
  return order;
}

bool same_groups(const ScaleGroups& a, const ScaleGroups& b) {
  return a.block_tokens == b.block_tokens && a.groups_per_block == b.groups_per_block &&
         a.pattern == b.pattern;
}

// Is this a layout that sage_mma_layout makes?
bool reads_layout(PvType pv, const AttentionLayout& l) {
  if ((l.head_dim != 64 && l.head_dim != 128) || (l.head_dim_v != 64 && l.head_dim_v != 128)) {
    return false;
  }
  AttentionProblem problem;
  problem.head_dim = l.head_dim;
  problem.head_dim_v = l.head_dim_v;
  SageSettings settings;
  settings.pv = pv;
  const AttentionLayout want = sage_mma_layout(pv, problem, settings);
  const bool groups = std::any_of(
      std::begin(kGranularities), std::end(kGranularities), [&](Granularity granularity) {
        settings.qk_granularity = granularity;
        const AttentionLayout w = sage_mma_layout(pv, problem, settings);
        return same_groups(w.q_groups, l.q_groups) && same_groups(w.k_groups, l.k_groups);
      });
  return groups && l.tile_q == want.tile_q && l.tile_k == want.tile_k && l.pv == want.pv &&
         l.v_tile_keys == want.v_tile_keys && l.v_key_order == want.v_key_order && l.p == want.p &&
         l.p_offset == want.p_offset && l.promote_keys == want.promote_keys &&
         l.accumulator_bits == want.accumulator_bits;
}

}  // namespace

const char* sage_mma_supports(PvType pv, const AttentionProblem& problem,
                              const SageSettings& settings) {
  if (problem.head_dim < 1 || problem.head_dim_v < 1) return "head_dim must be positive";
  if (problem.head_dim > 128 || problem.head_dim_v > 128) return "head_dim is at most 128";
  if (problem.num_kv_heads < 1 || problem.num_qo_heads < 1 ||
      problem.num_qo_heads % problem.num_kv_heads != 0) {
    return "num_kv_heads must divide num_qo_heads";
  }
  if (problem.num_qo_heads > kMaxGridY) return "num_qo_heads is at most 65535";
  if (problem.dtype != DType::kBf16 && problem.dtype != DType::kFp16) {
    return "inputs and output are bf16 or fp16";
  }
  if (settings.pv != pv) {
    return pv == PvType::kFp8E4m3 ? "P V runs in FP8; sage_mma_fp16 has FP16"
                                  : "P V runs in FP16; sage_mma_fp8 has FP8";
  }
  if (pv == PvType::kFp16 && settings.correct_v) return "correct_v is for FP8 codes of V";
  if (settings.p != PMode::kExp2) return "P is exp2; linear codes are not available";
  return nullptr;
}

AttentionLayout sage_mma_layout(PvType pv, const AttentionProblem& problem,
                                const SageSettings& settings) {
  const bool fp8 = pv == PvType::kFp8E4m3;
  AttentionLayout l;
  l.head_dim = padded(problem.head_dim);
  l.head_dim_v = padded(problem.head_dim_v);
  l.tile_q = kSageMmaTileQ;
  l.tile_k = kSageMmaTileK;
  switch (settings.qk_granularity) {
    case Granularity::kPerThread:
      l.q_groups = {32, 8, GroupPattern::kRowMod8};
      l.k_groups = {kSageMmaTileK, 4, GroupPattern::kPairMod4};
      break;
    case Granularity::kPerWarp:
      l.q_groups = {32, 1, GroupPattern::kAll};
      l.k_groups = {kSageMmaTileK, 1, GroupPattern::kAll};
      break;
    case Granularity::kPerBlock:
      l.q_groups = {kSageMmaTileQ, 1, GroupPattern::kAll};
      l.k_groups = {kSageMmaTileK, 1, GroupPattern::kAll};
      break;
  }
  l.pv = pv;
  l.v_tile_keys = kSageMmaTileK;
  l.v_key_order = fp8 ? fp8_key_order() : identity_key_order();
  // FP16: 2^15 keeps 29 octaves of V below its largest value, and sums of 64 products with P stay
  // far inside fp32.
  l.v_code_max = fp8 ? 448.0f : 32768.0f;
  l.p = PMode::kExp2;
  l.p_offset = fp8 ? kSageMmaPOffsetFp8 : kSageMmaPOffsetFp16;
  l.promote_keys = kSageMmaTileK;
  l.accumulator_bits = 0;
  return l;
}

Status check_sage_mma(PvType pv, const AttentionParams& p) {
  if (p.batch < 0) return invalid("batch is negative");
  if (p.total_q < 0 || p.total_q > kMaxRows || p.total_kv < 0 || p.total_kv > kMaxRows) {
    return invalid("total_q and total_kv must be in [0, 2^31)");
  }
  if (p.num_qo_heads < 1 || p.num_kv_heads < 1 || p.num_qo_heads % p.num_kv_heads != 0) {
    return invalid("num_kv_heads must divide num_qo_heads");
  }
  if (p.num_qo_heads > kMaxGridY) return unsupported("num_qo_heads is at most 65535");
  if (!reads_layout(pv, p.layout)) return unsupported("the layout is not this kernel's own");
  if (p.head_dim_v < 1 || p.head_dim_v > p.layout.head_dim_v) {
    return invalid("head_dim_v must be in [1, layout.head_dim_v]");
  }
  if (p.mask != Mask::kFull && p.mask != Mask::kCausalBottomRight &&
      p.mask != Mask::kCausalTopLeft) {
    return invalid("unknown mask");
  }
  // The smallest scales times it must stay above 0, for masked scores to stay at -inf.
  if (!std::isfinite(p.sm_scale) || p.sm_scale < 1e-20f) {
    return invalid("sm_scale must be finite and at least 1e-20");
  }
  if (p.o_dtype != DType::kBf16 && p.o_dtype != DType::kFp16) {
    return invalid("o must be bf16 or fp16");
  }
  if (p.o_token_stride < 0 || p.o_head_stride < 0) return invalid("a stride of o is negative");
  if (block_count(p.total_q, p.batch, kSageMmaTileQ) > kMaxGridX) {
    return unsupported("more than 2^31 - 1 query tiles");
  }
  if (p.batch == 0 || p.total_q == 0) return {};  // nothing is read or written
  if (p.cu_seqlens_q == nullptr || p.cu_seqlens_kv == nullptr) {
    return invalid("cu_seqlens_q or cu_seqlens_kv is null");
  }
  if (p.q_codes == nullptr || p.q_scales == nullptr || p.v_scales == nullptr || p.o == nullptr) {
    return invalid("q_codes, q_scales, v_scales or o is null");
  }
  if (p.total_kv > 0 && (p.k_codes == nullptr || p.k_scales == nullptr || p.v_codes == nullptr)) {
    return invalid("k_codes, k_scales or v_codes is null");
  }
  if ((p.num_qo_heads > 1 && p.o_head_stride == 0) || (p.total_q > 1 && p.o_token_stride == 0)) {
    return invalid("a stride of o is 0: rows would overlap");
  }
  if (!is_aligned(p.q_codes, 16) || !is_aligned(p.k_codes, 16) || !is_aligned(p.v_codes, 16)) {
    return misaligned("q_codes, k_codes and v_codes must be aligned to 16 bytes");
  }
  for (const void* words :
       {static_cast<const void*>(p.cu_seqlens_q), static_cast<const void*>(p.cu_seqlens_kv),
        static_cast<const void*>(p.q_scales), static_cast<const void*>(p.k_scales),
        static_cast<const void*>(p.v_scales), static_cast<const void*>(p.v_offset),
        static_cast<const void*>(p.lse_dot), static_cast<const void*>(p.lse)}) {
    if (!is_aligned(words, 4))
      return misaligned("fp32 and int32 arrays must be aligned to 4 bytes");
  }
  if (!is_aligned(p.o, 2)) return misaligned("o must be aligned to its element");
  return {};
}

}  // namespace sage
