#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/scratch_config.h"

namespace sagebench {
namespace {

using test::load_one;
using test::suite_text;
using Lengths = std::vector<int64_t>;

Lengths lengths_of(const std::string& batch, const std::string& more = "") {
  return load_one(R"("op": "attention", "batch": )" + batch + more).batch.qo_len;
}

TEST(Lengths, ExplicitAndConstant) {
  EXPECT_EQ(lengths_of(R"({"qo_len": [0, 1, 7]})"), (Lengths{0, 1, 7}));
  EXPECT_EQ(lengths_of(R"({"constant": 5, "requests": 3})"), (Lengths{5, 5, 5}));
  EXPECT_EQ(lengths_of(R"({"qo_len": {"constant": 5, "requests": 2}})"), (Lengths{5, 5}));
}

TEST(Lengths, DrawsFollowTheSeedAndStayInside) {
  const std::string uniform = R"({"uniform": [3, 9], "requests": 2000})";
  const Lengths a = lengths_of(uniform);
  EXPECT_EQ(a, lengths_of(uniform));
  EXPECT_NE(a, lengths_of(uniform, R"(, "seed": 1)"));
  EXPECT_EQ(*std::min_element(a.begin(), a.end()), 3);
  EXPECT_EQ(*std::max_element(a.begin(), a.end()), 9);
  EXPECT_NEAR(std::accumulate(a.begin(), a.end(), 0.0) / 2000, 6.0, 0.2);

  Lengths b =
      lengths_of(R"({"lognormal": {"median": 1000, "sigma": 1, "max": 8000}, "requests": 2001})");
  std::sort(b.begin(), b.end());
  EXPECT_NEAR(static_cast<double>(b[1000]), 1000, 60);
  EXPECT_NEAR(static_cast<double>(b[1683]), 2718, 250) << "one deviation up is a factor e";
  EXPECT_GE(b.front(), 1);
  EXPECT_LE(b.back(), 8000);

  const Lengths c = lengths_of(
      R"({"bimodal": {"short": [1, 9], "long": [1000, 2000], "long_fraction": 0.25},
          "requests": 2000})");
  const auto longs = std::count_if(c.begin(), c.end(), [](int64_t n) { return n >= 1000; });
  EXPECT_NEAR(static_cast<double>(longs), 500, 60);
  for (const int64_t n : c) EXPECT_TRUE((n >= 1 && n <= 9) || (n >= 1000 && n <= 2000)) << n;
}

TEST(Lengths, KvLengthsTakeTheirNumberFromQo) {
  const Case c = load_one(R"("op": "attention", "batch": {"qo_len": [1, 2, 3],
                             "kv_len": {"uniform": [100, 1000]}})");
  EXPECT_EQ(c.batch.kv_len.size(), 3u);
  EXPECT_NE(c.batch.kv_len[0], c.batch.kv_len[1]);
  const Case chunk = load_one(R"("op": "kv_cache_write", "batch": {"constant": 1, "requests": 4,
                                 "kv_len_before": {"constant": 9}})");
  EXPECT_EQ(chunk.batch.kv_len_before, (Lengths{9, 9, 9, 9}));
  EXPECT_EQ(chunk.batch.kv_len, (Lengths{1, 1, 1, 1}));
}

class Trace : public testing::Test {
 protected:
  // The first case, or the message, of a batch over a small trace.
  Suite load(const std::string& batch) {
    write_file(folder_ / "t.csv", csv_);
    write_file(folder_ / "c.json", suite_text(R"({"op": "attention", "batch": )" + batch + "}"));
    return load_suite(folder_ / "c.json");
  }
  std::string error(const std::string& batch) {
    try {
      load(batch);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }
  ScratchFolder folder_;
  std::string csv_ = "TIME,Prompt,Answer\r\na,10,1\r\nb,20,2\r\nc,30,3\r\nd,40,4\r\n\r\n";
};

TEST_F(Trace, FirstAndSeeded) {
  EXPECT_EQ(load(R"({"trace": "t.csv", "column": "Prompt", "requests": 3, "pick": "first"})")
                .cases[0]
                .batch.qo_len,
            (Lengths{10, 20, 30}));
  const Case c = load(R"({"qo_len": {"trace": "t.csv", "column": "Prompt", "requests": 3},
                          "kv_len": {"trace": "t.csv", "column": "Answer"}})")
                     .cases[0];
  EXPECT_TRUE(std::is_sorted(c.batch.qo_len.begin(), c.batch.qo_len.end())) << "trace order";
  EXPECT_EQ(std::adjacent_find(c.batch.qo_len.begin(), c.batch.qo_len.end()), c.batch.qo_len.end());
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(c.batch.qo_len[i], 10 * c.batch.kv_len[i]) << "columns stay paired";
  EXPECT_NE(c.batch.source.find("t.csv"), std::string::npos);
}

TEST_F(Trace, AByteOrderMarkIsNoPartOfTheFirstColumn) {
  csv_ = "\xEF\xBB\xBFPrompt,Answer\n10,1\n20,2\n";
  EXPECT_EQ(load(R"({"trace": "t.csv", "column": "Prompt", "requests": 2, "pick": "first"})")
                .cases[0]
                .batch.qo_len,
            (Lengths{10, 20}));
}

TEST_F(Trace, MistakesNameTheFileTheLineAndTheColumns) {
  const auto expect_says = [](const std::string& message, std::vector<const char*> parts) {
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  };
  expect_says(error(R"({"trace": "t.csv", "column": "Promt", "requests": 3})"),
              {"c.json: /scenarios/0/batch/column", "t.csv", "'Promt'", "did you mean 'Prompt'",
               "TIME, Prompt, Answer"});
  expect_says(error(R"({"trace": "t.csv", "column": "TIME", "requests": 3})"),
              {"t.csv: line 2", "'TIME'", "'a' is not a length"});
  expect_says(error(R"({"trace": "t.csv", "column": "Prompt", "requests": 5})"),
              {"/scenarios/0/batch/requests", "5 requests", "only 4"});
  expect_says(error(R"({"trace": "none.csv", "column": "Prompt", "requests": 5})"),
              {"/scenarios/0/batch/trace", "none.csv"});
  expect_says(error(R"({"trace": "t.csv", "requests": 3})"), {"missing key 'column'"});
  expect_says(error(R"({"trace": "t.csv", "column": "Prompt", "requests": 3, "pick": "last"})"),
              {"/scenarios/0/batch/pick", "seeded, first"});
  const std::string typed = error(R"({"trace": "t.csv", "column": 3, "requests": 3})");
  expect_says(typed, {"/scenarios/0/batch/column: 3", "a string"});
  EXPECT_EQ(typed.find("c.json"), typed.rfind("c.json")) << "one place: " << typed;
  csv_ = "Prompt\n3\n\n-7\n";
  expect_says(error(R"({"trace": "t.csv", "column": "Prompt", "requests": 1})"), {"line 4", "-7"});
  csv_ = "";
  expect_says(error(R"({"trace": "t.csv", "column": "Prompt", "requests": 1})"), {"empty"});
}

}  // namespace
}  // namespace sagebench
