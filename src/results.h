// The results files of a run: checked before any work. While it goes on its results are in
// FILE.partial, rewritten whole after every case; FILE itself is replaced at the end.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "plan.h"
#include "report/report.h"
#include "scenario/scenario.h"

namespace sagebench {

class ResultFiles {
 public:
  // Throws UsageError for a place that cannot be written. Creates --out's last folder if missing.
  explicit ResultFiles(const Options& options);

  // --resume: takes over the results of an interrupted run, or else of a finished one; errors and
  // skips that the plan runs again apart. Throws UsageError when another version or device wrote
  // the file, or when it holds what is not of this suite: nothing is lost without a word.
  void resume(const Suite& suite, const std::vector<PlannedRun>& plan, Report& report) const;

  void save(const Report& report) const;    // after every case
  void finish(const Report& report) const;  // after the last one
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::string file_to_resume() const;  // "": none yet

  std::vector<const Format*> formats_;  // of paths_, one each
  std::vector<std::string> paths_;
};

// A report without results yet: who measures what, where, and since when.
Report start_report(const Options& options, const Suite& suite, const Environment& environment);

}  // namespace sagebench
