// The command line as a typed struct. CLI11 lives only behind this header.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenario/case.h"

namespace sagebench {

enum class Command { kRun, kList, kDryRun, kDoctor, kSelftest, kPrint };

struct Options {
  Command command = Command::kRun;
  std::string text;               // kPrint: the help or the version
  std::vector<std::string> argv;  // as typed, the program first

  std::string config;
  std::vector<std::string> only;             // case or case@kernel
  std::string filter;                        // regular expression over case@kernel; empty: all
  std::vector<std::string> kernels;          // names; empty: all
  std::string device = "auto";               // auto, cpu, cuda or cuda:N
  std::string out;                           // directory; empty: none
  std::map<std::string, std::string> files;  // format name -> path
  std::optional<uint64_t> seed;
  std::optional<Rows> rows;
  bool resume = false;
  bool no_timing = false;
  bool profile = false;
  std::string inject;  // a planted fault's name; empty: none
};

// Throws UsageError: one line with a hint.
Options parse_command_line(int argc, const char* const* argv);

// The command that runs one result (case@kernel) again, alone, under the same options.
std::string rerun_command(const Options& options, const std::string& id);

const char* tool_version();  // "0.1.0"
const char* tool_commit();   // "" outside a git checkout

}  // namespace sagebench
