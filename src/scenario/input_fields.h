// The `input` block: where q, k and v come from.
#pragma once
#include <vector>

#include "scenario/fields.h"

namespace sagebench {

std::vector<Field> input_fields();

// Heads, dims and lengths of the case from its safetensors file; what the scenario says otherwise
// is an error. `scenario` is the whole scenario.
void adopt_file(const Value& scenario, Case& c);

}  // namespace sagebench
