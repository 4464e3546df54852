// Expands a scenario's sweep: `zip` lists advance together, `cartesian` lists combine, the last one
// fastest.
#pragma once
#include <string>
#include <vector>

#include "scenario/merge.h"

namespace sagebench {

struct SweepCase {
  std::string suffix;  // "head_dim=64,causal=true"; empty without a sweep
  Document document;
  std::vector<std::string> pointers;  // of the values set, in the order of the fields
};

// `sweep` is the scenario's value, or null; every field it names is set in a copy of `base`. No
// field may be swept twice, be it under an alias or by the block around it.
std::vector<SweepCase> expand_sweep(const Document& base, const Json& sweep,
                                    const std::string& file, const std::string& pointer);

}  // namespace sagebench
