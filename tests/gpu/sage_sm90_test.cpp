// sage_sm90 against exact attention and against its own rules, on operands quantised here.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpu/sage_sm90_reference.h"

namespace attention_test {
namespace {

using sage::Mask;

// fp16 output, so that rounding it hides less.
Problem problem_of(std::vector<int> q_lens, std::vector<int> kv_lens) {
  Problem p;
  p.kernel = "sage_sm90";
  p.q_lens = std::move(q_lens);
  p.kv_lens = std::move(kv_lens);
  p.num_qo_heads = 2;
  p.num_kv_heads = 1;
  p.dtype = sage::DType::kFp16;
  p.p = sage::PMode::kLinear;
  p.v_mean = 0.0f;
  p.v_offset = p.lse_dot = false;
  return p;
}

class SageSm90 : public testing::Test {
 protected:
  void SetUp() override {
    kernel_ = sage::find_attention_kernel("sage_sm90");
    ASSERT_NE(kernel_, nullptr);
    if (const std::string why = gpu_test::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    if (!kernel_->runs_on(gpu_test::compute_capability())) GTEST_SKIP() << "another kind of GPU";
  }
  void expect_right(const Problem& p, double exact_limit = 0.05, int stride = 1) {
    const Operands x = make_operands(p);
    const Output output = run(p, x);
    ASSERT_TRUE(output.status.ok()) << output.status.reason;
    EXPECT_EQ(output.bytes_changed_outside, 0);
    const Errors rules = compare(p, x, output, true, stride),
                 exact = compare(p, x, output, false, stride);
    // Measured: 0.0003 to 0.002, the fp16 rounding of O and the 13-bit sums; LSE 0.001.
    EXPECT_LT(rules.relative_l1, 0.004);
    EXPECT_LT(rules.lse, 0.004);
    EXPECT_LT(exact.relative_l1, exact_limit);
  }
  const sage::AttentionKernel* kernel_ = nullptr;
};

TEST_F(SageSm90, EveryMaskHeadDimAndPMode) {
  for (int head_dim : {64, 128}) {
    for (sage::PMode p_mode : {sage::PMode::kLinear, sage::PMode::kExp2}) {
      for (Mask mask : {Mask::kFull, Mask::kCausalBottomRight, Mask::kCausalTopLeft}) {
        SCOPED_TRACE(std::to_string(head_dim) + " " + std::to_string(static_cast<int>(p_mode)) +
                     " " + std::to_string(static_cast<int>(mask)));
        Problem p = problem_of({7, 130, 0, 300, 77, 5, 64, 200}, {7, 130, 40, 300, 500, 0, 63, 20});
        p.head_dim = p.head_dim_v = head_dim;
        p.p = p_mode;
        p.mask = mask;
        expect_right(p, 0.05, 5);
      }
    }
  }
}

TEST_F(SageSm90, EveryResidueOfAKeyTile) {
  Problem p = problem_of({}, {});
  for (int n = 1; n <= 128; ++n) {
    p.q_lens.push_back(2);
    p.kv_lens.push_back(n + (n % 2 ? 128 : 0));
  }
  expect_right(p);
}

TEST_F(SageSm90, PerWarpScalesAndGroupedHeads) {
  Problem p = problem_of({100, 33}, {600, 33});
  p.num_qo_heads = 8;
  p.num_kv_heads = 2;
  p.mask = Mask::kCausalBottomRight;
  p.granularity = sage::Granularity::kPerWarp;
  expect_right(p, 0.06, 7);
}

TEST_F(SageSm90, PaddedDimsAndOffsets) {
  Problem p = problem_of({90, 17}, {300, 140});
  p.head_dim = 96;
  p.head_dim_v = 104;
  p.v_mean = 3.0f;
  p.v_offset = p.lse_dot = true;
  p.o_row_padding = 8;
  expect_right(p, 0.01, 5);
}

TEST_F(SageSm90, BiasedValuesKeepTheirNormOverManyKeys) {
  Problem p = problem_of({3}, {20000});
  p.v_mean = 10.0f;
  expect_right(p, 0.004);
}

TEST_F(SageSm90, SharpScoresMoveTheReference) {
  Problem p = problem_of({40}, {2000});
  p.q_gain = 8.0f;
  expect_right(p, 0.2, 3);
  p.q_gain = 0.0f;
  expect_right(p, 0.05, 3);
}

// A NaN among the scales reaches the rows that see one of its keys, and no other row.
TEST_F(SageSm90, ANanScaleReachesTheRowsThatSeeIt) {
  for (const sage::PMode mode : {sage::PMode::kLinear, sage::PMode::kExp2}) {
    for (const int head_dim : {64, 128}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(mode)) + " " + std::to_string(head_dim));
      Problem p = problem_of({300}, {300});
      p.num_qo_heads = 1;
      p.head_dim = p.head_dim_v = head_dim;
      p.p = mode;
      p.mask = Mask::kCausalBottomRight;
      Operands x = make_operands(p);
      const Output clean = run(p, x);
      const int first_key = 128 + 4;  // of group 2 of the second block
      x.k_scales[static_cast<size_t>(sage::scale_row(x.layout.k_groups, 0, 0, first_key))] = kNan;
      const Output output = run(p, x);
      for (int row = 0; row < 300; ++row) {
        const bool sees = row >= first_key;
        const auto r = static_cast<size_t>(row);
        EXPECT_EQ(std::isnan(output.lse[r]), sees) << "row " << row;
        for (size_t c = 0; c < static_cast<size_t>(head_dim); ++c) {
          const size_t i = r * static_cast<size_t>(head_dim) + c;
          ASSERT_EQ(std::isnan(output.o[i]), sees) << "row " << row;
          if (!sees) {
            ASSERT_EQ(output.bits[i], clean.bits[i]) << "row " << row;
          }
        }
      }
    }
  }
}

TEST_F(SageSm90, ASequenceAloneGivesTheSameBits) {
  Problem batch = problem_of({70, 129, 300}, {200, 129, 700});
  batch.mask = Mask::kCausalBottomRight;
  const Output together = run(batch, make_operands(batch));
  EXPECT_EQ(together.bits, run(batch, make_operands(batch)).bits) << "not deterministic";

  Problem one = batch;  // values depend on the place in the batch alone
  one.q_lens = {70};
  one.kv_lens = {200};
  const Output single = run(one, make_operands(one));
  ASSERT_FALSE(single.bits.empty());
  EXPECT_TRUE(std::equal(single.bits.begin(), single.bits.end(), together.bits.begin()));
}

TEST(SageSm90Row, SaysWhatItCannotDoBeforeALaunch) {
  const sage::AttentionKernel* kernel = sage::find_attention_kernel("sage_sm90");
  ASSERT_NE(kernel, nullptr);
  sage::AttentionProblem problem;
  EXPECT_EQ(kernel->supports(problem, kernel->defaults), nullptr);
  problem.head_dim = 256;
  EXPECT_STREQ(kernel->supports(problem, kernel->defaults), "head_dim above 128");
  sage::SageSettings fp16 = kernel->defaults;
  fp16.pv = sage::PvType::kFp16;
  EXPECT_NE(kernel->supports(sage::AttentionProblem{}, fp16), nullptr);
  EXPECT_FALSE(kernel->runs_on(80));
  EXPECT_TRUE(kernel->runs_on(90));
  if (!kernel->launch) GTEST_SKIP() << "built without CUDA";

  alignas(16) static char bytes[64];
  sage::AttentionParams p;
  p.layout = kernel->layout(sage::AttentionProblem{}, kernel->defaults);
  p.batch = 1;
  p.num_qo_heads = p.num_kv_heads = 1;
  p.head_dim_v = 128;
  p.total_q = p.total_kv = 1;
  p.sm_scale = 1.0f;
  EXPECT_EQ(kernel->launch(p, nullptr).code, sage::StatusCode::kInvalidArgument);
  p.cu_seqlens_q = p.cu_seqlens_kv = reinterpret_cast<const int32_t*>(bytes);
  p.q_codes = p.k_codes = reinterpret_cast<const int8_t*>(bytes);
  p.v_codes = p.o = bytes;
  p.q_scales = p.k_scales = p.v_scales = reinterpret_cast<const float*>(bytes);
  p.o_token_stride = p.o_head_stride = 128;
  EXPECT_EQ(kernel->launch(p, nullptr).code, sage::StatusCode::kWorkspaceTooSmall);
  p.o = bytes + 2;
  EXPECT_EQ(kernel->launch(p, nullptr).code, sage::StatusCode::kMisaligned);
  p.o = bytes;
  p.layout.head_dim = 192;
  EXPECT_EQ(kernel->launch(p, nullptr).code, sage::StatusCode::kUnsupported);
}

}  // namespace
}  // namespace attention_test
