#include "ops/row_plan.h"

#include <algorithm>
#include <tuple>

namespace sagebench {
namespace {

// Rows of a chunk: enough to pay for loading K and V, few enough that its scores (8 bytes each)
// stay within 16 MiB and that a few long heads still keep every core busy.
constexpr int64_t kScoresPerChunk = int64_t{1} << 21;
constexpr int64_t kMinRows = 8, kMaxRows = 64;

}  // namespace

RowPlan plan_rows(const Case& c, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                  const RowSample& sample) {
  const int32_t* cu_q = cu_seqlens_q.as<int32_t>();
  const int32_t* cu_kv = cu_seqlens_kv.as<int32_t>();
  const int group = c.model.num_qo_heads / c.model.num_kv_heads;

  RowPlan plan;
  plan.rows.reserve(sample.rows.size());
  for (size_t i = 0; i < sample.rows.size(); ++i) {
    const QueryRow& r = sample.rows[i];
    const int64_t qo_len = cu_q[r.sequence + 1] - cu_q[r.sequence];
    const int64_t kv_len = cu_kv[r.sequence + 1] - cu_kv[r.sequence];
    plan.rows.push_back({static_cast<int64_t>(i), r.sequence, r.head, r.token,
                         visible_keys(c.mask(), qo_len, kv_len, r.token)});
  }
  const auto key = [group](const PlannedRow& r) {
    return std::tuple(r.sequence, r.head / group, r.visible, r.index);
  };
  std::sort(plan.rows.begin(), plan.rows.end(),
            [&](const PlannedRow& a, const PlannedRow& b) { return key(a) < key(b); });

  for (auto first = plan.rows.begin(); first != plan.rows.end();) {
    const int32_t sequence = first->sequence;
    const int kv_head = first->head / group;
    const int64_t kv_len = cu_kv[sequence + 1] - cu_kv[sequence];
    const int64_t limit =
        std::clamp(kScoresPerChunk / std::max<int64_t>(kv_len, 1), kMinRows, kMaxRows);
    auto last = first;
    while (last != plan.rows.end() && last - first < limit && last->sequence == sequence &&
           last->head / group == kv_head)
      ++last;
    plan.chunks.push_back({sequence, kv_head, cu_q[sequence], cu_kv[sequence], {first, last}});
    first = last;
  }
  return plan;
}

}  // namespace sagebench
