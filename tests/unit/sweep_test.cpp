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
      ids_of(R"({"cartesian": {"batch.qo_len": [[7, 130], {"constant": 2, "requests": 3}]}})"),
      (std::vector<std::string>{"s/qo_len=7_130", "s/qo_len=constant:2_requests:3"}));
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
       {"/scenarios/0/sweep/cartesian/seed: 'seed'", "/scenarios/0/sweep/zip/seed"}},
      {R"({"cartesian": {"seed.x": [1]}})", {"/scenarios/0/sweep/cartesian/seed.x/0"}},
      {R"({"cartesian": {"mask..causal": [true]}})", {"/scenarios/0/sweep/cartesian/mask..causal"}},
      {R"({"cartesian": {"mask.": [true]}})", {"/scenarios/0/sweep/cartesian/mask."}},
      {R"({"cartesian": {"": [true]}})", {"/scenarios/0/sweep/cartesian/"}},
  };
  for (const auto& [sweep, says] : bad) {
    const std::string fields = std::string(attention) + sweep;
    expect_error({fields.c_str(), says});
  }
  const std::string below = std::string(attention) + R"({"cartesian": {"seed.x": [1]}})";
  expect_error({(R"("seed": 3, )" + below).c_str(),
                {"/scenarios/0/sweep/cartesian/seed.x/0", "not an object"}});
  std::string many = "[0";
  for (int i = 1; i < 101; ++i) many += "," + std::to_string(i);
  const std::string fields = std::string(attention) + R"({"cartesian": {"seed": )" + many +
                             R"(], "model.head_dim": )" + many + "]}}";
  expect_error({fields.c_str(), {"/scenarios/0/sweep: more than 10000 cases"}});
}

// A block and its field, or a field and its alias, would overwrite each other behind the id's back.
TEST(Sweep, FieldsThatSetTheSameValuesAreNamedBoth) {
  const std::tuple<const char*, const char*, const char*> bad[] = {
      {R"({"cartesian": {"mask": [{"causal": true}], "mask.causal": [true, false]}})",
       "/cartesian/mask.causal", "/cartesian/mask,"},
      {R"({"cartesian": {"mask.causal": [true, false], "mask": [{"causal": true}]}})",
       "/cartesian/mask:", "/cartesian/mask.causal"},
      {R"({"zip": {"mask": [{}]}, "cartesian": {"mask.is_causal": [true]}})",
       "/cartesian/mask.is_causal", "/zip/mask,"},
      {R"({"cartesian": {"mask.causal": [true], "mask.is_causal": [false]}})",
       "/cartesian/mask.is_causal", "/cartesian/mask.causal"},
      {R"({"cartesian": {"batch": [{"qo_len": [3]}], "batch.qo_len": [[4]]}})",
       "/cartesian/batch.qo_len", "/cartesian/batch,"},
      {R"({"cartesian": {"input.distribution.k": ["flat"], "input": [{"form": "split"}]}})",
       "/cartesian/input:", "/cartesian/input.distribution.k"},
  };
  for (const auto& [sweep, second, first] : bad) {
    const std::string fields =
        std::string(R"("op": "attention", "batch": {"qo_len": [3]}, "sweep": )") + sweep;
    const std::string message = test::error_of_text(test::suite_text("{" + fields + "}"));
    EXPECT_EQ(message.rfind("/scenarios/0/sweep" + std::string(second), 0), 0u) << message;
    const std::string other = std::string(first).substr(0, std::string(first).find_first_of(",;"));
    EXPECT_NE(message.find("/scenarios/0/sweep" + other), std::string::npos) << message;
  }
  EXPECT_EQ(ids_of(R"({"cartesian": {"mask.causal": [true], "mask.alignment": ["top_left"]}})"),
            std::vector<std::string>{"s/causal=true,alignment=top_left"});
}

TEST(Sweep, ValuesAreComparedAsTheyAreUnderstood) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"cartesian": {"dtype": ["bf16", "bfloat16"]}})", "/cartesian/dtype/1"},
      {R"({"cartesian": {"dtype": ["bf16", "fp16", "bf16"]}})", "/cartesian/dtype/2"},
      {R"({"cartesian": {"seed": [1, 1]}})", "/cartesian/seed/1"},
      {R"({"cartesian": {"softmax.sm_scale": [1, 0.5, 1.0]}})", "/cartesian/softmax.sm_scale/2"},
      {R"({"cartesian": {"batch.qo_len": [[2, 2], {"constant": 2, "requests": 2}]}})",
       "/cartesian/batch.qo_len/1"},
      {R"({"cartesian": {"seed": [1, 2], "input.distribution": ["flat", {"name": "flat"}]}})",
       "/cartesian/input.distribution/1"},
      {R"({"zip": {"dtype": ["bf16", "bfloat16"], "model.head_dim": [64, 64]}})", "/zip/dtype/1"},
      {R"({"cartesian": {"exec.kernels": ["*", ["*"]]}})", "/cartesian/exec.kernels/1"},
  };
  for (const auto& [sweep, pointer] : bad) {
    const std::string fields =
        std::string(R"("op": "attention", "batch": {"qo_len": [3]}, "sweep": )") + sweep;
    const std::string message = test::error_of_text(test::suite_text("{" + fields + "}"));
    EXPECT_EQ(message.rfind("/scenarios/0/sweep" + std::string(pointer) + ": ", 0), 0u) << message;
    EXPECT_NE(message.find("makes the same case as /scenarios/0/sweep"), std::string::npos)
        << message;
  }
}

// With --seed 9 the case "seed=1" would not be of seed 1.
TEST(Sweep, AnOptionDoesNotOverrideWhatIdsSay) {
  const std::string text = test::suite_text(
      R"({"op": "attention", "batch": {"qo_len": [3]}, "sweep": {"cartesian": {"seed": [1, 2]}}})");
  try {
    test::load_text(text, {.seed = 9, .rows = {}});
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("/scenarios/0/sweep/cartesian/seed: "), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("--seed"), std::string::npos) << e.what();
  }
  EXPECT_EQ(test::load_text(text, {.seed = {}, .rows = Rows::kFull}).cases.size(), 2u);
  const std::string rows = test::suite_text(
      R"({"op": "attention", "batch": {"qo_len": [3]},
          "sweep": {"zip": {"validate": [{"rows": "full"}, {"rows": "sampled"}]}}})");
  EXPECT_THROW(test::load_text(rows, {.seed = {}, .rows = Rows::kFull}), UsageError);
}

}  // namespace
}  // namespace sagebench
