// Memory of the host that a case takes, known before anything is allocated.
#pragma once
#include <cstdint>

#include "ops/op.h"

namespace sagebench {

// Inputs, outputs of every stage and references, at the busiest moment. An estimate: within a
// factor of two where tensors are what counts.
int64_t host_bytes(const Case& c, const Kernel& kernel);

}  // namespace sagebench
