// P relative to a moving reference: codes, sums and LSE of the emulated kernel.
#include "ops/moving_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/pv_sum.h"
#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

constexpr float kBias = 0.03989f;

Kernel make_moving(const Model& model, sage::PMode p = sage::PMode::kLinear) {
  Kernel k = make_kernel(model);
  k.settings.smooth_k = sage::Smooth::kNone;
  k.layout.p = k.settings.p = p;
  k.layout.p_offset = 0;
  k.layout.reference.used = true;
  k.layout.promote_keys = 256;
  k.layout.accumulator_bits = 13;
  k.layout.row_sum_promoted = true;
  k.layout.lse_bias = p == sage::PMode::kLinear ? kBias : 0.0f;
  return k;
}

TEST(MovingReference, FollowsTheLargestCodeBothWays) {
  const sage::MovingReference rule{true, 126, 102, 46, 40};
  ReferenceState r;
  EXPECT_EQ(r.move(rule, 300), -25);  // first tile: ceil(198 / 8) octaves up
  EXPECT_EQ(r.move(rule, 126), 0);    // in range: stays
  EXPECT_EQ(r.move(rule, 46), 0);
  EXPECT_EQ(r.move(rule, 127), -4);  // ceil(25 / 8)
  EXPECT_EQ(r.now, 29);
  EXPECT_EQ(r.highest, 29);
  EXPECT_EQ(r.move(rule, 45), 7);  // ceil(-57 / 8) = -7
  EXPECT_EQ(r.now, 22);
  EXPECT_EQ(r.highest, 29);
  r.move(rule, -10000);  // at most 40 octaves below the highest
  EXPECT_EQ(r.now, -11);
}

TEST(LinearCode, IsTheByteOfAnE4m3) {
  EXPECT_EQ(value_of_code(126), 448.0f);
  EXPECT_EQ(value_of_code(56), 1.0f);
  EXPECT_EQ(value_of_code(-3), 0.0f);
  EXPECT_TRUE(std::isnan(value_of_code(255)));
  EXPECT_TRUE(std::isnan(value_of_code(std::nan(""))));
  EXPECT_EQ(nearest(2.5), 2.0);
  EXPECT_EQ(nearest(-3.5), -4.0);
}

// One channel tells the keys apart: q = (4, 0, ...), k = (x, 0, ...), so that sm_scale q k is
// known.
TEST(EmulatedLinear, CodesAreThoseOfAHandComputation) {
  const Case c = make_case({1, 1, 64, 64}, {1}, {3});
  const double keys[] = {4, 3, 0};
  const auto k = [&](int64_t t, int, int d) { return d == 0 ? keys[t] : 0.0; };
  const auto v = [](int64_t t, int, int d) { return d == t ? 1.0 : 0.0; };  // O is the weights
  const Problem p(
      c, [](int64_t, int, int d) { return d == 0 ? 4.0 : 0.0; }, k, v);
  Case lse = c;
  lse.return_lse = true;
  const AttentionRows out = Problem(
                                lse, [](int64_t, int, int d) { return d == 0 ? 4.0 : 0.0; }, k, v)
                                .emulated(make_moving(c.model));
  // scores 2, 1.5, 0 are codes 23.08, 17.31, 0 at R = 0; INT8 keeps them: both of the first two
  // keys share a scale, 3 / 4 of 127 rounds to 95, the score to 1.496, the code to 17.27. R =
  // ceil((23 - 102) / 8) = -9, so the codes are 72 more: 95, 89, 72.
  const double weights[] = {value_of_code(95), value_of_code(89), value_of_code(72)};
  EXPECT_EQ(weights[0], 30.0);
  EXPECT_EQ(weights[1], 18.0);
  EXPECT_EQ(weights[2], 4.0);
  for (size_t d = 0; d < 3; ++d) EXPECT_NEAR(out.o[d], weights[d] / 52, 1e-6);
  EXPECT_NEAR(out.lse[0], std::log(52.0 * std::exp2(-9 + 7)) - kBias, 1e-6);
}

TEST(EmulatedLinear, LseIsNearTheExactOne) {
  Case c = make_case({2, 1, 64, 64}, {30}, {500});
  c.return_lse = true;
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows exact = p.exact(), linear = p.emulated(make_moving(c.model)),
                      exp2 = p.emulated(make_moving(c.model, sage::PMode::kExp2));
  for (size_t i = 0; i < exact.lse.size(); ++i) {
    EXPECT_NEAR(linear.lse[i], exact.lse[i], 0.015);
    EXPECT_NEAR(exp2.lse[i], exact.lse[i], 0.015);
  }
}

TEST(EmulatedLinear, MaskedTailsAndRowsWithoutKeys) {
  Case c = make_case({1, 1, 64, 64}, {200}, {130});
  c.causal = c.return_lse = true;
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows exact = p.exact(), out = p.emulated(make_moving(c.model));
  EXPECT_LT(rel_l1(out.o, exact.o), 0.05);
  for (size_t i = 0; i < 70; ++i) EXPECT_EQ(out.lse[i], -std::numeric_limits<double>::infinity());
  for (size_t i = 70; i < 200; ++i) EXPECT_NEAR(out.lse[i], exact.lse[i], 0.05);
}

// Half of the weight on one key, wherever it is: the rest must not underflow.
TEST(EmulatedLinear, AStrongKeyEarlyOrLateCostsNothing) {
  constexpr int64_t kKeys = 4096;
  for (const sage::PMode mode : {sage::PMode::kLinear, sage::PMode::kExp2})
    for (const int64_t at : {int64_t{0}, kKeys / 2, kKeys - 1}) {
      const Case c = make_case({1, 1, 64, 64}, {8}, {kKeys});
      // sm_scale q k = 12 log of the others' number, in one channel of its own
      const auto q = [n = normal(1)](int64_t t, int h, int d) mutable {
        return d == 0 ? 8.0 : n(t, h, d);
      };
      const auto k = [n = normal(2), at](int64_t t, int h, int d) mutable {
        return t == at ? (d == 0 ? std::log(double{kKeys}) + 0.5 : 0.0) : d == 0 ? 0 : n(t, h, d);
      };
      const Problem p(c, q, k, normal_with_bias(3, 1));
      EXPECT_LT(rel_l1(p.emulated(make_moving(c.model, mode)).o, p.exact().o), 0.03) << at;
    }
}

TEST(EmulatedLinear, ABiasOfVKeepsItsNorm) {
  const Case c = make_case({1, 1, 64, 64}, {4}, {16384});
  const Problem p(c, normal(1), normal(2), normal_with_bias(3, 10));
  const AttentionRows out = p.emulated(make_moving(c.model)), exact = p.exact();
  double dot = 0, norm = 0;
  for (size_t i = 0; i < exact.o.size(); ++i) {
    dot += out.o[i] * exact.o[i];
    norm += exact.o[i] * exact.o[i];
  }
  EXPECT_NEAR(dot / norm, 1.0, 0.005);
}

TEST(PricedP, IsNearTheEmulatedPriceAndKeepsNan) {
  const Case c = make_case({1, 1, 64, 64}, {16}, {1000});
  const Problem p(c, normal(1), normal(2), normal(3));
  for (const sage::PMode mode : {sage::PMode::kLinear, sage::PMode::kExp2}) {
    const Kernel kernel = make_moving(c.model, mode);
    const AttentionRows priced =
        priced_attention(c, p.operands(), p.codes(kernel), kernel, p.all_rows(), Price::kP);
    const double error = rel_l1(priced.o, p.exact().o);
    EXPECT_GT(error, 0.005);
    EXPECT_LT(error, 0.04);
  }
}

TEST(TruncatedSum, DropsWhatIsBelowTheLargest) {
  float acc[17] = {};
  float p[2] = {448, 0.5f}, v[34];
  for (float& x : v) x = 1;
  accumulate_truncated(p, v, 2, 17, 13, acc);  // 448 keeps 2^8 / 2^13 = 1 / 32
  for (const float x : acc) EXPECT_EQ(x, 448.5f);
  p[1] = 0x1p-6f;
  accumulate_truncated(p + 1, v, 1, 17, 13, acc);
  for (const float x : acc) EXPECT_EQ(x, 448.5f);
  v[16] = std::nanf("");
  accumulate_truncated(p + 1, v, 1, 17, 13, acc);
  EXPECT_EQ(acc[0], 448.5f);
  EXPECT_TRUE(std::isnan(acc[16]));
}

}  // namespace
}  // namespace sagebench
