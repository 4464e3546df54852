// The checks that guard the tree are checks: each rule of scripts/placement.py fails on a file that
// breaks it.
#include <gtest/gtest.h>

#include "support/process.h"

namespace sagebench {
namespace {

struct Violation {
  const char* name;
  const char* path;
  std::string content;
  const char* says;
};

const Violation kViolations[] = {
    {"cuda", "src/ops/a.cpp", "#include <cuda_runtime.h>\n", "src/run only"},
    {"nvtx", "src/metrics.cpp", "#include <nvtx3/nvtx3.hpp>\n", "src/run only"},
    {"cli11", "src/main.cpp", "#include <CLI/CLI.hpp>\n", "src/cli.cpp only"},
    {"json", "src/report/csv.cpp", "#include <nlohmann/json.hpp>\n", "nlohmann/json"},
    {"eigen", "src/metrics.cpp", "#include <Eigen/Dense>\n", "src/ops/*.cpp only"},
    {"kernels_include_src", "kernels/attention/a.cpp", "#include \"core/error.h\"\n", "src/"},
    {"exit", "src/cli.cpp", "void f() { std::exit(1); }\n", "main only"},
    {"getenv", "src/cli.cpp", "const char* a = getenv(\"A\");\n", "environment"},
    {"assert", "src/cli.cpp", "void f(int a) { assert(a); }\n", "assert"},
    {"left_over", "src/cli.cpp",
     "// TO"
     "DO later\n",
     "later"},
    {"later_stage", "src/inputs/a.h", "#include \"ops/op.h\"\n", "inputs comes before ops"},
    {"unknown_stage", "src/new_stage.h", "#pragma once\n", "does not list"},
    {"too_long", "src/ops/a.cpp", std::string(401, '\n'), "400 allowed"},
    {"kernel_too_long", "kernels/attention/a.cu", std::string(601, '\n'), "600 allowed"},
};

class Placement : public testing::TestWithParam<Violation> {};

TEST_P(Placement, AViolationFails) {
  const ScratchFolder folder;
  const std::filesystem::path file = folder / GetParam().path;
  std::filesystem::create_directories(file.parent_path());
  write_file(file, GetParam().content);
  const ProcessResult run = run_process({"python3", "scripts/placement.py", folder / ""});
  EXPECT_EQ(run.code, 1) << run.out;
  EXPECT_NE(run.err.find(GetParam().path), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(GetParam().says), std::string::npos) << run.err;
}

INSTANTIATE_TEST_SUITE_P(Rules, Placement, testing::ValuesIn(kViolations),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlacementOfThisTree, Holds) {
  const ProcessResult run = run_process({"python3", "scripts/placement.py"});
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST(PlacementOfThisTree, AnEmptyTreeIsNotAPass) {
  const ScratchFolder folder;
  EXPECT_EQ(run_process({"python3", "scripts/placement.py", folder / ""}).code, 1);
}

TEST(Scripts, AllParse) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SAGEBENCH_SOURCE_DIR "/scripts"))
    if (entry.path().extension() == ".sh") {
      EXPECT_EQ(run_process({"bash", "-n", entry.path().string()}).code, 0) << entry.path();
      ++count;
    }
  EXPECT_GE(count, 5u);
  EXPECT_EQ(run_process({"bash", "-n", SAGEBENCH_SOURCE_DIR "/.ci/run"}).code, 0);
}

}  // namespace
}  // namespace sagebench
