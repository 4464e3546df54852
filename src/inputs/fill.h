// Values into the buffers of a case.
#pragma once
#include <vector>

#include "core/tensor.h"
#include "inputs/distribution_plan.h"

namespace sagebench {

// Row r of a packed tensor belongs to sequence b when cu_seqlens[b] <= r < cu_seqlens[b + 1].
// Writes view.tokens x view.heads rows of `plan` into `buffer` (bf16 or fp16), which view points
// into.
void fill_generated(const DistributionPlan& plan, const Tensor& cu_seqlens, const TensorView& view,
                    Tensor& buffer);

// Copies a dense tensor [tokens, heads, dim] of the same dtype into the view's place.
void fill_copied(const Tensor& dense, const TensorView& view, Tensor& buffer);

// Every element NaN (bf16 or fp16).
void fill_nan(Tensor& buffer);

}  // namespace sagebench
