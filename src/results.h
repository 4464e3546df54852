// The results files of a run: checked before any work. While it goes on its results are in
// FILE.partial, rewritten whole as cases end; FILE itself is replaced at the end.
#pragma once
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "core/error.h"
#include "plan.h"
#include "report/report.h"
#include "scenario/scenario.h"

namespace sagebench {

// What --resume goes on from.
struct Earlier {
  std::string file;  // empty: there is none
  Report report;
};

class ResultFiles {
 public:
  // Throws UsageError for a place that cannot be written. Creates --out's last folder if missing.
  ResultFiles(const Options& options, const Suite& suite);

  // --resume: the results of an interrupted run, or else of a finished one; errors, skips,
  // planted faults and (if this run is timed) results without latencies apart, which are run again.
  // Throws UsageError when the file holds what is not of this suite: nothing is lost without a
  // word.
  Earlier earlier(const Suite& suite, const std::vector<PlannedRun>& plan, bool timed) const;

  // After every case; throws NotSaved. Writing a long report takes no more than a tenth of the run:
  // a case that ends soon after a save of many waits for the next.
  void save(const Report& report);
  void finish(const Report& report) const;  // after the last one; throws NotSaved
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::string file_to_resume() const;  // "": none yet

  std::chrono::steady_clock::time_point next_save_{};
  std::vector<const Format*> formats_;  // of paths_, one each
  std::vector<std::string> paths_;
};

// A place that took results before takes no more: the disk is full.
struct NotSaved : Error {
  explicit NotSaved(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

// Takes the results over. Throws UsageError when another version or device measured them.
void resume(Earlier earlier, Report& report);

// A report without results yet: who measures what, where, and since when.
Report start_report(const Options& options, const Suite& suite, const Environment& environment);

}  // namespace sagebench
