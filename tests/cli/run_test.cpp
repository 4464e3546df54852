// The tool from outside: what it prints, writes and exits with.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "ops/faults.h"
#include "report/report.h"
#include "support/process.h"

namespace sagebench {
namespace {

constexpr char kSmoke[] = "configs/smoke.json";

// Cases "tiny/seed=1" to "tiny/seed=N", each well under a second on the CPU.
std::string tiny_config(int cases) {
  std::string seeds;
  for (int seed = 1; seed <= cases; ++seed) seeds += (seed > 1 ? "," : "") + std::to_string(seed);
  return R"({"schema": "sagebench.scenario/1", "name": "tiny", "scenarios": [
    {"name": "tiny", "op": "attention", "batch": {"qo_len": [5, 70]},
     "model": {"num_qo_heads": 2, "num_kv_heads": 1, "head_dim": 64},
     "timing": {"min_time_s": 0.001, "max_time_s": 0.01},
     "sweep": {"cartesian": {"seed": [)" +
         seeds + "]}}}]}";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

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

TEST(Tool, ResumeKeepsWhatIsDoneAndRunsWhatChanged) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(2));
  const std::vector<std::string> base = {"--config", folder / "c.json", "--device", "cpu",
                                         "--out",    folder / "out",    "--resume"};
  ASSERT_EQ(run_tool(base).code, 0);
  const std::string first = read_file(folder / "out/results.json");
  const size_t done = read_json_report(folder / "out/results.json").cases.size();
  ProcessResult run = run_tool(base);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find(std::to_string(done) + " results kept"), std::string::npos) << run.out;
  EXPECT_EQ(read_json_report(folder / "out/results.json").cases[0].cold->samples_us, [&] {
    write_file(folder / "first.json", first);
    return read_json_report(folder / "first.json").cases[0].cold->samples_us;
  }());
  write_file(folder / "c.json", tiny_config(3));  // one more case
  run = run_tool(base);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(read_json_report(folder / "out/results.json").cases.size(), done / 2 * 3);
  std::vector<std::string> other_seed = base;
  other_seed.insert(other_seed.end(), {"--seed", "99"});
  run = run_tool(other_seed);
  EXPECT_EQ(run.out.find("results kept"), std::string::npos) << run.out;
  write_file(folder / "out/results.json", "{");
  run = run_tool(base);
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(read_file(folder / "out/results.json"), "{");
}

TEST(Tool, WithoutValidationThereIsNoVerdict) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const ProcessResult run =
      run_tool({"--config", folder / "c.json", "--device", "cpu", "--validate", "off"});
  EXPECT_EQ(run.code, 4) << run.out;
  EXPECT_NE(run.out.find("nothing was checked"), std::string::npos) << run.out;
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

// Killed at any moment, even without a chance to clean up, the results file is whole.
TEST(Tool, AKilledRunLeavesAValidFile) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(200));
  const std::string json = folder / "r.json", config = folder / "c.json";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stdout)) ::_exit(99);
    ::execl(SAGEBENCH_EXECUTABLE, SAGEBENCH_EXECUTABLE, "--config", config.c_str(), "--device",
            "cpu", "--json", json.c_str(), nullptr);
    ::_exit(99);
  }
  for (int i = 0; i < 600 && !std::filesystem::exists(json); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the run ended before it could be interrupted";
  EXPECT_GE(read_json_report(json).cases.size(), 1u);
}

}  // namespace
}  // namespace sagebench
