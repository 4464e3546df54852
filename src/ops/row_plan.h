// The order in which the attention references work through sampled rows: rows that read the same
// keys together, in chunks that share every block of K and V loaded.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/reference.h"

namespace sagebench {

struct PlannedRow {
  int64_t index;  // in the sample
  int32_t sequence, head;
  int64_t token;    // within the sequence
  int64_t visible;  // keys [0, visible) of the sequence
};

struct RowChunk {
  int32_t sequence;
  int kv_head;
  int64_t q_start, kv_start;         // packed rows of the sequence's first tokens
  std::span<const PlannedRow> rows;  // ascending in `visible`
  int64_t max_visible() const { return rows.back().visible; }
};

struct RowPlan {
  std::vector<PlannedRow> rows;
  std::vector<RowChunk> chunks;  // point into rows
};
RowPlan plan_rows(const Case& c, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                  const RowSample& sample);

}  // namespace sagebench
