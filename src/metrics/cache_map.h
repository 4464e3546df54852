// Where tokens live in a paged cache, from the tables alone.
#pragma once
#include <cstdint>
#include <vector>

#include "inputs/inputs.h"

namespace sagebench {

inline constexpr int64_t kNoSlot = -1;

// Per packed token its slot, page * page_size + slot in the page; kNoSlot: skipped.
std::vector<int64_t> token_slots(const Case& c, const Inputs& in);

// No token of the call has a slot.
bool caches_nothing(const Case& c, const Inputs& in);

// The cache as [slot][head][channel], whatever its layout.
struct CacheView {
  int64_t page_stride, slot_stride, head_stride;  // elements
  int64_t slots;
  int page_size, heads;
  int64_t dim;

  CacheView(const Case& c, const Tensor& cache);
  int64_t index(int64_t slot, int64_t head, int64_t channel) const {
    return slot / page_size * page_stride + slot % page_size * slot_stride + head * head_stride +
           channel;
  }
};

// Packed token -> sequence and token within it.
struct TokenOwner {
  int64_t sequence, token;
};
std::vector<TokenOwner> token_owners(const Tensor& cu_seqlens);

}  // namespace sagebench
