// Every rule of validate() fails when its stage is wrong, at that stage and before any later one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "metrics/cache_map.h"
#include "support/clean_subject.h"

namespace sagebench {
namespace {

using test::Clean;
using test::clean;
using test::first_failure;

// One change to the outputs, and the check that must notice it first.
struct Change {
  const char* name;
  const char* case_id;
  Stage stage;
  const char* rule;  // part of it
  std::function<void(const Clean&, StageOutputs&)> apply;
};

void add_ulps(Tensor& t, int64_t i, int ulps) {
  t.set(i, t.get(i) + static_cast<float>(ulps * ulp_at(t.dtype, t.get(i))));
}

// Index of the largest element of a float tensor.
int64_t largest(const Tensor& t) {
  int64_t at = 0;
  for (int64_t i = 0; i < t.size(); ++i)
    if (std::fabs(t.get(i)) > std::fabs(t.get(at))) at = i;
  return at;
}

// A slot that no token is written to.
int64_t free_slot(const Clean& c) {
  const std::vector<int64_t> slots = token_slots(c.s.c, c.s.in);
  int64_t free = 0;
  while (std::find(slots.begin(), slots.end(), free) != slots.end()) ++free;
  return free;
}

const std::vector<Change>& changes() {
  constexpr const char *kA = "causal_fp8", *kF = "full_rotated_fp16", *kP = "paged_neox",
                       *kS = "slots_interleaved";
  using O = StageOutputs;
  static const std::vector<Change> list = {
      // shapes
      {"missing_k_rope", kP, Stage::kRope, "shape and dtype of k_rope",
       [](const Clean&, O& o) { o.k_rope = {}; }},
      {"cache_of_other_shape", kP, Stage::kCache, "shape and dtype of value_cache",
       [](const Clean&, O& o) { o.value_cache.shape[0] -= 1; }},
      {"offset_missing", kA, Stage::kOffset, "shape and dtype of k_offset",
       [](const Clean&, O& o) { o.k_offset = {}; }},
      {"scales_of_other_dtype", kA, Stage::kQkCodes, "shape and dtype of q_scales",
       [](const Clean&, O& o) { o.q_scales = Tensor(DType::kFp16, o.q_scales.shape); }},
      {"bytes_missing", kA, Stage::kVCodes, "shape and dtype of v_codes",
       [](const Clean&, O& o) { o.v_codes.bytes.pop_back(); }},
      {"o_missing", kA, Stage::kO, "shape and dtype of o", [](const Clean&, O& o) { o.o = {}; }},
      {"lse_missing", kA, Stage::kLse, "shape and dtype of lse",
       [](const Clean&, O& o) { o.lse = {}; }},

      // rope
      {"rotated_two_ulps", kP, Stage::kRope, "max(1 ulp",
       [](const Clean&, O& o) { add_ulps(o.q_rope, largest(o.q_rope), 2); }},
      {"nan_becomes_infinity", kP, Stage::kRope, "k rotated",
       [](const Clean&, O& o) {
         for (int64_t i = 0; i < o.k_rope.size(); ++i)
           if (std::isnan(o.k_rope.get(i))) o.k_rope.set(i, INFINITY);
       }},
      {"finite_becomes_nan", kP, Stage::kRope, "q rotated",
       [](const Clean&, O& o) { o.q_rope.set(0, NAN); }},
      {"low_precision_table_rule", kS, Stage::kRope, "table in the input dtype",
       [](const Clean&, O& o) { add_ulps(o.q_rope, largest(o.q_rope), 12); }},
      {"copied_channel_one_ulp", kP, Stage::kRope, "bit-identical",
       [](const Clean& c, O& o) { add_ulps(o.k_rope, c.s.c.model.head_dim - 1, 1); }},

      // cache
      {"v_slot_one_ulp", kP, Stage::kCache, "V slots",
       [](const Clean& c, O& o) {
         const int64_t slot = token_slots(c.s.c, c.s.in)[0];
         add_ulps(o.value_cache, CacheView(c.s.c, o.value_cache).index(slot, 1, 5), 1);
       }},
      {"k_slot_one_ulp", kS, Stage::kCache, "K slots",
       [](const Clean& c, O& o) {
         const int64_t slot = token_slots(c.s.c, c.s.in)[0];
         add_ulps(o.key_cache, CacheView(c.s.c, o.key_cache).index(slot, 1, 5), 1);
       }},
      {"untouched_v_bit", kP, Stage::kCache, "V bytes not written",
       [](const Clean& c, O& o) {
         o.value_cache.as<uint16_t>()[CacheView(c.s.c, o.value_cache).index(free_slot(c), 1, 63)] ^=
             1;
       }},
      {"untouched_k_bit", kS, Stage::kCache, "K bytes not written",
       [](const Clean& c, O& o) {
         o.key_cache.as<uint16_t>()[CacheView(c.s.c, o.key_cache).index(free_slot(c), 0, 0)] ^=
             0x8000;
       }},

      // offsets
      {"k_offset_off", kA, Stage::kOffset, "k_offset: mean",
       [](const Clean&, O& o) {
         const int64_t i = largest(o.k_offset);
         o.k_offset.set(i, o.k_offset.get(i) * (1 + 0x1p-18f));
       }},
      {"v_offset_nan", kA, Stage::kOffset, "v_offset: mean",
       [](const Clean&, O& o) { o.v_offset.set(3, NAN); }},

      // codes of Q and K
      {"q_scale_off", kA, Stage::kQkCodes, "q scales",
       [](const Clean&, O& o) { o.q_scales.set(0, o.q_scales.get(0) * (1 + 0x1p-18f)); }},
      {"k_scale_nan", kA, Stage::kQkCodes, "k scales",
       [](const Clean&, O& o) { o.k_scales.set(0, NAN); }},
      {"k_scale_negative", kF, Stage::kQkCodes, "k scales",
       [](const Clean&, O& o) { o.k_scales.set(0, -o.k_scales.get(0)); }},
      {"q_code_two_apart", kF, Stage::kQkCodes, "at most 1 apart",
       [](const Clean&, O& o) {
         int8_t& code = o.q_codes.as<int8_t>()[17];
         code = static_cast<int8_t>(code > 0 ? code - 2 : code + 2);
       }},
      {"k_code_one_apart", kF, Stage::kQkCodes, "within half a code",
       [](const Clean&, O& o) {
         int8_t& code = o.k_codes.as<int8_t>()[17];
         code = static_cast<int8_t>(code > 0 ? code - 1 : code + 1);
       }},

      // codes of V
      {"v_scale_off", kA, Stage::kVCodes, "v scales",
       [](const Clean&, O& o) { o.v_scales.set(0, o.v_scales.get(0) * (1 + 0x1p-18f)); }},
      {"v_scale_zero", kF, Stage::kVCodes, "v scales",
       [](const Clean&, O& o) { o.v_scales.set(0, 0); }},
      {"v_code_next", kA, Stage::kVCodes, "nearest",
       [](const Clean&, O& o) { o.v_codes.as<uint8_t>()[9] ^= 1; }},
      {"v_code_nan", kA, Stage::kVCodes, "nearest",
       [](const Clean&, O& o) { o.v_codes.as<uint8_t>()[9] = 0x7f; }},
      {"v_code_infinite", kF, Stage::kVCodes, "nearest",
       [](const Clean&, O& o) { o.v_codes.as<uint16_t>()[9] = 0x7c00; }},

      // O
      {"o_poison", kA, Stage::kO, "every row written",
       [](const Clean& c, O& o) {
         std::memset(o.o.bytes.data(), poison_byte(0), size_t{2} * c.s.c.model.head_dim_v);
       }},
      {"o_infinite", kA, Stage::kO, "finite, as all inputs are",
       [](const Clean&, O& o) { o.o.set(5, INFINITY); }},
      {"o_row_off", kF, Stage::kO, "1 ulp + one code of P",
       [](const Clean&, O& o) { add_ulps(o.o, largest(o.o), 40); }},
      {"o_all_off", kF, Stage::kO, "sum of errors",
       [](const Clean&, O& o) {
         for (int64_t i = 0; i < o.o.size(); ++i) add_ulps(o.o, i, i % 2 ? 1 : -1);
       }},

      // LSE
      {"lse_dot_off", kA, Stage::kLse, "q . k_offset",
       [](const Clean&, O& o) {
         const int64_t i = largest(o.lse_dot);
         o.lse_dot.set(i, o.lse_dot.get(i) * (1 + 0x1p-10f));
       }},
      {"lse_off", kA, Stage::kLse, "against the emulation",
       [](const Clean&, O& o) { o.lse.set(0, o.lse.get(0) + 0.1f); }},
      {"lse_nan", kA, Stage::kLse, "against the emulation",
       [](const Clean&, O& o) { o.lse.set(0, NAN); }},
      {"lse_all_off", kA, Stage::kLse, "mean error",
       [](const Clean&, O& o) {
         for (int64_t i = 0; i < o.lse.size(); ++i) o.lse.set(i, o.lse.get(i) + 0.02f);
       }},
  };
  return list;
}

class EveryRule : public testing::TestWithParam<size_t> {};

TEST_P(EveryRule, FailsOnItsChange) {
  const Change& change = changes()[GetParam()];
  const Clean& c = clean(change.case_id);
  ASSERT_EQ(first_failure(c.validate()), nullptr);
  StageOutputs changed = c.out;
  change.apply(c, changed);
  const Validation v = c.validate(changed);
  const StageCheck* failure = first_failure(v);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->stage, change.stage) << failure->rule;
  EXPECT_NE(failure->rule.find(change.rule), std::string::npos) << failure->rule;
  EXPECT_GT(failure->wrong, 0);
  EXPECT_FALSE(failure->detail.empty());
}

std::string change_name(const testing::TestParamInfo<size_t>& info) {
  return changes()[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(Changes, EveryRule, testing::Range(size_t{0}, changes().size()),
                         change_name);

TEST(StageCheck, NamesPlaceAndBothValues) {
  const Clean& c = clean("paged_neox");
  StageOutputs changed = c.out;
  changed.q_rope.set(2 * 64 + 7, 99.0f);
  const Validation v = c.validate(changed);
  const StageCheck* failure = first_failure(v);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(to_string(failure->at), "sequence 0, head 2, token 0, channel 7");
  EXPECT_EQ(failure->actual, 99.0);
  EXPECT_EQ(failure->wrong, 1);
  EXPECT_NE(failure->detail.find("found 99"), std::string::npos);
}

}  // namespace
}  // namespace sagebench
