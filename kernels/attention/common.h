// What the attention kernels share on the host: the pieces of their layouts, and the checks that
// hold for all of them. Compiles without CUDA.
#pragma once
#include <array>
#include <cstdint>

#include "sage/attention.h"

namespace sage {

constexpr int padded_head_dim(int head_dim) {
  return head_dim <= 64 ? 64 : 128;
}

using KeyOrder = std::array<uint8_t, AttentionLayout::kKeyOrder>;

// FP8: a lane's C fragment of Q K^T holds keys 2t, 2t + 1 of each block of 8; its A fragment of P V
// wants four consecutive positions 4t .. 4t + 3. So those hold the lane's keys of two blocks.
constexpr KeyOrder fragment_key_order() {
  KeyOrder order{};
  for (size_t p = 0; p < order.size(); ++p) {
    const size_t lane = p / 4, block = p % 4 / 2, element = p % 2;
    order[p] = static_cast<uint8_t>(block * 8 + lane * 2 + element);
  }
  return order;
}

// Scales of a block of query rows and of a tile of keys: the tokens one lane owns share one, or
// all.
constexpr ScaleGroups query_groups(int block_tokens, Granularity granularity) {
  return granularity == Granularity::kPerThread
             ? ScaleGroups{block_tokens, 8, GroupPattern::kRowMod8}
             : ScaleGroups{block_tokens, 1, GroupPattern::kAll};
}
constexpr ScaleGroups key_groups(int block_tokens, Granularity granularity) {
  return granularity == Granularity::kPerThread
             ? ScaleGroups{block_tokens, 4, GroupPattern::kPairMod4}
             : ScaleGroups{block_tokens, 1, GroupPattern::kAll};
}

// The problem and the settings that a kernel's own layout would have been made for.
AttentionProblem problem_of(const AttentionParams& params);
SageSettings settings_of(const AttentionLayout& layout);
// nullptr where they are equal, else which member is not.
const char* difference(const AttentionLayout& layout, const AttentionLayout& own);

// Sizes, mask, scale and dtype; then, once the layout is known to be the kernel's own, the arrays.
Status check_sizes(const AttentionParams& params);
Status check_arrays(const AttentionParams& params);

}  // namespace sage
