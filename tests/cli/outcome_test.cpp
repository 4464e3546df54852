// What the tool says of runs that could not judge everything: nothing to write, nothing compared,
// properties that this machine or this batch does not have.
#include <gtest/gtest.h>

#include "report/report.h"
#include "support/process.h"

namespace sagebench {
namespace {

struct Outcome {
  ProcessResult process;
  CaseResult result;  // the first
};

// One scenario named "s" with these fields, on the CPU.
Outcome run_scenario(const std::string& fields) {
  const ScratchFolder folder;
  write_file(folder / "c.json",
             R"({"schema": "sagebench.scenario/1", "scenarios": [{"name": "s",
                 "model": {"num_qo_heads": 2, "num_kv_heads": 1, "head_dim": 64}, )" +
                 fields + "}]}");
  Outcome o;
  o.process = run_tool({"--config", folder / "c.json", "--device", "cpu", "--no-timing", "--json",
                        folder / "r.json"});
  const Report report = read_json_report(folder / "r.json");
  EXPECT_FALSE(report.cases.empty());
  if (!report.cases.empty()) o.result = report.cases[0];
  return o;
}

constexpr char kNothingWritten[] = "nothing is to be written";

TEST(Outcome, ACaseWithNothingToWritePassesAndSaysSo) {
  for (const char* fields : {R"("op": "attention", "batch": {"qo_len": [0, 0]})",
                             R"("op": "attention", "batch": {"qo_len": [0], "kv_len": [7]})",
                             R"("op": "prefill", "batch": {"qo_len": [0]})",
                             R"("op": "kv_cache_write", "batch": {"qo_len": [0, 0]})",
                             R"("op": "kv_cache_write", "batch": {"qo_len": [2, 3]},
           "cache": {"page_size": 4, "page_ids": [-1, -1]})",
                             R"("op": "kv_cache_write", "batch": {"qo_len": [2]},
           "cache": {"index": "slot_mapping", "slots": [-1, -1]})"}) {
    const Outcome o = run_scenario(fields);
    EXPECT_EQ(o.process.code, 0) << fields << o.process.out;
    EXPECT_NE(o.process.out.find("  passed: " + std::string(kNothingWritten)), std::string::npos)
        << o.process.out;
    EXPECT_EQ(o.result.reason.rfind(kNothingWritten, 0), 0u) << o.result.reason;
    EXPECT_GT(values_compared(o.result), 0) << fields;
  }
  const Outcome some = run_scenario(
      R"("op": "kv_cache_write", "batch": {"qo_len": [2, 3]},
         "cache": {"page_size": 4, "page_ids": [-1, 0]})");
  EXPECT_EQ(some.process.code, 0);
  EXPECT_EQ(some.result.reason, "");
}

TEST(Outcome, APropertyThatHasNothingToCompareIsNoVerdict) {
  const std::pair<const char*, const char*> skipped[] = {
      {R"("op": "attention", "batch": {"qo_len": [0]},
          "validate": {"properties": ["determinism"]})",
       "no row was computed"},
      {R"("op": "kv_cache_write", "batch": {"qo_len": [0, 0]},
          "validate": {"properties": ["alone_equals_batch"]})",
       "the batch has no token"},
      {R"("op": "kv_cache_write", "batch": {"qo_len": [3]},
          "cache": {"page_ids": [-1]}, "validate": {"properties": ["page_permutation"]})",
       "no token is written to the cache"},
      {R"("op": "attention", "batch": {"qo_len": [3]},
          "validate": {"properties": ["permute_sequences"]})",
       "one sequence has no other order"}};
  for (const auto& [fields, why] : skipped) {
    const Outcome o = run_scenario(fields);
    EXPECT_EQ(o.process.code, 4) << fields << o.process.out;
    EXPECT_NE(o.process.out.find(std::string(" skipped: ") + why), std::string::npos)
        << o.process.out;
  }
}

TEST(Outcome, APropertyThatNeedsAGpuIsListedAsSkipped) {
  const Outcome o = run_scenario(R"("op": "attention", "batch": {"qo_len": [3]},
                                    "validate": {"properties": ["graph_replay"]})");
  EXPECT_EQ(o.process.code, 0) << o.process.out;
  EXPECT_NE(o.process.out.find("property graph_replay skipped: needs a GPU"), std::string::npos);
  ASSERT_EQ(o.result.properties.size(), 2u);
  EXPECT_TRUE(o.result.properties[1].skipped);
  EXPECT_EQ(o.result.properties[1].detail, "needs a GPU");
}

TEST(Outcome, ARangeWithoutRowsToMeasureIsUnchecked) {
  for (const char* more : {R"("batch": {"qo_len": [0]})",
                           R"("batch": {"qo_len": [3]}, "validate": {"rows": "off"})"}) {
    const Outcome o = run_scenario(
        R"("op": "attention", "expect": {"rel_l1": [0, 1], "why": "w"}, )" + std::string(more));
    EXPECT_EQ(o.process.code, 4) << o.process.out;
    EXPECT_EQ(o.result.status, CaseStatus::kUnchecked) << o.process.out;
    EXPECT_FALSE(o.result.as_expected);
  }
}

// It ran where a refusal was expected, checked or not.
TEST(Outcome, AnUncheckedRunDoesNotHideAMissingRefusal) {
  const Outcome o =
      run_scenario(R"("op": "attention", "batch": {"qo_len": [3]}, "expect": "unsupported",
                      "validate": {"rows": "off"})");
  EXPECT_EQ(o.process.code, 3) << o.process.out;
}

}  // namespace
}  // namespace sagebench
