// A config whose cases take next to no time, and the lines of what a run of it says.
#pragma once
#include <sstream>
#include <string>
#include <vector>

namespace sagebench {

// Cases "tiny/qo_len=5_70", "tiny/qo_len=5_71" and so on, each well under a second on the CPU.
inline std::string tiny_config(int cases) {
  std::string lengths;
  for (int i = 0; i < cases; ++i)
    lengths += (i > 0 ? ",[5," : "[5,") + std::to_string(70 + i) + "]";
  return R"({"schema": "sagebench.scenario/1", "name": "tiny", "scenarios": [
    {"name": "tiny", "op": "attention", "batch": {"qo_len": [5, 70]},
     "model": {"num_qo_heads": 2, "num_kv_heads": 1, "head_dim": 64},
     "timing": {"min_time_s": 0.001, "max_time_s": 0.01},
     "sweep": {"cartesian": {"batch.qo_len": [)" +
         lengths + "]}}}]}";
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace sagebench
