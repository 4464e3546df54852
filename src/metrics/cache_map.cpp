#include "metrics/cache_map.h"

#include <algorithm>

namespace sagebench {

std::vector<TokenOwner> token_owners(const Tensor& cu_seqlens) {
  std::vector<TokenOwner> owners;
  const int32_t* cu = cu_seqlens.as<int32_t>();
  for (int64_t b = 0; b + 1 < cu_seqlens.size(); ++b)
    for (int64_t t = cu[b]; t < cu[b + 1]; ++t) owners.push_back({b, t - cu[b]});
  return owners;
}

std::vector<int64_t> token_slots(const Case& c, const Inputs& in) {
  const std::vector<TokenOwner> owners = token_owners(in.cu_seqlens_q);
  const int64_t page_size = c.cache.page_size, slots = in.cache_shape[0] * page_size;
  std::vector<int64_t> result(owners.size(), kNoSlot);
  for (size_t i = 0; i < owners.size(); ++i) {
    int64_t slot;
    if (!in.slot_mapping.empty()) {
      slot = in.slot_mapping.as<int64_t>()[i];
    } else {
      const int64_t position = owners[i].token + in.kv_len_before.as<int32_t>()[owners[i].sequence];
      const int64_t page =
          in.page_table
              .as<int32_t>()[owners[i].sequence * in.page_table.shape[1] + position / page_size];
      slot = page < 0 ? kNoSlot : page * page_size + position % page_size;
    }
    if (slot >= 0 && slot < slots) result[i] = slot;
  }
  return result;
}

bool caches_nothing(const Case& c, const Inputs& in) {
  const std::vector<int64_t> slots = token_slots(c, in);
  return std::all_of(slots.begin(), slots.end(), [](int64_t slot) { return slot == kNoSlot; });
}

CacheView::CacheView(const Case& c, const Tensor& cache)
    : slots(cache.shape[0] * c.cache.page_size),
      page_size(c.cache.page_size),
      heads(c.model.num_kv_heads),
      dim(cache.shape.back()) {
  page_stride = dim * heads * page_size;
  const bool hnd = c.cache.kv_layout == KvLayout::kHnd;
  slot_stride = hnd ? dim : dim * heads;
  head_stride = hnd ? dim * page_size : dim;
}

}  // namespace sagebench
