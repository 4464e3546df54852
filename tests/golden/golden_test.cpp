// Reports of a fixed run against committed files. After a wanted change of a format:
//   golden_test --regenerate
// rewrites the files; read the difference before committing it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string_view>

#include "support/make_report.h"

namespace sagebench {
namespace {

bool regenerate = false;

std::string render_console(const Report& report) {
  ConsoleStyle style;
  style.id_width = 30;
  std::string out = render_console_header(report, style);
  for (const CaseResult& result : report.cases)
    out += render_console_row(result, style) + render_console_failure(result, style);
  return out + render_console_summary(report, style);
}

void compare(const std::string& name, const std::string& actual) {
  const std::string path = SAGEBENCH_SOURCE_DIR "/tests/golden/" + name;
  if (regenerate) write_file_atomically(path, actual);
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing: run golden_test --regenerate";
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(actual, golden.str()) << path;
}

TEST(Golden, EveryFormat) {
  const Report report = make_report();
  for (const Format& format : formats()) compare(format.file_name, format.render(report));
}

TEST(Golden, Console) {
  compare("console.txt", render_console(make_report()));
}

TEST(Golden, ConsoleOfTheCpuPathSaysWhatItsLatenciesAre) {
  Report report = make_report();
  report.environment.device = "cpu";
  report.environment.device_name.clear();
  report.cases = {make_passed("mixed", "mma_fp8")};
  report.cases[0].cold = make_latency("total", 5e6);
  compare("console_cpu.txt", render_console(report));
}

}  // namespace
}  // namespace sagebench

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--regenerate") sagebench::regenerate = true;
  return RUN_ALL_TESTS();
}
