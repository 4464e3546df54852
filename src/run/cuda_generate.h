// Fills q, k or v on the device: the same bits as make_inputs for the same plan.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "inputs/distribution_plan.h"

namespace sagebench {

// A packed tensor [tokens, plan.heads, plan.dim] of a 16-bit type. Strides in elements.
struct GenerateTarget {
  uint16_t* data = nullptr;
  bool fp16 = false;  // else bf16
  int64_t tokens = 0, token_stride = 0, head_stride = 0;
  const int32_t* cu_seqlens = nullptr;  // [batch + 1], device; cu_seqlens[batch] >= tokens
  int batch = 0;
};
void launch_generate(const DistributionPlan& plan, const GenerateTarget& target,
                     cudaStream_t stream);

}  // namespace sagebench
