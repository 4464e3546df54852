// `sagebench selftest`: the validator against itself. Plants every fault of ops/faults.cpp in the
// emulated op; each must be caught at its stage, and the op without a fault must pass.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "faults/faults.h"
#include "inputs/inputs.h"
#include "ops/op.h"

namespace sagebench {

// A small problem that makes faults visible.
struct SelftestCase {
  Case c;
  Kernel kernel;
  Inputs in;
};
std::vector<SelftestCase> selftest_cases();

// The outcome of one fault over all cases of its op.
struct FaultOutcome {
  bool caught = false;  // at the stage that the fault names, in at least one case, nowhere before
  std::string line;     // "<name>: caught at <stage> (<detail>)", or what went wrong
};
FaultOutcome try_fault(const Fault& fault, const std::vector<SelftestCase>& cases);

// One line per fault and a summary. Returns how many went wrong: 0 is a pass.
int run_selftest(std::ostream& out);

}  // namespace sagebench
