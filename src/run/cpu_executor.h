// The emulated op as the subject: every stage of the tool works without a GPU, and `selftest` has
// something to plant faults in.
#pragma once
#include <memory>

#include "run/executor.h"

namespace sagebench {

std::unique_ptr<Executor> make_cpu_executor();

}  // namespace sagebench
