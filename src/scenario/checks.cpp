#include "scenario/checks.h"

#include <cmath>
#include <numeric>
#include <set>

#include "inputs/pages.h"
#include "ops/op.h"

namespace sagebench {
namespace {

bool given(const Value& scenario, const char* block, const char* key) {
  const auto found = scenario.find(block);
  return found && found->find(key);
}

int64_t total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

void check_model(const Value& scenario, const Case& c) {
  const Model& m = c.model;
  if (m.num_qo_heads % m.num_kv_heads != 0)
    scenario.fail_at("/model/num_kv_heads", std::to_string(m.num_qo_heads) + " query heads over " +
                                                std::to_string(m.num_kv_heads) +
                                                " KV heads: num_kv_heads must divide num_qo_heads");
}

void check_rope(const Value& scenario, const Case& c) {
  const Rope& rope = c.rope;
  if (rope.style != sage::RopeStyle::kNone) {
    if (rope.rotary_dim > c.model.head_dim)
      scenario.fail_at("/rope/rotary_dim", std::to_string(rope.rotary_dim) +
                                               " is more than head_dim, " +
                                               std::to_string(c.model.head_dim));
    if (rope.rotary_dim % 2 != 0 && rope.rotary_dim == c.model.head_dim)
      scenario.fail_at("/model/head_dim", std::to_string(c.model.head_dim) +
                                              " is odd and rotated whole; expected an even one, an "
                                              "even rope.rotary_dim, or rope.style none: channels "
                                              "turn in pairs");
    if (rope.rotary_dim % 2 != 0)
      scenario.fail_at("/rope/rotary_dim",
                       std::to_string(rope.rotary_dim) +
                           " is odd; expected an even number: channels turn in pairs");
  }
  if (rope.scaling == RopeScaling::kLlama3 && rope.low_freq_factor >= rope.high_freq_factor)
    scenario.fail_at("/rope/scaling", "llama3 needs low_freq_factor < high_freq_factor");
  if (rope.scaling == RopeScaling::kYarn && rope.beta_slow >= rope.beta_fast)
    scenario.fail_at("/rope/scaling", "yarn needs beta_slow < beta_fast");
}

// Ids are in [0, limit) or -1 and do not repeat: two tokens in one slot have no right answer.
void check_ids(const Value& scenario, const std::string& path, const std::vector<int64_t>& ids,
               const char* what, int64_t limit) {
  std::set<int64_t> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string at = path + "/" + std::to_string(i);
    if (ids[i] >= limit)
      scenario.fail_at(at, std::string(what) + " " + std::to_string(ids[i]) +
                               " is out of range; allowed: -1 (skip) to " +
                               std::to_string(limit - 1));
    if (ids[i] >= 0 && !seen.insert(ids[i]).second)
      scenario.fail_at(at, std::string(what) + " " + std::to_string(ids[i]) + " occurs twice");
  }
}

void check_cache(const Value& scenario, const Case& c) {
  const Cache& cache = c.cache;
  const auto tokens = total(c.batch.qo_len);
  const int64_t needed = needed_pages(c.batch, cache.page_size);
  if (!cache.slots.empty()) {
    if (cache.index != CacheIndex::kSlotMapping)
      scenario.fail_at("/cache/slots", "slots need index: slot_mapping");
    if (!cache.page_ids.empty())
      scenario.fail_at("/cache/page_ids", "page_ids and slots exclude each other");
    if (static_cast<int64_t>(cache.slots.size()) != tokens)
      scenario.fail_at("/cache/slots", std::to_string(cache.slots.size()) + " slots for " +
                                           std::to_string(tokens) + " new tokens");
    check_ids(scenario, "/cache/slots", cache.slots, "slot", cache.num_pages * cache.page_size);
  } else if (!cache.page_ids.empty()) {
    if (static_cast<int64_t>(cache.page_ids.size()) != needed)
      scenario.fail_at("/cache/page_ids", std::to_string(cache.page_ids.size()) +
                                              " page ids, but the batch needs " +
                                              std::to_string(needed));
    check_ids(scenario, "/cache/page_ids", cache.page_ids, "page id", cache.num_pages);
  } else if (cache.num_pages < needed) {
    scenario.fail_at("/cache/num_pages", std::to_string(cache.num_pages) +
                                             " pages, but the batch needs " +
                                             std::to_string(needed) + " of " +
                                             std::to_string(cache.page_size) + " tokens");
  }
  if (cache.num_pages > INT32_MAX)
    scenario.fail_at("/cache/num_pages", std::to_string(cache.num_pages) +
                                             " pages; at most 2^31 - 1, as a page id is int32");
  const double elements = static_cast<double>(cache.num_pages) * cache.page_size *
                          c.model.num_kv_heads * (c.model.head_dim + c.model.head_dim_v);
  constexpr double kMostElements = 0x1p48;  // 512 TiB in 16-bit elements
  if (elements > kMostElements)
    scenario.fail_at("/cache/num_pages", "a cache of more than 2^48 elements");
}

void check_input(const Value& scenario, const Case& c) {
  if (c.input.form == InputForm::kPackedQkv && total(c.batch.qo_len) != total(c.batch.kv_len))
    scenario.fail_at("/input/form",
                     "packed_qkv needs as many keys as queries; use split when kv_len differs");
}

}  // namespace

void resolve_defaults(const Value& scenario, Case& c) {
  const bool from_file = !c.input.file.empty();
  if (!from_file && !given(scenario, "model", "head_dim_v")) c.model.head_dim_v = c.model.head_dim;
  if (c.sm_scale == 0) c.sm_scale = 1.0 / std::sqrt(c.model.head_dim);
  if (!given(scenario, "input", "form") && total(c.batch.qo_len) != total(c.batch.kv_len))
    c.input.form = InputForm::kSplit;
  if (!op_of(c.op).caches) return;
  if (c.rope.style == sage::RopeStyle::kNone)
    c.rope.rotary_dim = 0;
  else if (c.rope.rotary_dim == 0)
    c.rope.rotary_dim = c.model.head_dim;
  constexpr int64_t kSparePages = 2;  // that must stay untouched
  if (c.cache.num_pages == 0)
    c.cache.num_pages = needed_pages(c.batch, c.cache.page_size) + kSparePages;
}

void check_case(const Value& scenario, const Case& c) {
  check_model(scenario, c);
  if (op_of(c.op).caches) {
    check_rope(scenario, c);
    check_cache(scenario, c);
  }
  check_input(scenario, c);
  if (c.timing.min_time_s > c.timing.max_time_s)
    scenario.fail_at("/timing/min_time_s", "more than max_time_s");
}

}  // namespace sagebench
