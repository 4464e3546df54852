#include "inputs/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "core/dtype.h"
#include "inputs/encode.h"

namespace sagebench {
namespace {

constexpr uint64_t kSamples = 4'000'000;

double normal(uint64_t stream, uint64_t index) {
  return static_cast<double>(normal_fixed(random_bits(stream, index))) / kFixedOne;
}

TEST(Rng, NormalMoments) {
  const uint64_t stream = random_stream(7, 0);
  double sum = 0, square = 0, cube = 0, fourth = 0, largest = 0;
  uint64_t past_2 = 0, past_4 = 0;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const double x = normal(stream, i), magnitude = std::fabs(x);
    sum += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
    past_2 += magnitude > 2;
    past_4 += magnitude > 4;
    largest = std::max(largest, magnitude);
  }
  constexpr auto n = static_cast<double>(kSamples);
  EXPECT_NEAR(sum / n, 0, 0.002);
  EXPECT_NEAR(square / n, 1, 0.002);
  EXPECT_NEAR(cube / n, 0, 0.006);
  EXPECT_NEAR(fourth / n, 2.94, 0.02);
  EXPECT_NEAR(static_cast<double>(past_2) / n, 0.0455, 0.001);
  EXPECT_NEAR(static_cast<double>(past_4) / n, 3.2e-5, 1.2e-5);  // N(0,1): 6.3e-5
  EXPECT_GT(largest, 4.5);
  EXPECT_LT(largest, 5.96);
}

// Exactly: flipping every bit negates the value, so the mean is 0 whatever the stream.
TEST(Rng, NormalIsSymmetric) {
  for (uint64_t i = 0; i < 100000; ++i) {
    const uint64_t bits = random_bits(3, i);
    EXPECT_NEAR(static_cast<double>(normal_fixed(bits)), -static_cast<double>(normal_fixed(~bits)),
                1);
  }
  EXPECT_EQ(normal_fixed(~uint64_t{0}), 389857);  // 5.95
}

double correlation(const std::function<double(uint64_t)>& a,
                   const std::function<double(uint64_t)>& b) {
  double sum = 0;
  for (uint64_t i = 0; i < 1'000'000; ++i) sum += a(i) * b(i);
  return sum / 1'000'000;
}

TEST(Rng, NeighboursTensorsAndSeedsAreIndependent) {
  constexpr double kLimit = 0.005;  // five deviations of a million products
  const uint64_t q = random_stream(7, 0), k = random_stream(7, 1), other = random_stream(8, 0);
  const auto at = [](uint64_t stream, uint64_t step = 0) {
    return [=](uint64_t i) { return normal(stream, i + step); };
  };
  for (const uint64_t step : {1u, 2u, 64u, 128u, 4096u, 1u << 20})
    EXPECT_LT(std::fabs(correlation(at(q), at(q, step))), kLimit) << "step " << step;
  EXPECT_LT(std::fabs(correlation(at(q), at(k))), kLimit);
  EXPECT_LT(std::fabs(correlation(at(q), at(other))), kLimit);
  EXPECT_LT(std::fabs(correlation(at(q), at(other, 1))), kLimit);
}

TEST(Rng, EveryBitOfAWordIsFair) {
  std::vector<int> ones(64);
  for (uint64_t i = 0; i < 100000; ++i) {
    const uint64_t bits = random_bits(random_stream(1, 2), i);
    for (size_t b = 0; b < 64; ++b) ones[b] += static_cast<int>((bits >> b) & 1);
  }
  for (size_t b = 0; b < 64; ++b) EXPECT_NEAR(ones[b], 50000, 800) << "bit " << b;
  std::set<uint64_t> words;
  for (uint64_t i = 0; i < 100000; ++i) words.insert(random_bits(5, i));
  EXPECT_EQ(words.size(), 100000u);
}

TEST(Rng, UniformCoversItsRange) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  double sum = 0;
  for (uint64_t i = 0; i < 1'000'000; ++i) {
    const int64_t x = uniform_fixed(random_bits(9, i), -kFixedOne, 3 * kFixedOne);
    low = std::min(low, x);
    high = std::max(high, x);
    sum += static_cast<double>(x);
  }
  EXPECT_GE(low, -kFixedOne);
  EXPECT_LT(high, 3 * kFixedOne);
  EXPECT_LT(low, -kFixedOne + 10);
  EXPECT_GT(high, 3 * kFixedOne - 10);
  EXPECT_NEAR(sum / 1e6 / kFixedOne, 1.0, 0.01);
}

TEST(Rng, LogarithmInFixedPoint) {
  for (uint64_t n : {1u, 2u, 3u, 10u, 1000u, 2048u, 131072u, 4294967295u})
    EXPECT_NEAR(static_cast<double>(ln_fixed(n)) / kFixedOne, std::log(static_cast<double>(n)),
                0x1p-15)
        << n;
  EXPECT_NEAR(static_cast<double>(ln_fixed(uint64_t{1} << 40)) / kFixedOne, 40 * std::log(2.0),
              0x1p-15);
}

// The same bits on every compiler and processor: a change here changes every result.
TEST(Rng, GoldenWords) {
  static_assert(mix64(0) == 0);
  constexpr uint64_t stream = random_stream(7, 1);
  static_assert(normal_fixed(random_bits(stream, 0)) != normal_fixed(random_bits(stream, 1)));
  EXPECT_EQ(random_bits(random_stream(0, 0), 0), 0xa4066356b9a484bbu);
  EXPECT_EQ(random_bits(stream, 123456789), 0xa4d3b70572447fd7u);
  EXPECT_EQ(normal_fixed(random_bits(stream, 5)), 27596);
}

TEST(Encode, AgreesWithThePlainEncoders) {
  std::mt19937 engine(1);
  for (int i = 0; i < 4'000'000; ++i) {
    const auto bits = static_cast<uint32_t>(engine());
    float value;
    memcpy(&value, &bits, sizeof(value));
    ASSERT_EQ(encode_bf16(value), bf16_from_float(value)) << bits;
    ASSERT_EQ(encode_fp16(value), fp16_from_float(value)) << bits;
  }
  // around every fp16 value: it, its neighbours and the ties between
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    const float value = float_from_fp16(static_cast<uint16_t>(code));
    const float next = float_from_fp16(static_cast<uint16_t>(code + 1));
    const float tie = code + 1 == 0x7c00 ? 65520.0f : (value + next) / 2;
    for (const float x : {value, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f), -tie})
      ASSERT_EQ(encode_fp16(x), fp16_from_float(x)) << x;
  }
}

TEST(Encode, FixedPointIsExactUpTo24Bits) {
  for (int64_t x : {int64_t{0}, int64_t{1}, int64_t{-1}, kFixedOne, -3 * kFixedOne / 2,
                    int64_t{16777215}, int64_t{-16777215}})
    EXPECT_EQ(static_cast<double>(float_of_fixed(x)), static_cast<double>(x) / kFixedOne);
}

}  // namespace
}  // namespace sagebench
