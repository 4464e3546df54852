// The cases of selftest with what the op leaves on them without a fault.
#pragma once
#include <map>
#include <string>

#include "metrics.h"
#include "run/cpu_executor.h"
#include "selftest.h"

namespace sagebench::test {

// Outputs of the op without a fault, once per case of selftest.
struct Clean {
  SelftestCase s;
  RowSample rows;
  StageOutputs out;

  Validation validate(const StageOutputs& changed) const {
    return sagebench::validate(s.c, s.in, s.kernel, changed, poison_byte(0), rows, false);
  }
  Validation validate() const { return validate(out); }
};

inline Clean& clean(const std::string& id) {
  static std::map<std::string, Clean> all = [] {
    std::map<std::string, Clean> made;
    for (SelftestCase& s : selftest_cases()) {
      Clean& c = made[s.c.id];
      c.s = std::move(s);
      c.rows = sample_rows(c.s.c, c.s.kernel.layout);
      RunOptions options;
      options.rows = &c.rows;
      c.out = make_cpu_executor()->run(c.s.c, c.s.kernel, c.s.in, options).outputs;
    }
    return made;
  }();
  return all.at(id);
}

inline const StageCheck* first_failure(const Validation& v) {
  for (const StageCheck& check : v.checks)
    if (!check.passed) return &check;
  return nullptr;
}

}  // namespace sagebench::test
