// Scenario files: what is read, what is echoed, and how defaults and overrides meet.
#include "scenario/scenario.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "scenario/expectations.h"
#include "scenario/fields.h"
#include "scenario/merge.h"
#include "support/scratch_config.h"

namespace sagebench {
namespace {

using test::load_one;
using test::load_text;
using test::suite_text;
using Lengths = std::vector<int64_t>;

TEST(Scenario, EveryFieldButOpAndBatchHasItsDefault) {
  const Case c = load_one(R"("op": "prefill", "batch": {"qo_len": [3, 0]})");
  EXPECT_EQ(c.id, "scenario0");
  EXPECT_EQ(c.model.num_qo_heads, 32);
  EXPECT_EQ(c.model.num_kv_heads, 8);
  EXPECT_EQ(c.model.head_dim, 128);
  EXPECT_EQ(c.model.head_dim_v, 128);
  EXPECT_EQ(c.dtype, DType::kBf16);
  EXPECT_DOUBLE_EQ(c.sm_scale, 1 / std::sqrt(128.0));
  EXPECT_EQ(c.rope.rotary_dim, 128);
  EXPECT_EQ(c.cache.num_pages, 1 + 2);
  EXPECT_EQ(c.batch.kv_len, (Lengths{3, 0}));
  EXPECT_EQ(c.batch.kv_len_before, (Lengths{0, 0}));
  EXPECT_FALSE(c.sage.smooth_k.has_value());
  EXPECT_EQ(c.expect.kind, ExpectKind::kOk);
  EXPECT_EQ(c.pointer, "/scenarios/0");
}

TEST(Scenario, DefaultsThatFollowOtherFields) {
  const Case small =
      load_one(R"("op": "attention", "batch": {"qo_len": [1]}, "model": {"head_dim": 64})");
  EXPECT_EQ(small.model.head_dim_v, 64);
  EXPECT_DOUBLE_EQ(small.sm_scale, 0.125);
  EXPECT_EQ(small.input.form, InputForm::kPackedQkv);
  const Case unequal = load_one(R"("op": "attention", "batch": {"qo_len": [1], "kv_len": [2]})");
  EXPECT_EQ(unequal.input.form, InputForm::kSplit);
  const Case plain = load_one(
      R"("op": "prefill", "batch": {"qo_len": [1]}, "rope": {"style": "none"}, "dtype": "fp16")");
  EXPECT_EQ(plain.rope.rotary_dim, 0);
  const Case own_table = load_one(
      R"("op": "prefill", "batch": {"qo_len": [1]}, "rope": {"table": "input"}, "dtype": "fp16")");
  EXPECT_EQ(own_table.rope.table_dtype, DType::kFp16);
  EXPECT_EQ(load_one(R"("op": "attention", "batch": {"qo_len": [1]},
                        "softmax": {"sm_scale": null}, "sage": {"p": null})")
                .sage.p,
            std::nullopt);
}

TEST(Scenario, AliasesAreReportedCanonically) {
  const Case c = load_one(
      R"("op": "kv_cache_write", "dtype": "half", "batch": {"seqlens_q": [4], "cache_seqlens": [5]},
         "model": {"num_heads": 6, "num_key_value_heads": 2, "head_size": 80},
         "cache": {"block_size": 4, "num_blocks": 7, "layout": "nhd"}, "rope": {"rope_theta": 1e6})");
  EXPECT_EQ(c.model.num_qo_heads, 6);
  EXPECT_EQ(c.model.num_kv_heads, 2);
  EXPECT_EQ(c.model.head_dim, 80);
  EXPECT_EQ(c.dtype, DType::kFp16);
  EXPECT_EQ(c.cache.page_size, 4);
  EXPECT_EQ(c.cache.num_pages, 7);
  EXPECT_EQ(c.cache.kv_layout, KvLayout::kNhd);
  EXPECT_EQ(c.rope.theta, 1e6);
  for (const char* canonical : {"\"num_qo_heads\":6", "\"page_size\":4", "\"kv_layout\":\"NHD\"",
                                "\"dtype\":\"fp16\"", "\"kv_len_before\":[5]"})
    EXPECT_NE(c.canonical_json.find(canonical), std::string::npos) << c.canonical_json;
}

// No alias hides a canonical key, and each leads to one that the format has.
TEST(Scenario, AliasesLeadToKeys) {
  std::set<std::string> keys;
  const std::function<void(const std::vector<Field>&)> collect = [&](const auto& fields) {
    for (const Field& field : fields) {
      keys.insert(field.key);
      collect(field.children);
    }
  };
  collect(scenario_fields());
  for (const Alias& row : aliases()) {
    EXPECT_FALSE(keys.count(row.alias)) << row.alias;
    EXPECT_TRUE(keys.count(row.key)) << row.key;
  }
}

TEST(Scenario, DefaultsMergeObjectByObject) {
  const Suite suite = load_text(
      suite_text(R"({"name": "a", "model": {"head_dim": 64}},
                    {"name": "b", "op": "prefill", "batch": {"qo_len": [2]},
                     "rope": {"scaling": {"factor": 4}}, "input": {"distribution": "uniform"}},
                    {"name": "c", "batch": {"requests": 3}})",
                 R"({"op": "attention", "seed": 5, "model": {"n_heads": 4, "num_kv_heads": 2},
                     "batch": {"constant": 3, "requests": 7},
                     "input": {"distribution": {"k": "k_channel_bias"}},
                     "rope": {"theta": 7, "scaling": {"type": "linear", "factor": 2}}})"));
  const Case &a = suite.cases.at(0), &b = suite.cases.at(1), &c = suite.cases.at(2);
  EXPECT_EQ(a.model.num_qo_heads, 4);
  EXPECT_EQ(a.model.head_dim, 64);
  EXPECT_EQ(a.batch.qo_len, Lengths(7, 3));
  EXPECT_EQ(a.input.k.at(0).name, "k_channel_bias");
  EXPECT_EQ(a.seed, 5u);
  EXPECT_EQ(b.batch.qo_len, Lengths{2}) << "other forms of lengths give way";
  EXPECT_EQ(b.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(b.rope.factor, 4);
  EXPECT_EQ(b.rope.theta, 7);
  EXPECT_EQ(b.input.k.at(0).name, "uniform") << "a distribution is replaced whole";
  EXPECT_EQ(c.batch.qo_len, Lengths(3, 3));
}

TEST(Scenario, CommandLineOverridesTheFile) {
  const std::string text = suite_text(
      R"({"op": "attention", "batch": {"uniform": [1, 1000], "requests": 9}, "seed": 1})");
  const Case c = load_text(text, {.seed = 77, .rows = Rows::kOff}).cases.at(0);
  EXPECT_EQ(c.seed, 77u);
  EXPECT_EQ(c.validate.rows, Rows::kOff);
  EXPECT_NE(c.batch.qo_len, load_text(text).cases.at(0).batch.qo_len) << "lengths follow the seed";
}

TEST(Scenario, ExpectationsPerKernel) {
  const std::string kernel = kernel_names(OpKind::kAttention).at(0);
  const Case c =
      load_one(R"("op": "attention", "batch": {"qo_len": [1]}, "expect": {"*": "reject", ")" +
               kernel + R"(": {"rel_l1": [0.1, 0.3], "worst_row": [0, 2], "why": "as measured"}})");
  EXPECT_EQ(c.expectation("another").kind, ExpectKind::kReject);
  const Expectation& own = c.expectation(kernel);
  EXPECT_EQ(own.kind, ExpectKind::kRange);
  EXPECT_EQ(own.ranges.at("rel_l1"), std::pair(0.1, 0.3));
  EXPECT_EQ(own.ranges.size(), 2u);
  EXPECT_EQ(own.why, "as measured");
  const Case status = load_one(R"("op": "attention", "batch": {"qo_len": [1]},
                                  "expect": {"status": "unsupported", "why": "too wide"})");
  EXPECT_EQ(status.expect.kind, ExpectKind::kUnsupported);
  EXPECT_EQ(status.expect.why, "too wide");
}

TEST(Scenario, CommentsAreAllowedAndTheHashIsOfTheBytes) {
  const std::string scenario = R"({"op": "attention", "batch": {"qo_len": [1]}})";
  const Suite plain = load_text(suite_text(scenario));
  const Suite commented = load_text("// why\n" + suite_text("/* how */" + scenario));
  EXPECT_EQ(plain.cases.at(0).canonical_json, commented.cases.at(0).canonical_json);
  EXPECT_NE(plain.hash, commented.hash);
}

// What a case echoes, read again, is the same case.
void expect_round_trip(const Case& c) {
  const Case again = load_text(suite_text(c.canonical_json)).cases.at(0);
  EXPECT_EQ(again.canonical_json, c.canonical_json);
  EXPECT_EQ(again.id, c.id);
  EXPECT_EQ(again.batch.qo_len, c.batch.qo_len);
  EXPECT_EQ(again.batch.kv_len, c.batch.kv_len);
  EXPECT_EQ(again.batch.kv_len_before, c.batch.kv_len_before);
  EXPECT_EQ(again.sm_scale, c.sm_scale);
  EXPECT_EQ(again.seed, c.seed);
  EXPECT_EQ(again.canonical_json.find('\n'), std::string::npos);
}

TEST(Scenario, EchoReadsBackAsTheSameCase) {
  expect_round_trip(load_one(
      R"("op": "attention", "batch": {"lognormal": {"median": 90, "sigma": 1, "max": 999},
         "requests": 5}, "seed": 18446744073709551615, "mask": {"causal": true},
         "softmax": {"sm_scale": 0.07}, "sage": {"pv": "fp16", "rotate": "hadamard"},
         "input": {"distribution": [{"name": "strong_key", "at": "needle"}, "v_channel_bias"]},
         "validate": {"tolerance": {"rel_l1": 0.1, "why": "w"}, "reference": "exact"},
         "expect": {"rel_l1": [0, 1], "why": "w"})"));
  expect_round_trip(load_one(
      R"("op": "kv_cache_write", "name": "x", "batch": {"constant": 5, "requests": 40},
         "cache": {"index": "slot_mapping"}, "rope": {"scaling": "yarn", "table": "input"},
         "input": {"strides": {"token_padding": 24}}, "exec": {"stream": "default"})"));
  expect_round_trip(load_one(
      R"("op": "prefill", "sweep": {"zip": {"dtype": ["fp16"], "batch.qo_len": [[2, 3]]}},
         "cache": {"page_size": 2, "page_ids": [3, -1, 0]})"));
}

}  // namespace
}  // namespace sagebench
