// What a case must have for a fault to change anything: the tests of the rows of the table. What
// only the values of the inputs decide is not asked.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "faults/faults.h"

namespace sagebench {

// The last sequence with queries and more than `keys` keys, or -1.
inline int64_t last_attending(const Case& c, int64_t keys = 0) {
  for (int64_t b = c.batch.size(); b-- > 0;)
    if (c.batch.qo_len[static_cast<size_t>(b)] > 0 && c.batch.kv_len[static_cast<size_t>(b)] > keys)
      return b;
  return -1;
}
// The first sequence with queries whose successor has keys, or -1.
inline int64_t first_with_neighbour(const Case& c) {
  for (size_t b = 0; b + 1 < c.batch.qo_len.size(); ++b)
    if (c.batch.qo_len[b] > 0 && c.batch.kv_len[b + 1] > 0) return static_cast<int64_t>(b);
  return -1;
}
inline int64_t total_queries(const Case& c) {
  return std::accumulate(c.batch.qo_len.begin(), c.batch.qo_len.end(), int64_t{0});
}

namespace needs {

// ---- RoPE and cache ----------------------------------------------------------------------------

inline bool rotation(const Case& c, const Kernel&) {
  return c.rope.style != sage::RopeStyle::kNone && total_queries(c) > 0;
}
inline bool rotation_of_a_part(const Case& c, const Kernel& k) {
  return rotation(c, k) && c.rope.rotary_dim < c.model.head_dim && c.model.head_dim % 2 == 0;
}
inline bool fp32_table(const Case& c, const Kernel& k) {
  return rotation(c, k) && c.rope.table_dtype == DType::kFp32;
}
inline bool cached_tokens(const Case& c, const Kernel&) {
  for (size_t b = 0; b < c.batch.qo_len.size(); ++b)
    if (c.batch.qo_len[b] > 0 && c.batch.kv_len_before[b] > 0) return true;
  return false;
}
inline bool cached_and_rotated(const Case& c, const Kernel& k) {
  return rotation(c, k) && cached_tokens(c, k);
}
inline bool cached_in_pages(const Case& c, const Kernel& k) {
  return cached_tokens(c, k) && c.cache.index == CacheIndex::kPageTable;
}
inline bool page_table(const Case& c, const Kernel&) {
  return total_queries(c) > 0 && c.cache.index == CacheIndex::kPageTable;
}
inline bool room_behind_a_slot(const Case& c, const Kernel&) {
  return total_queries(c) > 0 && c.cache.page_size > 1;
}
inline bool distinct_layouts(const Case& c, const Kernel& k) {
  return room_behind_a_slot(c, k) && c.model.num_kv_heads > 1;
}
inline bool cached_heads(const Case& c, const Kernel&) {
  return total_queries(c) > 0 && c.model.num_kv_heads > 1;
}
inline bool like_k_and_v(const Case& c, const Kernel&) {
  return total_queries(c) > 0 && c.model.head_dim == c.model.head_dim_v;
}
inline bool like_k_and_v_rotated(const Case& c, const Kernel& k) {
  return rotation(c, k) && like_k_and_v(c, k);
}

// ---- attention ---------------------------------------------------------------------------------

inline bool attention(const Case& c, const Kernel&) {
  return last_attending(c) >= 0;
}
inline bool two_tokens(const Case& c, const Kernel&) {
  return total_queries(c) > 1;
}
inline bool queries(const Case& c, const Kernel&) {
  return total_queries(c) > 0;
}
inline bool neighbours_keys(const Case& c, const Kernel&) {
  return first_with_neighbour(c) >= 0;
}
inline bool two_keys(const Case& c, const Kernel&) {
  return last_attending(c, 1) >= 0;
}
inline bool two_tiles(const Case& c, const Kernel& k) {
  return last_attending(c, k.layout.tile_k) >= 0;
}
inline bool tail_tile(const Case& c, const Kernel& k) {
  const int64_t b = last_attending(c);
  return b >= 0 && c.batch.kv_len[static_cast<size_t>(b)] % k.layout.tile_k != 0;
}
inline bool causal(const Case& c, const Kernel& k) {
  return c.causal && attention(c, k);
}
inline bool causal_unlike_lengths(const Case& c, const Kernel& k) {
  return causal(c, k) && c.batch.qo_len != c.batch.kv_len;
}
// h % Hkv and h / group differ for some head.
inline bool grouped_heads(const Case& c, const Kernel& k) {
  const int kv_heads = c.model.num_kv_heads;
  return attention(c, k) && kv_heads > 1 && c.model.num_qo_heads > kv_heads;
}
inline bool kv_heads(const Case& c, const Kernel& k) {
  return attention(c, k) && c.model.num_kv_heads > 1;
}
inline bool smooth_k(const Case& c, const Kernel& k) {
  return attention(c, k) && k.settings.smooth_k != sage::Smooth::kNone;
}
inline bool smooth_k_of_many(const Case& c, const Kernel& k) {
  return smooth_k(c, k) && c.batch.size() > 1;
}
inline bool smooth_v(const Case& c, const Kernel& k) {
  return attention(c, k) && k.settings.smooth_v != sage::Smooth::kNone;
}
inline bool smooth_v_heads(const Case& c, const Kernel& k) {
  return smooth_v(c, k) && kv_heads(c, k);
}
inline bool correct_v(const Case& c, const Kernel& k) {
  return attention(c, k) && k.settings.correct_v;
}
inline bool correct_v_heads(const Case& c, const Kernel& k) {
  return correct_v(c, k) && kv_heads(c, k);
}
inline bool unrotated_codes(const Case& c, const Kernel& k) {
  return attention(c, k) && k.settings.rotate == sage::Rotate::kNone;
}
inline bool grouped_q_scales(const Case& c, const Kernel& k) {
  return attention(c, k) && k.layout.q_groups.pattern != sage::GroupPattern::kAll;
}
inline bool grouped_k_scales(const Case& c, const Kernel& k) {
  return attention(c, k) && k.layout.k_groups.pattern != sage::GroupPattern::kAll;
}
inline bool v_scale_per_channel(const Case& c, const Kernel& k) {
  return attention(c, k) && k.settings.v_scale == sage::VScale::kPerChannel;
}
inline bool fp8_p(const Case& c, const Kernel& k) {
  return attention(c, k) && k.layout.pv == sage::PvType::kFp8E4m3;
}
inline bool sm_scale(const Case& c, const Kernel& k) {
  return attention(c, k) && c.sm_scale != 1;
}
inline bool lse(const Case& c, const Kernel& k) {
  return c.return_lse && attention(c, k);
}
inline bool lse_of_no_keys(const Case& c, const Kernel&) {
  for (size_t b = 0; c.return_lse && b < c.batch.qo_len.size(); ++b)
    for (int64_t t = 0; t < c.batch.qo_len[b]; ++t)
      if (visible_keys(c.mask(), c.batch.qo_len[b], c.batch.kv_len[b], t) == 0) return true;
  return false;
}
inline bool lse_of_many(const Case& c, const Kernel& k) {
  return lse(c, k) && c.model.num_qo_heads > 1 && total_queries(c) > 1;
}
inline bool lse_smoothed(const Case& c, const Kernel& k) {
  return lse(c, k) && smooth_k(c, k);
}
inline bool lse_smoothed_heads(const Case& c, const Kernel& k) {
  return lse_smoothed(c, k) && c.model.num_qo_heads > 1;
}

}  // namespace needs
}  // namespace sagebench
