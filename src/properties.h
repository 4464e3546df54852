// Properties: checks beyond error norms, by running the subject again on changed inputs. One row
// each.
#pragma once
#include <string>
#include <vector>

#include "metrics.h"
#include "run/executor.h"

namespace sagebench {

struct Property {
  const char* name;  // what validate.properties accepts
  const char* what;
  std::vector<OpKind> ops;
  bool gpu_only;
  PropertyCheck (*check)(Executor& executor, const Case& c, const Kernel& kernel, const Inputs& in,
                         const StageOutputs& baseline);
};
const std::vector<Property>& properties();
const Property* find_property(const std::string& name);

}  // namespace sagebench
