// Scenario files: JSON (comments allowed) in, cases out. Errors are UsageErrors that name the file,
// the JSON pointer, the value, what is allowed and the nearest known key.
#pragma once
#include <string>
#include <vector>

#include "scenario/case.h"

namespace sagebench {

struct Suite {
  std::string name;
  std::string path;
  std::string hash;  // of the file's bytes
  std::vector<Case> cases;
};

struct ScenarioOverrides {
  std::optional<uint64_t> seed;
  std::optional<Rows> rows;
};

// Paths inside the file (traces, safetensors) are looked up beside the file, then from the working
// directory, then from the config's parent directories.
Suite load_suite(const std::string& path, const ScenarioOverrides& overrides = {});

// Of what is measured: the expanded scenario, and the bytes of the activations it reads.
std::string scenario_hash(const Case& c);

}  // namespace sagebench
