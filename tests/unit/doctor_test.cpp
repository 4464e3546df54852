#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "run/device_info.h"
#include "run/executor.h"

namespace sagebench {
namespace {

// Whatever is missing on this machine, each line says what it is, and what to do if it is not well.
TEST(Doctor, EveryLineIsUseful) {
  const std::vector<DoctorLine> lines = doctor();
  ASSERT_GE(lines.size(), 7u);
  for (const DoctorLine& line : lines) {
    EXPECT_FALSE(line.what.empty());
    EXPECT_FALSE(line.state.empty()) << line.what;
    EXPECT_EQ(line.remedy.empty(), line.ok) << line.what << ": " << line.state;
  }
  for (const char* what : {"CPU", "build", "driver", "NVML", "nvcc", "ncu", "compute-sanitizer"})
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [&](const DoctorLine& line) { return line.what == what; }),
              1)
        << what;
}

TEST(Architectures, ParsesWhatCMakeWrites) {
  const std::vector<CompiledArch> archs = parse_architectures("80-real;90a-real 120-virtual,75");
  ASSERT_EQ(archs.size(), 4u);
  EXPECT_EQ(archs[0].compute_capability, 80);
  EXPECT_FALSE(archs[0].ptx);
  EXPECT_FALSE(archs[0].exact);
  EXPECT_EQ(archs[1].compute_capability, 90);
  EXPECT_TRUE(archs[1].exact);
  EXPECT_EQ(archs[2].compute_capability, 120);
  EXPECT_FALSE(archs[2].machine_code);
  EXPECT_TRUE(archs[3].ptx && archs[3].machine_code);
  EXPECT_TRUE(parse_architectures("").empty());
  EXPECT_TRUE(parse_architectures("native").empty());
}

TEST(Architectures, CoverageFollowsBinaryCompatibility) {
  const auto covered = [](const char* list, int capability) {
    return covers(parse_architectures(list), capability);
  };
  EXPECT_TRUE(covered("80-real", 80));
  EXPECT_TRUE(covered("80-real", 86));   // a later minor version
  EXPECT_FALSE(covered("80-real", 90));  // another major version needs PTX
  EXPECT_FALSE(covered("89-real", 86));  // never an earlier one
  EXPECT_TRUE(covered("80", 120));
  EXPECT_TRUE(covered("80-virtual", 90));
  EXPECT_TRUE(covered("90a-real", 90));
  EXPECT_FALSE(covered("90a", 100));
  EXPECT_FALSE(covered("", 90));
}

TEST(Nvml, AbsenceIsReportedNotThrown) {
  std::string why;
  const std::unique_ptr<Nvml> nvml = Nvml::open(&why);
  EXPECT_NE(nvml == nullptr, why.empty());
  if (!nvml) return;
  EXPECT_FALSE(nvml->sm_clock_mhz());  // nothing is selected
  EXPECT_FALSE(nvml->select("no such bus"));
  EXPECT_FALSE(nvml->state().power_w);
}

TEST(Nvml, ThrottleReasonsHaveNames) {
  EXPECT_EQ(throttle_reason_names(0), "none");
  EXPECT_EQ(throttle_reason_names(0x4), "sw_power_cap");
  EXPECT_EQ(throttle_reason_names(0x21), "gpu_idle, sw_thermal_slowdown");
  EXPECT_EQ(throttle_reason_names(0x8000), "0x8000");
}

ExitCode code_of(const std::string& device) {
  try {
    make_executor(device, nullptr);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(device), std::string::npos) << error.what();
    return error.code;
  }
  return ExitCode::kOk;
}

TEST(MakeExecutor, BadNamesAreUsageErrors) {
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cuda:1x", ""})
    EXPECT_EQ(code_of(device), ExitCode::kUsage) << device;
}

TEST(MakeExecutor, AMissingGpuIsSaid) {
  EXPECT_EQ(code_of("cuda:9999"), ExitCode::kNoGpu);
}

TEST(MakeExecutor, AutoFallsBackWithANote) {
  std::string note;
  const std::unique_ptr<Executor> executor = make_executor("auto", &note);
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->is_gpu(), note.empty()) << note;
  EXPECT_FALSE(make_executor("cpu", nullptr)->is_gpu());
}

TEST(OperatorRefused, KeepsTheStatusAndItsMeaning) {
  const OperatorRefused no("case@kernel", {sage::StatusCode::kUnsupported, "head_dim above 128"});
  EXPECT_EQ(no.code, ExitCode::kNoVerdict);
  EXPECT_STREQ(no.what(), "case@kernel: refused: unsupported: head_dim above 128");
  const OperatorRefused bad("c", {sage::StatusCode::kInvalidArgument, "rotary_dim is odd"});
  EXPECT_EQ(bad.code, ExitCode::kInternal);
  EXPECT_EQ(bad.status.code, sage::StatusCode::kInvalidArgument);
}

TEST(Latency, StatisticsComeFromTheSamples) {
  const Latency l = make_latency("total", "how", {5, 1, 4, 2, 3, 100});
  EXPECT_EQ(l.median_us, 3.5);
  EXPECT_EQ(l.min_us, 1);
  EXPECT_EQ(l.ci_low_us, 1);
  EXPECT_EQ(l.ci_high_us, 100);
  EXPECT_DOUBLE_EQ(l.mean_us, 115.0 / 6);
  EXPECT_EQ(l.mad_us, 1.5);
  EXPECT_EQ(l.samples_us.front(), 5);  // in the order they were taken
}

TEST(Latency, OneSampleHasNoInterval) {
  const Latency l = make_latency("total", "how", {5});
  EXPECT_EQ(l.median_us, 5);
  EXPECT_FALSE(l.ci_low_us);
  EXPECT_FALSE(l.ci_high_us);
}

TEST(ProfileCommands, AreReadyForAShell) {
  const ProfileCommands plain = profile_commands("mixed-d64@sage_mma_fp8", "configs/smoke.json");
  EXPECT_NE(plain.ncu.find("ncu --clock-control none --check-exit-code no --nvtx --nvtx-include "
                           "sagebench@profile_target/"),
            std::string::npos)
      << plain.ncu;
  EXPECT_NE(plain.ncu.find("--config configs/smoke.json --only mixed-d64@sage_mma_fp8 --profile"),
            std::string::npos)
      << plain.ncu;
  EXPECT_NE(plain.nsys.find("--capture-range=cudaProfilerApi"), std::string::npos) << plain.nsys;
  const ProfileCommands odd = profile_commands("it's [1]", "a b.json");
  EXPECT_NE(odd.ncu.find("--config 'a b.json' --only 'it'\\''s [1]' --profile"), std::string::npos)
      << odd.ncu;
  EXPECT_NE(odd.ncu.find("-o results/it_s__1_ "), std::string::npos) << odd.ncu;
}

}  // namespace
}  // namespace sagebench
