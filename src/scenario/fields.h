// The format as one table: every key of a scenario with how it is read, how it is echoed and which
// ops use it. Blocks are fields with children.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "scenario/json_reader.h"

namespace sagebench {

enum FieldOps { kForAll, kCacheOps, kSoftmaxOps };  // every op, those that cache, that attend

struct Field {
  std::string key;
  FieldOps ops = kForAll;            // the ops that use it
  std::vector<std::string> allowed;  // canonical names, where only these are allowed
  std::function<void(const Value&, Case&)> read;
  std::function<Json(const Case&)> write;  // null: left out
  std::vector<Field> children;             // of a block
};

// In reading order: what others depend on comes first.
const std::vector<Field>& scenario_fields();

void read_fields(const Value& object, const std::vector<Field>& fields, Case& c);
Json write_fields(const std::vector<Field>& fields, const Case& c);

}  // namespace sagebench
