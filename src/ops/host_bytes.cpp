#include "ops/host_bytes.h"

#include <algorithm>
#include <numeric>

namespace sagebench {
namespace {

double total(const std::vector<int64_t>& lengths) {
  return static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
}

}  // namespace

int64_t host_bytes(const Case& c, const Kernel& kernel, int64_t rows) {
  const Model& m = c.model;
  const Op& op = op_of(c.op);
  const bool checked = c.validate.rows != Rows::kOff;
  const auto element = static_cast<double>(size_of(c.dtype));
  const double q = total(c.batch.qo_len), kv = total(c.batch.kv_len);
  const double q_elements = q * m.num_qo_heads * m.head_dim;
  const double k_elements = kv * m.num_kv_heads * m.head_dim;
  const double v_elements = kv * m.num_kv_heads * m.head_dim_v;

  double bytes = (q_elements + k_elements + v_elements) * element;
  if (op.caches) {
    const double rotated = q_elements + k_elements;
    const double cache = static_cast<double>(c.cache.num_pages) * c.cache.page_size *
                         m.num_kv_heads * (m.head_dim + m.head_dim_v) * element;
    // the subject's and the reference's; what is rotated, in double too
    bytes += (checked ? 2 : 1) * (rotated * element + cache);
    if (checked) bytes += rotated * static_cast<double>(sizeof(double));
  }
  if (op.attends) {
    const double padded = kernel.layout.head_dim, padded_v = kernel.layout.head_dim_v;
    const double code = kernel.layout.pv == sage::PvType::kFp16 ? 2 : 1;
    const double codes = q * m.num_qo_heads * padded + kv * m.num_kv_heads * padded +
                         kv * m.num_kv_heads * padded_v * code;
    bytes += (checked ? 2 : 1) * codes + q * m.num_qo_heads * m.head_dim_v * element;
    // the subject's, the emulated and the exact rows in double, and the difference of two
    constexpr double kCopies = 4;
    bytes += kCopies * static_cast<double>(rows) * m.head_dim_v * double{sizeof(double)};
  }
  return static_cast<int64_t>(std::min(bytes, 0x1p62));
}

}  // namespace sagebench
