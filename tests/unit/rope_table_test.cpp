#include "inputs/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace sagebench {
namespace {

using std::numbers::pi;

Rope rope_of(int rotary_dim, double theta, RopeScaling scaling = RopeScaling::kNone,
             double factor = 1) {
  Rope rope;
  rope.rotary_dim = rotary_dim;
  rope.theta = theta;
  rope.scaling = scaling;
  rope.factor = factor;
  return rope;
}

TEST(RopeTable, PlainFrequencies) {
  const auto f = rope_frequencies(rope_of(8, 10000));
  ASSERT_EQ(f.size(), 4u);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_NEAR(f[1], 0.1, 1e-15);
  EXPECT_NEAR(f[3], 0.001, 1e-17);
}

TEST(RopeTable, LinearStretchesAll) {
  const auto plain = rope_frequencies(rope_of(64, 5e5));
  const auto linear = rope_frequencies(rope_of(64, 5e5, RopeScaling::kLinear, 4));
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(linear[i] * 4, plain[i]);
}

// By wavelength, as the scaling is usually stated: under 8192 / 4 tokens kept, over 8192 / 1
// stretched, between them a blend linear in 8192 / wavelength.
TEST(RopeTable, Llama3ByWavelength) {
  const auto plain = rope_frequencies(rope_of(128, 5e5));
  const auto scaled = rope_frequencies(rope_of(128, 5e5, RopeScaling::kLlama3, 8));
  int kept = 0, blended = 0, stretched = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * pi / plain[i];
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(scaled[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-15);
      ++blended;
    }
  }
  EXPECT_EQ(kept + blended + stretched, 64);
  EXPECT_GT(kept, 20);
  EXPECT_GT(blended, 3);
  EXPECT_GT(stretched, 20);
}

TEST(RopeTable, YarnByParts) {
  Rope rope = rope_of(128, 1e4, RopeScaling::kYarn, 16);
  rope.original_max_position = 4096;
  const auto plain = rope_frequencies(rope_of(128, 1e4));
  const auto yarn = rope_frequencies(rope);
  // 4096 tokens hold 32 turns up to pair 20.9, one turn up to pair 45.03
  for (size_t i = 0; i < plain.size(); ++i) {
    const double stretched =
        std::min(1.0, std::max(0.0, (static_cast<double>(i) - 20) / (46 - 20)));
    EXPECT_NEAR(yarn[i], plain[i] * (1 - stretched + stretched / 16), 1e-15) << i;
  }
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), 0.1 * std::log(16.0) + 1);
  rope.attention_factor = 0.75;
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), 0.75);
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope_of(8, 1e4, RopeScaling::kLinear, 4)), 1);
}

TEST(RopeTable, RowsHoldCosThenSin) {
  Rope rope = rope_of(4, 100);
  Tensor t = make_rope_table(rope, 1000);
  EXPECT_EQ(t.shape, (std::vector<int64_t>{1000, 4}));
  EXPECT_EQ(t.get(0), 1.0f);
  EXPECT_EQ(t.get(2), 0.0f);
  for (int64_t p : {1, 255, 256, 999}) {
    const auto x = static_cast<double>(p);
    EXPECT_EQ(t.get(p * 4 + 0), static_cast<float>(std::cos(x)));
    EXPECT_EQ(t.get(p * 4 + 1), static_cast<float>(std::cos(x * 0.1)));
    EXPECT_EQ(t.get(p * 4 + 2), static_cast<float>(std::sin(x)));
    EXPECT_EQ(t.get(p * 4 + 3), static_cast<float>(std::sin(x * 0.1)));
  }
  rope.table_dtype = DType::kBf16;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 1;
  rope.attention_factor = 2;
  const Tensor scaled = make_rope_table(rope, 2);
  EXPECT_EQ(scaled.dtype, DType::kBf16);
  EXPECT_EQ(scaled.get(0), 2.0f);
  EXPECT_EQ(scaled.get(6), float_from_bf16(bf16_from_float(static_cast<float>(2 * std::sin(1.0)))));
}

}  // namespace
}  // namespace sagebench
