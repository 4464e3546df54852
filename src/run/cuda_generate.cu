#include <algorithm>

#include "inputs/encode.h"
#include "run/cuda_generate.h"

namespace sagebench {
namespace {

constexpr int kWarp = 32;

// The last sequence that starts at or before the token: empty ones before it are passed over.
__device__ int sequence_of(const int32_t* cu_seqlens, int batch, int64_t token) {
  int low = 0, high = batch;  // cu_seqlens[low] <= token < cu_seqlens[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (cu_seqlens[middle] <= token ? low : high) = middle;
  }
  return low;
}

// One warp per (token, head), lanes over channels; grid-stride over rows.
__global__ void generate_kernel(const DistributionPlan plan, const GenerateTarget t) {
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / kWarp;
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  for (int64_t i = first; i < t.tokens * plan.heads; i += warps) {
    const int64_t token = i / plan.heads;
    const int head = static_cast<int>(i % plan.heads);
    const int b = sequence_of(t.cu_seqlens, t.batch, token);
    const int64_t begin = t.cu_seqlens[b], end = t.cu_seqlens[b + 1];
    const Row row = make_row(plan, {token, b, token - begin, end - begin, head});
    uint16_t* out = t.data + token * t.token_stride + head * t.head_stride;
    for (int c = static_cast<int>(threadIdx.x) % kWarp; c < plan.dim; c += kWarp) {
      const float value = float_of_fixed(fixed_value(plan, row, c));
      out[c] = t.fp16 ? encode_fp16(value) : encode_bf16(value);
    }
  }
}

}  // namespace

void launch_generate(const DistributionPlan& plan, const GenerateTarget& target,
                     cudaStream_t stream) {
  constexpr int64_t kThreads = 256, kMaxBlocks = 4096;
  const int64_t rows = target.tokens * plan.heads;
  if (rows == 0) return;
  const int64_t blocks = std::min((rows * kWarp + kThreads - 1) / kThreads, kMaxBlocks);
  generate_kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(kThreads), 0, stream>>>(
      plan, target);
}

}  // namespace sagebench
