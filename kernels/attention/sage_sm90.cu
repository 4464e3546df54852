// SageAttention forward for Hopper: INT8 Q K^T, FP8 P V, one launch for a batch of sequences.
//
// Grid: one persistent CTA per SM. It takes items (sequence, query head, tile of query rows) from a
// list, longest sequences first. Warpgroup 0 only loads: one warp streams Q, and K and V in stages
// of 128 keys. Every other warpgroup owns 64 query rows and walks the keys in halves of 64:
//
//   S(h + 1) = Q K^T -> P(h + 1), codes straight from the integer scores, while O += P(h) V runs
//
// Eight rows of ones below V make the tensor core sum P as it sums P V. Both sums are promoted to
// fp32 every kPromoteKeys keys. The rules that fix the numbers are in AttentionLayout.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "attention/sage_sm90.h"
#include "attention/sage_sm90_tiles.h"
#include "device/tma.cuh"
#include "device/wgmma.cuh"

namespace sage {
namespace {

using namespace device;

constexpr float kLn2 = 0.6931471805599453f;
constexpr int kUnbounded = 1 << 29;  // causal shift of a full mask

// The list of items, made on the device from the lengths.
struct Plan {
  int next;   // item that the next free CTA takes
  int items;  // in all
  int64_t pad;
};
__device__ __host__ inline int* plan_order(Plan* plan) {
  return reinterpret_cast<int*>(plan + 1);
}

struct Args {
  CUtensorMap q_map, k_map, v_map;
  AttentionParams params;
  Plan* plan;
  float log2_scale;  // sm_scale * 8 * log2(e): codes per unit of a real score
  int64_t q_scale_rows, k_scale_rows;
};

// What a CTA works on.
struct Item {
  int q_row;              // packed row of the tile's first query
  int rows;               // live query rows
  int keys_of_first_row;  // row i of the tile sees min(kv_len, that + i) keys
  int kv_start;           // packed row of the sequence's first key
  int kv_len;
  int kv_block;  // of its first tile of V
  int kv_tiles;  // -1: no more items
  int head, kv_head;
};

template <class C>
struct alignas(1024) Shared {
  struct Stage {
    int8_t k[kTileKeys * C::kHeadDim];
    uint8_t v[(C::kHeadDimV + 8) * kTileKeys];  // the last eight rows are ones
  } stage[C::kStages];
  int8_t q[C::kRows * C::kHeadDim];
  float4 master[C::kSharedMaster ? C::kHeadDimV / 8 : 1][C::kSharedMaster ? C::kGroups * 128 : 1];
  float k_scale[C::kStages][4];
  float q_scale[C::kRows / 2];
  float v_scale[2][C::kHeadDimV];
  float v_offset[2][C::kHeadDimV];
  Item item[2];  // two slots, as of v_scale: the next is filled while one is worked on
  uint64_t full[C::kStages], empty[C::kStages], item_full, item_empty;
};

// Scores arrive as integers added to kMagic, the bits of a float, so that they are floats without a
// conversion. Linear codes: the result of the multiply-add is a denormal, whose bits are the
// rounded code. Both: `unit` in codes (eighths of an octave) per score.
template <PMode kMode>
struct Scores;

template <>
struct Scores<PMode::kLinear> {
  static constexpr int32_t kMagic = 0x0DC00000;  // 1.5 * 2^-100: one integer step is 2^-123
  static constexpr float kUnit = 1.0f / (1 << 26);
  // Rounded to 22 fraction bits, so that 1.5 * 2^23 * unit is an integer. At least one step: a
  // masked score must stay below every other.
  static __device__ float unit(float q_unit, float k_scale) {
    return fmaxf(__fmaf_rn(q_unit, k_scale, 3.0f * kUnit) - 3.0f * kUnit, kUnit / (1 << 22));
  }
  static __device__ float constant(float unit, float reference) {
    return __fmaf_rn(-__int_as_float(kMagic), unit, reference * -__int_as_float(8));
  }
  static __device__ float at(int32_t score, float unit, float constant) {
    return __fmaf_rn(__int_as_float(score), unit, constant);
  }
  static __device__ float code(float x) { return x * 0x1p100f * 0x1p49f; }
  static __device__ float shifted(float x, float octaves) {
    return __fadd_rn(x, octaves * __int_as_float(8));
  }
  static __device__ bool above(int32_t x, int code) { return x > code; }
  static __device__ bool below(int32_t x, int code) { return x < code; }
  static __device__ uint32_t pack(int32_t x0, int32_t x1, int32_t x2, int32_t x3) {
    uint32_t packed;
    asm("{\n.reg .b32 t;\n"
        "cvt.pack.sat.u8.s32.b32 t, %4, %3, 0;\n"
        "cvt.pack.sat.u8.s32.b32 %0, %2, %1, t;\n}\n"
        : "=r"(packed)
        : "r"(x0), "r"(x1), "r"(x2), "r"(x3));
    return packed;
  }
};

template <>
struct Scores<PMode::kExp2> {
  static constexpr int32_t kMagic = 0x4B400000;  // 1.5 * 2^23
  static constexpr float kUnit = 0.125f;
  static __device__ float unit(float q_unit, float k_scale) {
    return fmaxf(__fmul_rn(q_unit, k_scale), 0x1p-60f);
  }
  static __device__ float constant(float unit, float reference) {
    return __fmaf_rn(-__int_as_float(kMagic), unit, -7.0f - reference);
  }
  static __device__ float at(int32_t score, float unit, float constant) {
    return __fmaf_rn(__int_as_float(score), unit, constant);
  }
  static __device__ float code(float x) { return 8.0f * (x + 7.0f); }
  static __device__ float shifted(float x, float octaves) { return x + octaves; }
  static __device__ bool above(int32_t x, int code) {
    return __int_as_float(x) > 0.125f * code - 7.0f;
  }
  static __device__ bool below(int32_t x, int code) {
    return __int_as_float(x) < 0.125f * code - 7.0f;
  }
  static __device__ float exp2(int32_t x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(__int_as_float(x)));
    return y;
  }
  static __device__ uint32_t pack(int32_t x0, int32_t x1, int32_t x2, int32_t x3) {
    uint32_t packed;
    asm("{\n.reg .b16 lo, hi;\n"
        "cvt.rn.satfinite.e4m3x2.f32 lo, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3;\n"
        "mov.b32 %0, {lo, hi};\n}\n"
        : "=r"(packed)
        : "f"(exp2(x0)), "f"(exp2(x1)), "f"(exp2(x2)), "f"(exp2(x3)));
    return packed;
  }
};
constexpr int32_t kMasked = static_cast<int32_t>(0xFF000000u);  // -2^127
constexpr float kUnseen = -1e15f;                               // code of a row without keys

// One query row's reference R, in octaves: P = 2^(score - R - 7).
struct Reference {
  float now;
  float highest;

  // Lands `lead`, the row's largest code at R = 0, at or just below kReferenceTop.
  __device__ void start(float lead) {
    now = highest = lead > kUnseen ? ceilf((lead - kReferenceTop) * 0.125f) : 0.0f;
  }
  // The same if the row's largest code is out of range. Returns the octaves to add to codes and
  // sums made before.
  __device__ float move(float lead) {
    const float before = now;
    if (lead > kUnseen && (lead > kMaxCode || lead < kReferenceLow)) {
      now = fmaxf(now + ceilf((lead - kReferenceTop) * 0.125f), highest - kReferenceSpan);
      highest = fmaxf(highest, now);
    }
    return before - now;
  }
};
__device__ inline float two_to(float octaves) {
  return exp2f(fminf(fmaxf(octaves, -126.0f), 126.0f));
}

// Tells the compiler that a value is the same in the whole warp, so that loops and addresses that
// follow from it take uniform registers.
__device__ inline int uniform(int x) {
  return __shfl_sync(~0u, x, 0);
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// Heads whose K and V of this sequence should stay in L2 together.
__device__ inline int heads_together(int kv_len, int head_bytes, int num_kv_heads) {
  const int64_t bytes = static_cast<int64_t>(max(kv_len, 1)) * head_bytes;
  return static_cast<int>(min(max(kL2Bytes / bytes, int64_t{1}), int64_t{num_kv_heads}));
}

// Longest sequences first; equal ones in their own order. One CTA.
__global__ void plan_kernel(AttentionParams p, int tile_rows, int first_free, Plan* plan) {
  launch_dependents();
  int* order = plan_order(plan);
  int* end = order + p.batch;
  for (int i = threadIdx.x; i < p.batch; i += blockDim.x) {
    const int length = p.cu_seqlens_kv[i + 1] - p.cu_seqlens_kv[i];
    int rank = 0, items = 0;
    for (int j = 0; j < p.batch; ++j) {
      const int other = p.cu_seqlens_kv[j + 1] - p.cu_seqlens_kv[j];
      const int tiles = (p.cu_seqlens_q[j + 1] - p.cu_seqlens_q[j] + tile_rows - 1) / tile_rows;
      const bool before = other > length || (other == length && j < i);
      rank += before;
      items += before || j == i ? tiles * p.num_qo_heads : 0;
    }
    order[rank] = i;
    end[rank] = items;
    if (rank == p.batch - 1) plan->items = items;
  }
  if (threadIdx.x == 0) plan->next = first_free;
}

// The sequence that holds an item: the first whose items end after it.
__device__ inline int find_sequence(const int* end, int batch, int index) {
  int low = 0;
  for (int high = batch - 1; low < high;) {
    const int middle = (low + high) / 2;
    if (end[middle] > index) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// One warp: takes items, says what they are, and loads what is loaded once per item.
template <class C>
__device__ void produce_items(Shared<C>& shared, const Args& args) {
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  wait_for_prerequisites();
  const int* order = plan_order(args.plan);
  const int items = args.plan->items;
  int index = blockIdx.x;
  for (uint32_t turn = 0;; ++turn) {
    const int slot = turn & 1;
    barrier_wait(&shared.item_empty, slot ^ 1);
    if (index >= items) {
      if (lane == 0) {
        shared.item[slot].kv_tiles = -1;
        barrier_arrive_expect(&shared.item_full, 0);
      }
      barrier_arrive_after_copies(&shared.item_full);
      return;
    }
    int claimed = 0;
    if (lane == 0) claimed = atomicAdd(&args.plan->next, 1);
    const int* end = order + p.batch;
    const int rank = find_sequence(end, p.batch, index);
    const int sequence = order[rank];
    int rest = index - (rank ? end[rank - 1] : 0);
    const int q_start = p.cu_seqlens_q[sequence];
    const int q_len = p.cu_seqlens_q[sequence + 1] - q_start;
    const int kv_start = p.cu_seqlens_kv[sequence];
    const int kv_len = p.cu_seqlens_kv[sequence + 1] - kv_start;

    const int tiles = (q_len + C::kRows - 1) / C::kRows;
    const int group_size = p.num_qo_heads / p.num_kv_heads;
    const int section_heads =
        group_size * heads_together(kv_len, C::kHeadDim + C::kHeadDimV, p.num_kv_heads);
    const int section = rest / (tiles * section_heads);
    rest -= section * tiles * section_heads;
    const int heads_here = min(section_heads, p.num_qo_heads - section * section_heads);
    const int tile = rest / heads_here;
    const int head = section * section_heads + rest - tile * heads_here;
    const int kv_head = head / group_size;
    const int tile_row = (tiles - 1 - tile) * C::kRows;  // causal: the longest first
    const int rows = min(C::kRows, q_len - tile_row);
    if (lane == 0) {
      const int shift = p.mask == Mask::kFull                ? kUnbounded
                        : p.mask == Mask::kCausalBottomRight ? kv_len - q_len
                                                             : 0;
      const int keys = max(0, min(kv_len, tile_row + shift + rows));
      Item& item = shared.item[slot];
      item.q_row = q_start + tile_row;
      item.rows = rows;
      item.keys_of_first_row = tile_row + shift + 1;
      item.kv_start = kv_start;
      item.kv_len = kv_len;
      item.kv_block = static_cast<int>(first_block(kv_start, sequence, kTileKeys));
      item.kv_tiles = (keys + kTileKeys - 1) / kTileKeys;
      item.head = head;
      item.kv_head = kv_head;
      barrier_arrive_expect(&shared.item_full, C::kRows * C::kHeadDim);
      tma_load_3d(shared.q, args.q_map, &shared.item_full, 0, head, q_start + tile_row);
    }
    const int q_groups = p.layout.q_groups.groups_per_block;
    const int64_t q_block = first_block(q_start, sequence, kQueryBlock) + tile_row / kQueryBlock;
    const float* q_scales = p.q_scales + head * args.q_scale_rows + q_block * q_groups;
    for (int i = lane; i < C::kRows / kQueryBlock * q_groups; i += 32) {
      copy_float_async(&shared.q_scale[i], q_scales + i, i / q_groups * kQueryBlock < rows);
    }
    const int64_t channels =
        (static_cast<int64_t>(sequence) * p.num_kv_heads + kv_head) * C::kHeadDimV;
    for (int i = lane; i < C::kHeadDimV; i += 32) {
      copy_float_async(&shared.v_scale[slot][i], p.v_scales + channels + i, kv_len > 0);
      copy_float_async(&shared.v_offset[slot][i], p.v_offset + channels + i,
                       kv_len > 0 && p.v_offset);
    }
    barrier_arrive_after_copies(&shared.item_full);
    index = __shfl_sync(~0u, claimed, 0);
  }
}

// Another warp: streams the K and V of the items.
template <class C>
__device__ void produce_tiles(Shared<C>& shared, const Args& args) {
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  const int k_groups = p.layout.k_groups.groups_per_block;
  uint32_t phases = 0;
  for (uint32_t turn = 0;; ++turn) {
    barrier_wait(&shared.item_full, turn & 1);
    const Item item = shared.item[turn & 1];
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.item_empty);
    if (item.kv_tiles < 0) return;
    const float* k_scales = p.k_scales + item.kv_head * args.k_scale_rows +
                            int64_t{item.kv_block} * k_groups + (k_groups == 4 ? lane : 0);
    for (int t = 0, s = 0; t < item.kv_tiles; ++t, s = s + 1 == C::kStages ? 0 : s + 1) {
      barrier_wait(&shared.empty[s], ((phases >> s) & 1) ^ 1);
      phases ^= 1u << s;
      if (lane < 4) {
        copy_float_async(&shared.k_scale[s][lane], k_scales + int64_t{t} * k_groups, true);
        barrier_arrive_after_copies(&shared.full[s]);
      }
      if (lane == 0) {
        barrier_arrive_expect(&shared.full[s], kTileKeys * (C::kHeadDim + C::kHeadDimV));
        tma_load_3d(shared.stage[s].k, args.k_map, &shared.full[s], 0, item.kv_head,
                    item.kv_start + t * kTileKeys);
        tma_load_3d(shared.stage[s].v, args.v_map, &shared.full[s], 0, 0,
                    (item.kv_block + t) * p.num_kv_heads + item.kv_head);
      }
    }
  }
}

// The compiler would move these below the products that overwrite their operands, and then copy all
// accumulators: volatile statements on the same registers stay where they are.
__device__ inline void clear_in_place(float& x) {
  asm volatile("mov.f32 %0, 0f00000000;\n" : "=f"(x));
}
__device__ inline void add_in_place(float& x, float y) {
  asm volatile("add.f32 %0, %0, %1;\n" : "+f"(x) : "f"(y));
}
__device__ inline void scale_in_place(float& x, float y) {
  asm volatile("mul.f32 %0, %0, %1;\n" : "+f"(x) : "f"(y));
}
// x = (x + y * take) * factor
__device__ inline void take_in_place(float& x, float y, float take, float factor) {
  asm volatile("fma.rn.f32 %0, %1, %2, %0;\nmul.f32 %0, %0, %3;\n"
               : "+f"(x)
               : "f"(y), "f"(take), "f"(factor));
}

// fp32 copy of O and of the row sums.
template <class C>
struct Master {
  static constexpr int kOutputs = C::kHeadDimV / 2;
  float o[C::kSharedMaster ? 1 : kOutputs];
  float sum[2];
  float4* slot;  // kSharedMaster: this thread's, C::kGroups * 128 apart

  __device__ void clear() {
    clear_in_place(sum[0]);
    clear_in_place(sum[1]);
    if constexpr (C::kSharedMaster) {
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) slot[i * C::kGroups * 128] = {};
    } else {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) clear_in_place(o[i]);
    }
  }
  __device__ void add(const float (&part)[kOutputs + 4]) {
    add_in_place(sum[0], part[kOutputs]);
    add_in_place(sum[1], part[kOutputs + 2]);
    if constexpr (C::kSharedMaster) {
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) {
        float4 x = slot[i * C::kGroups * 128];
        add_in_place(x.x, part[4 * i]);
        add_in_place(x.y, part[4 * i + 1]);
        add_in_place(x.z, part[4 * i + 2]);
        add_in_place(x.w, part[4 * i + 3]);
        slot[i * C::kGroups * 128] = x;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) add_in_place(o[i], part[i]);
    }
  }
  // A row whose factor is not 1 takes what was summed in `part` since the last promotion, and
  // scales.
  __device__ void rebase(float (&part)[kOutputs + 4], float factor0, float factor1) {
    const float factor[2] = {factor0, factor1};
    const float keep[2] = {factor[0] == 1.0f ? 1.0f : 0.0f, factor[1] == 1.0f ? 1.0f : 0.0f};
    const float take[2] = {1.0f - keep[0], 1.0f - keep[1]};
    take_in_place(sum[0], part[kOutputs], take[0], factor[0]);
    take_in_place(sum[1], part[kOutputs + 2], take[1], factor[1]);
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) {
      if constexpr (C::kSharedMaster) {
        float4 x = slot[i * C::kGroups * 128];
        take_in_place(x.x, part[4 * i], take[0], factor[0]);
        take_in_place(x.y, part[4 * i + 1], take[0], factor[0]);
        take_in_place(x.z, part[4 * i + 2], take[1], factor[1]);
        take_in_place(x.w, part[4 * i + 3], take[1], factor[1]);
        slot[i * C::kGroups * 128] = x;
      } else {
        take_in_place(o[4 * i], part[4 * i], take[0], factor[0]);
        take_in_place(o[4 * i + 1], part[4 * i + 1], take[0], factor[0]);
        take_in_place(o[4 * i + 2], part[4 * i + 2], take[1], factor[1]);
        take_in_place(o[4 * i + 3], part[4 * i + 3], take[1], factor[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < kOutputs + 4; ++i) scale_in_place(part[i], keep[i / 2 % 2]);
  }
  __device__ float at(int i) const {
    if constexpr (C::kSharedMaster) {
      return reinterpret_cast<const float*>(&slot[i / 4 * C::kGroups * 128])[i % 4];
    } else {
      return o[i];
    }
  }
};

// words[k] of lane t becomes words[t] of lane k, in every group of four lanes.
__device__ inline void quad_transpose(uint32_t (&w)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k & bit) continue;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? w[k] : w[k + bit], bit);
      (upper ? w[k] : w[k + bit]) = got;
    }
  }
}

__device__ inline uint32_t pack_output(DType type, float x, float y) {
  if (type == DType::kBf16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const uint32_t&>(both);
  }
  const __half2 both = __floats2half2_rn(x, y);
  return reinterpret_cast<const uint32_t&>(both);
}

template <class C>
__device__ void write_output(const Args& args, const Item& item, const Shared<C>& shared, int slot,
                             int row, const Master<C>& master, const Reference (&reference)[2]) {
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  const bool seen[2] = {master.sum[0] > 0.0f, master.sum[1] > 0.0f};
  const float inverse[2] = {seen[0] ? 1.0f / master.sum[0] : 0.0f,
                            seen[1] ? 1.0f / master.sum[1] : 0.0f};
  char* out = static_cast<char*>(p.o) + 2 * (int64_t{item.q_row + row} * p.o_token_stride +
                                             item.head * p.o_head_stride + lane % 4 * 8);
#pragma unroll
  for (int block = 0; block < C::kHeadDimV / 32; ++block) {
    uint32_t words[2][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = block * 4 + k;
      const int channel = i * 8 + lane % 4 * 2;
      const float2 scale = *reinterpret_cast<const float2*>(&shared.v_scale[slot][channel]);
      const float2 offset = *reinterpret_cast<const float2*>(&shared.v_offset[slot][channel]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        words[r][k] = pack_output(
            p.o_dtype,
            __fmaf_rn(master.at(4 * i + 2 * r) * inverse[r], scale.x, seen[r] ? offset.x : 0.0f),
            __fmaf_rn(master.at(4 * i + 2 * r + 1) * inverse[r], scale.y,
                      seen[r] ? offset.y : 0.0f));
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      quad_transpose(words[r], lane);
      if (row + 8 * r < item.rows && block * 32 + lane % 4 * 8 < p.head_dim_v) {
        *reinterpret_cast<uint4*>(out + 2 * (8 * r * p.o_token_stride + block * 32)) =
            make_uint4(words[r][0], words[r][1], words[r][2], words[r][3]);
      }
    }
  }
  if (p.lse == nullptr || lane % 4 != 0) return;
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= item.rows) continue;
    const int64_t at = item.head * p.total_q + item.q_row + row + 8 * r;
    const float bias = C::kMode == PMode::kLinear ? kLinearSumBias : 0.0f;
    const float smooth = p.lse_dot ? p.sm_scale * p.lse_dot[at] : 0.0f;
    p.lse[at] = seen[r] ? logf(master.sum[r]) + kLn2 * (reference[r].now + 7.0f) - bias + smooth
                        : -INFINITY;
  }
}

template <class C>
__device__ void consume(Shared<C>& shared, const Args& args) {
  using S = Scores<C::kMode>;
  constexpr int kSteps = C::kHeadDim / 32;
  constexpr int kOutputs = C::kHeadDimV / 2;
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  const int group_row = (threadIdx.x / 128 - 1) * 64;
  const int row = group_row + threadIdx.x / 32 % 4 * 16 + lane / 4;  // and row + 8
  const int q_scale_at = row / 16 * p.layout.q_groups.groups_per_block +
                         group_in_block(p.layout.q_groups.pattern, row % 16);
  Master<C> master;
  if constexpr (C::kSharedMaster) master.slot = &shared.master[0][threadIdx.x - 128];
  uint32_t phases = 0;

  const uint32_t stages_at = wgmma_address(shared_address(shared.stage[0].k));
  constexpr int kStageStep = sizeof(typename Shared<C>::Stage) / 16;

  for (uint32_t turn = 0;; ++turn) {
    barrier_wait(&shared.item_full, turn & 1);
    const Item& item = shared.item[turn & 1];
    const int kv_tiles = uniform(item.kv_tiles);
    if (kv_tiles < 0) return;
    uint32_t q[kSteps][4];
#pragma unroll
    for (int i = 0; i < kSteps * 4; ++i) {
      const int r = row + i % 2 * 8;
      const int chunk = i / 4 * 2 + i / 2 % 2;
      const int swizzled = C::kHeadDim == 128 ? chunk ^ (r & 7) : chunk ^ (r / 2 & 3);
      q[i / 4][i % 4] = *reinterpret_cast<const uint32_t*>(
          &shared.q[r * C::kHeadDim + swizzled * 16 + lane % 4 * 4]);
    }
    const float q_unit = __fmul_rn(shared.q_scale[q_scale_at], args.log2_scale) * S::kUnit;
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.item_empty);

    const int last_row = min(group_row + 63, item.rows - 1);
    const int keys =
        last_row < group_row ? 0 : max(0, min(item.kv_len, item.keys_of_first_row + last_row));
    const int keys_unmasked = uniform(min(item.kv_len, item.keys_of_first_row + group_row));
    const int halves = uniform((keys + 63) / 64);
    const int limit[2] = {min(item.kv_len, item.keys_of_first_row + row),
                          min(item.kv_len, item.keys_of_first_row + row + 8)};
    Reference reference[2] = {};
    if (halves == 0) master.clear();

    if (halves > 0) {
      int32_t scores[32];
      uint32_t codes[2][2][4];  // of the even and the odd halves
      float part[kOutputs + 4];
      float unit = 0.0f, constant[2] = {}, k_scale = 0.0f;

      auto start_scores = [&](uint32_t keys_at) {
#pragma unroll
        for (int i = 0; i < 32; ++i) scores[i] = S::kMagic;
        wgmma_qk(scores, q, keys_at);
      };
      // S of the next half, and P V of the half whose codes are ready.
      auto start = [&](uint32_t keys_at, const uint32_t(&ready)[2][4], uint32_t values_at,
                       bool promote) {
        start_scores(keys_at);
        if (promote) master.add(part);
        wgmma_pv(part, ready, values_at, !promote);
      };
      auto stage_ready = [&](int s) { return barrier_test(&shared.full[s], (phases >> s) & 1); };
      auto take_stage = [&](int s, bool ready) {
        if (!ready) barrier_wait(&shared.full[s], (phases >> s) & 1);
        phases ^= 1u << s;
        k_scale = shared.k_scale[s][lane % 4];
      };
      auto release_stage = [&](int s) {
        if (lane == 0) barrier_arrive(&shared.empty[s]);
      };
      auto new_scales = [&] {
        unit = S::unit(q_unit, k_scale);
        constant[0] = S::constant(unit, reference[0].now);
        constant[1] = S::constant(unit, reference[1].now);
      };
      auto mask = [&](int half) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const int key = half * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2;
          if (key >= limit[i / 2 % 2]) scores[i] = kMasked;
        }
      };
      auto pack = [&](uint32_t(&out)[2][4]) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int32_t* x = &scores[i / 2 * 8 + i % 2 * 2];
          out[i / 4][i % 4] = S::pack(x[0], x[1], x[4], x[5]);
        }
      };
      auto to_codes = [&] {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          scores[i] = __float_as_int(S::at(scores[i], unit, constant[i / 2 % 2]));
        }
      };
      auto largest = [&](int r) {
        const int32_t* x = &scores[2 * r];
        int32_t most = __vimax3_s32(x[0], x[1], x[4]), other = __vimax3_s32(x[5], x[8], x[9]);
        most = __vimax3_s32(most, x[12], x[13]), other = __vimax3_s32(other, x[16], x[17]);
        most = __vimax3_s32(most, x[20], x[21]), other = __vimax3_s32(other, x[24], x[25]);
        return max(__vimax3_s32(most, x[28], x[29]), other);
      };
      // Scores become codes in place. A reference moves by whole octaves, so that codes made with
      // the old one are put right by an addition.
      auto make_codes = [&](uint32_t(&out)[2][4]) {
        to_codes();
        pack(out);
        const int32_t most[2] = {largest(0), largest(1)};
        if (!__any_sync(~0u, S::above(most[0], kMaxCode) || S::above(most[1], kMaxCode) ||
                                 S::below(most[0], kReferenceLow) ||
                                 S::below(most[1], kReferenceLow))) {
          return;
        }
        float shift[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float lead = __int_as_float(scores[2 * r]);
#pragma unroll
          for (int i = 1; i < 16; ++i) {
            lead = fmaxf(lead, __int_as_float(scores[i / 2 * 4 + 2 * r + i % 2]));
          }
          shift[r] = reference[r].move(quad_max(S::code(lead)));
        }
        if (!__any_sync(~0u, shift[0] != 0.0f || shift[1] != 0.0f)) return;
        wgmma_wait<0>(part);
        master.rebase(part, two_to(shift[0]), two_to(shift[1]));
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          scores[i] = __float_as_int(S::shifted(__int_as_float(scores[i]), shift[i / 2 % 2]));
        }
        constant[0] = S::constant(unit, reference[0].now);
        constant[1] = S::constant(unit, reference[1].now);
        pack(out);
      };
      constexpr uint32_t kSecondKeys = 64 * C::kHeadDim / 16, kSecondValues = 64 / 16;
      constexpr uint32_t kValues = kTileKeys * C::kHeadDim / 16;  // from a stage's K to its V

      take_stage(0, false);
      start_scores(stages_at);
      master.clear();
#pragma unroll
      for (int i = 0; i < kOutputs + 4; ++i) clear_in_place(part[i]);
      wgmma_wait<0>(scores);
      new_scales();
      if (keys_unmasked < 64) mask(0);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        reference[r].start(quad_max(S::code(S::at(largest(r), unit, constant[r]))));
      }
      new_scales();
      to_codes();
      pack(codes[0]);

      // Two halves a turn, none masked. `now` is the descriptor of a stage's K.
      int stage = 0;
      uint32_t now = stages_at;
      const int pairs = max(0, min(halves - 1, keys_unmasked / 64 - 1) / 2);
      for (int pair = 0; pair < pairs; ++pair) {
        const bool wrap = stage + 1 == C::kStages;
        const int after = wrap ? 0 : stage + 1;
        const uint32_t after_at = wrap ? stages_at : now + kStageStep;
        start(now + kSecondKeys, codes[0], now + kValues, stage % (C::kPromoteHalves / 2) == 0);
        const bool ready = stage_ready(after);
        wgmma_wait<C::kOverlap ? 1 : 0>(scores);
        make_codes(codes[1]);
        wgmma_wait<0>(part);
        take_stage(after, ready);
        start(after_at, codes[1], now + kValues + kSecondValues, false);
        wgmma_wait<C::kOverlap ? 1 : 0>(scores);
        new_scales();
        make_codes(codes[0]);
        wgmma_wait<0>(part);
        release_stage(stage);
        stage = after;
        now = after_at;
      }
      // The rest one by one: masked halves, or the second of a stage.
      int half = 2 * pairs;
      for (; half + 1 < halves; ++half) {
        const bool second = half % 2;
        const bool wrap = stage + 1 == C::kStages;
        const int after = !second ? stage : wrap ? 0 : stage + 1;
        const uint32_t after_at = !second ? now + kSecondKeys : wrap ? stages_at : now + kStageStep;
        if (second) take_stage(after, false);
        start(after_at, codes[0], now + kValues + (second ? kSecondValues : 0),
              !second && stage % (C::kPromoteHalves / 2) == 0);
        wgmma_wait<0>(scores);
        wgmma_wait<0>(part);
        if (second) {
          release_stage(stage);
          new_scales();
          now = after_at;
        }
        mask(half + 1);
        make_codes(codes[0]);
        stage = after;
      }
      const bool promote = half % 2 == 0 && stage % (C::kPromoteHalves / 2) == 0;
      if (promote) master.add(part);
      wgmma_pv(part, codes[0], now + kValues + half % 2 * kSecondValues, !promote);
      wgmma_wait<0>(part);
      release_stage(stage);
      master.add(part);
    }
    for (int t = (halves + 1) / 2; t < kv_tiles; ++t) {
      const int s = t % C::kStages;
      barrier_wait(&shared.full[s], (phases >> s) & 1);
      phases ^= 1u << s;
      if (lane == 0) barrier_arrive(&shared.empty[s]);
    }
    write_output<C>(args, item, shared, turn & 1, row, master, reference);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    sage_sm90_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  if (threadIdx.x == 0) {
    tma_prefetch_map(args.q_map);
    tma_prefetch_map(args.k_map);
    tma_prefetch_map(args.v_map);
    for (int s = 0; s < C::kStages; ++s) {
      barrier_init(&shared.full[s], 1 + 4);
      barrier_init(&shared.empty[s], C::kGroups * 4);
    }
    barrier_init(&shared.item_full, 1 + 32);
    barrier_init(&shared.item_empty, C::kGroups * 4 + 1);
  }
  for (int i = threadIdx.x; i < C::kStages * 8 * kTileKeys / 4; i += C::kThreads) {
    constexpr int kWords = 8 * kTileKeys / 4;
    reinterpret_cast<uint32_t*>(&shared.stage[i / kWords].v[C::kHeadDimV * kTileKeys])[i % kWords] =
        0x38383838;  // 1.0
  }
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x < 128) {
    registers_decrease<C::kProducerRegisters>();
    if (threadIdx.x < 32) {
      produce_items<C>(shared, args);
    } else if (threadIdx.x < 64) {
      produce_tiles<C>(shared, args);
    }
  } else {
    registers_increase<C::kConsumerRegisters>();
    consume<C>(shared, args);
  }
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                       cudaEnableDefault, &found) != cudaSuccess) {
    return nullptr;
  }
  return reinterpret_cast<EncodeTiled>(function);
}

// A [z][y][x] byte tensor without gaps, read in boxes whose rows are swizzled over box_x bytes.
bool encode(EncodeTiled function, CUtensorMap* map, const void* data, int64_t x, int64_t y,
            int64_t z, int box_x, int box_y, int box_z) {
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(x), static_cast<cuuint64_t>(y),
                               static_cast<cuuint64_t>(std::max<int64_t>(z, 1))};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(x), static_cast<cuuint64_t>(x * y)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(box_x), static_cast<cuuint32_t>(box_y),
                             static_cast<cuuint32_t>(box_z)};
  const cuuint32_t steps[3] = {1, 1, 1};
  return function(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<void*>(data), sizes, strides,
                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  box_x == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class C>
Status launch(const AttentionParams& p, Stream stream) {
  const EncodeTiled function = encode_function();
  if (!function) return {StatusCode::kCudaError, "the driver has no cuTensorMapEncodeTiled"};
  Args args = {};
  args.params = p;
  args.plan = static_cast<Plan*>(p.workspace);
  args.log2_scale = static_cast<float>(double{p.sm_scale} * 8.0 * 1.4426950408889634);
  args.q_scale_rows = scale_rows(p.layout.q_groups, p.total_q, p.batch);
  args.k_scale_rows = scale_rows(p.layout.k_groups, p.total_kv, p.batch);
  // Without keys nothing is read; the descriptors still need an address.
  const void* k = p.total_kv ? p.k_codes : p.workspace;
  const void* v = p.total_kv ? p.v_codes : p.workspace;
  const int64_t tiles = block_count(p.total_kv, p.batch, kTileKeys);
  if (!encode(function, &args.q_map, p.q_codes, C::kHeadDim, p.num_qo_heads, p.total_q, C::kHeadDim,
              1, C::kRows) ||
      !encode(function, &args.k_map, k, C::kHeadDim, p.num_kv_heads, p.total_kv, C::kHeadDim, 1,
              kTileKeys) ||
      !encode(function, &args.v_map, v, kTileKeys, C::kHeadDimV, tiles * p.num_kv_heads, kTileKeys,
              C::kHeadDimV, 1)) {
    return {StatusCode::kInvalidArgument, "the operands cannot be described to the copy engine"};
  }
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t most_items = (p.total_q / C::kRows + p.batch) * p.num_qo_heads;
  const int ctas = static_cast<int>(std::min<int64_t>(processors, most_items));
  if (cudaFuncSetAttribute(sage_sm90_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           sizeof(Shared<C>)) != cudaSuccess) {
    return {StatusCode::kCudaError, "not enough shared memory per CTA"};
  }
  plan_kernel<<<1, std::min(1024, (p.batch + 31) / 32 * 32), 0, stream>>>(p, C::kRows, ctas,
                                                                          args.plan);
  // Starts while the list is being made, and waits for it before the first item.
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = sizeof(Shared<C>);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, sage_sm90_kernel<C>, args);
  if (cudaGetLastError() != cudaSuccess) return {StatusCode::kCudaError, "launch failed"};
  return {};
}

}  // namespace

Status launch_sage_sm90(const AttentionParams& p, Stream stream) {
  const Status status = check_sage_sm90(p);
  if (!status.ok() || p.total_q == 0 || p.batch == 0) return status;
  return launch<VARIANT>(p, stream);
}

}  // namespace sage
