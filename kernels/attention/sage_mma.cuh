// Variable-length SageAttention on mma.sync: P V in FP16 for sm_80 and up, in FP8 for sm_89 and up.
//
// One CTA computes 128 query rows of one (sequence, head): 4 warps of 32 rows. Keys come in tiles
// of 64, through kStages buffers of shared memory filled by cp.async. Scores, P and O stay in
// registers: a C fragment of the scores, rounded and packed, is an A fragment of P V, because V's
// keys are stored in the order in which a lane owns them (FP8: AttentionLayout::v_key_order; FP16:
// as is). O of a tile starts from zero and is folded into fp32 registers with the FMA that rescales
// them.
//
// Grid: x = query tiles, at most one empty per sequence; y = query heads. Key order and rounding
// depend on the sequence alone, so a sequence gives the same bits in any batch.
#pragma once
#include <cuda_runtime.h>

#include "attention/sage_mma.h"
#include "device/mma.cuh"
#include "device/ptx.cuh"
#include "status.h"

namespace sage {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// Accumulating integer scores on top of 1.5 * 2^23 leaves the bits of the float 1.5 * 2^23 + score:
// exact for |score| < 2^22, and 127^2 * 128 < 2^21. Larger scores are larger as integers too.
inline constexpr int kScoreBias = 0x4B400000;
inline constexpr float kScoreBiasFloat = 12582912.0f;
inline constexpr int kMaskedScore = static_cast<int>(0xFF800000u);  // bits of -inf: below them all

// P V with e4m3 operands: 16 bytes of shared memory are 16 keys of a channel.
struct PvFp8 {
  static constexpr PvType kType = PvType::kFp8E4m3;
  static constexpr int kElementBytes = 1;
  static constexpr int kKeysPerStep = 32;
  static constexpr float kPOffset = kSageMmaPOffsetFp8;
  static constexpr uint32_t kOnes = 0x38383838;

  // P of keys 32 step .. 32 step + 31 from their four score blocks.
  static __device__ __forceinline__ void pack(uint32_t (&a)[4], const float (&p)[8][4], int step) {
    using device::pack_e4m3x2;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int block = 4 * step + r / 2 * 2, row = r % 2 * 2;
      a[r] = pack_e4m3x2(p[block][row], p[block][row + 1]) |
             pack_e4m3x2(p[block + 1][row], p[block + 1][row + 1]) << 16;
    }
  }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    device::mma_e4m3(d, a, b0, b1);
  }
};

// P V with fp16 operands: 16 bytes of shared memory are 8 channels of a key.
struct PvFp16 {
  static constexpr PvType kType = PvType::kFp16;
  static constexpr int kElementBytes = 2;
  static constexpr int kKeysPerStep = 16;
  static constexpr float kPOffset = kSageMmaPOffsetFp16;
  static constexpr uint32_t kOnes = 0x3C003C00;

  static __device__ __forceinline__ void pack(uint32_t (&a)[4], const float (&p)[8][4], int step) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int block = 2 * step + r / 2, row = r % 2 * 2;
      a[r] = device::pack_f16x2(p[block][row], p[block][row + 1]);
    }
  }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    device::mma_f16(d, a, b0, b1);
  }
};

template <class Pv, int kHeadDim, int kHeadDimV>
struct SageMmaConfig {
  static constexpr int kTileQ = kSageMmaTileQ;
  static constexpr int kTileK = kSageMmaTileK;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kStages = 2;
  // As many as registers allow: O and the scores of a warp's 32 rows fill most of them.
  static constexpr int kCtasPerSm = kHeadDim == 64 && kHeadDimV == 64 ? 3 : 2;
  // Blocks of V's channels that the compiler may interleave: each has sums of its own in flight.
  static constexpr int kBlocksTogether = kCtasPerSm == 3 ? 2 : 4;
  static constexpr int kChannelBlocks = kHeadDimV / 8;
  static constexpr int kPvSteps = kTileK / Pv::kKeysPerStep;
  static constexpr int kQBytes = kTileQ * kHeadDim;
  static constexpr int kKBytes = kTileK * kHeadDim;
  static constexpr int kVBytes = kTileK * kHeadDimV * Pv::kElementBytes;
  static constexpr int kStageBytes = kKBytes + kVBytes;
  static constexpr int kSharedBytes = kQBytes + kStages * kStageBytes;
  static_assert(kHeadDim == 64 || kHeadDim == 128);
  static_assert(kHeadDimV == 64 || kHeadDimV == 128);
  static_assert(kTileQ == kWarps * 32, "each warp owns two m16 blocks");
  static_assert(kSharedBytes <= 99 * 1024, "the least of sm_80, sm_89, sm_90 and sm_120");
};

// Shared tiles exchange the 16-byte chunks of a row so that the same chunk of eight consecutive
// rows touches all 32 banks once: chunk c of a row is at chunk_zero ^ 16 c. Eight rows on, the
// exchange is the same. Tiles are aligned to the row size.
template <int kRowBytes>
__device__ __forceinline__ uint32_t chunk_zero(uint32_t tile, int row) {
  const int exchange = kRowBytes >= 128 ? row & 7 : (row >> 1) & 3;
  return tile + row * kRowBytes + exchange * 16;
}

// Starts the copy of rows [0, valid_rows) of a tile; the others become zero and are not read.
template <int kRows, int kRowBytes, int kThreads>
__device__ __forceinline__ void copy_tile_async(uint32_t tile, const uint8_t* source,
                                                int64_t row_stride, int valid_rows) {
  constexpr int kChunks = kRowBytes / 16, kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRowsAtOnce % 8 == 0 && kRows % kRowsAtOnce == 0);
  const int thread = device::thread_index_again();
  const int row = thread / kChunks, chunk = thread % kChunks;
  const uint32_t target = chunk_zero<kRowBytes>(tile, row) ^ (chunk * 16);
  source += row * row_stride + chunk * 16;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce) {
    device::cp_async_16(target + i * kRowBytes, source, i + row < valid_rows);
    source += kRowsAtOnce * row_stride;
  }
}

// What the calling thread owns of a C fragment: rows row, row + 8, row + 16, row + 24 of the CTA's,
// and of each block of 8 columns, columns column and column + 1. Made anew where it is needed.
struct Owned {
  int row, column;
  __device__ __forceinline__ Owned() {
    const int thread = device::thread_index_again();
    row = thread / 32 * 32 + thread % 32 / 4;
    column = thread % 4 * 2;
  }
};

// Derived on the host, so that the kernel finds it in constant memory.
struct SageMmaSizes {
  int group_size;                       // query heads of one KV head
  int64_t q_scale_rows, k_scale_rows;   // of one head
  int64_t q_row, k_row, v_row, v_tile;  // strides in bytes
};

// The CTA's rows and keys. It lives in shared memory, to be read where it is needed: registers are
// the scarce resource.
struct SageMmaWork {
  int head, kv_head, sequence;
  int q_len, kv_len;
  int64_t q_start, kv_start;         // packed rows
  int q_begin;                       // first query row, within the sequence
  int q_count;                       // <= 0: nothing to do
  int tiles, full_tiles;             // key tiles; the first ones need no mask
  int shift;                         // query row i sees keys [0, visible(i))
  const uint8_t *k_codes, *v_codes;  // of the first key
  const float* k_scales;             // of the first key block

  __device__ int visible(int row) const {
    return static_cast<int>(max(int64_t{0}, min(int64_t{kv_len}, int64_t{row} + shift)));
  }
};

template <class Pv, int kHeadDim, int kHeadDimV>
__device__ __forceinline__ SageMmaWork find_work(const AttentionParams& p,
                                                 const SageMmaSizes& sizes) {
  using C = SageMmaConfig<Pv, kHeadDim, kHeadDimV>;
  const int64_t tile = blockIdx.x;
  // The last sequence whose first query tile is at or before `tile`.
  int sequence = 0;
  for (int end = p.batch; end - sequence > 1;) {
    const int middle = sequence + (end - sequence) / 2;
    if (first_block(p.cu_seqlens_q[middle], middle, kSageMmaTileQ) <= tile) {
      sequence = middle;
    } else {
      end = middle;
    }
  }
  SageMmaWork w;
  w.head = static_cast<int>(blockIdx.y);
  w.kv_head = w.head / sizes.group_size;
  w.sequence = sequence;
  w.q_start = p.cu_seqlens_q[sequence];
  w.kv_start = p.cu_seqlens_kv[sequence];
  w.q_len = static_cast<int>(p.cu_seqlens_q[sequence + 1] - w.q_start);
  w.kv_len = static_cast<int>(p.cu_seqlens_kv[sequence + 1] - w.kv_start);
  const int ordinal = static_cast<int>(tile - first_block(w.q_start, sequence, kSageMmaTileQ));
  const int tiles = (w.q_len + kSageMmaTileQ - 1) / kSageMmaTileQ;
  // Under a causal mask the last tile has the most keys: it goes first.
  w.q_begin = (p.mask == Mask::kFull ? ordinal : tiles - 1 - ordinal) * kSageMmaTileQ;
  w.q_count = ordinal < tiles ? min(kSageMmaTileQ, w.q_len - w.q_begin) : 0;
  w.shift = p.mask == Mask::kFull            ? w.kv_len
            : p.mask == Mask::kCausalTopLeft ? 1
                                             : 1 + w.kv_len - w.q_len;
  w.tiles = (w.visible(w.q_begin + w.q_count - 1) + kSageMmaTileK - 1) / kSageMmaTileK;
  w.full_tiles = w.visible(w.q_begin) / kSageMmaTileK;

  const int64_t k_block = first_block(w.kv_start, sequence, C::kTileK);
  w.k_codes =
      reinterpret_cast<const uint8_t*>(p.k_codes) + w.kv_start * sizes.k_row + w.kv_head * kHeadDim;
  w.k_scales =
      p.k_scales + w.kv_head * sizes.k_scale_rows + k_block * p.layout.k_groups.groups_per_block;
  w.v_codes =
      static_cast<const uint8_t*>(p.v_codes) +
      (Pv::kType == PvType::kFp8E4m3 ? k_block * sizes.v_tile + w.kv_head * C::kVBytes
                                     : w.kv_start * sizes.v_row + w.kv_head * kHeadDimV * 2);
  return w;
}

// Integer scores, plus kScoreBias, of the warp's 32 rows (two m16 blocks) and the tile's 64 keys.
// q_lane and k_lane: the lane's ldmatrix addresses of the first 32 channels.
template <int kHeadDim>
__device__ __forceinline__ void multiply_qk(int (&scores)[2][8][4], uint32_t q_lane,
                                            uint32_t k_lane) {
#pragma unroll
  for (int i = 0; i < 64; ++i) scores[i / 32][i / 4 % 8][i % 4] = kScoreBias;
#pragma unroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    uint32_t q[2][4];
    device::ldmatrix_x4(q[0], q_lane ^ (step * 32));
    device::ldmatrix_x4(q[1], (q_lane ^ (step * 32)) + 16 * kHeadDim);
#pragma unroll
    for (int block = 0; block < 8; block += 2) {
      uint32_t k[4];
      device::ldmatrix_x4(k, (k_lane ^ (step * 32)) + block * 8 * kHeadDim);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        device::mma_s8(scores[m][block], q[m], k[0], k[1]);
        device::mma_s8(scores[m][block + 1], q[m], k[2], k[3]);
      }
    }
  }
}

// Row `half` of a lane's two in an m16 block; its columns are 8 block, 8 block + 1.
__device__ __forceinline__ void mask_row(int (&scores)[8][4], int half, int live_columns) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i / 2 * 8 + i % 2 >= live_columns) scores[i / 2][half * 2 + i % 2] = kMaskedScore;
  }
}
__device__ __forceinline__ int largest_of(const int (&scores)[8][4], int half) {
  int largest = kMaskedScore;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    largest = __vimax3_s32(largest, scores[block][half * 2], scores[block][half * 2 + 1]);
  }
  return largest;
}

// V of one block of 8 channels and all 64 keys, as B fragments: two registers per step. `v_lane` is
// chunk_zero of the lane's row of block 0: FP8 a channel, FP16 a key.
template <class Pv, int kHeadDimV>
__device__ __forceinline__ void load_v(uint32_t (&v)[4 * Pv::kElementBytes], uint32_t v_lane,
                                       int block) {
  uint32_t part[4];
  if constexpr (Pv::kType == PvType::kFp8E4m3) {
    device::ldmatrix_x4(part, v_lane + block * 8 * kSageMmaTileK);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = part[i];
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      device::ldmatrix_x4_transposed(part, (v_lane ^ (block * 16)) + half * 32 * kHeadDimV * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[half * 4 + i] = part[i];
    }
  }
}

template <class Pv, int kHeadDim, int kHeadDimV>
__global__ void __launch_bounds__(SageMmaConfig<Pv, kHeadDim, kHeadDimV>::kThreads,
                                  SageMmaConfig<Pv, kHeadDim, kHeadDimV>::kCtasPerSm)
    sage_mma_kernel(const __grid_constant__ AttentionParams p,
                    const __grid_constant__ SageMmaSizes sizes) {
#if __CUDA_ARCH__ >= 890
  constexpr bool kCompiled = true;
#else
  constexpr bool kCompiled = Pv::kType == PvType::kFp16;
#endif
  if constexpr (kCompiled) {
    using C = SageMmaConfig<Pv, kHeadDim, kHeadDimV>;

    extern __shared__ __align__(256) uint8_t shared[];
    __shared__ SageMmaWork work;
    if (threadIdx.x == 0) work = find_work<Pv, kHeadDim, kHeadDimV>(p, sizes);
    __syncthreads();
    if (work.q_count <= 0) return;
    const int tiles = work.tiles, full_tiles = work.full_tiles;

    // ---- copies --------------------------------------------------------------------------------
    const uint32_t q_tile = device::shared_address(shared);
    const uint32_t k_tile = q_tile + C::kQBytes, v_tile = k_tile + C::kKBytes;  // stage 0
    constexpr bool kFp8 = Pv::kType == PvType::kFp8E4m3;
    copy_tile_async<C::kTileQ, kHeadDim, C::kThreads>(
        q_tile,
        reinterpret_cast<const uint8_t*>(p.q_codes) + (work.q_start + work.q_begin) * sizes.q_row +
            work.head * kHeadDim,
        sizes.q_row, work.q_count);
    const auto load_tile = [&](int tile) {
      if (tile < tiles) {
        const uint32_t stage = tile % C::kStages * C::kStageBytes;
        const int keys = work.kv_len - tile * C::kTileK;
        copy_tile_async<C::kTileK, kHeadDim, C::kThreads>(
            k_tile + stage, work.k_codes + tile * (C::kTileK * sizes.k_row), sizes.k_row, keys);
        // FP8: tiles [head_dim_v][64]; FP16: rows of the packed tensor.
        copy_tile_async<kFp8 ? kHeadDimV : C::kTileK, kFp8 ? C::kTileK : kHeadDimV * 2,
                        C::kThreads>(v_tile + stage, work.v_codes + tile * sizes.v_tile,
                                     sizes.v_row, kFp8 ? kHeadDimV : keys);
      }
      device::cp_async_commit();
    };
#pragma unroll
    for (int tile = 0; tile < C::kStages - 1; ++tile) load_tile(tile);

    // ---- scales: every score that a lane owns in a tile shares one -----------------------------
    // A group without a live row or key has no scale in memory; 1 keeps masked scores at -inf.
    float q_scale = p.sm_scale * kLog2E;
    if (const int row = work.q_begin + Owned().row; row < work.q_len) {
      // Constants divide by shifts.
      ScaleGroups groups = p.layout.q_groups;
      const bool by_warp = groups.block_tokens == 32;
      groups.block_tokens = 32;
      const int64_t warp_scale = scale_row(groups, work.q_start, work.sequence, row);
      groups.block_tokens = C::kTileQ;
      const int64_t tile_scale = scale_row(groups, work.q_start, work.sequence, row);
      q_scale *= p.q_scales[work.head * sizes.q_scale_rows + (by_warp ? warp_scale : tile_scale)];
    }
    const auto load_k_scale = [&](int tile) {
      const int column = Owned().column;
      const ScaleGroups groups = p.layout.k_groups;
      return tile * C::kTileK + column < work.kv_len
                 ? __ldg(work.k_scales + static_cast<int64_t>(tile) * groups.groups_per_block +
                         group_in_block(groups.pattern, column))
                 : 1.0f;
    };

    // ---- the loop over keys ---------------------------------------------------------------------
    float o[2][C::kChannelBlocks][4] = {};
    float row_max[2][2], row_sum[2][2] = {};
#pragma unroll
    for (int m = 0; m < 2; ++m) row_max[m][0] = row_max[m][1] = -INFINITY;

#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      device::cp_async_wait<C::kStages - 2>();
      __syncthreads();  // this tile has landed for all, and all are done with the previous one
      load_tile(tile + C::kStages - 1);
      const uint32_t stage = tile % C::kStages * C::kStageBytes;
      const float scale = q_scale * load_k_scale(tile);
      // The lane's ldmatrix addresses.
      const int thread = device::thread_index_again(), lane = thread % 32;
      const uint32_t q_lane =
          chunk_zero<kHeadDim>(q_tile, thread / 32 * 32 + lane % 16) ^ (lane / 16 * 16);
      const uint32_t k_lane =
          chunk_zero<kHeadDim>(k_tile + stage, lane % 8 + lane / 16 * 8) ^ (lane / 8 % 2 * 16);
      const uint32_t v_lane =
          kFp8 ? chunk_zero<C::kTileK>(v_tile + stage, lane % 8) ^ (lane / 8 * 16)
               : chunk_zero<kHeadDimV * 2>(v_tile + stage, lane);

      int scores[2][8][4];
      multiply_qk<kHeadDim>(scores, q_lane, k_lane);

      // Mask, running maximum, P.
      float rescale[2][2];
      uint32_t probabilities[2][C::kPvSteps][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float exponent_bias[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (tile >= full_tiles) {
            const Owned owned;
            const int row = work.q_begin + owned.row + m * 16 + half * 8;
            mask_row(scores[m], half, work.visible(row) - tile * C::kTileK - owned.column);
          }
          float tile_max = (__int_as_float(largest_of(scores[m], half)) - kScoreBiasFloat) * scale;
          tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffff, tile_max, 1));
          tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffff, tile_max, 2));
          const float before = row_max[m][half];
          const float now = fmaxf(before, tile_max);
          const float reference = now == -INFINITY ? 0.0f : now;  // no key yet: P is 0, not NaN
          row_max[m][half] = now;
          rescale[m][half] = device::exp2_approx(before - reference);
          exponent_bias[half] = Pv::kPOffset - reference;
        }
        float weights[8][4];
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const float score = __int_as_float(scores[m][i / 4][i % 4]) - kScoreBiasFloat;
          weights[i / 4][i % 4] = device::exp2_approx(fmaf(score, scale, exponent_bias[i % 4 / 2]));
        }
#pragma unroll
        for (int step = 0; step < C::kPvSteps; ++step) {
          Pv::pack(probabilities[m][step], weights, step);
        }
      }

      // The row sum is a product with a column of ones: it adds the rounded P, as O does.
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float sum[4] = {};
#pragma unroll
        for (int step = 0; step < C::kPvSteps; ++step) {
          Pv::mma(sum, probabilities[m][step], Pv::kOnes, Pv::kOnes);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          row_sum[m][half] = fmaf(row_sum[m][half], rescale[m][half], sum[half * 2]);
        }
      }
#pragma unroll
      for (int block = 0; block < C::kChannelBlocks; ++block) {
        // V's padding is skipped; and the branch keeps the compiler from interleaving more blocks
        // than it has registers for.
        if (block % C::kBlocksTogether == 0 && block * 8 >= p.head_dim_v) break;
        uint32_t v[4 * Pv::kElementBytes];
        load_v<Pv, kHeadDimV>(v, v_lane, block);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          float fresh[4] = {};
#pragma unroll
          for (int step = 0; step < C::kPvSteps; ++step) {
            Pv::mma(fresh, probabilities[m][step], v[2 * step], v[2 * step + 1]);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            o[m][block][i] = fmaf(o[m][block][i], rescale[m][i / 2], fresh[i]);
          }
        }
      }
    }

    // ---- O and LSE -----------------------------------------------------------------------------
    // A live key has P = 2^p_offset at its row's maximum, so a sum of 0 is an empty key set.
    const Owned owned;
    const int64_t first_row = work.q_start + work.q_begin + owned.row;
    const int live_rows = work.q_count - owned.row;  // of the rows 8 i, i = 0 .. 3
    float normalise[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float sum = row_sum[i / 2][i % 2];
      normalise[i] = sum == 0.0f ? 0.0f : device::reciprocal_approx(sum);
      if (p.lse != nullptr && owned.column == 0 && 8 * i < live_rows) {
        const int64_t row = work.head * p.total_q + first_row + 8 * i;
        float lse = (row_max[i / 2][i % 2] - Pv::kPOffset + log2f(sum)) * kLn2;
        if (p.lse_dot != nullptr && sum != 0.0f) lse = fmaf(p.sm_scale, p.lse_dot[row], lse);
        p.lse[row] = lse;  // -inf for an empty key set: both terms are
      }
    }
    // Two channels in one store where every pair is whole and aligned.
    const bool pairs = ((p.o_token_stride | p.o_head_stride | p.head_dim_v) & 1) == 0 &&
                       (reinterpret_cast<uintptr_t>(p.o) & 3) == 0;
    const int64_t v_row =
        (static_cast<int64_t>(work.sequence) * p.num_kv_heads + work.kv_head) * kHeadDimV;
    uint16_t* const out =
        static_cast<uint16_t*>(p.o) + first_row * p.o_token_stride + work.head * p.o_head_stride;
#pragma unroll
    for (int block = 0; block < C::kChannelBlocks; ++block) {
      const int channel = block * 8 + owned.column;
      if (channel >= p.head_dim_v) break;
      float scale[2], offset[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        scale[e] = p.v_scales[v_row + channel + e];
        offset[e] = p.v_offset == nullptr ? 0.0f : p.v_offset[v_row + channel + e];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * i >= live_rows) break;
        float value[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          value[e] = row_sum[i / 2][i % 2] == 0.0f
                         ? 0.0f
                         : fmaf(o[i / 2][block][i % 2 * 2 + e] * normalise[i], scale[e], offset[e]);
        }
        const uint32_t bits = p.o_dtype == DType::kBf16 ? device::pack_bf16x2(value[0], value[1])
                                                        : device::pack_f16x2(value[0], value[1]);
        uint16_t* const target = out + 8 * i * p.o_token_stride + channel;
        if (pairs) {
          *reinterpret_cast<uint32_t*>(target) = bits;
        } else {
          target[0] = static_cast<uint16_t>(bits);
          if (channel + 1 < p.head_dim_v) target[1] = static_cast<uint16_t>(bits >> 16);
        }
      }
    }
  }
}

template <class Pv, int kHeadDim, int kHeadDimV>
Status launch_sage_mma_dims(const AttentionParams& params, Stream stream) {
  using C = SageMmaConfig<Pv, kHeadDim, kHeadDimV>;
  const auto kernel = sage_mma_kernel<Pv, kHeadDim, kHeadDimV>;
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (error == cudaSuccess) {
    const dim3 grid(static_cast<unsigned>(block_count(params.total_q, params.batch, C::kTileQ)),
                    static_cast<unsigned>(params.num_qo_heads));
    const int64_t kv_heads = params.num_kv_heads;
    SageMmaSizes sizes;
    sizes.group_size = params.num_qo_heads / params.num_kv_heads;
    sizes.q_scale_rows = scale_rows(params.layout.q_groups, params.total_q, params.batch);
    sizes.k_scale_rows = scale_rows(params.layout.k_groups, params.total_kv, params.batch);
    sizes.q_row = static_cast<int64_t>(params.num_qo_heads) * kHeadDim;
    sizes.k_row = kv_heads * kHeadDim;
    sizes.v_row = Pv::kType == PvType::kFp8E4m3 ? C::kTileK : kv_heads * kHeadDimV * 2;
    sizes.v_tile = kv_heads * C::kVBytes;
    kernel<<<grid, C::kThreads, C::kSharedBytes, stream>>>(params, sizes);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) return {StatusCode::kCudaError, cudaGetErrorString(error)};
  return {};
}

template <class Pv>
Status launch_sage_mma(const AttentionParams& params, Stream stream) {
  if (const Status status = check_sage_mma(Pv::kType, params); !status.ok()) return status;
  if (params.batch == 0 || params.total_q == 0) return {};
  const AttentionLayout& l = params.layout;
  if (l.head_dim == 64) {
    return l.head_dim_v == 64 ? launch_sage_mma_dims<Pv, 64, 64>(params, stream)
                              : launch_sage_mma_dims<Pv, 64, 128>(params, stream);
  }
  return l.head_dim_v == 64 ? launch_sage_mma_dims<Pv, 128, 64>(params, stream)
                            : launch_sage_mma_dims<Pv, 128, 128>(params, stream);
}

}  // namespace sage
