// The verdict: a pure function of a report. Measures nothing, prints nothing.
#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "report/report.h"

namespace sagebench {

struct Verdict {
  ExitCode code = ExitCode::kNoVerdict;
  std::vector<std::string> reasons;  // one line each, worst first
};

// Fails closed: no case measured is kNoVerdict, a case that no selected kernel supports is
// kNoVerdict, a property that was asked for and skipped does not count as passed.
Verdict judge(const Report& report);

}  // namespace sagebench
