// The verdict fails closed: one test per way of not having measured, or of being wrong.
#include "verdict.h"

#include <gtest/gtest.h>

#include "support/make_report.h"

namespace sagebench {
namespace {

CaseResult refused(const std::string& case_id, CaseStatus status, const std::string& expected) {
  CaseResult r = make_result(case_id, "other");
  r.status = status;
  r.expected = expected;
  r.reason = "head_dim 256 is over 128";
  r.as_expected = (status == CaseStatus::kUnsupported && expected == "unsupported") ||
                  (status == CaseStatus::kRejected && expected == "reject");
  return r;
}

Report report_of(std::vector<CaseResult> cases, const std::string& device = "cuda:0") {
  Report report;
  report.environment.device = device;
  report.cases = std::move(cases);
  return report;
}

ExitCode code_of(std::vector<CaseResult> cases, const std::string& device = "cuda:0") {
  return judge(report_of(std::move(cases), device)).code;
}

const CaseResult good = make_passed("a", "k");

TEST(Verdict, PassesWhatWasMeasuredAndRight) {
  const Verdict verdict = judge(report_of({good, make_passed("b", "k")}));
  EXPECT_EQ(verdict.code, ExitCode::kOk);
  EXPECT_TRUE(verdict.reasons.empty());
}

TEST(Verdict, NothingMeasuredIsNoVerdict) {
  EXPECT_EQ(code_of({}), ExitCode::kNoVerdict);
  EXPECT_EQ(code_of({refused("a", CaseStatus::kUnsupported, "unsupported")}), ExitCode::kNoVerdict);
}

TEST(Verdict, AWrongResultNamesItsCaseAndReason) {
  const Verdict verdict = judge(report_of({good, make_wrong("bad", "k")}));
  EXPECT_EQ(verdict.code, ExitCode::kWrongResult);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_NE(verdict.reasons[0].find("bad@k: v_codes"), std::string::npos) << verdict.reasons[0];
}

TEST(Verdict, HighestCauseWinsAndComesFirst) {
  CaseResult error = make_result("e", "k");
  error.status = CaseStatus::kError;
  CaseResult skipped = make_result("s", "k");
  skipped.status = CaseStatus::kSkipped;
  EXPECT_EQ(code_of({good, skipped}), ExitCode::kNoVerdict);
  EXPECT_EQ(code_of({good, skipped, error}), ExitCode::kInternal);
  const Verdict verdict = judge(report_of({good, skipped, error, make_wrong("w", "k")}));
  EXPECT_EQ(verdict.code, ExitCode::kWrongResult);
  ASSERT_EQ(verdict.reasons.size(), 3u);
  EXPECT_EQ(verdict.reasons[0].rfind("w@k", 0), 0u);
  EXPECT_EQ(verdict.reasons[1].rfind("e@k", 0), 0u);
  EXPECT_EQ(verdict.reasons[2].rfind("s@k", 0), 0u);
}

TEST(Verdict, ACaseThatNoKernelSupportsIsNoVerdict) {
  EXPECT_EQ(code_of({good, refused("b", CaseStatus::kUnsupported, "ok")}), ExitCode::kNoVerdict);
}

TEST(Verdict, UnsupportedOnOneKernelIsFineWhereAnotherMeasuredTheCase) {
  EXPECT_EQ(code_of({good, refused("a", CaseStatus::kUnsupported, "ok")}), ExitCode::kOk);
}

TEST(Verdict, AnExpectedRefusalPasses) {
  EXPECT_EQ(code_of({good, refused("b", CaseStatus::kUnsupported, "unsupported")}), ExitCode::kOk);
  EXPECT_EQ(code_of({good, refused("b", CaseStatus::kRejected, "reject")}), ExitCode::kOk);
}

TEST(Verdict, PassingWhereARefusalWasExpectedIsWrong) {
  for (const char* expected : {"unsupported", "reject"}) {
    CaseResult r = make_passed("b", "k");
    r.expected = expected;
    r.as_expected = false;
    EXPECT_EQ(code_of({good, r}), ExitCode::kWrongResult) << expected;
  }
}

TEST(Verdict, AnUnexpectedRejectionIsAnInternalError) {
  EXPECT_EQ(code_of({good, refused("b", CaseStatus::kRejected, "ok")}), ExitCode::kInternal);
}

TEST(Verdict, APassingStatusDoesNotHideAFailedCheckOrProperty) {
  CaseResult r = good;
  r.checks[0].passed = false;
  EXPECT_EQ(code_of({r}), ExitCode::kWrongResult);
  r = good;
  r.properties[1].passed = false;
  EXPECT_EQ(code_of({r}), ExitCode::kWrongResult);
}

TEST(Verdict, WithoutAnyCheckThereIsNoVerdict) {
  CaseResult r = good;
  r.checks.clear();
  EXPECT_EQ(code_of({r}), ExitCode::kNoVerdict);
  r.flops = r.bytes = 0;  // an empty batch
  EXPECT_EQ(code_of({r}), ExitCode::kOk);
}

TEST(Verdict, ASkippedPropertyIsNoVerdictOnAGpuAndARemarkOnTheCpu) {
  CaseResult r = good;
  r.properties[1] = {"graph_replay", false, true, "needs a GPU"};
  EXPECT_EQ(code_of({r}), ExitCode::kNoVerdict);
  const Verdict on_cpu = judge(report_of({r}, "cpu"));
  EXPECT_EQ(on_cpu.code, ExitCode::kOk);
  ASSERT_EQ(on_cpu.reasons.size(), 1u);
  EXPECT_NE(on_cpu.reasons[0].find("graph_replay"), std::string::npos);
}

// Too few rows is no property of the machine.
TEST(Verdict, APropertyWithNothingToJudgeIsNoVerdictAnywhere) {
  for (const char* device : {"cpu", "cuda:0"}) {
    CaseResult r = good;
    r.properties[1] = {"determinism", false, true, "no row was computed"};
    EXPECT_EQ(code_of({r}, device), ExitCode::kNoVerdict) << device;
  }
}

TEST(Verdict, WhatComparedNoValueIsNoVerdict) {
  CaseResult r = good;
  for (StageCheck& check : r.checks) check.checked = 0;
  EXPECT_EQ(code_of({r}), ExitCode::kNoVerdict);
  r.status = CaseStatus::kUnchecked;
  r.reason = "ran, but nothing was compared";
  const Verdict verdict = judge(report_of({good, r}));
  EXPECT_EQ(verdict.code, ExitCode::kNoVerdict);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0], r.id + ": " + r.reason);
}

TEST(Verdict, WhatAPassedCaseCouldNotShowIsSaid) {
  CaseResult r = good;
  r.reason = "writes nothing";
  const Verdict verdict = judge(report_of({r}));
  EXPECT_EQ(verdict.code, ExitCode::kOk);
  EXPECT_EQ(verdict.reasons, std::vector<std::string>{r.id + ": writes nothing"});
}

TEST(Verdict, AProfiledResultIsNoVerdict) {
  CaseResult r = good;
  r.checks.clear();
  r.timings_valid = false;
  const Verdict verdict = judge(report_of({r}));
  EXPECT_EQ(verdict.code, ExitCode::kNoVerdict);
  EXPECT_EQ(verdict.reasons.size(), 1u);
}

}  // namespace
}  // namespace sagebench
