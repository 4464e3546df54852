// Writers: JSON reads back as what was written, CSV parses, files appear whole or not at all.
#include "report/report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include "core/error.h"
#include "report/text.h"
#include "support/make_report.h"

namespace sagebench {
namespace {

namespace fs = std::filesystem;

const Format& format(const std::string& name) {
  for (const Format& f : formats())
    if (name == f.name) return f;
  throw std::logic_error("no format " + name);
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("sagebench_report_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  size_t count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string error_of(const std::string& json) const {
    write_file_atomically(path("bad.json"), json);
    try {
      read_json_report(path("bad.json"));
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(Files, JsonReadsBackAsWhatWasWritten) {
  const std::string json = format("json").render(make_report());
  write_file_atomically(path("r.json"), json);
  const Report back = read_json_report(path("r.json"));
  EXPECT_EQ(format("json").render(back), json);
  ASSERT_EQ(back.cases.size(), 6u);
  EXPECT_EQ(back.cases[0].cold->samples_us, make_report().cases[0].cold->samples_us);
  EXPECT_EQ(back.cases[0].scenario_json, make_report().cases[0].scenario_json);
  EXPECT_FALSE(back.cases[0].hot);
  EXPECT_EQ(back.cases[1].checks[1].at.token, 77);
  EXPECT_EQ(back.cases[1].checks[0].at.token, -1);
  EXPECT_EQ(back.cases[2].status, CaseStatus::kUnsupported);
  EXPECT_EQ(back.environment.sm_count, std::nullopt);
}

TEST_F(Files, JsonKeepsWhatIsNotFinite) {
  const std::string json = format("json").render(make_report());
  EXPECT_NE(json.find("\"rel_l1_reason\": \"nan\""), std::string::npos);
  EXPECT_EQ(json.find("\": nan"), std::string::npos);
  EXPECT_EQ(json.find("\": inf"), std::string::npos);
  write_file_atomically(path("r.json"), json);
  const Report back = read_json_report(path("r.json"));
  EXPECT_TRUE(std::isnan(back.cases[3].accuracy->kernel_vs_exact.all.rel_l1));
  EXPECT_TRUE(std::isinf(back.cases[3].checks[1].worst));
}

TEST(Json, AbsentIsNullNeverZero) {
  Report report = make_report();
  report.cases = {make_result("a", "k")};
  const std::string json = format("json").render(report);
  for (const char* key : {"tops", "gb_per_s", "cold", "hot", "ceilings", "blocks", "accuracy",
                          "sm_count", "driver", "power_limit_w", "throttle_reasons"})
    EXPECT_NE(json.find("\"" + std::string(key) + "\": null"), std::string::npos) << key;
}

TEST(Json, AComparisonThatWasNotMadeIsNull) {
  Report report = make_report();
  report.cases = {make_report().cases[3]};
  EXPECT_NE(format("json").render(report).find("\"kernel_vs_emulated\": null"), std::string::npos);
}

TEST(Json, LseErrorIsNullWithoutAnLse) {
  Report report = make_report();
  report.cases = {make_passed("a", "k")};
  EXPECT_NE(format("json").render(report).find("\"lse_max_error\": 0.0003"), std::string::npos);
  report.cases[0].checks.pop_back();
  EXPECT_NE(format("json").render(report).find("\"lse_max_error\": null"), std::string::npos);
}

TEST_F(Files, ABadResultsFileIsNamedWithItsPlace) {
  for (const std::string& text :
       {std::string("{ not json"), std::string(), std::string("[1e999]"), std::string(90000, '['),
        std::string("5"), std::string("{\"schema\": 5}"), std::string("\xff\xfe")}) {
    EXPECT_NE(error_of(text).find("not a results file"), std::string::npos) << text.substr(0, 20);
    EXPECT_EQ(error_of(text).find("exception"), std::string::npos) << error_of(text);
  }
  EXPECT_NE(error_of("{}").find("/schema"), std::string::npos);
  std::string json = format("json").render(make_report());
  const size_t at = json.find("\"passed\": true");
  EXPECT_NE(error_of(json.replace(at, 14, "\"passed\": 1234")).find("/cases/0/checks/0/passed"),
            std::string::npos);
  json = format("json").render(make_report());
  json.replace(json.find("\"status\""), 8, "\"statuS\"");
  EXPECT_NE(error_of(json).find("/cases/0/status: is missing"), std::string::npos);
  EXPECT_THROW(read_json_report(path("none.json")), UsageError);
}

// One record of RFC 4180 after another.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records(1, {""});
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside && c == '"' && i + 1 < text.size() && text[i + 1] == '"')
      records.back().back() += text[++i];
    else if (c == '"')
      inside = !inside;
    else if (!inside && c == ',')
      records.back().push_back("");
    else if (!inside && c == '\n')
      records.push_back({""});
    else
      records.back().back() += c;
  }
  records.pop_back();
  return records;
}

TEST(Csv, EveryRecordHasEveryColumnAndQuotesSurvive) {
  const auto records = parse_csv(format("csv").render(make_report()));
  ASSERT_EQ(records.size(), 7u);
  for (const auto& record : records) EXPECT_EQ(record.size(), records[0].size());
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::find(records[0].begin(), records[0].end(), name) -
                               records[0].begin());
  };
  EXPECT_EQ(records[3][column("case")], "d256, \"big\" | wide");
  EXPECT_EQ(records[1][column("cold_median_us")], "123.4");
  EXPECT_EQ(records[2][column("cold_median_us")], "");
  EXPECT_EQ(records[2][column("first_failed_stage")], "v_codes");
  EXPECT_EQ(records[3][column("rel_l1")], "");
}

TEST(Console, AFailureTellsStageCoordinateValuesAndRerun) {
  const std::string text = render_console_failure(make_wrong("a", "k"));
  for (const char* part :
       {"first diverging stage: v_codes", "sequence 1", "token 77", "expected 0.25", "not finite",
        "property alone_equals_batched", "rerun: sagebench --config configs/smoke.json --only a@k"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(render_console_failure(make_passed("a", "k")), "");
}

TEST(Reports, OneSampleHasNoInterval) {
  Report report;
  report.cases = {make_passed("a", "k")};
  Latency& cold = report.cases[0].cold.emplace(make_latency("total", 404.25));
  cold.ci_low_us = cold.ci_high_us = std::nullopt;
  const std::string row = render_console_row(report.cases[0]);
  EXPECT_NE(row.find(" 404.25 us"), std::string::npos) << row;
  EXPECT_EQ(row.find("+-"), std::string::npos) << row;
  const std::string json = render_json(report);
  for (const char* part : {"\"ci_low_us\": null", "\"ci_high_us\": null"})
    EXPECT_NE(json.find(part), std::string::npos) << json;
  EXPECT_NE(render_csv(report).find(",404.25,,,403.25,3,"), std::string::npos)
      << render_csv(report);
}

TEST(Console, LatenciesAreReadableAtEverySize) {
  const auto shown = [](double median_us, double half_us) {
    CaseResult r = make_passed("a", "k");
    r.cold = make_latency("total", median_us);
    r.cold->ci_low_us = median_us - half_us;
    r.cold->ci_high_us = median_us;
    const std::string row = render_console_row(r);
    return row.substr(0, row.find(" us"));
  };
  for (const auto& [median, half, text] : {std::tuple{9.527, 0.012, "9.527 +-0.012"},
                                           {123.4, 0.5, "123.4 +-0.5"},
                                           {404.25, 161.2, "404.25 +-161.2"},
                                           {7914.3, 176.0, "7914.3 +-176"},
                                           {123456.7, 12345.6, "123457 +-12346"},
                                           {5e6, 1e6, "5000000 +-1000000"}}) {
    const std::string row = shown(median, half);
    EXPECT_EQ(row.substr(row.size() - std::min(row.size(), std::string(text).size())), text);
  }
}

TEST(Console, ColourOnlyWhenAsked) {
  ConsoleStyle style;
  EXPECT_EQ(render_console_row(make_passed("a", "k"), style).find('\033'), std::string::npos);
  style.colour = true;
  EXPECT_NE(render_console_row(make_passed("a", "k"), style).find('\033'), std::string::npos);
}

TEST_F(Files, WritingReplacesWholeFilesAndLeavesNothingBehind) {
  write_file_atomically(path("r"), "first, longer");
  write_file_atomically(path("r"), "second");
  EXPECT_EQ(read("r"), "second");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, AFailedWriteNamesThePlaceAndLeavesNothingBehind) {
  for (const std::string& bad : {path("missing/r.json"), path(""), std::string("/dev/null")}) {
    try {
      write_file_atomically(bad, "x");
      ADD_FAILURE() << bad << " was written";
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).rfind(bad, 0), 0u) << e.what();
    }
    EXPECT_THROW(check_writable(bad), UsageError);
  }
  EXPECT_EQ(count(), 0u);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Files, ALinkStaysALink) {
  write_file_atomically(path("real"), "old");
  fs::create_symlink(path("real"), path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read("real"), "new");
}

TEST_F(Files, CheckingDoesNotTouchTheFile) {
  write_file_atomically(path("r"), "good");
  check_writable(path("r"));
  EXPECT_EQ(read("r"), "good");
  EXPECT_EQ(count(), 1u);
}

}  // namespace
}  // namespace sagebench
