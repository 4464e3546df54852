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
#include <type_traits>

#include "attention/sage_sm90.h"
#include "attention/sage_sm90_load.cuh"
#include "attention/sage_sm90_scores.cuh"
#include "attention/sage_sm90_tiles.h"
#include "device/in_place.cuh"
#include "device/tma.cuh"
#include "device/wgmma.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177  // in a build for other architectures the kernel is empty
#endif

namespace sage {
namespace {

constexpr float kLn2 = 0.6931471805599453f;

// Tells the compiler that a value is the same in the whole warp, so that loops and addresses that
// follow from it take uniform registers.
__device__ inline int uniform(int x) {
  return __shfl_sync(~0u, x, 0);
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// fp32 copy of O and of the row sums, in the order of the accumulators.
template <int kOutputs>
struct Master {
  float o[kOutputs];
  float sum[2];

  __device__ void clear() {
    device::clear_in_place(sum[0]);
    device::clear_in_place(sum[1]);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) device::clear_in_place(o[i]);
  }
  __device__ void add(const float (&part)[kOutputs + 4]) {
    device::add_in_place(sum[0], part[kOutputs]);
    device::add_in_place(sum[1], part[kOutputs + 2]);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) device::add_in_place(o[i], part[i]);
  }
  // A row whose factor is not 1 takes what `part` has summed since the last promotion, and scales.
  __device__ void rebase(float (&part)[kOutputs + 4], const float (&factor)[2]) {
    const float keep[2] = {factor[0] == 1.0f ? 1.0f : 0.0f, factor[1] == 1.0f ? 1.0f : 0.0f};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      device::take_in_place(sum[r], part[kOutputs + 2 * r], 1.0f - keep[r], factor[r]);
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      device::take_in_place(o[i], part[i], 1.0f - keep[i / 2 % 2], factor[i / 2 % 2]);
    }
#pragma unroll
    for (int i = 0; i < kOutputs + 4; ++i) device::scale_in_place(part[i], keep[i / 2 % 2]);
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
                             int row, const Master<C::kHeadDimV / 2>& master,
                             const Reference (&reference)[2], const int (&limit)[2]) {
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  const bool seen[2] = {limit[0] > 0, limit[1] > 0};
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
            __fmaf_rn(master.o[4 * i + 2 * r] * inverse[r], scale.x, seen[r] ? offset.x : 0.0f),
            __fmaf_rn(master.o[4 * i + 2 * r + 1] * inverse[r], scale.y,
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
  Master<kOutputs> master;
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
    barrier_arrive(&shared.item_empty);

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
      auto take_stage = [&](int s) {
        barrier_wait(&shared.full[s], (phases >> s) & 1);
        phases ^= 1u << s;
        // Whoever reads also releases: four lanes, which is cheaper than all.
        if (lane < kReleasers) k_scale = shared.k_scale[s][lane];
        k_scale = __shfl_sync(~0u, k_scale, lane % 4);
      };
      auto release_stage = [&](int s) {
        __syncwarp();
        if (lane < kReleasers) barrier_arrive(&shared.empty[s]);
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
      auto lead = [&](int r) {  // of codes; NaN is none
        float most = __int_as_float(scores[2 * r]);
#pragma unroll
        for (int i = 1; i < 16; ++i) {
          most = fmaxf(most, __int_as_float(scores[i / 2 * 4 + 2 * r + i % 2]));
        }
        return most;
      };
      // Scores become codes in place. A reference moves by whole octaves, so that codes made with
      // the old one are put right by an addition.
      auto make_codes = [&](uint32_t(&out)[2][4], auto masked, int half) {
        // The bits of negative floats do not order as integers: only clamped codes and raw scores
        // do.
        constexpr bool kExp2 = C::kMode == PMode::kExp2;
        int32_t most[2];
        if constexpr (kExp2 && !masked()) {
          most[0] = __float_as_int(S::at(largest(0), unit, constant[0]));
          most[1] = __float_as_int(S::at(largest(1), unit, constant[1]));
        }
        to_codes();
        if constexpr (masked()) mask(half);  // after a product that may be NaN
        pack(out);
        if constexpr (!kExp2) {
          most[0] = largest(0);
          most[1] = largest(1);
        } else if constexpr (masked()) {
          most[0] = __float_as_int(lead(0));
          most[1] = __float_as_int(lead(1));
        }
        if (!__any_sync(~0u, S::above(most[0], kMaxCode) || S::above(most[1], kMaxCode) ||
                                 S::below(most[0], kReferenceLow) ||
                                 S::below(most[1], kReferenceLow))) {
          return;
        }
        float shift[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          shift[r] = reference[r].move(quad_max(S::code(lead(r))));
        }
        if (!__any_sync(~0u, shift[0] != 0.0f || shift[1] != 0.0f)) return;
        wgmma_wait<0>(part);
        const float factor[2] = {two_to(shift[0]), two_to(shift[1])};
        master.rebase(part, factor);
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

      take_stage(0);
      start_scores(stages_at);
      master.clear();
#pragma unroll
      for (int i = 0; i < kOutputs + 4; ++i) device::clear_in_place(part[i]);
      wgmma_wait<0>(scores);
      new_scales();
      if (keys_unmasked < 64) mask(0);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        reference[r].start(quad_max(S::code(S::at(largest(r), unit, constant[r]))));
      }
      new_scales();
      to_codes();
      if (isnan(unit)) mask(0);
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
        take_stage(after);  // early, its latency hidden under the product
        wgmma_wait<1>(scores);
        make_codes(codes[1], std::false_type{}, 0);
        wgmma_wait<0>(part);
        start(after_at, codes[1], now + kValues + kSecondValues, false);
        wgmma_wait<1>(scores);
        new_scales();
        make_codes(codes[0], std::false_type{}, 0);
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
        if (second) take_stage(after);
        start(after_at, codes[0], now + kValues + (second ? kSecondValues : 0),
              !second && stage % (C::kPromoteHalves / 2) == 0);
        wgmma_wait<0>(scores);
        wgmma_wait<0>(part);
        if (second) {
          release_stage(stage);
          new_scales();
          now = after_at;
        }
        make_codes(codes[0], std::true_type{}, half + 1);
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
      if (lane < kReleasers) barrier_arrive(&shared.empty[s]);
    }
    write_output<C>(args, item, shared, turn & 1, row, master, reference, limit);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    sage_sm90_kernel(const __grid_constant__ Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  if (threadIdx.x == 0) {
    tma_prefetch_map(args.q_map);
    tma_prefetch_map(args.k_map);
    tma_prefetch_map(args.v_map);
    for (int s = 0; s < C::kStages; ++s) {
      barrier_init(&shared.full[s], 1 + kScaleGroups);
      barrier_init(&shared.empty[s], C::kGroups * 4 * kReleasers);
    }
    barrier_init(&shared.item_full, 1 + 32);
    barrier_init(&shared.item_empty, C::kGroups * 128 + 32);
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
#endif
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
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
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
  const bool linear = p.layout.p == PMode::kLinear;
  if (p.layout.head_dim == 128) {
    return linear ? launch<Sm90TileD128<PMode::kLinear>>(p, stream)
                  : launch<Sm90TileD128<PMode::kExp2>>(p, stream);
  }
  return linear ? launch<Sm90TileD64<PMode::kLinear>>(p, stream)
                : launch<Sm90TileD64<PMode::kExp2>>(p, stream);
}

}  // namespace sage
