#include "core/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sagebench {
namespace {

TEST(Stats, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
  EXPECT_THROW(median({}), std::invalid_argument);
}

TEST(Stats, MadIgnoresOneOutlier) {
  EXPECT_EQ(median_absolute_deviation({1, 2, 3, 4, 1000}), 1);
  EXPECT_EQ(median_absolute_deviation({5, 5, 5}), 0);
}

// Ranks from published tables of the sign test (two-sided, 5 %).
TEST(Stats, RanksMatchTheBinomialTables) {
  EXPECT_EQ(median_interval_rank(5), 1u);  // the range, not yet 95 %
  EXPECT_EQ(median_interval_rank(6), 1u);
  EXPECT_EQ(median_interval_rank(8), 1u);
  EXPECT_EQ(median_interval_rank(9), 2u);
  EXPECT_EQ(median_interval_rank(20), 6u);
  EXPECT_EQ(median_interval_rank(100), 40u);
  double coverage = 0;
  median_interval_rank(6, &coverage);
  EXPECT_DOUBLE_EQ(coverage, 1 - 2.0 / 64);
  median_interval_rank(5, &coverage);
  EXPECT_DOUBLE_EQ(coverage, 1 - 2.0 / 32);
  median_interval_rank(1, &coverage);
  EXPECT_EQ(coverage, 0);
}

TEST(Stats, IntervalTakesTheRankedValues) {
  const MedianInterval nine = median_interval({9, 8, 7, 6, 5, 4, 3, 2, 1});
  EXPECT_EQ(nine.low, 2);
  EXPECT_EQ(nine.high, 8);
  const MedianInterval one = median_interval({3});
  EXPECT_EQ(one.low, 3);
  EXPECT_EQ(one.high, 3);
  EXPECT_LT(one.coverage, 0.95);
}

// The promise itself, on a skewed distribution: the true median is inside at least 95 % of the
// time (less three standard errors of this simulation).
TEST(Stats, IntervalCoversTheMedianOfASkewedDistribution) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> skewed(1.0);
  const double truth = std::log(2.0);
  int inside = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(31);
    std::generate(values.begin(), values.end(), [&] { return skewed(random); });
    const MedianInterval interval = median_interval(values);
    inside += interval.low <= truth && truth <= interval.high;
  }
  EXPECT_GE(inside, kTrials * (0.95 - 3 * 0.0035));
}

TEST(Stats, LargeCountsDoNotUnderflow) {
  double coverage = 0;
  const size_t rank = median_interval_rank(100000, &coverage);
  EXPECT_NEAR(static_cast<double>(rank), 50000 - 1.96 * 158.1, 3);
  EXPECT_GE(coverage, 0.95);
}

}  // namespace
}  // namespace sagebench
