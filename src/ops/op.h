// What an op does, its kernels, its cost. One row per op; the stages of the tool ask the row.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sage/attention.h"
#include "scenario/case.h"

namespace sagebench {

// A kernel as the tool sees it. kv_cache_write has kernels without an attention row.
struct Kernel {
  std::string name;
  const sage::AttentionKernel* attention = nullptr;
  sage::SageSettings settings;  // the case's choice on the kernel's defaults
  sage::AttentionLayout layout;
  std::string unsupported;  // why not; empty: supported
};

// Exact counts for the batch.
struct Work {
  double flops = 0;  // attention: 4 * D * visible (q, k) pairs * Hq (2 D for QK, 2 Dv for PV)
  double bytes = 0;  // each input read once, each output written once, at the op's boundary
  double reference_flops = 0;  // of both references, all rows
  int64_t device_bytes = 0;    // memory the case needs on the GPU, workspace and guards included
};

struct Op {
  OpKind kind;
  const char* name;  // in scenarios and reports
  bool caches;       // rotates q and k, and writes k and v to the paged cache
  bool attends;      // to the keys given, or to the call's own where it caches them
  std::vector<Kernel> (*kernels)(const Case& c);  // every kernel of the op, supported or not
  Work (*work)(const Case& c, const Kernel& kernel);
};

const std::vector<Op>& ops();
const Op& op_of(OpKind kind);

// Visible (query, key) pairs of one sequence under the mask.
int64_t visible_pairs(sage::Mask mask, int64_t qo_len, int64_t kv_len);
// Keys [0, visible_keys) are visible to query row `row`.
int64_t visible_keys(sage::Mask mask, int64_t qo_len, int64_t kv_len, int64_t row);

}  // namespace sagebench
