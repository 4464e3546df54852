// The map: the stages in order, then one catch ladder to exit codes.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "cli.h"
#include "core/error.h"
#include "core/nearest.h"
#include "evaluate.h"
#include "faults/faults.h"
#include "plan.h"
#include "report/report.h"
#include "results.h"
#include "run/executor.h"
#include "scenario/scenario.h"
#include "selftest.h"
#include "verdict.h"

namespace sagebench {
namespace {

ExitCode print(const std::string& text) {
  std::cout << text << std::flush;
  return ExitCode::kOk;
}

// Says what is missing and what to do; finding something missing is its job, not a failure.
ExitCode print_doctor() {
  for (const DoctorLine& line : doctor()) {
    std::cout << (line.ok ? "ok       " : "missing  ") << line.what << ": " << line.state;
    if (!line.remedy.empty()) std::cout << " -> " << line.remedy;
    std::cout << "\n";
  }
  return ExitCode::kOk;
}

// The planted fault of --inject, or nullptr.
const Fault* planted_fault(const Options& options, const std::vector<PlannedRun>& plan) {
  if (options.inject.empty()) return nullptr;
  const Fault* fault = find_fault(options.inject);
  if (!fault) {
    std::vector<std::string> names;
    for (const Fault& f : faults()) names.push_back(f.name);
    throw UsageError("--inject: no fault '" + options.inject + "'" +
                     did_you_mean(options.inject, names) + "; selftest lists them");
  }
  for (const PlannedRun& run : plan)
    if (run.c->op == fault->op) return fault;
  throw Error(ExitCode::kNoVerdict, "--inject: " + fault->name + " is a fault of " +
                                        op_of(fault->op).name + ", which no selected case runs");
}

ConsoleStyle style_for(const std::vector<PlannedRun>& plan) {
  ConsoleStyle style{.id_width = 11, .colour = ::isatty(STDOUT_FILENO) == 1};
  for (const PlannedRun& run : plan) style.id_width = std::max(style.id_width, run.id().size());
  return style;
}

ExitCode run_config(const Options& options) {
  const Suite suite = load_suite(options.config, {options.seed, options.rows});
  const std::vector<PlannedRun> plan = make_plan(suite, options);
  if (options.command == Command::kList) return print(render_list(plan));
  if (options.command == Command::kDryRun) return print(render_dry_run(plan));

  const Fault* fault = planted_fault(options, plan);
  const bool timed = !fault && !options.no_timing;
  ResultFiles files(options, suite);
  Earlier earlier;
  if (options.resume) earlier = files.earlier(suite, plan, timed);
  std::string note;
  const std::unique_ptr<Executor> executor = make_executor(options.device, &note);
  if (fault && executor->is_gpu())
    throw UsageError("--inject: faults are planted in the CPU subject; add --device cpu");
  Report report = start_report(options, suite, executor->environment());
  resume(std::move(earlier), report);
  std::set<std::string> done;
  for (const CaseResult& result : report.cases) done.insert(result.id);

  const ConsoleStyle style = style_for(plan);
  if (!note.empty()) print("note: " + note + "\n");
  print(render_console_header(report, style));
  std::string not_saved;  // why
  try {
    for (const PlannedRun& run : plan) {
      if (done.contains(run.id())) continue;
      CaseResult result = evaluate(*executor, *run.c, run.kernel,
                                   {.timed = timed, .profile = options.profile, .fault = fault});
      if (fault) result.fault = fault->name;
      result.rerun = rerun_command(options, result.id);
      print(render_console_row(result, style) + render_console_failure(result, style));
      if (options.profile) {
        const ProfileCommands commands = profile_commands(result.id, options.config);
        print("    " + commands.ncu + "\n    " + commands.nsys + "\n");
      }
      report.cases.push_back(std::move(result));
      files.save(report);
    }
    files.finish(report);
  } catch (const NotSaved& e) {
    not_saved = e.what();
  }
  if (!done.empty()) print(std::to_string(done.size()) + " results kept from before\n");
  print(render_console_summary(report, style));
  if (not_saved.empty())
    for (const std::string& path : files.paths()) print("report: " + path + "\n");

  Verdict verdict = judge(report);
  if (!not_saved.empty() && verdict.code != ExitCode::kWrongResult)
    verdict.code = ExitCode::kInternal;
  for (const std::string& reason : verdict.reasons) print("  " + reason + "\n");
  print("verdict: " + std::string(name_of(verdict.code)) + " (exit " +
        std::to_string(static_cast<int>(verdict.code)) + ")\n");
  if (!not_saved.empty()) throw Error(verdict.code, not_saved);
  return verdict.code;
}

ExitCode run(const Options& options) {
  switch (options.command) {
    case Command::kPrint:
      return print(options.text);
    case Command::kDoctor:
      return print_doctor();
    case Command::kSelftest:
      return run_selftest(std::cout) == 0 ? ExitCode::kOk : ExitCode::kWrongResult;
    case Command::kList:
    case Command::kDryRun:
    case Command::kRun:
      break;
  }
  return run_config(options);
}

int fail(ExitCode code, const std::string& message) {
  std::cerr << "sagebench: " << printable(message) << "\n";
  return static_cast<int>(code);
}

}  // namespace
}  // namespace sagebench

int main(int argc, char** argv) {
  using sagebench::ExitCode;
  try {
    const ExitCode code = sagebench::run(sagebench::parse_command_line(argc, argv));
    if (!std::cout.flush() && code != ExitCode::kWrongResult)
      return sagebench::fail(ExitCode::kInternal, "the standard output cannot be written");
    return static_cast<int>(code);
  } catch (const sagebench::Error& e) {
    return sagebench::fail(e.code, e.what());
  } catch (const std::bad_alloc&) {
    return sagebench::fail(ExitCode::kNoVerdict,
                           "not enough host memory; select fewer or smaller cases");
  } catch (const std::exception& e) {
    return sagebench::fail(ExitCode::kInternal, std::string("internal error: ") + e.what());
  }
}
