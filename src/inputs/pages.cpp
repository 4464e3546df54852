#include "inputs/pages.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "inputs/rng.h"

namespace sagebench {
namespace {

constexpr uint64_t kPagesStream = 64;  // beside the streams of distributions.cpp

}  // namespace

std::vector<int64_t> pages_per_sequence(const Batch& batch, int page_size) {
  std::vector<int64_t> pages(batch.qo_len.size());
  for (size_t b = 0; b < pages.size(); ++b)
    pages[b] = (batch.kv_len_before[b] + batch.qo_len[b] + page_size - 1) / page_size;
  return pages;
}

int64_t needed_pages(const Batch& batch, int page_size) {
  const std::vector<int64_t> pages = pages_per_sequence(batch, page_size);
  return std::accumulate(pages.begin(), pages.end(), int64_t{0});
}

std::vector<int64_t> page_order(const Case& c, int64_t num_pages) {
  if (!c.cache.page_ids.empty()) return c.cache.page_ids;
  std::vector<int64_t> ids(static_cast<size_t>(num_pages));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  if (c.cache.allocation == Allocation::kReverse) std::reverse(ids.begin(), ids.end());
  if (c.cache.allocation == Allocation::kShuffled) {
    const uint64_t stream = random_stream(c.seed, kPagesStream);
    for (size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[random_below(random_bits(stream, i), i)]);
  }
  return ids;
}

PageMap make_page_map(const Case& c, int64_t num_pages) {
  const Batch& batch = c.batch;
  const int64_t page_size = c.cache.page_size;
  const int64_t tokens = std::accumulate(batch.qo_len.begin(), batch.qo_len.end(), int64_t{0});
  PageMap map;
  if (!c.cache.slots.empty()) {
    map.slot_mapping = Tensor(DType::kInt64, {tokens});
    if (static_cast<int64_t>(c.cache.slots.size()) != tokens)
      throw std::logic_error("slots and tokens differ in number");
    std::copy(c.cache.slots.begin(), c.cache.slots.end(), map.slot_mapping.as<int64_t>());
    return map;
  }
  const std::vector<int64_t> order = page_order(c, num_pages);
  if (static_cast<int64_t>(order.size()) < needed_pages(batch, c.cache.page_size))
    throw std::logic_error("fewer pages than the batch needs");
  const std::vector<int64_t> pages = pages_per_sequence(batch, c.cache.page_size);
  if (c.cache.index == CacheIndex::kPageTable) {
    const int64_t columns =
        std::max<int64_t>(1, pages.empty() ? 0 : *std::max_element(pages.begin(), pages.end()));
    map.page_table = Tensor(DType::kInt32, {batch.size(), columns});
    auto* table = map.page_table.as<int32_t>();
    std::fill(table, table + map.page_table.size(), -1);
    size_t next = 0;
    for (size_t b = 0; b < pages.size(); ++b)
      for (int64_t p = 0; p < pages[b]; ++p)
        table[static_cast<int64_t>(b) * columns + p] = static_cast<int32_t>(order[next++]);
    return map;
  }
  map.slot_mapping = Tensor(DType::kInt64, {tokens});
  auto* slot = map.slot_mapping.as<int64_t>();
  size_t first = 0;  // page of the sequence in `order`
  for (size_t b = 0; b < pages.size(); ++b) {
    for (int64_t t = 0; t < batch.qo_len[b]; ++t) {
      const int64_t position = batch.kv_len_before[b] + t;
      const int64_t page = order[first + static_cast<size_t>(position / page_size)];
      *slot++ = page < 0 ? -1 : page * page_size + position % page_size;
    }
    first += static_cast<size_t>(pages[b]);
  }
  return map;
}

}  // namespace sagebench
