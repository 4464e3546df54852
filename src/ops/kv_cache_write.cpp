// kv_cache_write: packed qkv -> RoPE -> paged KV-cache write.
#include <algorithm>
#include <numeric>

#include "ops/op_parts.h"

namespace sagebench {

std::vector<Kernel> cache_write_kernels(const Case&) {
  Kernel k;
  k.name = "rope_kv_cache_write";
  return {k};
}

Work cache_write_work(const Case& c, const Kernel&) {
  const Model& m = c.model;
  const auto element = static_cast<double>(size_of(c.dtype));
  const auto tokens = static_cast<double>(
      std::accumulate(c.batch.qo_len.begin(), c.batch.qo_len.end(), int64_t{0}));
  // Tokens whose slot is -1 are rotated but not written.
  double written = tokens;
  for (const int64_t slot : c.cache.slots)
    if (slot < 0) written -= 1;
  int64_t positions = 0;  // the table rows in use are read once
  for (size_t b = 0; b < c.batch.qo_len.size(); ++b)
    if (c.batch.qo_len[b] > 0)
      positions = std::max(positions, c.batch.kv_len_before[b] + c.batch.qo_len[b]);
  const double q_row = static_cast<double>(m.num_qo_heads) * m.head_dim * element;
  const double kv_row = static_cast<double>(m.num_kv_heads) * (m.head_dim + m.head_dim_v) * element;
  const double k_row = static_cast<double>(m.num_kv_heads) * m.head_dim * element;

  Work w;
  w.bytes = tokens * (2 * q_row + kv_row + k_row) + written * kv_row;
  if (c.rope.style != sage::RopeStyle::kNone)
    w.bytes += static_cast<double>(positions) * c.rope.rotary_dim *
               static_cast<double>(size_of(c.rope.table_dtype));
  w.flops = c.rope.style == sage::RopeStyle::kNone
                ? 0
                : tokens * (m.num_qo_heads + m.num_kv_heads) * c.rope.rotary_dim * 3.0;
  w.reference_flops = w.flops;
  const double cache = static_cast<double>(c.cache.num_pages) * c.cache.page_size * kv_row;
  w.device_bytes = static_cast<int64_t>(tokens * (2 * q_row + kv_row + k_row) + cache);
  return w;
}

}  // namespace sagebench
