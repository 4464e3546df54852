// The ops.
#include <stdexcept>

#include "ops/op_parts.h"

namespace sagebench {

const std::vector<Op>& ops() {
  static const std::vector<Op> table = {
      // caches, attends
      {OpKind::kAttention, "attention", false, true, attention_kernels_of, attention_work},
      {OpKind::kKvCacheWrite, "kv_cache_write", true, false, cache_write_kernels, cache_write_work},
      {OpKind::kPrefill, "prefill", true, true, prefill_kernels, prefill_work},
  };
  return table;
}

const Op& op_of(OpKind kind) {
  for (const Op& op : ops())
    if (op.kind == kind) return op;
  throw std::logic_error("op without a row");
}

}  // namespace sagebench
