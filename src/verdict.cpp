#include "verdict.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "properties.h"

namespace sagebench {
namespace {

struct Cause {
  ExitCode code;
  std::string reason;
};

// Position in the order in which causes win; kOk, a remark, comes last.
size_t rank(ExitCode code) {
  constexpr ExitCode kOrder[] = {ExitCode::kWrongResult, ExitCode::kInternal, ExitCode::kNoGpu,
                                 ExitCode::kRegression, ExitCode::kNoVerdict};
  return static_cast<size_t>(std::find(std::begin(kOrder), std::end(kOrder), code) -
                             std::begin(kOrder));
}

// What a passing status says nothing about, or what its own checks deny.
std::vector<Cause> causes_of_passed(const CaseResult& r, bool on_gpu) {
  if (!r.as_expected)
    return {{ExitCode::kWrongResult, r.id + ": expected " + r.expected + ", but it passed"}};
  if (const StageCheck* check = first_failed_check(r))
    return {{ExitCode::kWrongResult,
             r.id + ": says passed, but stage " + name_of(check->stage) + " failed"}};
  std::vector<Cause> causes;
  if (values_compared(r) == 0 && r.bytes > 0)
    causes.push_back({ExitCode::kNoVerdict, r.id + ": ran, but nothing was compared"});
  if (!r.reason.empty()) causes.push_back({ExitCode::kOk, r.id + ": " + r.reason});
  for (const PropertyCheck& p : r.properties) {
    const Property* row = find_property(p.name);
    const bool impossible_here = !on_gpu && row && row->gpu_only;
    if (p.skipped)
      causes.push_back({impossible_here ? ExitCode::kOk : ExitCode::kNoVerdict,
                        r.id + ": property " + p.name + " was skipped: " + p.detail});
    else if (!p.passed)
      causes.push_back({ExitCode::kWrongResult, r.id + ": says passed, but " + p.name + " failed"});
  }
  return causes;
}

std::vector<Cause> causes_of(const CaseResult& r, bool on_gpu) {
  switch (r.status) {
    case CaseStatus::kPassed:
      return causes_of_passed(r, on_gpu);
    case CaseStatus::kWrong:
      return {{ExitCode::kWrongResult, r.id + ": " + r.reason}};
    case CaseStatus::kRejected:
      if (r.as_expected) return {};
      return {{ExitCode::kInternal, r.id + ": the operator refused a valid case: " + r.reason}};
    case CaseStatus::kSkipped:
      return {{ExitCode::kNoVerdict, r.id + ": skipped: " + r.reason}};
    case CaseStatus::kUnchecked:
      return {{ExitCode::kNoVerdict, r.id + ": " + r.reason}};
    case CaseStatus::kUnsupported:
      return {};  // decided over the case's kernels
    case CaseStatus::kError:
      break;
  }
  return {{ExitCode::kInternal, r.id + ": " + r.reason}};
}

// Whether this result answers for its case: it was run, or its refusal was expected.
bool settles(const CaseResult& r) {
  return r.status != CaseStatus::kUnsupported || (r.as_expected && r.expected == "unsupported");
}

}  // namespace

Verdict judge(const Report& report) {
  const bool on_gpu = report.environment.device != "cpu";
  std::vector<Cause> causes;
  std::map<std::string, bool> settled;         // by case
  std::map<std::string, std::string> refusal;  // the last reason for "no", by case
  bool measured = false;
  for (const CaseResult& r : report.cases) {
    for (Cause& cause : causes_of(r, on_gpu)) causes.push_back(std::move(cause));
    measured |= r.status == CaseStatus::kPassed || r.status == CaseStatus::kWrong ||
                r.status == CaseStatus::kUnchecked;
    settled[r.case_id] |= settles(r);
    if (r.status == CaseStatus::kUnsupported) refusal[r.case_id] = r.reason;
  }
  for (const auto& [id, is_settled] : settled)
    if (!is_settled)
      causes.push_back(
          {ExitCode::kNoVerdict, id + ": no selected kernel supports it: " + refusal[id]});
  if (!measured) causes.push_back({ExitCode::kNoVerdict, "no case was measured"});

  std::stable_sort(causes.begin(), causes.end(),
                   [](const Cause& a, const Cause& b) { return rank(a.code) < rank(b.code); });
  Verdict verdict;
  verdict.code = causes.empty() ? ExitCode::kOk : causes.front().code;
  for (Cause& cause : causes) verdict.reasons.push_back(std::move(cause.reason));
  return verdict;
}

const char* name_of(ExitCode code) {
  switch (code) {
    case ExitCode::kOk:
      return "passed";
    case ExitCode::kRegression:
      return "regression";
    case ExitCode::kUsage:
      return "bad usage or config";
    case ExitCode::kWrongResult:
      return "wrong result";
    case ExitCode::kNoVerdict:
      return "no verdict";
    case ExitCode::kNoGpu:
      return "no usable GPU";
    case ExitCode::kInternal:
      break;
  }
  return "CUDA or internal error";
}

}  // namespace sagebench
