// What will run: the cases and kernels that the command line selects from a suite.
#pragma once
#include <string>
#include <vector>

#include "cli.h"
#include "ops/op.h"
#include "scenario/scenario.h"

namespace sagebench {

// A case on a kernel, supported or not: one result.
struct PlannedRun {
  const Case* c = nullptr;  // into the suite
  Kernel kernel;
  std::string id() const { return c->id + "@" + kernel.name; }
};

// In the suite's order. Throws UsageError for a kernel or a regular expression that does not exist,
// Error(kNoVerdict) that names near ids when nothing is selected.
std::vector<PlannedRun> make_plan(const Suite& suite, const Options& options);

std::string render_list(const std::vector<PlannedRun>& plan);     // case ids, one a line
std::string render_dry_run(const std::vector<PlannedRun>& plan);  // cost of each

}  // namespace sagebench
