#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/fast_rounding.h"
#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- fast encoders against the plain ones ------------------------------------------------------

TEST(Encode, AgreesWithThePlainEncoders) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 0xfd1) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_EQ(encode(kE4m3Format, x), e4m3_from_float(x)) << x;
    const float rounded = round_to(kE4m3Format, x), code = float_from_e4m3(e4m3_from_float(x));
    ASSERT_TRUE(std::isnan(x) ? std::isnan(rounded) : rounded == code) << x;
    if (std::fabs(x) < 65520.0f || std::isnan(x)) {
      ASSERT_EQ(encode(kFp16Format, x), fp16_from_float(x)) << x;
      const float half = round_to(kFp16Format, x);
      ASSERT_TRUE(std::isnan(x) ? std::isnan(half) : half == float_from_fp16(fp16_from_float(x)));
    }
  }
}

TEST(Encode, EveryTieGoesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = float_from_e4m3(static_cast<uint8_t>(code));
    const float high = float_from_e4m3(static_cast<uint8_t>(code + 1));
    EXPECT_EQ(encode(kE4m3Format, (low + high) / 2), code + code % 2);
    EXPECT_EQ(encode(kE4m3Format, -(low + high) / 2), 0x80 | (code + code % 2));
  }
  for (int code = 0; code < 0x7bff; ++code) {
    const float low = float_from_fp16(static_cast<uint16_t>(code));
    const float high = float_from_fp16(static_cast<uint16_t>(code + 1));
    ASSERT_EQ(encode(kFp16Format, (low + high) / 2), code + code % 2);
  }
}

TEST(Encode, Fp16Saturates) {
  EXPECT_EQ(encode(kFp16Format, 1e9f), 0x7bff);
  EXPECT_EQ(encode(kFp16Format, -std::numeric_limits<float>::infinity()), 0xfbff);
}

TEST(Encode, Int8RoundsHalfToEvenAndSaturates) {
  const std::pair<double, int> table[] = {{0.5, 0},      {1.5, 2},       {2.5, 2},     {-0.5, 0},
                                          {-1.5, -2},    {126.5, 126},   {127.5, 127}, {1e30, 127},
                                          {-1e30, -127}, {-126.4, -126}, {kNan, 0}};
  for (const auto& [x, code] : table) EXPECT_EQ(int8_code(static_cast<float>(x)), code) << x;
}

// ---- quantisation ------------------------------------------------------------------------------

class Quantisation : public testing::Test {
 protected:
  explicit Quantisation(Model model = {1, 1, 64, 64}) : kernel(make_kernel(model)), model(model) {}
  StageOutputs quantise(const std::vector<int64_t>& lengths, const Values& q, const Values& k,
                        const Values& v, bool lse = false) const {
    Case c = make_case(model, lengths, lengths);
    c.dtype = DType::kFp16;
    c.return_lse = lse;
    return Problem(c, q, k, v).codes(kernel);
  }
  void no_smoothing() { kernel.settings.smooth_k = kernel.settings.smooth_v = sage::Smooth::kNone; }
  Kernel kernel;
  Model model;
};

TEST_F(Quantisation, CodesByHand) {
  no_smoothing();
  const double row[] = {127, -63.5, 0.5, 1.5, 2.5, -126.5, -0.5, 3};
  const int code[] = {127, -64, 0, 2, 2, -126, 0, 3};
  const auto x = [&](int64_t, int, int d) { return d < 8 ? row[d] : 0.0; };
  const StageOutputs out = quantise({1}, x, x, constant(0));
  EXPECT_EQ(out.q_scales.get(0), 1.0f);
  for (int d = 0; d < 64; ++d) {
    EXPECT_EQ(out.q_codes.as<int8_t>()[d], d < 8 ? code[d] : 0);
    EXPECT_EQ(out.k_codes.as<int8_t>()[d], d < 8 ? code[d] : 0);
  }
  EXPECT_TRUE(out.k_offset.empty() && out.v_offset.empty() && out.lse_dot.empty());
}

// One large token per test: its group's scale, and no other, is large. Blocks restart at each
// sequence.
TEST_F(Quantisation, GroupsShareAScaleAndRestartWithTheSequence) {
  no_smoothing();
  struct Row {
    sage::GroupPattern pattern;
    int block, groups;
  };
  const Row table[] = {{sage::GroupPattern::kRowMod8, 32, 8},
                       {sage::GroupPattern::kPairMod4, 64, 4},
                       {sage::GroupPattern::kAll, 16, 1}};
  const std::vector<int64_t> lengths{37, 70};
  for (const Row& row : table)
    for (const int64_t large : {3, 36, 37, 45, 106}) {
      kernel.layout.q_groups = kernel.layout.k_groups = {row.block, row.groups, row.pattern};
      const auto x = [large](int64_t t, int, int) { return t == large ? 127.0 : 12.7; };
      const StageOutputs out = quantise(lengths, x, x, constant(1));
      const int64_t start = large < 37 ? 0 : 37, at = large - start;
      for (int64_t b = 0, packed = 0; b < 2; ++b)
        for (int64_t t = 0; t < lengths[static_cast<size_t>(b)]; ++t, ++packed) {
          const bool same_block = (b == 0) == (start == 0) && t / row.block == at / row.block;
          const bool same_group = row.pattern == sage::GroupPattern::kAll ? true
                                  : row.pattern == sage::GroupPattern::kRowMod8
                                      ? t % 8 == at % 8
                                      : t % 8 / 2 == at % 8 / 2;
          const bool shares = same_block && same_group;
          const int64_t scale_row = sage::scale_row(kernel.layout.q_groups, b == 0 ? 0 : 37, b, t);
          EXPECT_NEAR(out.q_scales.get(scale_row), shares ? 1.0 : 0.1, 1e-3);
          EXPECT_EQ(out.k_scales.get(scale_row), out.q_scales.get(scale_row));
          EXPECT_EQ(out.q_codes.as<int8_t>()[packed * 64], !shares || packed == large ? 127 : 13);
        }
    }
}

TEST_F(Quantisation, OffsetsAreMeansOfAllOrOfSampledTokens) {
  const auto x = [](int64_t t, int, int d) { return static_cast<double>(t % 89 + d); };
  const std::vector<int64_t> lengths{100, 3};
  for (const sage::Smooth smooth : {sage::Smooth::kMean, sage::Smooth::kSampled}) {
    kernel.settings.smooth_k = kernel.settings.smooth_v = smooth;
    const StageOutputs out = quantise(lengths, x, x, x);
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      const int64_t n = smooth == sage::Smooth::kMean ? length : std::min<int64_t>(length, 32);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>((b * 100 + i * length / n) % 89);
      for (int64_t d : {0, 63}) {
        const auto mean = static_cast<float>(sum / static_cast<double>(n) + static_cast<double>(d));
        EXPECT_FLOAT_EQ(out.k_offset.get(b * 64 + d), mean);
        EXPECT_FLOAT_EQ(out.v_offset.get(b * 64 + d), mean);
      }
    }
  }
}

TEST_F(Quantisation, TheOffsetIsRemovedBeforeTheScale) {
  // +-12.7 around 100
  const auto x = [](int64_t t, int, int) { return 100.0 + (t % 2 == 0 ? 12.5 : -12.5); };
  const StageOutputs out = quantise({10}, x, x, constant(1));
  EXPECT_EQ(out.k_offset.get(0), 100.0f);
  EXPECT_FLOAT_EQ(out.k_scales.get(0), 12.5f / 127);
  EXPECT_EQ(out.k_codes.as<int8_t>()[0], 127);
  EXPECT_EQ(out.k_codes.as<int8_t>()[64], -127);
  EXPECT_FLOAT_EQ(out.q_scales.get(0), 112.5f / 127);  // nothing is removed from Q
}

TEST_F(Quantisation, HadamardSpreadsOneChannelOverAll) {
  no_smoothing();
  kernel.settings.rotate = sage::Rotate::kHadamard;
  const auto x = [](int64_t, int, int d) { return d == 0 ? 8.0 : 0.0; };
  const StageOutputs out = quantise({1}, x, x, constant(0));
  for (int d = 0; d < 64; ++d) EXPECT_EQ(out.q_codes.as<int8_t>()[d], 127);
  EXPECT_FLOAT_EQ(out.q_scales.get(0), 1.0f / 127);  // orthonormal: 8 / sqrt(64)
}

TEST_F(Quantisation, NanStaysInItsGroup) {
  no_smoothing();
  const auto x = [](int64_t t, int, int d) { return t == 1 && d == 5 ? kNan : 1.0; };
  const StageOutputs out = quantise({9}, x, x, x);
  EXPECT_TRUE(std::isnan(out.q_scales.get(1)));
  EXPECT_FALSE(std::isnan(out.q_scales.get(0)) || std::isnan(out.q_scales.get(2)));
  EXPECT_TRUE(std::isnan(out.k_scales.get(0)));
  EXPECT_FALSE(std::isnan(out.k_scales.get(1)));
  EXPECT_TRUE(std::isnan(out.v_scales.get(5)));
  EXPECT_FALSE(std::isnan(out.v_scales.get(4)));
}

TEST_F(Quantisation, ZerosAreOrdinaryInput) {
  const StageOutputs out = quantise({5}, constant(0), constant(3), constant(0));
  EXPECT_EQ(out.q_scales.get(0), 1e-7f / 127.0f);
  EXPECT_EQ(out.k_scales.get(0), 1e-7f / 127.0f);  // constant: nothing is left of it
  EXPECT_EQ(out.v_scales.get(0), 1.0f);
  for (const Tensor* codes : {&out.q_codes, &out.k_codes, &out.v_codes})
    for (int64_t i = 0; i < codes->size(); ++i) EXPECT_EQ(codes->get(i), 0.0f);
}

TEST_F(Quantisation, Fp8ScaleOfVPerChannelAndPerHead) {
  no_smoothing();
  const auto v = [](int64_t t, int, int d) { return (t == 2 ? -1.0 : 0.25) * (d + 1); };
  StageOutputs out = quantise({4}, constant(1), constant(1), v);
  for (int64_t d = 0; d < 64; ++d) {
    EXPECT_EQ(out.v_scales.get(d), static_cast<float>(d + 1) / 448.0f);
    EXPECT_EQ(out.v_codes.get(2 * 64 + d), -448.0f);
    EXPECT_EQ(out.v_codes.get(d), 112.0f);
  }
  kernel.settings.v_scale = sage::VScale::kPerHead;
  out = quantise({4}, constant(1), constant(1), v);
  for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(out.v_scales.get(d), 64.0f / 448.0f);
  EXPECT_EQ(out.v_codes.get(2 * 64 + 31), -224.0f);
}

TEST_F(Quantisation, Fp16ScaleOfVIsAPowerOfTwo) {
  kernel = make_kernel(model, sage::PvType::kFp16);
  no_smoothing();
  const std::pair<double, double> table[] = {
      // amax, 2^ceil(log2 amax)
      {1.0, 1.0}, {1.5, 2.0}, {2.0, 2.0}, {0.3, 0.5}, {0.25, 0.25}, {60000.0, 65536.0}};
  for (const auto& [amax, power] : table) {
    const StageOutputs out = quantise({3}, constant(1), constant(1), constant(amax));
    EXPECT_EQ(out.v_scales.get(0), static_cast<float>(power) / 256.0f) << amax;
    const float v = float_from_fp16(fp16_from_float(static_cast<float>(amax)));
    EXPECT_EQ(out.v_codes.get(0) * out.v_scales.get(0), v);  // exact
    EXPECT_EQ(out.v_codes.dtype, DType::kFp16);
  }
}

TEST_F(Quantisation, WhatRoundingVTookIsPutBack) {
  no_smoothing();
  // 17 lies between the codes 16 and 18 of scale 1: a tie, to even. 448 fixes the scale.
  const auto v = [](int64_t t, int, int d) { return d == 1 ? 3.0 : t == 0 ? 448.0 : 17.0; };
  const StageOutputs out = quantise({5, 1}, constant(1), constant(1), v);
  EXPECT_EQ(out.v_codes.get(64), 16.0f);
  EXPECT_FLOAT_EQ(out.o_offset.get(0), 4.0f / 5);  // four keys lost 1 each
  EXPECT_NEAR(out.o_offset.get(1), 0.0f, 1e-6);    // a constant is its own code
  kernel.settings.correct_v = false;
  EXPECT_TRUE(quantise({5}, constant(1), constant(1), v).o_offset.empty());
}

TEST_F(Quantisation, TinyVHasANormalScale) {
  for (const sage::PvType pv : {sage::PvType::kFp8E4m3, sage::PvType::kFp16}) {
    kernel = make_kernel(model, pv);
    no_smoothing();
    Case c = make_case(model, {3}, {3});  // bf16 reaches 2^-133
    const StageOutputs out = Problem(c, constant(1), constant(1), constant(0x1p-120)).codes(kernel);
    EXPECT_EQ(out.v_scales.get(0), 0x1p-100f / kernel.layout.v_code_max);
    EXPECT_TRUE(std::isfinite(out.v_codes.get(0)));
  }
}

TEST_F(Quantisation, InfinityStaysVisible) {
  no_smoothing();
  const auto x = [](int64_t t, int, int d) {
    return t == 1 && d == 5 ? std::numeric_limits<double>::infinity() : 1.0;
  };
  const StageOutputs out = quantise({9}, x, x, x);
  EXPECT_TRUE(std::isinf(out.q_scales.get(1)) && std::isinf(out.v_scales.get(5)));
  EXPECT_EQ(out.q_scales.get(0), 1.0f / 127.0f);
  EXPECT_EQ(out.v_scales.get(4), 1.0f / 448.0f);
}

struct PaddedQuantisation : Quantisation {
  PaddedQuantisation() : Quantisation({2, 1, 72, 40}) {}
};
TEST_F(PaddedQuantisation, PaddingIsZeroWithScaleOne) {
  kernel.settings.smooth_v = sage::Smooth::kMean;
  const StageOutputs out = quantise({3}, normal(1), constant(2), normal(3));
  ASSERT_EQ(out.q_codes.shape, (std::vector<int64_t>{3, 2, 128}));
  ASSERT_EQ(out.v_codes.shape, (std::vector<int64_t>{3, 1, 64}));
  for (int64_t d = 72; d < 128; ++d) {
    EXPECT_EQ(out.q_codes.get(d), 0.0f);
    EXPECT_EQ(out.k_offset.get(d), 0.0f);
  }
  for (int64_t d = 40; d < 64; ++d) {
    EXPECT_EQ(out.v_codes.get(d), 0.0f);
    EXPECT_EQ(out.v_scales.get(d), 1.0f);
    EXPECT_EQ(out.v_offset.get(d), 0.0f);
  }
}

TEST_F(PaddedQuantisation, LseDotNeedsLseAndSmoothing) {
  const auto q = [](int64_t t, int h, int) { return static_cast<double>(t + 10 * h); };
  EXPECT_TRUE(quantise({3}, q, constant(2), constant(1), false).lse_dot.empty());
  const StageOutputs out = quantise({3}, q, constant(2), constant(1), true);
  ASSERT_EQ(out.lse_dot.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(out.lse_dot.get(1), 72 * 2.0f);
  EXPECT_EQ(out.lse_dot.get(3 + 2), 72 * 2 * 12.0f);
  no_smoothing();
  EXPECT_TRUE(quantise({3}, q, constant(2), constant(1), true).lse_dot.empty());
}

}  // namespace
}  // namespace sagebench
