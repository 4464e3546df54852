// What a case is judged by: kernels, tolerances, properties, and expectations, which may differ per
// kernel: an object from kernel names to expectations, "*" for the others.
#pragma once
#include <string>
#include <vector>

#include "scenario/json_reader.h"

namespace sagebench {

// Kernels that an op has, by name.
std::vector<std::string> kernel_names(OpKind op);

void read_kernels(const Value& v, Case& c);
void read_properties(const Value& v, Case& c);
void read_tolerance(const Value& v, Case& c);
Json write_tolerance(const Case& c);
void read_expectation(const Value& v, Case& c);
Json write_expectation(const Case& c);

// Keys of one tolerance and of one expected range, for the schema.
std::vector<std::string> tolerance_keys();
std::vector<std::string> range_metrics();

}  // namespace sagebench
