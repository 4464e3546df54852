// What a case must satisfy across its fields, with the pointer of the field to blame.
#pragma once
#include "scenario/json_reader.h"

namespace sagebench {

// Fills what depends on other fields: head_dim_v, sm_scale, rotary_dim, num_pages, input form.
void resolve_defaults(const Value& scenario, Case& c);
void check_case(const Value& scenario, const Case& c);

}  // namespace sagebench
