// The results files of a run: checked before any work, rewritten whole after every case.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "report/report.h"
#include "scenario/scenario.h"

namespace sagebench {

class ResultFiles {
 public:
  // Throws UsageError for a place that cannot be written. Creates --out's last folder if missing.
  explicit ResultFiles(const Options& options);

  // --resume: takes over what the results file holds of this suite's cases (same scenario hash),
  // errors and skips apart. Throws UsageError when another version or device wrote the file.
  void resume(const Suite& suite, Report& report) const;

  void write(const Report& report) const;
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<const Format*> formats_;  // of paths_, one each
  std::vector<std::string> paths_;
};

// A report without results yet: who measures what, where, and since when.
Report start_report(const Options& options, const Suite& suite, const Environment& environment);

}  // namespace sagebench
