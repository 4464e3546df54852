// The `batch` block: lengths given, drawn from a distribution, or taken from a trace.
#pragma once
#include <vector>

#include "scenario/fields.h"

namespace sagebench {

// Positions and row starts are int32 in every kernel.
constexpr int64_t kMaxTokens = 2147483647;
constexpr int64_t kMaxRequests = 1 << 20;

void read_batch(const Value& v, Case& c);
Json write_batch(const Case& c);
std::vector<Field> batch_fields();  // keys only: the block is read as a whole

// Keys of an object that stands for a list of lengths: the forms, then what goes with them.
std::vector<std::string> length_forms();
std::vector<std::string> length_keys();

}  // namespace sagebench
