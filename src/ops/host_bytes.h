// Memory of the host that a case takes, known before anything is allocated.
#pragma once
#include <cstdint>

#include "ops/op.h"

namespace sagebench {

// Inputs, outputs of every stage and references of `rows` rows of O, at the busiest moment. An
// estimate, on the high side: one and a half times what was measured, where tensors are what
// counts.
int64_t host_bytes(const Case& c, const Kernel& kernel, int64_t rows);

}  // namespace sagebench
