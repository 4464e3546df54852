#include <gtest/gtest.h>

#include "support/scratch_config.h"

namespace sagebench {
namespace {

using test::BadScenario;
using test::expect_error;
using test::load_cases;

std::vector<std::string> ids_of(const std::string& sweep) {
  std::vector<std::string> ids;
  for (const Case& c :
       load_cases(R"("name": "s", "op": "attention", "batch": {"qo_len": [3]}, "sweep": )" + sweep))
    ids.push_back(c.id);
  return ids;
}

TEST(Sweep, CartesianRunsTheLastFieldFastest) {
  const std::vector<std::string> expected{"s/head_dim=64,causal=true", "s/head_dim=64,causal=false",
                                          "s/head_dim=128,causal=true",
                                          "s/head_dim=128,causal=false"};
  EXPECT_EQ(ids_of(R"({"cartesian": {"model.headdim": [64, 128], "mask.causal": [true, false]}})"),
            expected);
  const std::vector<Case> cases = load_cases(
      R"("op": "attention", "batch": {"qo_len": [3]},
         "sweep": {"cartesian": {"model.head_dim": [64, 128], "mask.causal": [true, false]}})");
  EXPECT_EQ(cases[1].model.head_dim, 64);
  EXPECT_FALSE(cases[1].causal);
  EXPECT_EQ(cases[2].model.head_dim, 128);
  EXPECT_TRUE(cases[2].causal);
}

TEST(Sweep, ZipAdvancesTogetherAndCombinesWithCartesian) {
  const std::vector<std::string> expected{
      "s/num_qo_heads=4,num_kv_heads=1,dtype=bf16", "s/num_qo_heads=4,num_kv_heads=1,dtype=fp16",
      "s/num_qo_heads=6,num_kv_heads=3,dtype=bf16", "s/num_qo_heads=6,num_kv_heads=3,dtype=fp16"};
  EXPECT_EQ(ids_of(R"({"cartesian": {"dtype": ["bf16", "fp16"]},
                       "zip": {"model.num_qo_heads": [4, 6], "model.num_kv_heads": [1, 3]}})"),
            expected);
}

TEST(Sweep, ListsAndObjectsAreValuesToo) {
  EXPECT_EQ(
      ids_of(R"({"cartesian": {"batch.qo_len": [[7, 130], [], {"constant": 2, "requests": 3}]}})"),
      (std::vector<std::string>{"s/qo_len=7_130", "s/qo_len=v2",
                                "s/qo_len=constant:2_requests:3"}));
  const std::vector<Case> cases = load_cases(
      R"("op": "attention", "batch": {"qo_len": [9]},
         "sweep": {"zip": {"batch": [{"constant": 2, "requests": 3}, {"seqlens_q": [4]}]}})");
  EXPECT_EQ(cases[0].batch.qo_len, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(cases[1].batch.qo_len, (std::vector<int64_t>{4}));
}

TEST(Sweep, LabelsOfOneNameKeepTheirBlock) {
  const Case c = test::load_one(
      R"("name": "s", "op": "kv_cache_write", "batch": {"qo_len": [3]},
         "sweep": {"cartesian": {"dtype": ["fp16"], "cache.dtype": ["fp16"], "seed": [1]}})");
  EXPECT_EQ(c.id, "s/dtype=fp16,cache.dtype=fp16,seed=1");
}

TEST(Sweep, Mistakes) {
  const char* attention = R"("op": "attention", "batch": {"qo_len": [3]}, "sweep": )";
  const std::pair<const char*, std::vector<const char*>> bad[] = {
      {R"({"zip": {"dtype": ["bf16"], "seed": [1, 2]}})",
       {"/scenarios/0/sweep/zip", "'dtype' has 1", "'seed' has 2"}},
      {R"({"cartesian": {"seed": []}})", {"/scenarios/0/sweep/cartesian/seed: []"}},
      {R"({"cartesian": {"seed": 3}})", {"/scenarios/0/sweep/cartesian/seed: 3", "a list"}},
      {R"({"cartesain": {"seed": [3]}})", {"/scenarios/0/sweep/cartesain", "'cartesian'"}},
      {R"({})", {"/scenarios/0/sweep: {}"}},
      {R"([])", {"/scenarios/0/sweep: []"}},
      {R"({"cartesian": {"name": ["a"]}})", {"/scenarios/0/sweep/cartesian/name", "swept"}},
      {R"({"cartesian": {"seed": [1]}, "zip": {"seed": [2]}})",
       {"/scenarios/0/sweep/zip", "'seed' is swept under cartesian as well"}},
      {R"({"cartesian": {"seed": [1, 1]}})", {"/scenarios/0: the case id", "seed=1"}},
      {R"({"cartesian": {"seed.x": [1]}, "zip": {"seed": [1]}})",
       {"/scenarios/0/sweep/cartesian/seed.x/0", "not an object"}},
  };
  for (const auto& [sweep, says] : bad) {
    const std::string fields = std::string(attention) + sweep;
    expect_error({fields.c_str(), says});
  }
  std::string many = "[0";
  for (int i = 1; i < 101; ++i) many += "," + std::to_string(i);
  const std::string fields = std::string(attention) + R"({"cartesian": {"seed": )" + many +
                             R"(], "model.head_dim": )" + many + "]}}";
  expect_error({fields.c_str(), {"/scenarios/0/sweep: more than 10000 cases"}});
}

}  // namespace
}  // namespace sagebench
