#include "faults/faults.h"

#include "faults/fault_parts.h"

namespace sagebench {

const std::vector<Fault>& faults() {
  static const std::vector<Fault> table = [] {
    std::vector<Fault> all;
    for (auto part : {rope_faults, cache_faults, quantisation_faults, attention_faults})
      for (Fault& fault : part()) all.push_back(std::move(fault));
    return all;
  }();
  return table;
}

const Fault* find_fault(const std::string& name) {
  for (const Fault& fault : faults())
    if (fault.name == name) return &fault;
  return nullptr;
}

const char* cannot_act(const Fault& fault, const Case& c) {
  if (fault.stage == Stage::kRope && c.rope.style == sage::RopeStyle::kNone)
    return "nothing is rotated";
  const Batch& batch = c.batch;
  int64_t tokens = 0, rows = 0;  // of queries; those with a key
  for (size_t b = 0; b < batch.qo_len.size(); ++b) {
    tokens += batch.qo_len[b];
    if (batch.kv_len[b] > 0) rows += batch.qo_len[b];
  }
  if (tokens == 0 || (op_of(c.op).attends && rows == 0)) return "no row has a key";
  return fault.refuses ? fault.refuses(c) : nullptr;
}

}  // namespace sagebench
