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

}  // namespace sagebench
