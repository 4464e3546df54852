// Planted faults: each changes what one stage reads or leaves, as a real bug would. One row per
// fault, in src/faults; `sagebench selftest` must catch every one at the stage named.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "ops/op.h"
#include "ops/stages.h"
#include "scenario/case.h"

namespace sagebench {

// The copies that a faulty stage works from: the references and the other stages keep the true
// ones. Only the outputs of the fault's own stage survive.
struct FaultContext {
  Case& c;
  Inputs& in;
  Kernel& kernel;
  StageOutputs& out;
};

struct Fault {
  std::string name;                           // "dropped_tail"
  std::string what;                           // one phrase for the reader
  OpKind op;                                  // of the case that shows it
  Stage caught_at;                            // the stage whose check must fail first
  Stage stage;                                // the stage it is planted in
  std::function<void(FaultContext&)> before;  // changes what the stage reads, or empty
  std::function<void(FaultContext&)> after;   // changes what it leaves, or empty
  bool (*fits)(const Case&, const Kernel&);   // whether it can change anything in a case of its op

  bool can_act(const Case& c, const Kernel& kernel) const { return c.op == op && fits(c, kernel); }
};
const std::vector<Fault>& faults();
const Fault* find_fault(const std::string& name);

}  // namespace sagebench
