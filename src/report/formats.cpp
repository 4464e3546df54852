// The table of formats. To add one: its file, one row here; the command line and --out follow.
#include "report/text.h"

namespace sagebench {

const std::vector<Format>& formats() {
  static const std::vector<Format> table = {
      {"json", "--json", "results.json", render_json},
      {"csv", "--csv", "results.csv", render_csv},
      {"markdown", "--md", "results.md", render_markdown},
  };
  return table;
}

const char* name_of(CaseStatus status) {
  switch (status) {
    case CaseStatus::kPassed:
      return "passed";
    case CaseStatus::kWrong:
      return "wrong";
    case CaseStatus::kUnchecked:
      return "unchecked";
    case CaseStatus::kUnsupported:
      return "unsupported";
    case CaseStatus::kRejected:
      return "rejected";
    case CaseStatus::kSkipped:
      return "skipped";
    case CaseStatus::kError:
      return "error";
  }
  return "error";
}

int64_t values_compared(const CaseResult& result) {
  int64_t count = 0;
  for (const StageCheck& check : result.checks) count += check.checked;
  return count;
}

const StageCheck* first_failed_check(const CaseResult& result) {
  for (const StageCheck& check : result.checks)
    if (!check.passed) return &check;
  return nullptr;
}

}  // namespace sagebench
