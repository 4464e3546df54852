// Every mistake in a scenario file: the error names the place, the value and what is allowed.
#include <gtest/gtest.h>

#include "support/scratch_config.h"

namespace sagebench {
namespace {

using test::BadScenario;
using test::error_of_text;
using test::expect_error;
using test::suite_text;

#define ATTENTION R"("op": "attention", "batch": {"qo_len": [4]}, )"
#define WRITE R"("op": "kv_cache_write", "batch": {"qo_len": [2, 3]}, )"

TEST(ScenarioErrors, KeysAndTypes) {
  const BadScenario bad[] = {
      {ATTENTION R"("modle": {})",
       {"/scenarios/0/modle: unknown key 'modle'; did you mean 'model'?", "allowed: name, op"}},
      {ATTENTION R"("swep": {})",
       {"/scenarios/0/swep: unknown key 'swep'; did you mean 'sweep'?", ", expect, sweep"}},
      {R"("op": "attention", "batch": {"constant": 3})",
       {"/scenarios/0/batch: missing key 'requests'; expected the number of sequences, from 1 "
        "to "}},
      {R"("op": "attention", "batch": {"requests": 2, "lognormal": {"median": 3, "max": 9}})",
       {"/scenarios/0/batch/lognormal: missing key 'sigma'; expected a number from 0 to 10"}},
      {ATTENTION R"("model": {"head_dmi": 1})", {"/scenarios/0/model/head_dmi", "'head_dim'"}},
      {ATTENTION R"("causal": true)", {"/scenarios/0/causal", "did you mean 'mask.causal'"}},
      {ATTENTION R"("model": {"num_heads": 1, "num_qo_heads": 1})",
       {"/scenarios/0/model/num_qo_heads", "alias"}},
      {ATTENTION R"("model": 3)", {"/scenarios/0/model: 3 is not allowed; expected an object"}},
      {ATTENTION R"("model": {"head_dim": 1.5})",
       {"/scenarios/0/model/head_dim: 1.5", "1 to 1024"}},
      {ATTENTION R"("model": {"head_size": 0})", {"/scenarios/0/model/head_size: 0"}},
      {ATTENTION R"("model": {"head_dim": "64"})", {"/scenarios/0/model/head_dim: \"64\""}},
      {ATTENTION R"("mask": {"causal": 1})", {"/scenarios/0/mask/causal: 1", "true or false"}},
      {ATTENTION R"("dtype": "fp8")", {"/scenarios/0/dtype", "\"fp8\"", "allowed: bf16, fp16"}},
      {ATTENTION R"("seed": -1)", {"/scenarios/0/seed: -1"}},
      {ATTENTION R"("name": "a b")", {"/scenarios/0/name: \"a b\""}},
      {ATTENTION R"("name": "")", {"/scenarios/0/name"}},
      {R"("op": "attentoin", "batch": {"qo_len": [4]})",
       {"/scenarios/0/op", "\"attentoin\"", "did you mean 'attention'",
        "attention, kv_cache_write, prefill"}},
      {R"("batch": {"qo_len": [4]})", {"/scenarios/0: missing key 'op'", "prefill"}},
      {R"("op": "attention")", {"/scenarios/0: missing key 'batch'"}},
      {ATTENTION R"("rope": {"theta": 2})",
       {"/scenarios/0/rope: op attention does not use 'rope'"}},
      {ATTENTION R"("cache": {"page_size": 2})", {"/scenarios/0/cache/page_size"}},
      {ATTENTION R"("sweep": {"cartesian": {"model.head_dmi": [1]}})",
       {"/scenarios/0/sweep/cartesian/model.head_dmi/0", "'head_dim'"}},
      {ATTENTION R"("sweep": {"cartesian": {"model.head_dim": [64, -1]}})",
       {"/scenarios/0/sweep/cartesian/model.head_dim/1: -1"}},
      {ATTENTION R"("timing": {"min_time_s": 9})", {"/scenarios/0/timing/min_time_s"}},
  };
  for (const BadScenario& one : bad) expect_error(one);
}

TEST(ScenarioErrors, ShapesAndLengths) {
  const BadScenario bad[] = {
      {ATTENTION R"("model": {"num_qo_heads": 3, "num_kv_heads": 2})",
       {"/scenarios/0/model/num_kv_heads: 3 query heads over 2 KV heads"}},
      {R"("op": "attention", "batch": {"qo_len": [4, -1]})",
       {"/scenarios/0/batch/qo_len/1: -1", "0 to 2147483647"}},
      {R"("op": "attention", "batch": {"qo_len": [1099511627776]})",
       {"/scenarios/0/batch/qo_len/0: 1099511627776"}},
      {R"("op": "attention", "batch": {"qo_len": []})",
       {"/scenarios/0/batch/qo_len: [] is not allowed; expected at least one length"}},
      {R"("op": "attention", "batch": {"qo_len": [3], "kv_len": []})",
       {"/scenarios/0/batch/kv_len: [] is not allowed"}},
      {R"("op": "prefill", "batch": {"seqlens_q": [], "kv_len_before": []})",
       {"/scenarios/0/batch/seqlens_q: [] is not allowed"}},
      {R"("op": "attention", "batch": {"qo_len": [2147483647, 1]})",
       {"/scenarios/0/batch/qo_len: 2147483648 tokens", "2^31 - 1"}},
      {R"("op": "attention", "batch": {"qo_len": [1], "kv_len": [1, 2]})",
       {"/scenarios/0/batch/kv_len: 2 lengths for 1"}},
      {R"("op": "attention", "batch": {"qo_len": [1], "kv_len": "smae"})",
       {"/scenarios/0/batch/kv_len", "same"}},
      {R"("op": "attention", "batch": {"qo_len": [1], "kv_len_before": [2]})",
       {"/scenarios/0/batch/kv_len_before", "kv_len"}},
      {R"("op": "prefill", "batch": {"qo_len": [1], "kv_len": [2]})",
       {"/scenarios/0/batch/kv_len", "prefill"}},
      {R"("op": "prefill", "batch": {"qo_len": [1], "kv_len_before": [2147483647]})",
       {"/scenarios/0/batch/kv_len_before: sequence 0"}},
      {R"("op": "attention", "batch": {"qo_len": 5})", {"/scenarios/0/batch/qo_len: 5", "a list"}},
      {R"("op": "attention", "batch": {})", {"/scenarios/0/batch: no lengths", "trace"}},
      {R"("op": "attention", "batch": {"constant": 3})",
       {"/scenarios/0/batch: missing key 'requests'"}},
      {R"("op": "attention", "batch": {"constant": 3, "requests": 0})",
       {"/scenarios/0/batch/requests: 0"}},
      {R"("op": "attention", "batch": {"constant": 3, "uniform": [1, 2], "requests": 2})",
       {"/scenarios/0/batch/uniform", "exclude"}},
      {R"("op": "attention", "batch": {"qo_len": [3], "requests": 2})",
       {"/scenarios/0/batch/requests", "exclude"}},
      {R"("op": "attention", "batch": {"uniform": [5, 2], "requests": 2})",
       {"/scenarios/0/batch/uniform: [5,2]", "low <= high"}},
      {R"("op": "attention", "batch": {"lognormal": {"median": 5, "sigma": 1}, "requests": 2})",
       {"/scenarios/0/batch/lognormal: missing key 'max'"}},
      {R"("op": "attention", "batch": {"constant": 5, "requests": 2, "column": "x"})",
       {"/scenarios/0/batch/column", "trace"}},
      {R"("op": "attention", "batch": {"qo_len": [1], "kv_len": [2]}, "input": {"form": "packed_qkv"})",
       {"/scenarios/0/input/form", "split"}},
  };
  for (const BadScenario& one : bad) expect_error(one);
}

TEST(ScenarioErrors, RopeAndCache) {
  const BadScenario bad[] = {
      {WRITE R"("model": {"head_dim": 64}, "rope": {"rotary_dim": 96})",
       {"/scenarios/0/rope/rotary_dim: 96", "64"}},
      {WRITE R"("rope": {"rotary_dim": 33})", {"/scenarios/0/rope/rotary_dim: 33 is odd"}},
      {WRITE R"("model": {"head_dim": 111})",
       {"/scenarios/0/model/head_dim: 111 is odd", "rope.rotary_dim", "none"}},
      {WRITE R"("model": {"head_dim": 111}, "rope": {"rotary_dim": 0})",
       {"/scenarios/0/model/head_dim: 111 is odd"}},
      {WRITE R"("model": {"head_dim": 111}, "rope": {"rotary_dim": 109})",
       {"/scenarios/0/rope/rotary_dim: 109 is odd"}},
      {WRITE R"("rope": {"scaling": "yran"})", {"/scenarios/0/rope/scaling", "yarn"}},
      {WRITE R"("rope": {"scaling": {"type": "llama3", "low_freq_factor": 4}})",
       {"/scenarios/0/rope/scaling", "low_freq_factor < high_freq_factor"}},
      {WRITE R"("rope": {"table": "fp16"})", {"/scenarios/0/rope/table", "bf16"}},
      {WRITE R"("cache": {"page_size": 2, "num_pages": 2})",
       {"/scenarios/0/cache/num_pages: 2 pages, but the batch needs 3"}},
      {WRITE R"("cache": {"page_size": 0})", {"/scenarios/0/cache/page_size: 0"}},
      {WRITE R"("cache": {"dtype": "int8"})", {"/scenarios/0/cache/dtype", "int8"}},
      {WRITE R"("cache": {"guard_bytes": 100})", {"/scenarios/0/cache/guard_bytes: 100", "256"}},
      {WRITE R"("cache": {"index": "slot_mapping", "slots": [0, 1, 2, 1, 4]})",
       {"/scenarios/0/cache/slots/3: slot 1 occurs twice"}},
      {WRITE R"("cache": {"index": "slot_mapping", "page_size": 4, "slots": [0, 1, 2, 3, 99]})",
       {"/scenarios/0/cache/slots/4: slot 99 is out of range", "15"}},
      {WRITE R"("cache": {"index": "slot_mapping", "slots": [0, 1]})",
       {"/scenarios/0/cache/slots: 2 slots for 5"}},
      {WRITE R"("cache": {"slots": [0, 1, 2, 3, 4]})",
       {"/scenarios/0/cache/slots", "slot_mapping"}},
      {WRITE R"("cache": {"page_size": 4, "num_pages": 4, "page_ids": [0, 99]})",
       {"/scenarios/0/cache/page_ids/1: page id 99 is out of range", "to 3"}},
      {WRITE R"("cache": {"page_size": 4, "page_ids": [1, 1]})",
       {"/scenarios/0/cache/page_ids/1: page id 1 occurs twice"}},
      {WRITE R"("cache": {"page_size": 4, "page_ids": [1]})",
       {"/scenarios/0/cache/page_ids: 1 page ids, but the batch needs 2"}},
      {WRITE R"("cache": {"page_size": 65536, "num_pages": 2147483647})",
       {"/scenarios/0/cache/num_pages", "2^48"}},
  };
  for (const BadScenario& one : bad) expect_error(one);
}

TEST(ScenarioErrors, InputsAndJudgement) {
  const BadScenario bad[] = {
      {ATTENTION R"("input": {"distribution": "normla"})",
       {"/scenarios/0/input/distribution", "\"normla\"", "'normal'", "nan_in_padding"}},
      {ATTENTION R"("input": {"distribution": {"name": "k_channel_bias", "t": 2}})",
       {"/scenarios/0/input/distribution/t", "'t'; allowed: name, s"}},
      {ATTENTION R"("input": {"distribution": {"name": "k_channel_bias", "s": "big"}})",
       {"/scenarios/0/input/distribution/s: \"big\""}},
      {ATTENTION R"("input": {"distribution": {"v": "k_channel_bias"}})",
       {"/scenarios/0/input/distribution/v", "does not apply to v, only to k"}},
      {ATTENTION R"("input": {"distribution": {"q": ["strong_key"]}})",
       {"/scenarios/0/input/distribution: strong_key", "both"}},
      {ATTENTION R"("input": {"distribution": ["uniform", "strong_key"]})",
       {"/scenarios/0/input/distribution/1", "first"}},
      {ATTENTION R"("input": {"distribution": {"name": "strong_key", "at": "nowhere"}})",
       {"/scenarios/0/input/distribution/at", "start, quarter, middle, end"}},
      {R"("op": "prefill", "batch": {"qo_len": [4]}, "input": {"distribution": "strong_key"})",
       {"/scenarios/0/input/distribution", "attention"}},
      {ATTENTION R"("input": {"distribution": ["huge", "huge"]})",
       {"/scenarios/0/input/distribution/1", "twice"}},
      {ATTENTION R"("input": {"strides": "loose"})", {"/scenarios/0/input/strides", "padded"}},
      {ATTENTION R"("input": {"file": "none.safetensors"})",
       {"/scenarios/0/input/file", "none.safetensors", "beside the config"}},
      {ATTENTION R"("exec": {"kernels": ["no_such"]})",
       {"/scenarios/0/exec/kernels/0", "no_such", "*"}},
      {WRITE R"("exec": {"kernels": "sage_mma"})",
       {"/scenarios/0/exec/kernels", "rope_kv_cache_write"}},
      {ATTENTION R"("validate": {"properties": ["alone"]})",
       {"/scenarios/0/validate/properties/0", "\"alone\""}},
      {ATTENTION R"("validate": {"tolerance": {"rel_l1": 0.1}})",
       {"/scenarios/0/validate/tolerance: missing key 'why'"}},
      {ATTENTION R"("expect": "fine")", {"/scenarios/0/expect", "ok, unsupported, reject"}},
      {ATTENTION R"("expect": {"rel_l1": [0, 1]})", {"/scenarios/0/expect: missing key 'why'"}},
      {ATTENTION R"("expect": {"rel_l1": [1, 0], "why": "w"})",
       {"/scenarios/0/expect/rel_l1: [1,0]", "low <= high"}},
      {ATTENTION R"("expect": {"why": "w"})", {"/scenarios/0/expect", "rel_l1"}},
      {ATTENTION R"("expect": {"no_such_kernel": "ok"})",
       {"/scenarios/0/expect/no_such_kernel", "unknown key"}},
  };
  for (const BadScenario& one : bad) expect_error(one);
}

// A bound on a metric that the case does not measure would be read and never looked at.
TEST(ScenarioErrors, MetricsThatTheCaseDoesNotHave) {
  const BadScenario bad[] = {
      {WRITE R"("validate": {"tolerance": {"rel_l1": 0.1, "why": "w"}})",
       {"/scenarios/0/validate/tolerance/rel_l1: op kv_cache_write", "allowed metrics: none"}},
      {WRITE R"("validate": {"tolerance": {"rel_l1_emulated": 0.1, "why": "w"}})",
       {"/scenarios/0/validate/tolerance/rel_l1_emulated", "allowed metrics: none"}},
      {WRITE R"("expect": {"cosine": [0, 1], "why": "w"})",
       {"/scenarios/0/expect/cosine: op kv_cache_write", "allowed metrics: none"}},
      {WRITE R"("expect": {"rope_kv_cache_write": {"norm_ratio": [0, 1], "why": "w"}})",
       {"/scenarios/0/expect/rope_kv_cache_write/norm_ratio", "allowed metrics: none"}},
      {ATTENTION R"("validate": {"tolerance": {"relative": 0.1, "why": "w"}})",
       {"/scenarios/0/validate/tolerance/relative", "rel_l1, cosine, worst_row, norm_ratio"}},
      {ATTENTION
       R"("validate": {"reference": "emulated", "tolerance": {"cosine": 0.9, "why": "w"}})",
       {"/scenarios/0/validate/tolerance/cosine", "validate.reference",
        "allowed metrics: rel_l1_emulated"}},
      {ATTENTION
       R"("validate": {"reference": "exact", "tolerance": {"rel_l1_emulated": 1, "why": "w"}})",
       {"/scenarios/0/validate/tolerance/rel_l1_emulated",
        "allowed metrics: rel_l1, cosine, worst_row, norm_ratio"}},
      {ATTENTION
       R"("validate": {"reference": "emulated"}, "expect": {"rel_l1": [0, 1], "why": "w"})",
       {"/scenarios/0/expect/rel_l1", "validate.reference", "allowed metrics: none"}},
  };
  for (const BadScenario& one : bad) expect_error(one);
  const char* defaults =
      R"({"validate": {"tolerance": {"rel_l1": 0.1, "why": "w"}},
          "expect": {"cosine": [0, 1], "why": "w"}})";
  const Suite suite =
      test::load_text(suite_text(R"({"op": "kv_cache_write", "batch": {"qo_len": [2]}},
                                    {"op": "attention", "batch": {"qo_len": [2]}})",
                                 defaults));
  EXPECT_FALSE(suite.cases.at(0).validate.tolerance.rel_l1);
  EXPECT_EQ(suite.cases.at(0).expect.kind, ExpectKind::kOk);
  EXPECT_EQ(suite.cases.at(1).validate.tolerance.rel_l1, 0.1);
  EXPECT_EQ(suite.cases.at(1).expect.kind, ExpectKind::kRange);
}

// A guess that resembles nothing misleads.
TEST(ScenarioErrors, OnlyNamesThatResembleAreGuessed) {
  for (const char* key : {"zz", "q", "", "lengths"}) {
    const std::string message = error_of_text(suite_text(
        R"({"op": "attention", "batch": {"qo_len": [4]}, ")" + std::string(key) + R"(": 1})"));
    EXPECT_EQ(message.find("did you mean"), std::string::npos) << message;
    EXPECT_NE(message.find("'; allowed: name, op"), std::string::npos) << message;
  }
}

TEST(ScenarioErrors, DefaultsAreBlamedWhereTheyAre) {
  const std::string scenario = R"({"op": "attention", "batch": {"qo_len": [4]}})";
  EXPECT_EQ(error_of_text(suite_text(scenario, R"({"model": {"headdim": -3}})"))
                .rfind("/defaults/model/headdim: -3", 0),
            0u);
  EXPECT_EQ(error_of_text(suite_text(scenario, R"({"name": "x"})")).rfind("/defaults/name", 0), 0u);
  EXPECT_EQ(error_of_text(suite_text(scenario, R"({"rope": {"theta": 1e5}})")), "")
      << "defaults may hold what only other ops use";
  EXPECT_NE(error_of_text(suite_text(scenario, R"({"rope": {"theta": "x"}})")), "");
}

TEST(ScenarioErrors, TheWholeFile) {
  const std::string scenario = R"({"op": "attention", "batch": {"qo_len": [4]}})";
  EXPECT_EQ(error_of_text("{\n  \"schema\": \"sagebench.scenario/1\",\n  \"scen")
                .rfind("line 3, column 8: not valid JSON", 0),
            0u)
      << error_of_text("{\n  \"schema\": \"sagebench.scenario/1\",\n  \"scen");
  EXPECT_EQ(error_of_text("").rfind("line 1, column 1: not valid JSON", 0), 0u);
  EXPECT_EQ(error_of_text("hello").rfind("line 1, column 1", 0), 0u) << error_of_text("hello");
  for (const auto& [text, place] :
       {std::pair{"[1e999]", "/0"}, {"{\"a\": [1, {}, -1e400]}", "/a/2"}, {"1e999", ""}}) {
    const std::string message = error_of_text(text);
    EXPECT_EQ(message.rfind(std::string(place) + ": a number that is out of range", 0), 0u)
        << message;
  }
  EXPECT_EQ(error_of_text("[]").rfind("/: [] is not allowed", 0), 0u) << error_of_text("[]");
  EXPECT_EQ(error_of_text(R"({"scenarios": []})").rfind("/: missing key 'schema'", 0), 0u);
  EXPECT_EQ(error_of_text(R"({"schema": "sagebench.scenario/2"})").rfind("/schema", 0), 0u);
  EXPECT_EQ(error_of_text(suite_text("")).rfind("/scenarios: [] is not allowed", 0), 0u);
  EXPECT_EQ(error_of_text(suite_text("3")).rfind("/scenarios/0: 3", 0), 0u);
  EXPECT_EQ(
      error_of_text(suite_text(R"({"op": "attention", "batch": {"qo_len": [4]}, "op": "x"})")),
      "/scenarios/0/op: the key 'op' occurs twice");
  const std::string named = R"({"name": "a", "op": "attention", "batch": {"qo_len": [4]}})";
  EXPECT_EQ(error_of_text(suite_text(named + "," + named))
                .rfind("/scenarios/1: the case id 'a' occurs twice, first at /scenarios/0", 0),
            0u);
  std::string deepest;
  for (int i = 0; i < 64; ++i) deepest += "/0";
  EXPECT_EQ(error_of_text(std::string(100000, '[')), deepest + ": nested deeper than 64 levels");
  const std::string deep = R"({"schema": 1, "scenarios": [1, {"a": )" + std::string(61, '[');
  EXPECT_EQ(error_of_text(deep + "1").rfind("line 1", 0), 0u) << "64 levels are allowed";
  EXPECT_EQ(error_of_text(deep + "{").rfind("/scenarios/1/a/0/0", 0), 0u);
  EXPECT_THROW(load_suite("no/such/file.json"), UsageError);
  EXPECT_THROW(load_suite("/"), UsageError);
}

}  // namespace
}  // namespace sagebench
