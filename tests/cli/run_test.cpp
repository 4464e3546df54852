// The tool from outside: what it prints, writes and exits with.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "faults/faults.h"
#include "report/report.h"
#include "support/process.h"
#include "support/tiny_config.h"

namespace sagebench {
namespace {

constexpr char kSmoke[] = "configs/smoke.json";

TEST(Tool, VersionHelpAndNothing) {
  EXPECT_EQ(run_tool({"--version"}).code, 0);
  EXPECT_EQ(run_tool({"--version"}).out.rfind("sagebench 0.", 0), 0u);
  EXPECT_EQ(run_tool({"--help"}).code, 0);
  const ProcessResult nothing = run_tool({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(lines_of(nothing.err).size(), 1u);
  EXPECT_EQ(run_tool({"--no-such-option"}).code, 2);
}

TEST(Tool, DoctorSaysWhatIsMissingAndWhatToDo) {
  const ProcessResult run = run_tool({"doctor"});
  EXPECT_EQ(run.code, 0);
  EXPECT_GE(lines_of(run.out).size(), 3u);
  EXPECT_TRUE(has_gpu() || run.out.find("GPU: none") != std::string::npos) << run.out;
}

TEST(Tool, ListedIdsAreUniqueAndAccepted) {
  const ProcessResult list = run_tool({"--config", kSmoke, "--list"});
  ASSERT_EQ(list.code, 0) << list.err;
  const std::vector<std::string> ids = lines_of(list.out);
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  for (const std::string& id : ids)
    EXPECT_EQ(run_tool({"--config", kSmoke, "--list", "--only", id}).out, id + "\n");
}

TEST(Tool, DryRunTellsCostAndWhyNot) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const ProcessResult run = run_tool({"--config", folder / "c.json", "--dry-run"});
  ASSERT_EQ(run.code, 0) << run.err;
  // (5 * 5 + 70 * 70) pairs, 2 heads, 4 * 64 flops a pair
  EXPECT_NE(run.out.find("2.522 MFLOP"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("150 of 150 rows"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("B on the GPU"), std::string::npos) << run.out;
  write_file(folder / "c.json",
             R"({"schema": "sagebench.scenario/1", "name": "wide", "scenarios": [{"name": "wide",
                 "op": "attention", "batch": {"qo_len": [4]}, "model": {"head_dim": 256}}]})");
  const ProcessResult wide = run_tool({"--config", folder / "c.json", "--dry-run"});
  EXPECT_NE(wide.out.find("unsupported: "), std::string::npos) << wide.out;
  const ProcessResult wide_run = run_tool({"--config", folder / "c.json", "--device", "cpu"});
  EXPECT_EQ(wide_run.code, 4) << wide_run.out;
}

TEST(Tool, SelectingNothingIsExitFourAndNamesNearIds) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(3));
  const std::string config = folder / "c.json";
  ProcessResult run = run_tool({"--config", config, "--filter", "no such case"});
  EXPECT_EQ(run.code, 4);
  EXPECT_NE(run.err.find("nothing selected"), std::string::npos) << run.err;
  std::string id = lines_of(run_tool({"--config", config, "--list"}).out).at(1);
  const std::string right = id;
  std::swap(id[0], id[1]);
  run = run_tool({"--config", config, "--only", id});
  EXPECT_EQ(run.code, 4);
  EXPECT_NE(run.err.find(right), std::string::npos) << run.err;
  run = run_tool({"--config", config, "--only", right + "@nosuch"});
  EXPECT_EQ(run.code, 4);
  EXPECT_NE(run.err.find(right + "@"), std::string::npos) << run.err;
  EXPECT_EQ(run_tool({"--config", config, "--filter", "("}).code, 2);
  run = run_tool({"--config", config, "--kernel", "nosuch"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("there are"), std::string::npos) << run.err;
}

TEST(Tool, ARunWritesEveryFormatAndItsRerunCommandWorks) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(2));
  const ProcessResult run =
      run_tool({"--config", folder / "c.json", "--device", "cpu", "--out", folder / "out"});
  ASSERT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find(kCpuNote), std::string::npos);
  EXPECT_EQ(run.out.find('\033'), std::string::npos) << "colour without a terminal";
  for (const Format& format : formats())
    EXPECT_FALSE(read_file(folder / ("out/" + std::string(format.file_name))).empty());
  const Report report = read_json_report(folder / "out/results.json");
  ASSERT_GE(report.cases.size(), 2u);
  EXPECT_EQ(report.environment.device, "cpu");
  std::string rerun = report.cases.back().rerun;
  EXPECT_NE(rerun.find(report.cases.back().id), std::string::npos);
  const ProcessResult again =
      run_process({"sh", "-c", rerun + " --json " + shell_quoted(folder / "again.json")});
  ASSERT_EQ(again.code, 0) << rerun << again.err;
  const Report alone = read_json_report(folder / "again.json");
  ASSERT_EQ(alone.cases.size(), 1u);
  EXPECT_EQ(alone.cases[0].id, report.cases.back().id);
  EXPECT_EQ(alone.cases[0].scenario_hash, report.cases.back().scenario_hash);
  EXPECT_EQ(alone.cases[0].accuracy->kernel_vs_exact.all.rel_l1,
            report.cases.back().accuracy->kernel_vs_exact.all.rel_l1);
}

TEST(Tool, TheSeedChangesTheInputs) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  std::set<double> errors;
  for (const char* seed : {"11", "12", "11"}) {
    run_tool({"--config", folder / "c.json", "--device", "cpu", "--seed", seed, "--json",
              folder / "r.json"});
    const Report report = read_json_report(folder / "r.json");
    errors.insert(report.cases.at(0).accuracy->kernel_vs_exact.all.rel_l1);
  }
  EXPECT_EQ(errors.size(), 2u);
}

// With the default settings nothing is removed from V, and its offset is empty.
TEST(Tool, ASkippedCorrectionOfVIsCaughtWithTheDefaultSettings) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const ProcessResult run = run_tool({"--config", folder / "c.json", "--device", "cpu", "--kernel",
                                      "sage_mma_fp8", "--inject", "correct_v_skipped"});
  EXPECT_EQ(run.code, 3) << run.out << run.err;
  EXPECT_NE(run.out.find("first diverging stage: v_codes (o_offset: v_offset + mean"),
            std::string::npos)
      << run.out;
}

TEST(Tool, AFaultThatCannotActIsNoVerdict) {
  const ProcessResult run =
      run_tool({"--config", std::string(SAGEBENCH_SOURCE_DIR) + "/configs/edge_cases.json",
                "--device", "cpu", "--only", "rope-none", "--inject", "sin_sign"});
  EXPECT_EQ(run.code, 4) << run.out << run.err;
  EXPECT_NE(run.out.find("cannot act in this case"), std::string::npos) << run.out;
}

TEST(Tool, WithoutValidationThereIsNoVerdict) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const ProcessResult run =
      run_tool({"--config", folder / "c.json", "--device", "cpu", "--validate", "off"});
  EXPECT_EQ(run.code, 4) << run.out;
  EXPECT_NE(run.out.find("nothing was compared"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(" unchecked "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find(" passed "), std::string::npos) << run.out;
}

TEST(Tool, AnOutputThatCannotBeWrittenIsNotSuccess) {
  const std::string tool = SAGEBENCH_EXECUTABLE;
  for (const char* command : {" --config configs/smoke.json --list", " --help", " doctor",
                              " --config configs/smoke.json --dry-run"}) {
    const ProcessResult run = run_process({"sh", "-c", tool + command + " >/dev/full"});
    EXPECT_EQ(run.code, 6) << command;
    EXPECT_NE(run.err.find("standard output"), std::string::npos) << run.err;
  }
}

// Each would take longer than any test by backtracking, or more stack than there is.
TEST(Tool, NoFilterHangsOrCrashes) {
  const ScratchFolder folder;
  const auto config = [](size_t length) {
    return R"({"schema": "sagebench.scenario/1", "scenarios": [{"name": ")" +
           std::string(length, 'a') + R"(", "op": "attention", "batch": {"qo_len": [4]}}]})";
  };
  write_file(folder / "c.json", config(200));
  const std::pair<std::string, int> filters[] = {{"(a*)*b", 4},       {"((a+)+)+$", 4},
                                                 {"(a*)*@", 0},       {"(a)\\1", 2},
                                                 {"a{99999}{99}", 2}, {std::string(50000, '('), 2}};
  for (const auto& [filter, code] : filters) {
    const ProcessResult run =
        run_tool({"--config", folder / "c.json", "--list", "--filter", filter});
    EXPECT_EQ(run.code, code) << filter.substr(0, 20) << run.err;
  }
  write_file(folder / "c.json", config(201));
  const ProcessResult run = run_tool({"--config", folder / "c.json", "--list"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("/scenarios/0/name: a name of 201 characters"), std::string::npos)
      << run.err;
}

TEST(Tool, AProfiledRunIsNoVerdict) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const ProcessResult run =
      run_tool({"--config", folder / "c.json", "--device", "cpu", "--profile"});
  EXPECT_EQ(run.code, 4) << run.out;
  EXPECT_NE(run.out.find("nothing was compared"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("verdict: passed"), std::string::npos) << run.out;
}

// The files a process writes end at 2 KiB, as on a full disk: what was found until then is said.
TEST(Tool, AReportThatCannotBeWrittenIsExitSixAndSaysWhatWasFound) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(3));
  const std::string command = "trap '' 25; ulimit -f 4; " SAGEBENCH_EXECUTABLE
                              " --device cpu --no-timing --kernel sage_mma_fp8 --config " +
                              shell_quoted(folder / "c.json") + " --json " +
                              shell_quoted(folder / "r.json");
  for (const auto& [inject, code, status] :
       {std::tuple("", 6, "1 passed"), std::tuple(" --inject dropped_tail_codes", 3, "1 wrong")}) {
    const ProcessResult run = run_process({"sh", "-c", command + inject + " | cat"});
    EXPECT_NE(run.out.find(status), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("(exit " + std::to_string(code) + ")"), std::string::npos) << run.out;
    EXPECT_EQ(lines_of(run.err).size(), 1u) << run.err;
    EXPECT_NE(run.err.find(folder / "r.json"), std::string::npos) << run.err;
    EXPECT_EQ(run_process({"sh", "-c", command + inject}).code, code);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"c.json"});
  }
}

TEST(Tool, APlantedFaultIsExitThreeWithStageCoordinateAndRerun) {
  const auto fault = std::find_if(faults().begin(), faults().end(), [](const Fault& f) {
    return f.op == OpKind::kAttention && f.name.find("tail") != std::string::npos;
  });
  ASSERT_NE(fault, faults().end());
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const ProcessResult run = run_tool({"--config", folder / "c.json", "--device", "cpu", "--inject",
                                      fault->name, "--json", folder / "r.json"});
  EXPECT_EQ(run.code, 3) << run.out << run.err;
  EXPECT_NE(run.out.find("first diverging stage: " + std::string(name_of(fault->caught_at))),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("sequence "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("rerun: "), std::string::npos) << run.out;
  const Report report = read_json_report(folder / "r.json");
  EXPECT_EQ(run_process({"sh", "-c", report.cases.at(0).rerun}).code, 3);
}

TEST(Tool, AnUnknownFaultIsExitTwo) {
  const ProcessResult run =
      run_tool({"--config", kSmoke, "--device", "cpu", "--inject", "no_such_fault"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("no_such_fault"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace sagebench
