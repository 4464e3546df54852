// Rotation tables: frequencies of plain RoPE (arXiv 2104.09864) and its scalings.
#pragma once
#include <vector>

#include "core/tensor.h"
#include "scenario/case.h"

namespace sagebench {

// Radians per position of each of the rotary_dim / 2 pairs.
std::vector<double> rope_frequencies(const Rope& rope);
// What cos and sin are multiplied by: 1 but for yarn.
double rope_attention_factor(const Rope& rope);
// [max_position, rotary_dim]: cos in the first half of a row, sin in the second.
Tensor make_rope_table(const Rope& rope, int64_t max_position);

}  // namespace sagebench
