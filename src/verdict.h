// The verdict: a pure function of a report. Measures nothing, prints nothing.
#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "report/report.h"

namespace sagebench {

struct Verdict {
  ExitCode code = ExitCode::kNoVerdict;
  std::vector<std::string> reasons;  // one line each, worst first; remarks last, also of kOk
};

// Highest cause first: wrong, internal, no GPU, regression, no verdict. Fails closed:
// - no case measured, a case that no selected kernel supports (unless it expects just that), a
//   skipped case, and one whose checks compared no value (--validate off, --profile) are no
//   verdict; an empty batch, which moves no bytes, has nothing to check;
// - a passing status that its own checks or properties deny is wrong, and so is passing where a
//   refusal was expected; an operator that refuses a case expected to run is an internal error;
// - a property that was asked for and skipped is no verdict; on the CPU, whose subject has no
//   streams and no graphs, one that needs a GPU is a remark, and never counts as passed.
Verdict judge(const Report& report);

const char* name_of(ExitCode code);  // "wrong result"

}  // namespace sagebench
