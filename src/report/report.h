// The report: everything a run found, as plain data. Writers turn it into a format, json.cpp also
// reads it back; verdict.h judges it. Schema sagebench.results/1.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "metrics.h"
#include "run/executor.h"
#include "scenario/case.h"

namespace sagebench {

enum class CaseStatus {
  kPassed,       // measured and right
  kWrong,        // a stage check, a limit, a property or a hygiene rule failed
  kUnchecked,    // ran, but no value was compared
  kUnsupported,  // the kernel says no, with the reason
  kRejected,     // the operator refused its arguments, with the status' reason
  kSkipped,      // not run: too little memory, or the device cannot run the kernel
  kError,        // CUDA or internal error
};
const char* name_of(CaseStatus status);

struct CaseResult {
  std::string id;  // case@kernel
  std::string case_id, kernel, op, config, scenario_json, scenario_hash;
  std::string dtype,
      shape;  // one phrase for tables: "4 seqs, 5258 q, 5258 kv, 32/8 heads, d128, causal"
  std::string settings;  // what ran: "int8 per_thread, smooth_k mean, ..., fp8_e4m3, exp2"
  CaseStatus status = CaseStatus::kError;
  std::string reason;    // one line: why not passed; also why an expected refusal passed, and what
                         // a passed case could not show
  std::string fault;     // planted by --inject; empty: none
  std::string expected;  // "ok", "unsupported", ...
  std::string expected_why;
  bool as_expected = false;  // status agrees with the case's expectation

  std::vector<StageCheck> checks;
  std::optional<Accuracy> accuracy;
  std::vector<PropertyCheck> properties;

  double flops = 0, bytes = 0;
  std::optional<Latency> cold, hot;
  std::vector<Latency> stages;
  std::optional<double> tops, gb_per_s;      // from the cold median
  std::optional<double> percent_of_ceiling;  // null until ceilings are measured
  std::optional<std::string> binding_ceiling;
  DeviceState state_before, state_after;
  bool timings_valid = true;
  double seconds = 0;  // wall time of the whole case: references, run, timing
  std::string rerun;   // the command that runs this case alone
};

struct Report {
  std::string tool_version, commit, config_path, config_hash, suite, started_at;
  std::vector<std::string> argv;
  Environment environment;
  std::vector<CaseResult> cases;
};

// One row per format.
struct Format {
  const char* name;       // "json"
  const char* flag;       // "--json"
  const char* file_name;  // "results.json", inside --out
  std::string (*render)(const Report& report);
};
const std::vector<Format>& formats();  // json, csv, markdown

// The terminal: a header, one row per result as it finishes, a block per failure, a summary.
struct ConsoleStyle {
  size_t id_width = 40;  // of the widest id that will be printed
  bool colour = false;
};
std::string render_console_header(const Report& report, const ConsoleStyle& style = {});
std::string render_console_row(const CaseResult& result, const ConsoleStyle& style = {});
std::string render_console_failure(const CaseResult& result, const ConsoleStyle& style = {});
std::string render_console_summary(const Report& report, const ConsoleStyle& style = {});

// Said wherever latencies of the CPU path are shown.
inline constexpr char kCpuNote[] =
    "CPU: emulated op as the subject; latencies are not kernel performance";

// Elements that the stage checks looked at.
int64_t values_compared(const CaseResult& result);

// The stage to blame: the first failed check in pipeline order; nullptr when none failed.
const StageCheck* first_failed_check(const CaseResult& result);

// Writes to a temporary file beside `path` and renames it: a crash never leaves half a file.
// Throws UsageError, and leaves nothing behind, when it cannot.
void write_file_atomically(const std::string& path, const std::string& content);
// The same without touching `path`: throws the UsageError that a write would throw.
void check_writable(const std::string& path);

// Reads a results file back (for --resume and later comparison). Throws UsageError.
Report read_json_report(const std::string& path);

}  // namespace sagebench
