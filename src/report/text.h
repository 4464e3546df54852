// What the writers share: their names and small pieces of text.
#pragma once
#include <string>

#include "report/report.h"

namespace sagebench {

// The writers behind the rows of formats().
std::string render_json(const Report& report);
std::string render_csv(const Report& report);
std::string render_markdown(const Report& report);

// A comparison that was not made has no slices: it is absent, not a perfect score.
inline bool is_measured(const ErrorReport& errors) {
  return !errors.worst.empty();
}

// Something to look at. "Unsupported" is not: another kernel may do the case, and verdict.h says so
// when none does. Nor is "unchecked": nothing is known of it.
inline bool is_failure(const CaseResult& result) {
  return !result.as_expected && result.status != CaseStatus::kUnsupported &&
         result.status != CaseStatus::kUnchecked;
}

// Shortest text that reads back as the same double; "nan", "inf", "-inf".
std::string shortest(double value);
// printf's %.*g.
std::string significant(double value, int digits);
// "812 TOPS", "3120 GB/s", or "-" where neither is known.
std::string speed_text(const CaseResult& result);
// "123.4 +-0.5 us" (half width of the 95 % interval of the median), "123.4 us" of one sample, or
// "-" where not measured.
std::string latency_text(const CaseResult& result);
// "at sequence 1, head 3: expected 0.5, got 0.25 (limit 0.1)", what is known of it.
std::string where_text(const StageCheck& check);

}  // namespace sagebench
