#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(ExactAttention, TwoQueriesTwoKeysByHand) {
  Case c = make_case({1, 1, 2, 2}, {2}, {2});
  c.sm_scale = std::log(2.0);
  const double q[2][2] = {{1, 0}, {0, 1}}, k[2][2] = {{1, 0}, {0, 2}}, v[2][2] = {{1, 2}, {3, 4}};
  const auto of = [](const double(&x)[2][2]) {
    return [&x](int64_t t, int, int d) { return x[t][d]; };
  };
  const AttentionRows out = Problem(c, of(q), of(k), of(v)).exact();
  // weights 2 : 1 and 1 : 4
  const double o[] = {5.0 / 3, 8.0 / 3, 13.0 / 5, 18.0 / 5};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(out.o[i], o[i], 1e-14);
  EXPECT_NEAR(out.lse[0], std::log(3.0), 1e-14);
  EXPECT_NEAR(out.lse[1], std::log(5.0), 1e-14);
}

// With equal scores a row is the mean of the values it sees: counts them.
TEST(ExactAttention, BothAlignmentsSeeTheRightKeys) {
  struct Row {
    bool bottom_right;
    int64_t qo_len, kv_len;
    std::vector<int> visible;
  };
  const Row table[] = {{true, 3, 5, {3, 4, 5}},
                       {false, 3, 5, {1, 2, 3}},
                       {true, 5, 3, {0, 0, 1, 2, 3}},
                       {false, 5, 3, {1, 2, 3, 3, 3}}};
  for (const Row& row : table) {
    Case c = make_case({1, 1, 4, 4}, {row.qo_len}, {row.kv_len});
    c.causal = true;
    c.bottom_right = row.bottom_right;
    const auto token = [](int64_t t, int, int) { return static_cast<double>(t); };
    const AttentionRows out = Problem(c, constant(0), normal(1), token).exact();
    for (size_t i = 0; i < row.visible.size(); ++i) {
      const int n = row.visible[i];
      EXPECT_NEAR(out.o[i * 4], n == 0 ? 0.0 : (n - 1) / 2.0, 1e-14);
      EXPECT_DOUBLE_EQ(out.lse[i], n == 0 ? -kInf : std::log(n));
    }
  }
}

TEST(ExactAttention, EveryQueryHeadReadsItsKvHead) {
  const Case c = make_case({6, 2, 8, 8}, {2}, {5});
  const auto head = [](int64_t, int h, int) { return static_cast<double>(h); };
  const Problem p(c, normal(1), normal(2), head);
  const AttentionRows out = p.exact();
  const RowSample rows = p.all_rows();
  for (size_t i = 0; i < rows.rows.size(); ++i)
    EXPECT_NEAR(out.o[i * 8], rows.rows[i].head / 3, 1e-14);
}

TEST(ExactAttention, OneKeyGivesItsValueAndNoKeyGivesZero) {
  const Case c = make_case({2, 1, 8, 8}, {3, 0, 2}, {1, 4, 0});
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows out = p.exact();
  const RowSample rows = p.all_rows();
  ASSERT_EQ(rows.rows.size(), 10u);
  for (size_t i = 0; i < rows.rows.size(); ++i)
    for (int d = 0; d < 8; ++d) {
      const bool live = rows.rows[i].sequence == 0;
      EXPECT_EQ(out.o[i * 8 + static_cast<size_t>(d)], live ? p.in.v.get(0, 0, d) : 0.0f);
      EXPECT_EQ(std::isinf(out.lse[i]), !live);
    }
}

// Long enough to cross the reference's blocks and chunks, against three plain loops.
TEST(ExactAttention, MatchesPlainLoopsAcrossBlocks) {
  Case c = make_case({4, 2, 20, 12}, {70, 1, 33}, {300, 257, 20});
  for (const bool causal : {false, true}) {
    c.causal = causal;
    const Problem p(c, normal(1), normal_with_bias(2, 1), normal(3));
    const AttentionRows out = p.exact();
    const RowSample rows = p.all_rows();
    const int32_t *cu_q = p.in.cu_seqlens_q.as<int32_t>(),
                  *cu_kv = p.in.cu_seqlens_kv.as<int32_t>();
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      const QueryRow& r = rows.rows[i];
      const auto b = static_cast<size_t>(r.sequence);
      std::vector<double> o(12);
      double sum = 0;
      const int64_t visible = visible_keys(c.mask(), c.batch.qo_len[b], c.batch.kv_len[b], r.token);
      for (int64_t j = 0; j < visible; ++j) {
        double s = 0;
        for (int d = 0; d < 20; ++d)
          s += double{p.in.q.get(cu_q[b] + r.token, r.head, d)} *
               p.in.k.get(cu_kv[b] + j, r.head / 2, d);
        const double weight = std::exp(c.sm_scale * s);
        sum += weight;
        for (int d = 0; d < 12; ++d)
          o[static_cast<size_t>(d)] += weight * p.in.v.get(cu_kv[b] + j, r.head / 2, d);
      }
      for (size_t d = 0; d < 12; ++d)
        ASSERT_NEAR(out.o[i * 12 + d], visible ? o[d] / sum : 0.0, 1e-12) << "row " << i;
      if (visible > 0) {
        ASSERT_NEAR(out.lse[i], std::log(sum), 1e-12);
      }
    }
  }
}

TEST(ExactAttention, PermutingKeysChangesNothing) {
  const Case c = make_case({1, 1, 16, 16}, {5}, {100});
  const auto permuted = [](Values x) {
    std::vector<double> table(100 * 16);
    for (size_t i = 0; i < table.size(); ++i) table[i] = x(0, 0, 0);
    return [table](int64_t t, int, int d) {
      return table[static_cast<size_t>(t * 37 % 100 * 16 + d)];
    };
  };
  const AttentionRows a = Problem(c, normal(1), normal(2), normal(3)).exact();
  const AttentionRows b = Problem(c, normal(1), permuted(normal(2)), permuted(normal(3))).exact();
  EXPECT_LT(rel_l1(b.o, a.o), 1e-14);
  EXPECT_LT(rel_l1(b.lse, a.lse), 1e-14);
}

TEST(ExactAttention, KeysOutOfSightDoNotCount) {
  Case c = make_case({1, 1, 8, 8}, {40}, {40});
  c.causal = true;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto poisoned = [nan](Values x) {
    return [=](int64_t t, int h, int d) mutable { return t == 30 ? nan : x(t, h, d); };
  };
  const AttentionRows out = Problem(c, normal(1), poisoned(normal(2)), poisoned(normal(3))).exact();
  for (size_t row = 0; row < 40; ++row) {
    EXPECT_EQ(std::isnan(out.o[row * 8]), row >= 30);
    EXPECT_EQ(std::isnan(out.lse[row]), row >= 30);
  }
}

TEST(ExactAttention, SampledRowsAreThoseOfTheWhole) {
  Case c = make_case({2, 1, 16, 16}, {90, 50}, {90, 200});
  c.causal = true;
  const Problem p(c, normal(1), normal(2), normal(3));
  const AttentionRows whole = p.exact();
  const RowSample all = p.all_rows();
  RowSample some{{}, all.total};
  std::vector<double> o, lse;
  for (size_t i = 3; i < all.rows.size(); i += 7) {
    some.rows.push_back(all.rows[i]);
    o.insert(o.end(), whole.o.begin() + static_cast<int64_t>(i) * 16,
             whole.o.begin() + static_cast<int64_t>(i + 1) * 16);
    lse.push_back(whole.lse[i]);
  }
  const AttentionRows out = exact_attention(c, p.operands(), some);
  EXPECT_LT(rel_l1(out.o, o), 1e-14);
  EXPECT_LT(rel_l1(out.lse, lse), 1e-14);
}

// ---- price -------------------------------------------------------------------------------------

class Priced : public testing::Test {
 protected:
  Priced() : c(make_case({2, 1, 64, 64}, {200}, {500})), kernel(make_kernel(c.model)) {
    c.return_lse = true;
  }
  AttentionRows priced(const Problem& p, Price price) const {
    return priced_attention(c, p.operands(), p.codes(kernel), kernel, p.all_rows(), price);
  }
  Case c;
  Kernel kernel;
};

TEST_F(Priced, EachStageCostsAndNoneCostsNothing) {
  const Problem p(c, normal(1), normal_with_bias(2, 2), normal(3));
  const AttentionRows exact = p.exact();
  EXPECT_EQ(priced(p, Price::kNothing).o, exact.o);
  const double qk = rel_l1(priced(p, Price::kQk).o, exact.o);
  const double prob = rel_l1(priced(p, Price::kP).o, exact.o);
  const double v = rel_l1(priced(p, Price::kV).o, exact.o);
  const double all = rel_l1(p.emulated(kernel).o, exact.o);
  for (const double price : {qk, prob, v}) {
    EXPECT_GT(price, 0.003);
    EXPECT_LT(price, all);
  }
  // independent errors add up in squares
  EXPECT_NEAR(std::sqrt(qk * qk + prob * prob + v * v), all, 0.1 * all);
}

TEST_F(Priced, WhatIsRepresentableIsFree) {
  kernel.settings.smooth_k = kernel.settings.smooth_v = sage::Smooth::kNone;
  // +-1: a code of +-127 in Q and K, +-448 in V
  const auto sign = [n = normal(5)](int64_t t, int h, int d) mutable {
    return n(t, h, d) > 0 ? 1.0 : -1.0;
  };
  const Problem p(c, sign, sign, sign);
  const AttentionRows exact = p.exact();
  EXPECT_LT(rel_l1(priced(p, Price::kQk).o, exact.o), 1e-6);
  EXPECT_LT(rel_l1(priced(p, Price::kV).o, exact.o), 1e-6);
  EXPECT_GT(rel_l1(priced(p, Price::kP).o, exact.o), 1e-4);
}

TEST_F(Priced, LseKeepsTheOffsetOfK) {
  const Problem p(c, normal_with_bias(1, 1), normal_with_bias(2, 10), normal(3));
  const AttentionRows exact = p.exact();
  for (const Price price : {Price::kQk, Price::kP, Price::kV}) {
    const AttentionRows out = priced(p, price);
    for (size_t i = 0; i < exact.lse.size(); ++i) EXPECT_NEAR(out.lse[i], exact.lse[i], 0.1);
  }
}

TEST_F(Priced, RotationLeavesScoresAlone) {
  kernel.settings.rotate = sage::Rotate::kHadamard;
  const Problem p(c, normal(1), normal_with_bias(2, 2), normal(3));
  EXPECT_LT(rel_l1(priced(p, Price::kQk).o, p.exact().o), 0.03);
}

}  // namespace
}  // namespace sagebench
