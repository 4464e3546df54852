#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- attention ---------------------------------------------------------------------------------

TEST(EmulatedAttention, ConstantVGivesConstantO) {
  Case c = make_case({2, 1, 64, 64}, {40}, {333});
  c.causal = true;
  for (const sage::PvType pv : {sage::PvType::kFp8E4m3, sage::PvType::kFp16})
    for (const sage::Smooth smooth : {sage::Smooth::kMean, sage::Smooth::kNone}) {
      Kernel kernel = make_kernel(c.model, pv);
      kernel.settings.smooth_v = smooth;
      const AttentionRows out =
          Problem(c, normal(1), normal_with_bias(2, 2), constant(3)).emulated(kernel);
      for (const double o : out.o) EXPECT_NEAR(o, 3.0, 2e-6);
    }
}

TEST(EmulatedAttention, OneKeyGivesItsValueAndNoKeyGivesZero) {
  Case c = make_case({2, 1, 64, 64}, {3, 2}, {1, 0});
  c.return_lse = true;
  const Kernel kernel = make_kernel(c.model);
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows out = p.emulated(kernel), exact = p.exact();
  for (size_t i = 0; i < 10; ++i)
    for (size_t d = 0; d < 64; ++d) EXPECT_NEAR(out.o[i * 64 + d], exact.o[i * 64 + d], 1e-6);
  // 2^p_offset is not a code: the row maximum's P is 448 / 2^8.807 = 1 + 2.5e-4
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out.lse[i], exact.lse[i], 3e-4);
  for (size_t i = 6; i < 10; ++i) EXPECT_EQ(out.lse[i], exact.lse[i]);  // -inf
}

TEST(EmulatedAttention, RowsWithoutKeysAreNeverNan) {
  Case c = make_case({1, 1, 64, 64}, {100}, {30});
  c.causal = true;
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows out = p.emulated(make_kernel(c.model));
  for (size_t i = 0; i < 70 * 64; ++i) EXPECT_EQ(out.o[i], 0.0);
  for (const double o : out.o) EXPECT_TRUE(std::isfinite(o));
  EXPECT_TRUE(std::isinf(out.lse[69]) && std::isfinite(out.lse[70]));
}

TEST(EmulatedAttention, NanReachesEveryRowThatReadsIt) {
  Case c = make_case({1, 1, 64, 64}, {3, 3}, {20, 20});
  const auto k = [n = normal(2)](int64_t t, int h, int d) mutable {
    return t == 25 && d == 0 ? kNan : n(t, h, d);
  };
  Kernel kernel = make_kernel(c.model);
  const AttentionRows out = Problem(c, normal(1), k, normal(3)).emulated(kernel);
  for (size_t i = 0; i < out.o.size(); ++i) EXPECT_EQ(std::isnan(out.o[i]), i >= 3 * 64);
}

// Bit for bit, whatever is computed beside it.
TEST(EmulatedAttention, ASequenceAndASampleAreIndependentOfTheRest) {
  const auto shifted = [](uint64_t seed, int64_t skip) {
    return [seed, skip](int64_t t, int h, int d) {
      return normal(seed + static_cast<uint64_t>((t + skip) * 1000 + h * 100 + d))(0, 0, 0);
    };
  };
  Case batch = make_case({2, 1, 64, 64}, {70, 33, 90}, {70, 133, 90});
  Case alone = make_case({2, 1, 64, 64}, {33}, {133});
  batch.causal = alone.causal = true;
  const Kernel kernel = make_kernel(batch.model);
  const Problem whole(batch, shifted(1, 0), shifted(2, 0), shifted(3, 0));
  const Problem part(alone, shifted(1, 70), shifted(2, 70), shifted(3, 70));
  const AttentionRows a = whole.emulated(kernel), b = part.emulated(kernel);
  EXPECT_TRUE(std::equal(b.o.begin(), b.o.end(), a.o.begin() + 2 * 70 * 64));
  EXPECT_TRUE(std::equal(b.lse.begin(), b.lse.end(), a.lse.begin() + 2 * 70));

  const RowSample all = part.all_rows();
  for (size_t i = 0; i < all.rows.size(); i += 5) {
    const AttentionRows one =
        emulate_attention(alone, part.codes(kernel), part.in.cu_seqlens_q, part.in.cu_seqlens_kv,
                          kernel, {{all.rows[i]}, all.total});
    EXPECT_TRUE(std::equal(one.o.begin(), one.o.end(), b.o.begin() + static_cast<int64_t>(i) * 64));
  }
}

TEST(EmulatedAttention, VTimesAPowerOfTwoIsOTimesIt) {
  const Case c = make_case({1, 1, 64, 64}, {20}, {200});
  const auto scaled = [](double by) {
    return [n = normal(3), by](int64_t t, int h, int d) mutable { return by * n(t, h, d); };
  };
  const Kernel kernel = make_kernel(c.model);
  AttentionRows one = Problem(c, normal(1), normal(2), scaled(1)).emulated(kernel);
  const AttentionRows eight = Problem(c, normal(1), normal(2), scaled(8)).emulated(kernel);
  for (double& o : one.o) o *= 8;
  EXPECT_EQ(one.o, eight.o);
}

TEST(EmulatedAttention, WhatIsNotEmulatedIsAnError) {
  const Case c = make_case({1, 1, 64, 64}, {2}, {2});
  Kernel kernel = make_kernel(c.model);
  kernel.layout.p = sage::PMode::kLinear;
  const Problem p(c, normal(1), normal(2), normal(3));
  EXPECT_THROW(p.emulated(kernel), Error);
  kernel = make_kernel(c.model);
  kernel.layout.promote_keys = 0;
  EXPECT_THROW(p.emulated(kernel), Error);
}

// ---- the price of the algorithm ----------------------------------------------------------------

struct PriceRow {
  sage::PvType pv;
  sage::Granularity granularity;
  double low, high;  // relative L1
};
TEST(EmulatedPrice, NearThePublishedFiguresOnNormalInputs) {
  Case c = make_case({2, 1, 128, 128}, {64}, {1024});
  c.return_lse = true;
  const Problem p(c, normal(1), normal_with_bias(2, 2), normal(3));
  const AttentionRows exact = p.exact();
  const PriceRow table[] = {{sage::PvType::kFp8E4m3, sage::Granularity::kPerThread, 0.034, 0.044},
                            {sage::PvType::kFp16, sage::Granularity::kPerThread, 0.004, 0.014}};
  for (const PriceRow& row : table) {
    Kernel kernel = make_kernel(c.model, row.pv);
    kernel.settings.correct_v = false;  // the published algorithm
    const AttentionRows out = p.emulated(kernel);
    const double error = rel_l1(out.o, exact.o);
    RecordProperty(row.pv == sage::PvType::kFp16 ? "fp16" : "fp8", std::to_string(error));
    EXPECT_GT(error, row.low);
    EXPECT_LT(error, row.high);
    for (size_t i = 0; i < exact.lse.size(); ++i) EXPECT_NEAR(out.lse[i], exact.lse[i], 0.02);
  }
}

// Of many keys' rounding errors only the mean stays, and it is put back.
TEST(EmulatedPrice, CorrectingVLowersItAtManyKeys) {
  const Case c = make_case({1, 1, 128, 128}, {32}, {8192});
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows exact = p.exact();
  Kernel kernel = make_kernel(c.model);
  const double corrected = rel_l1(p.emulated(kernel).o, exact.o);
  kernel.settings.correct_v = false;
  EXPECT_LT(corrected, 0.95 * rel_l1(p.emulated(kernel).o, exact.o));
}

TEST(EmulatedPrice, ALargeKBiasNeedsSmoothing) {
  const Case c = make_case({1, 1, 128, 128}, {64}, {1024});
  const Problem p(c, normal(1), normal_with_bias(2, 355), normal(3));
  const AttentionRows exact = p.exact();
  Kernel kernel = make_kernel(c.model);
  EXPECT_LT(rel_l1(p.emulated(kernel).o, exact.o), 0.05);
  kernel.settings.smooth_k = sage::Smooth::kNone;
  EXPECT_GT(rel_l1(p.emulated(kernel).o, exact.o), 0.15);
}

// Relative L1 measured on an H200 by a kernel that accumulates P V in 13-bit FP8 tensor cores.
TEST(EmulatedPrice, ThirteenBitAccumulatorsLoseWhatTheHardwareLoses) {
  struct Row {
    int64_t keys;
    double bias;
    int promote_keys;
    double measured;
  };
  const Row table[] = {{1024, 1, 1 << 30, 0.010},  {4096, 1, 1 << 30, 0.050},
                       {4096, 10, 1 << 30, 0.076}, {4096, 1, 1024, 0.0101},
                       {4096, 1, 512, 0.0043},     {4096, 10, 512, 0.0062}};
  for (const Row& row : table) {
    const Case c = make_case({1, 1, 128, 128}, {4}, {row.keys});
    const Problem p(c, normal(1), normal(2), normal_with_bias(3, row.bias));
    Kernel kernel = make_kernel(c.model);
    kernel.settings.smooth_v = sage::Smooth::kNone;
    kernel.settings.correct_v = false;
    kernel.layout.accumulator_bits = 13;
    kernel.layout.promote_keys = row.promote_keys;
    EXPECT_NEAR(rel_l1(p.emulated(kernel).o, p.exact().o), row.measured, 0.06 * row.measured)
        << row.keys << " keys, V bias " << row.bias << ", promoted every " << row.promote_keys;
  }
}

// Sums at 16k keys: FP8 accumulators that keep 13 bits, V with channel means of
// +-1 and no offset removed.
class Accumulator : public testing::Test {
 protected:
  Accumulator()
      : c(make_case({1, 1, 64, 64}, {4}, {16384})),
        p(c, normal(1), normal(2), normal_with_bias(3, 1)),
        exact(p.exact()) {}
  AttentionRows run(int bits, int promote_keys) const {
    Kernel kernel = make_kernel(c.model);
    kernel.settings.smooth_v = sage::Smooth::kNone;
    kernel.settings.correct_v = false;
    kernel.layout.accumulator_bits = bits;
    kernel.layout.promote_keys = promote_keys;
    return p.emulated(kernel);
  }
  double norm_ratio(const AttentionRows& out) const {
    double dot = 0, norm = 0;
    for (size_t i = 0; i < exact.o.size(); ++i) {
      dot += out.o[i] * exact.o[i];
      norm += exact.o[i] * exact.o[i];
    }
    return dot / norm;
  }
  Case c;
  Problem p;
  AttentionRows exact;
};

TEST_F(Accumulator, ThirteenBitsLoseSumsWithoutPromotion) {
  const AttentionRows out = run(13, 1 << 30);
  RecordProperty("norm_ratio", std::to_string(norm_ratio(out)));
  EXPECT_NEAR(norm_ratio(out), 0.82, 0.01);
  EXPECT_NEAR(rel_l1(out.o, exact.o), 0.18, 0.01);
}

TEST_F(Accumulator, PromotionKeepsThem) {
  EXPECT_NEAR(norm_ratio(run(13, 512)), 1.0, 0.005);
  EXPECT_NEAR(norm_ratio(run(13, 64)), 1.0, 0.001);
  EXPECT_LT(rel_l1(run(13, 64).o, exact.o), rel_l1(run(13, 512).o, exact.o));
}

TEST_F(Accumulator, Fp32NeedsNone) {
  EXPECT_NEAR(norm_ratio(run(0, 1 << 30)), 1.0, 1e-3);
  EXPECT_LT(rel_l1(run(0, 64).o, run(0, 1 << 30).o), 1e-4);
  EXPECT_LT(rel_l1(run(23, 1 << 30).o, run(0, 1 << 30).o), 1e-4);  // wide enough: as good as fp32
}

}  // namespace
}  // namespace sagebench
