// Faults of the paged write. Planted after the rotation, which stays right.
#include <cstring>

#include "faults/fault_parts.h"
#include "metrics/cache_map.h"
#include "ops/reference.h"

namespace sagebench {
namespace {

constexpr auto kWrite = OpKind::kKvCacheWrite;

// Slot of every token through fn(slot) -> slot, whichever table the case has.
template <class Fn>
void map_pages(FaultContext& f, const Fn& fn) {
  const int64_t page_size = f.c.cache.page_size;
  for (int64_t i = 0; i < f.in.page_table.size(); ++i) {
    int32_t& page = f.in.page_table.as<int32_t>()[i];
    page = static_cast<int32_t>(fn(page));
  }
  for (int64_t i = 0; i < f.in.slot_mapping.size(); ++i) {
    int64_t& slot = f.in.slot_mapping.as<int64_t>()[i];
    const int64_t page = slot < 0 ? -1 : slot / page_size;
    slot = fn(page) < 0 ? -1 : fn(page) * page_size + (slot < 0 ? 0 : slot % page_size);
  }
}

void next_page(FaultContext& f) {
  const int64_t pages = f.in.cache_shape[0];
  map_pages(f, [pages](int64_t page) { return page < 0 ? page : (page + 1) % pages; });
}

void write_skipped(FaultContext& f) {
  const int64_t last = f.in.cache_shape[0] - 1;
  map_pages(f, [last](int64_t page) { return page < 0 ? last : page; });
}

// Page of position p is table[p / (2 page_size)].
void double_page_size(FaultContext& f) {
  if (f.in.page_table.empty()) return;
  const Tensor table = f.in.page_table;
  const int64_t columns = table.shape[1];
  for (int64_t i = 0; i < table.size(); ++i)
    f.in.page_table.as<int32_t>()[i] = table.as<int32_t>()[i / columns * columns + i % columns / 2];
}

void swap_layout(FaultContext& f) {
  f.c.cache.kv_layout = f.c.cache.kv_layout == KvLayout::kHnd ? KvLayout::kNhd : KvLayout::kHnd;
}

void ignore_kv_len_before(FaultContext& f) {
  std::fill_n(f.in.kv_len_before.as<int32_t>(), batch_of(f), 0);
}

void write_unrotated_k(FaultContext& f) {
  for (int64_t t = 0; t < f.out.k_rope.shape[0]; ++t)
    for (int h = 0; h < f.in.k.heads; ++h)
      for (int d = 0; d < f.in.k.dim; ++d)
        f.out.k_rope.set((t * f.in.k.heads + h) * f.in.k.dim + d, f.in.k.get(t, h, d));
}

// V takes the place of K in a second rotation, and the result that of V.
void write_rotated_v(FaultContext& f) {
  StageOutputs rotated;
  const TensorView k = f.in.k;
  f.in.k = f.in.v;
  emulate_rope(f.c, f.in, rotated);
  f.in.k = k;
  f.in.v_split = std::move(rotated.k_rope);
  const int64_t heads = f.in.v.heads, dim = f.in.v.dim;
  f.in.v.base = &f.in.v_split;
  f.in.v.offset = 0;
  f.in.v.token_stride = heads * dim;
  f.in.v.head_stride = dim;
}

// fn(cache, first element of the slot's row of one head) for both caches.
template <class Fn>
void each_row(FaultContext& f, int64_t slot, const Fn& fn) {
  for (Tensor* cache : {&f.out.key_cache, &f.out.value_cache}) {
    const CacheView view(f.c, *cache);
    for (int h = 0; h < view.heads; ++h) fn(*cache, view, h, view.index(slot, h, 0));
  }
}

// The last token of every sequence is written once more, one slot further.
void overrun_tail(FaultContext& f) {
  const std::vector<int64_t> slots = token_slots(f.c, f.in);
  for (int64_t b = 0; b < batch_of(f); ++b) {
    if (cu_q(f)[b] == cu_q(f)[b + 1]) continue;
    const int64_t slot = slots[static_cast<size_t>(cu_q(f)[b + 1] - 1)];
    if (slot == kNoSlot || (slot + 1) % f.c.cache.page_size == 0) continue;
    each_row(f, slot, [&](Tensor& cache, const CacheView& view, int h, int64_t from) {
      const auto bytes = static_cast<size_t>(view.dim) * size_of(cache.dtype);
      std::memcpy(cache.as<uint16_t>() + view.index(slot + 1, h, 0), cache.as<uint16_t>() + from,
                  bytes);
    });
  }
}

void drop_last_token(FaultContext& f) {
  const std::vector<int64_t> slots = token_slots(f.c, f.in);
  for (int64_t b = 0; b < batch_of(f); ++b) {
    if (cu_q(f)[b] == cu_q(f)[b + 1]) continue;
    const int64_t slot = slots[static_cast<size_t>(cu_q(f)[b + 1] - 1)];
    if (slot == kNoSlot) continue;
    each_row(f, slot, [&](Tensor& cache, const CacheView& view, int, int64_t from) {
      std::memset(cache.as<uint16_t>() + from, poison_byte(0),
                  static_cast<size_t>(view.dim) * size_of(cache.dtype));
    });
  }
}

void swap_caches(FaultContext& f) {
  std::swap(f.out.key_cache, f.out.value_cache);
}

void swap_heads(FaultContext& f) {
  const CacheView view(f.c, f.out.value_cache);
  const bool hnd = f.c.cache.kv_layout == KvLayout::kHnd;
  const int64_t rows = hnd ? view.page_size : 1;
  rotate_axis(f.out.value_cache, view.slots / rows, view.heads, rows * view.dim);
}

void clear_rest_of_page(FaultContext& f) {
  for (Tensor* cache : {&f.out.key_cache, &f.out.value_cache})
    for (std::byte& b : cache->bytes)
      if (b == std::byte{poison_byte(0)}) b = std::byte{0};
}

}  // namespace

std::vector<Fault> cache_faults() {
  constexpr Stage at = Stage::kCache;
  return {
      {"page_off_by_one",
       "writes into the next page",
       kWrite,
       at,
       at,
       next_page,
       {},
       needs::queries},
      {"page_size_mixed_up",
       "page of a position by twice the size",
       kWrite,
       at,
       at,
       double_page_size,
       {},
       needs::page_table},
      {"layout_mixed_up", "HND taken for NHD", kWrite, at, at, swap_layout,
       [](FaultContext& f) {
         f.out.key_cache.shape = f.in.cache_shape;
         f.out.value_cache.shape = f.in.cache_shape;
         f.out.value_cache.shape.back() = f.c.model.head_dim_v;
       },
       needs::distinct_layouts},
      {"minus_one_written",
       "-1 goes to the last page",
       kWrite,
       at,
       at,
       write_skipped,
       {},
       needs::queries},
      {"cache_kv_len_before_missing",
       "slots start at 0",
       kWrite,
       at,
       at,
       ignore_kv_len_before,
       {},
       needs::cached_in_pages},
      {"unrotated_k_cached",
       "K written before its rotation",
       kWrite,
       at,
       at,
       write_unrotated_k,
       {},
       needs::rotation},
      {"v_rotated",
       "V rotated like K",
       kWrite,
       at,
       at,
       write_rotated_v,
       {},
       needs::like_k_and_v_rotated},
      {"tail_slot_overrun",
       "one slot written past the end",
       kWrite,
       at,
       at,
       {},
       overrun_tail,
       needs::room_behind_a_slot},
      {"last_token_not_cached",
       "the last token is dropped",
       kWrite,
       at,
       at,
       {},
       drop_last_token,
       needs::queries},
      {"k_v_swapped", "K in the value cache", kWrite, at, at, {}, swap_caches, needs::like_k_and_v},
      {"cache_head_swapped",
       "V in the neighbouring head",
       kWrite,
       at,
       at,
       {},
       swap_heads,
       needs::cached_heads},
      {"untouched_bytes_cleared",
       "a memset before the write",
       kWrite,
       at,
       at,
       {},
       clear_rest_of_page,
       needs::queries},
  };
}

}  // namespace sagebench
