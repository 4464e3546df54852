// validate() as a whole: order, limits against exact, samples, non-finite inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/clean_subject.h"

namespace sagebench {
namespace {

using test::Clean;
using test::clean;
using test::first_failure;

TEST(Validate, ChecksComeInPipelineOrder) {
  for (const char* id : {"causal_fp8", "full_rotated_fp16", "paged_neox", "small_prefill"}) {
    const Validation v = clean(id).validate();
    EXPECT_TRUE(
        std::is_sorted(v.checks.begin(), v.checks.end(),
                       [](const StageCheck& a, const StageCheck& b) { return a.stage < b.stage; }));
    for (const StageCheck& check : v.checks) EXPECT_GT(check.checked, 0) << check.rule;
  }
}

TEST(Validate, AccuracyOnlyWhereThereIsAttention) {
  EXPECT_FALSE(clean("paged_neox").validate().accuracy.has_value());
  const auto accuracy = clean("causal_fp8").validate().accuracy;
  ASSERT_TRUE(accuracy.has_value());
  EXPECT_EQ(accuracy->rows_checked, accuracy->rows_total);
  EXPECT_GT(accuracy->emulated_vs_exact.all.rel_l1, 0);
  EXPECT_LT(accuracy->kernel_vs_emulated.all.rel_l1, 0x1p-8);  // the cast to bf16
  EXPECT_FALSE(accuracy->price_qk.has_value());
}

// Limits on the result against exact: each one, and what is to blame.
class Limits : public testing::Test {
 protected:
  // The rules that fail when the case has this tolerance.
  std::vector<StageCheck> failures(const Tolerance& tolerance) {
    Case c = base.s.c;
    c.validate.tolerance = tolerance;
    std::vector<StageCheck> failed;
    for (const StageCheck& check :
         validate(c, base.s.in, base.s.kernel, base.out, poison_byte(0), base.rows, false).checks)
      if (!check.passed) failed.push_back(check);
    return failed;
  }
  const Clean& base = clean("causal_fp8");
};

TEST_F(Limits, EachCanFail) {
  const std::vector<std::pair<std::optional<double> Tolerance::*, const char*>> each = {
      {&Tolerance::rel_l1, "relative L1 per (sequence, head)"},
      {&Tolerance::cosine, "1 - cosine"},
      {&Tolerance::worst_row, "worst row"},
      {&Tolerance::norm_ratio, "norm ratio"},
      {&Tolerance::rel_l1_emulated, "against emulated"}};
  for (const auto& [member, rule] : each) {
    Tolerance tolerance;
    tolerance.*member = member == &Tolerance::cosine ? 1.0 : 1e-9;
    const std::vector<StageCheck> failed = failures(tolerance);
    ASSERT_EQ(failed.size(), 1u) << rule;
    EXPECT_EQ(failed[0].stage, Stage::kO);
    EXPECT_NE(failed[0].rule.find(rule), std::string::npos) << failed[0].rule;
  }
  EXPECT_TRUE(failures({}).empty());
}

TEST_F(Limits, NanLimitFails) {
  Tolerance tolerance;
  tolerance.rel_l1 = NAN;
  EXPECT_FALSE(failures(tolerance).empty());
}

// Smoothing off on biased keys: the price of Q's and K's codes is the one to name.
TEST_F(Limits, BlameNamesTheLargestPrice) {
  Case c = base.s.c;
  for (Distribution& d : c.input.k)
    if (d.name == "k_channel_bias") d.params["s"] = 30;
  c.input.v = {};
  Kernel kernel = base.s.kernel;
  kernel.settings.smooth_k = sage::Smooth::kNone;
  const Inputs in = make_inputs(c);
  RunOptions options;
  options.rows = &base.rows;
  const StageOutputs out = make_cpu_executor()->run(c, kernel, in, options).outputs;
  const Validation v = validate(c, in, kernel, out, poison_byte(0), base.rows, false);
  const StageCheck* failure = first_failure(v);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->stage, Stage::kO);
  EXPECT_NE(failure->rule.find("against exact"), std::string::npos) << failure->rule;
  EXPECT_NE(failure->detail.find("largest price is that of Q and K codes"), std::string::npos)
      << failure->detail;
  EXPECT_GT(v.accuracy->price_qk.value(), v.accuracy->price_v.value());

  c.expect.kind = ExpectKind::kRange;  // whoever expects the collapse judges it
  EXPECT_EQ(first_failure(validate(c, in, kernel, out, poison_byte(0), base.rows, false)), nullptr);
}

TEST(Validate, SampledSubjectIsCheckedOnItsRows) {
  const Clean& c = clean("causal_fp8");
  RowSample few;
  few.total = c.rows.total;
  for (size_t i = 0; i < c.rows.rows.size(); i += 50) few.rows.push_back(c.rows.rows[i]);
  RunOptions options;
  options.rows = &few;
  StageOutputs out = make_cpu_executor()->run(c.s.c, c.s.kernel, c.s.in, options).outputs;
  const auto check = [&] {
    return validate(c.s.c, c.s.in, c.s.kernel, out, poison_byte(0), few, false);
  };
  EXPECT_EQ(first_failure(check()), nullptr);
  EXPECT_EQ(check().accuracy->rows_checked, static_cast<int64_t>(few.rows.size()));
  // A row of the sample left out is not excused.
  const QueryRow row = few.rows[1];
  const int64_t token = c.s.in.cu_seqlens_q.as<int32_t>()[row.sequence] + row.token;
  for (int64_t d = 0; d < 64; ++d) out.o.set((token * 4 + row.head) * 64 + d, NAN);
  ASSERT_NE(first_failure(check()), nullptr);
}

// A subject that computed all rows owes all of them, sampled or not.
TEST(Validate, NanOutsideTheSampleIsSeen) {
  const Clean& c = clean("causal_fp8");
  const RowSample few{{c.rows.rows[0]}, c.rows.total};
  StageOutputs out = c.out;
  EXPECT_EQ(first_failure(validate(c.s.c, c.s.in, c.s.kernel, out, poison_byte(0), few, false)),
            nullptr);
  const int64_t last = out.o.size() - 64;
  for (int64_t d = 0; d < 64; ++d) out.o.set(last + d, NAN);
  const Validation v = validate(c.s.c, c.s.in, c.s.kernel, out, poison_byte(0), few, false);
  ASSERT_NE(first_failure(v), nullptr);
  EXPECT_EQ(first_failure(v)->rule, "finite, as all inputs are");
}

// A quantiser may multiply by 1 / scale in fp32: 126.5 then falls on either side, and no further.
TEST(Validate, TiesFallOnEitherSide) {
  Case c = clean("causal_fp8").s.c;
  c.model = {1, 1, 64, 64};
  c.batch.qo_len = c.batch.kv_len = {1};
  c.batch.kv_len_before = {0};
  Tensor q(c.dtype, {1, 1, 64});
  q.set(0, 127.0f);
  q.set(1, 126.5f);
  const Kernel& kernel = clean("causal_fp8").s.kernel;
  const Inputs in = make_inputs_from(c, q, q, q);
  const RowSample rows = sample_rows(c, kernel.layout);
  const auto with_scale = [&](float scale) {
    StageOutputs out = make_cpu_executor()->run(c, kernel, in, {}).outputs;
    out.q_scales.set(0, scale);
    out.q_codes.as<int8_t>()[1] = 127;
    return validate(c, in, kernel, out, poison_byte(0), rows, false);
  };
  EXPECT_EQ(first_failure(with_scale(1 + 0x1p-23f)), nullptr);
  const Validation v = with_scale(1 + 0x1p-21f);
  ASSERT_NE(first_failure(v), nullptr);
  EXPECT_NE(first_failure(v)->rule.find("within half a code"), std::string::npos);
}

// A NaN of the input must reach the scale it takes part in, and the output.
TEST(Validate, NanOfTheInputMustLiveOn) {
  const Clean& c = clean("causal_fp8");
  Inputs in = c.s.in.clone();
  in.k_split.set(in.k.index(0, 0, 0), NAN);
  ASSERT_EQ(in.k.base, &in.k_split);
  RunOptions options;
  options.rows = &c.rows;
  StageOutputs out = make_cpu_executor()->run(c.s.c, c.s.kernel, in, options).outputs;
  const auto check = [&] {
    return validate(c.s.c, in, c.s.kernel, out, poison_byte(0), c.rows, false);
  };
  EXPECT_EQ(first_failure(check()), nullptr) << first_failure(check())->detail;
  for (int64_t i = 0; i < out.k_scales.size(); ++i)
    if (std::isnan(out.k_scales.get(i))) out.k_scales.set(i, 1e-3f);
  const Validation v = check();
  ASSERT_NE(first_failure(v), nullptr);
  EXPECT_NE(first_failure(v)->rule.find("k scales"), std::string::npos);
}

}  // namespace
}  // namespace sagebench
