// --resume: what it keeps, runs again and refuses, also after a run that was stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "report/report.h"
#include "support/process.h"
#include "support/tiny_config.h"

namespace sagebench {
namespace {

TEST(Resume, KeepsWhatIsDoneAndRunsWhatChanged) {
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
  write_file(folder / "out/results.json", "{");
  run = run_tool(base);
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(read_file(folder / "out/results.json"), "{");
}

// What a results file holds is never dropped without a word.
TEST(Resume, RefusesTheFileOfAnotherRun) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(2));
  const std::vector<std::string> base = {"--config",    folder / "c.json", "--device",    "cpu",
                                         "--no-timing", "--out",           folder / "out"};
  ASSERT_EQ(run_tool(base).code, 0);
  const std::string before = read_file(folder / "out/results.json");
  const auto expect_refusal = [&](const std::vector<std::string>& more, const char* says) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult run = run_tool(arguments);
    EXPECT_EQ(run.code, 2) << run.out;
    EXPECT_EQ(lines_of(run.err).size(), 1u) << run.err;
    for (const char* part : {"results.json: cannot resume: ", says, "leave --resume out"})
      EXPECT_NE(run.err.find(part), std::string::npos) << "no " << part << " in " << run.err;
    EXPECT_EQ(read_file(folder / "out/results.json"), before);
  };
  expect_refusal({"--resume", "--seed", "99"}, "another seed");
  expect_refusal({"--resume", "--validate", "sampled"}, "settings that have changed");
  if (!has_gpu()) {  // said before any GPU is looked for
    const ProcessResult run = run_tool({"--config", folder / "c.json", "--device", "cuda", "--seed",
                                        "99", "--out", folder / "out", "--resume"});
    EXPECT_EQ(run.code, 2) << run.err;
  }
  write_file(folder / "c.json", tiny_config(1));
  expect_refusal({"--resume"}, "tiny/qo_len=5_71@");
  std::string other = tiny_config(2);
  other.replace(other.find(R"("name": "tiny", "op")"), 14, R"("name": "huge")");
  write_file(folder / "c.json", other);
  expect_refusal({"--resume"}, "a case that ");
}

TEST(Resume, KeepsTheResultsOfOtherKernels) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const std::string json = folder / "r.json";
  const std::vector<std::string> base = {"--config",    folder / "c.json", "--device", "cpu",
                                         "--no-timing", "--json",          json,       "--resume"};
  const auto with_kernel = [&](const char* kernel) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {"--kernel", kernel});
    return run_tool(arguments);
  };
  ASSERT_EQ(with_kernel("sage_mma_fp8").code, 0);
  // what went wrong on another kernel is kept as it is, and is run again when selected
  std::string text = read_file(json);
  const std::string passed = R"("status": "passed")";
  text.replace(text.find(passed), passed.size(), R"("status": "error")");
  write_file(json, text);
  EXPECT_EQ(with_kernel("sage_mma_fp16").code, 6);
  Report report = read_json_report(json);
  ASSERT_EQ(report.cases.size(), 2u);
  EXPECT_EQ(report.cases[0].kernel, "sage_mma_fp8");
  EXPECT_EQ(report.cases[0].status, CaseStatus::kError);
  EXPECT_EQ(report.cases[1].kernel, "sage_mma_fp16");
  EXPECT_EQ(with_kernel("sage_mma_fp8").code, 0);
  report = read_json_report(json);
  ASSERT_EQ(report.cases.size(), 2u);
  EXPECT_EQ(report.cases[0].kernel, "sage_mma_fp16");
  EXPECT_EQ(report.cases[1].status, CaseStatus::kPassed);
}

TEST(Resume, RunsAgainWhatWasPlantedOrNotTimed) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(1));
  const std::string json = folder / "r.json";
  const std::vector<std::string> base = {"--config", folder / "c.json", "--device", "cpu",
                                         "--kernel", "sage_mma_fp8",    "--json",   json};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return run_tool(more);
  };
  ASSERT_EQ(with({"--inject", "dropped_tail_codes"}).code, 3);
  EXPECT_EQ(read_json_report(json).cases.at(0).fault, "dropped_tail_codes");
  EXPECT_EQ(with({"--resume", "--no-timing"}).code, 0);
  EXPECT_EQ(read_json_report(json).cases.at(0).fault, "");
  EXPECT_FALSE(read_json_report(json).cases.at(0).cold);
  EXPECT_EQ(with({"--resume"}).code, 0);
  EXPECT_TRUE(read_json_report(json).cases.at(0).cold);
}

TEST(Resume, SeesThatAnInputFileHasChanged) {
  const ScratchFolder folder;
  const auto trace = [](const char* last) { return "tokens\n3\n" + std::string(last) + "\n"; };
  struct Input {
    const char* file;
    std::string before, after, fields;
  };
  const Input inputs[] = {{"a.safetensors", token_file(0x3f80), token_file(0x4000),
                           R"("input": {"file": "a.safetensors"})"},
                          {"t.csv", trace("5"), trace("6"),
                           R"("model": {"head_dim": 64},
          "batch": {"trace": "t.csv", "column": "tokens", "requests": 2})"}};
  for (const Input& input : inputs) {
    write_file(folder / input.file, input.before);
    write_file(folder / "c.json",
               R"({"schema": "sagebench.scenario/1",
                   "scenarios": [{"name": "a", "op": "attention", )" +
                   input.fields + "}]}");
    const std::vector<std::string> command = {
        "--config", folder / "c.json", "--device", "cpu",      "--no-timing",
        "--json",   folder / "r.json", "--resume", "--kernel", "sage_mma_fp8"};
    std::filesystem::remove(folder / "r.json");
    run_tool(command);
    const std::string earlier = read_file(folder / "r.json");
    ASSERT_NE(earlier, "") << input.file;
    ASSERT_NE(run_tool(command).code, 2) << input.file;
    write_file(folder / input.file, input.after);
    const ProcessResult run = run_tool(command);
    EXPECT_EQ(run.code, 2) << input.file << run.out;
    EXPECT_NE(run.err.find("settings that have changed"), std::string::npos) << run.err;
  }
}

// Stopped at any moment, even without a chance to clean up: the finished cases are in a file of
// their own, the report of an earlier run is as it was, and --resume goes on from there.
class Stopped : public testing::TestWithParam<int> {};

TEST_P(Stopped, TheEarlierReportStaysAndResumeGoesOn) {
  const ScratchFolder folder;
  write_file(folder / "c.json", tiny_config(60));
  write_file(folder / "r.json", "of an earlier run");
  const std::string json = folder / "r.json", config = folder / "c.json", err = folder / "err",
                    partial = json + ".partial";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stdout) || !std::freopen(err.c_str(), "w", stderr))
      ::_exit(99);
    ::execl(SAGEBENCH_EXECUTABLE, SAGEBENCH_EXECUTABLE, "--config", config.c_str(), "--device",
            "cpu", "--no-timing", "--json", json.c_str(), nullptr);
    ::_exit(99);
  }
  const auto cases = [](const std::string& file) { return read_json_report(file).cases.size(); };
  for (int i = 0; i < 600 && (!std::filesystem::exists(partial) || cases(partial) < 2); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(child, GetParam());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the run ended before it could be interrupted";
  EXPECT_EQ(WTERMSIG(status), GetParam());
  EXPECT_EQ(read_file(json), "of an earlier run");
  const size_t finished = cases(partial);
  EXPECT_GE(finished, 2u);
  const std::string said = read_file(err);
  if (GetParam() == SIGKILL)
    EXPECT_EQ(said, "");
  else
    EXPECT_EQ(said, "sagebench: interrupted; what was finished is in " + partial +
                        ": continue with --resume\n");

  const ProcessResult run =
      run_tool({"--config", config, "--device", "cpu", "--no-timing", "--json", json, "--resume"});
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find(std::to_string(finished) + " results kept"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(partial));
  EXPECT_EQ(cases(json) % 60, 0u);
}
INSTANTIATE_TEST_SUITE_P(By, Stopped, testing::Values(SIGINT, SIGTERM, SIGKILL));

}  // namespace
}  // namespace sagebench
