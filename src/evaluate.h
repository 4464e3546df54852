// One case on one kernel, through every stage: inputs, run, references, checks, properties, timing.
#pragma once
#include "ops/op.h"
#include "report/report.h"
#include "run/executor.h"
#include "scenario/case.h"

namespace sagebench {

struct EvaluateOptions {
  bool timed = true;
  bool profile = false;
  const Fault* fault = nullptr;  // CPU subject only
};

// Never throws for what belongs to the case: it comes back as a status with a reason.
CaseResult evaluate(Executor& executor, const Case& c, const Kernel& kernel,
                    const EvaluateOptions& options);

}  // namespace sagebench
