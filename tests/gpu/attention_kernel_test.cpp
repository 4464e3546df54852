// The attention kernels against a double-precision host reference that works from the same codes
// and rounds P as AttentionLayout says. Codes are made here, as sage/quantize.h documents.
#include "gpu/attention_run.h"

namespace attention_test {
namespace {

// Mean over a slice. Output rounding is half an ulp: 2^-9 of bf16, 2^-12 of fp16, at worst; the
// rest is for P codes that ex2.approx rounds the other way (about one in 10^4).
double slice_limit(sage::DType dtype) {
  return dtype == sage::DType::kBf16 ? 2.5e-3 : 6e-4;
}
// Of one row: such a code may be the only one that counts.
double lse_limit(sage::PvType pv) {
  return pv == sage::PvType::kFp8E4m3 ? 1.0 / 16 : 1.0 / 1024;
}
constexpr double kMeanLseLimit = 1e-5;

void expect_agreement(const Problem& p, const Operands& x, const Output& y) {
  ASSERT_TRUE(y.status.ok()) << y.status.reason;
  EXPECT_EQ(y.bytes_changed_outside, 0);
  const Reference r = reference(p, x);
  double lse_difference = 0;
  for (int b = 0; b < p.batch(); ++b) {
    if (b == p.poisoned) continue;
    const auto at = static_cast<size_t>(b);
    for (int h = 0; h < p.num_qo_heads; ++h) {
      SCOPED_TRACE("sequence " + std::to_string(b) + " head " + std::to_string(h));
      double difference = 0, magnitude = 0;
      for (int64_t row = x.cu_q[at]; row < x.cu_q[at + 1]; ++row) {
        for (int c = 0; c < p.head_dim_v; ++c) {
          const auto i = static_cast<size_t>((row * p.num_qo_heads + h) * p.head_dim_v + c);
          ASSERT_TRUE(std::isfinite(y.o[i])) << "row " << row << " channel " << c;
          difference += std::abs(y.o[i] - r.o[i]);
          magnitude += std::abs(r.o[i]);
        }
        if (!p.lse) continue;
        const auto i = static_cast<size_t>(h * x.total_q() + row);
        if (std::isinf(r.lse[i])) {
          ASSERT_EQ(y.lse[i], r.lse[i]) << "row " << row;
        } else {
          ASSERT_NEAR(y.lse[i], r.lse[i], lse_limit(x.layout.pv)) << "row " << row;
          lse_difference += std::abs(y.lse[i] - r.lse[i]);
        }
      }
      EXPECT_LE(difference, slice_limit(p.dtype) * magnitude);
    }
  }
  EXPECT_LE(lse_difference, kMeanLseLimit * static_cast<double>(y.lse.size()));
}

void run_and_compare(const Problem& p) {
  const Operands x = make_operands(p);
  expect_agreement(p, x, run(p, x));
}

class AttentionKernel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = gpu_test::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    p_.kernel = GetParam();
  }
  Problem p_;
};

TEST_P(AttentionKernel, EveryLengthAroundTheTiles) {
  for (int n = 0; n <= 130; ++n) p_.q_lens.push_back(n);
  for (const int n : {191, 192, 193, 255, 256, 257, 385}) p_.q_lens.push_back(n);
  p_.kv_lens = p_.q_lens;
  p_.num_qo_heads = 2;
  p_.num_kv_heads = 1;
  p_.head_dim = p_.head_dim_v = 64;
  for (const sage::Mask mask : {sage::Mask::kFull, sage::Mask::kCausalBottomRight}) {
    p_.mask = mask;
    run_and_compare(p_);
  }
}

TEST_P(AttentionKernel, UnequalLengthsAndEmptySets) {
  p_.q_lens = {5, 130, 64, 200, 0, 3, 1, 257, 128};
  p_.kv_lens = {200, 64, 130, 0, 50, 3, 300, 129, 1};
  for (const sage::Mask mask :
       {sage::Mask::kFull, sage::Mask::kCausalBottomRight, sage::Mask::kCausalTopLeft}) {
    SCOPED_TRACE(static_cast<int>(mask));
    p_.mask = mask;
    run_and_compare(p_);
  }
}

TEST_P(AttentionKernel, HeadsAndDims) {
  struct Shape {
    int num_qo_heads, num_kv_heads, head_dim, head_dim_v;
  };
  p_.q_lens = {150, 70};
  p_.kv_lens = {190, 65};
  for (const Shape s : {Shape{8, 2, 128, 128}, Shape{7, 1, 64, 64}, Shape{3, 3, 64, 128},
                        Shape{4, 2, 128, 64}, Shape{4, 2, 96, 80}, Shape{2, 1, 33, 33}}) {
    SCOPED_TRACE(s.head_dim * 1000 + s.head_dim_v);
    p_.num_qo_heads = s.num_qo_heads;
    p_.num_kv_heads = s.num_kv_heads;
    p_.head_dim = s.head_dim;
    p_.head_dim_v = s.head_dim_v;
    for (const sage::DType dtype : {sage::DType::kBf16, sage::DType::kFp16}) {
      p_.dtype = dtype;
      run_and_compare(p_);
    }
  }
}

TEST_P(AttentionKernel, Granularities) {
  p_.q_lens = {257, 1, 100};
  p_.kv_lens = {257, 65, 3};
  for (const sage::Granularity g :
       {sage::Granularity::kPerThread, sage::Granularity::kPerWarp, sage::Granularity::kPerBlock}) {
    p_.granularity = g;
    run_and_compare(p_);
  }
}

TEST_P(AttentionKernel, OptionalOperands) {
  p_.q_lens = p_.kv_lens = {140};
  p_.lse_dot = false;
  run_and_compare(p_);
  p_.lse = p_.v_offset = false;
  run_and_compare(p_);
}

TEST_P(AttentionKernel, StridedOutput) {
  p_.q_lens = p_.kv_lens = {131, 5};
  p_.o_head_major = true;
  run_and_compare(p_);
  for (const int padding : {1, 2, 24}) {  // odd: element stores
    p_.o_head_major = false;
    p_.o_row_padding = padding;
    run_and_compare(p_);
  }
}

// A neighbour of NaN scales and codes: visible in its own rows, and nowhere else.
TEST_P(AttentionKernel, PoisonedNeighbour) {
  p_.q_lens = {70, 100, 33, 130};
  p_.kv_lens = {65, 100, 1, 131};
  for (p_.poisoned = 0; p_.poisoned < 4; ++p_.poisoned) {
    const Operands x = make_operands(p_);
    const Output y = run(p_, x);
    expect_agreement(p_, x, y);
    const auto b = static_cast<size_t>(p_.poisoned);
    const int64_t row = int64_t{p_.num_qo_heads} * p_.head_dim_v;
    for (int64_t i = x.cu_q[b] * row; i < x.cu_q[b + 1] * row; ++i) {
      ASSERT_TRUE(std::isnan(y.o[static_cast<size_t>(i)])) << "laundered at " << i;
    }
  }
}

TEST_P(AttentionKernel, SameBitsAloneAndInAnyBatch) {
  const std::vector<int> lens = {700, 33, 257, 2};
  for (const sage::Mask mask : {sage::Mask::kFull, sage::Mask::kCausalBottomRight}) {
    p_.mask = mask;
    std::vector<Output> alone;
    for (int b = 0; b < 4; ++b) {
      p_.ids = {b};
      p_.q_lens = p_.kv_lens = {lens[static_cast<size_t>(b)]};
      alone.push_back(run(p_, make_operands(p_)));
      ASSERT_TRUE(alone.back().status.ok()) << alone.back().status.reason;
    }
    for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {3, 2, 1, 0}}) {
      p_.ids = order;
      p_.q_lens.clear();
      for (const int b : order) p_.q_lens.push_back(lens[static_cast<size_t>(b)]);
      p_.kv_lens = p_.q_lens;
      const Operands x = make_operands(p_);
      const Output batch = run(p_, x);
      for (size_t i = 0; i < order.size(); ++i) {
        const Output& one = alone[static_cast<size_t>(order[i])];
        const int64_t row = int64_t{p_.num_qo_heads} * p_.head_dim_v;
        const auto from = batch.bits.begin() + x.cu_q[i] * row;
        EXPECT_TRUE(std::equal(one.bits.begin(), one.bits.end(), from)) << "sequence " << order[i];
      }
    }
  }
}

TEST_P(AttentionKernel, SeventyThousandSequencesOfOneToken) {
  p_.q_lens.assign(70000, 1);
  p_.kv_lens = p_.q_lens;
  p_.num_qo_heads = p_.num_kv_heads = 1;
  p_.head_dim = p_.head_dim_v = 64;
  run_and_compare(p_);
}

// Rows, keys and outputs past 2^31 bytes and elements: the same bits as at the start.
TEST_P(AttentionKernel, OffsetsPast32Bits) {
  p_.num_qo_heads = p_.num_kv_heads = 128;
  p_.q_lens = {5};
  p_.kv_lens = {70};
  const Operands x = make_operands(p_);
  const Output near = run(p_, x);
  ASSERT_TRUE(near.status.ok()) << near.status.reason;
  constexpr int64_t kFarTokens = 140000;  // * 128 * 128 > 2^31
  if (gpu_test::device_free_bytes() < size_t{20} << 30)
    GTEST_SKIP() << "needs 20 GiB of device memory";
  EXPECT_EQ(run_far(p_, x, kFarTokens), near.bits);
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionKernel, testing::Values("sage_mma_fp8", "sage_mma_fp16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace attention_test
