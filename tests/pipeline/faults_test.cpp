// Every fault through the whole pipeline: the case is wrong, its first failed check is at the right
// stage, and the process would exit with 3.
#include <gtest/gtest.h>

#include <set>

#include "evaluate.h"
#include "run/cpu_executor.h"
#include "selftest.h"
#include "verdict.h"

namespace sagebench {
namespace {

// Shown only by inputs that no scenario gives: a NaN, an overflow, a page that is skipped.
const std::set<std::string> kNeedOddInputs = {"nan_laundered", "fp16_saturated",
                                              "minus_one_written"};

const std::vector<SelftestCase>& cases() {
  static const std::vector<SelftestCase> all = selftest_cases();
  return all;
}

CaseResult evaluate_on(const SelftestCase& s, const Fault* fault) {
  EvaluateOptions options;
  options.timed = false;
  options.fault = fault;
  const auto executor = make_cpu_executor();
  return evaluate(*executor, s.c, s.kernel, options);
}

ExitCode exit_code_of(CaseResult result) {
  Report report;
  report.cases.push_back(std::move(result));
  return judge(report).code;
}

TEST(Pipeline, WithoutAFaultPasses) {
  for (const SelftestCase& s : cases()) {
    const CaseResult result = evaluate_on(s, nullptr);
    EXPECT_EQ(result.status, CaseStatus::kPassed) << s.c.id << ": " << result.reason;
    EXPECT_EQ(exit_code_of(result), ExitCode::kOk);
  }
}

class EveryFault : public testing::TestWithParam<size_t> {};

TEST_P(EveryFault, FailsTheRunWithExitCode3) {
  const Fault& fault = faults()[GetParam()];
  if (kNeedOddInputs.count(fault.name)) {
    const FaultOutcome outcome = try_fault(fault, cases());
    EXPECT_TRUE(outcome.caught) << outcome.line;
    return;
  }
  int wrong = 0;
  for (const SelftestCase& s : cases()) {
    if (!fault.can_act(s.c, s.kernel)) continue;
    const CaseResult result = evaluate_on(s, &fault);
    if (result.status == CaseStatus::kPassed) continue;  // not every case shows every fault
    ++wrong;
    EXPECT_EQ(result.status, CaseStatus::kWrong) << result.reason;
    EXPECT_EQ(exit_code_of(result), ExitCode::kWrongResult);
    for (const StageCheck& check : result.checks)
      if (!check.passed) {
        EXPECT_EQ(check.stage, fault.caught_at) << check.rule << ": " << check.detail;
        break;
      }
  }
  EXPECT_GT(wrong, 0);
}

std::string fault_name(const testing::TestParamInfo<size_t>& info) {
  return faults()[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, testing::Range(size_t{0}, faults().size()),
                         fault_name);

}  // namespace
}  // namespace sagebench
