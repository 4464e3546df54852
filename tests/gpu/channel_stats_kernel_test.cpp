// Channel offsets and V scales against sums in double.
#include <algorithm>
#include <cmath>

#include "gpu/gpu_support.h"

namespace {

using namespace gpu_test;
using sage::DType;
using sage::PvType;
using sage::Smooth;
using sage::VScale;

constexpr int kHeads = 3;

struct Problem {
  PackedInput x;
  std::vector<int32_t> cu;
  int padded = 128;
  Smooth smooth = Smooth::kMean;
  bool want_scale = true;
  PvType pv = PvType::kFp8E4m3;
  VScale v_scale = VScale::kPerChannel;
  float code_max = 448.0f;
  int batch() const { return static_cast<int>(cu.size()) - 1; }
  size_t at(int b, int h, int c) const {
    return static_cast<size_t>((b * x.view.num_heads + h) * padded + c);
  }
};

struct Stats {
  std::vector<float> offset, scale;
};

Stats run(const Problem& p) {
  const DeviceArray<uint16_t> x(p.x.bits);
  const DeviceArray<int32_t> cu(p.cu);
  const size_t count = p.at(p.batch(), 0, 0);
  const DeviceArray<float> offset(count), scale(count);
  sage::ChannelStatsParams s;
  s.x = p.x.on_device(x);
  s.cu_seqlens = cu.data();
  s.batch = p.batch();
  s.padded_head_dim = p.padded;
  s.smooth = p.smooth;
  s.offset = offset.data();
  if (p.want_scale) s.scale = scale.data();
  s.pv = p.pv;
  s.v_scale = p.v_scale;
  s.v_code_max = p.code_max;
  s.workspace_bytes = sage::channel_stats_workspace_bytes(s);
  const DeviceArray<std::byte> workspace(s.workspace_bytes);
  s.workspace = workspace.data();
  const sage::Status status = sage::launch_channel_stats(s, nullptr);
  EXPECT_TRUE(status.ok()) << status.reason;
  workspace.download();
  EXPECT_EQ(x.download(), p.x.bits) << "the input changed";
  return {offset.download(), scale.download()};
}

// What the documentation says of a scale, in the arithmetic of fp32.
float expected_scale(const Problem& p, float amax) {
  if (amax == 0.0f) return 1.0f;
  amax = std::max(amax, sage::kMinAmaxV);
  if (p.pv == PvType::kFp8E4m3) return amax / p.code_max;
  return static_cast<float>(std::exp2(std::ceil(std::log2(double{amax})))) / p.code_max;
}

void check(Problem& p, const Stats& got) {
  int bad_offset = 0, bad_scale = 0;
  for (int b = 0; b < p.batch(); ++b) {
    const int64_t start = p.cu[static_cast<size_t>(b)];
    const int64_t length = p.cu[static_cast<size_t>(b) + 1] - start;
    for (int h = 0; h < kHeads; ++h) {
      std::vector<float> amax(static_cast<size_t>(p.padded), 0.0f);
      for (int c = 0; c < p.padded; ++c) {
        const float offset = got.offset[p.at(b, h, c)];
        double want = 0.0, size = 0.0;
        if (c < p.x.view.head_dim && p.smooth != Smooth::kNone && length > 0) {
          const int64_t n =
              p.smooth == Smooth::kMean ? length : std::min<int64_t>(length, sage::kOffsetSamples);
          for (int64_t i = 0; i < n; ++i) {
            const double x = p.x.value(start + i * length / n, h, c);
            want += x / static_cast<double>(n);
            size += std::abs(x) / static_cast<double>(n);
          }
        }
        bad_offset += !(std::abs(offset - want) <= 0x1p-20 * size);
        for (int64_t t = 0; c < p.x.view.head_dim && t < length; ++t) {
          float& largest = amax[static_cast<size_t>(c)];
          largest = std::max(largest, std::abs(p.x.value(start + t, h, c) - offset));
        }
      }
      if (p.v_scale == VScale::kPerHead) {
        amax.assign(amax.size(), *std::max_element(amax.begin(), amax.end()));
      }
      for (int c = 0; c < p.padded; ++c) {
        const float scale = got.scale[p.at(b, h, c)];
        const float want = !p.want_scale ? poison_of<float>()
                           : c >= p.x.view.head_dim
                               ? 1.0f
                               : expected_scale(p, amax[static_cast<size_t>(c)]);
        bad_scale += !same_bits(scale, want);
      }
    }
  }
  EXPECT_EQ(bad_offset, 0);
  EXPECT_EQ(bad_scale, 0);
}

Problem make_problem(DType dtype, int dim, const std::vector<int32_t>& lengths, int64_t lead = 0,
                     int64_t trail = 0) {
  const std::vector<int32_t> cu = cumulative(lengths);
  return {.x = PackedInput(dtype, cu.back() + 3, cu.back(), kHeads, dim, lead, trail, 4),
          .cu = cu,
          .padded = dim <= 64 ? 64 : 128};
}

void set_channel(Problem& p, int head, int channel, float value) {
  for (int64_t t = 0; t < p.cu.back(); ++t) {
    p.x.at(t, head, channel) = encode(p.x.view.dtype, value);
  }
}

class ChannelStats : public GpuTest {};

TEST_F(ChannelStats, EverySettingDtypeDimAndStride) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (const int dim : {64, 128, 80, 46}) {
      for (const auto& [lead, trail] : {std::pair{0, 0}, {4 * dim, dim}, {1, 0}}) {
        Problem p = make_problem(dtype, dim, odd_lengths(), lead, trail);
        for (const Smooth smooth : {Smooth::kNone, Smooth::kMean, Smooth::kSampled}) {
          for (const int scale : {0, 1, 2, 3, 4}) {  // none, then pv x v_scale
            SCOPED_TRACE(testing::Message()
                         << "dtype " << static_cast<int>(dtype) << " dim " << dim << " lead "
                         << lead << " smooth " << static_cast<int>(smooth) << " scale " << scale);
            p.smooth = smooth;
            p.want_scale = scale > 0;
            p.pv = scale > 2 ? PvType::kFp16 : PvType::kFp8E4m3;
            p.code_max = scale > 2 ? 1.0f : 448.0f;
            p.v_scale = scale % 2 == 0 ? VScale::kPerHead : VScale::kPerChannel;
            check(p, run(p));
          }
        }
      }
    }
  }
}

TEST_F(ChannelStats, MeanOfALongSequenceIsAccurate) {
  Problem p = make_problem(DType::kBf16, 64, {131072, 1});
  set_channel(p, 1, 5, 10.0f);
  for (int64_t t = 0; t < 131072; t += 2) p.x.at(t, 1, 6) = encode(DType::kBf16, 300.0f);
  const Stats got = run(p);
  EXPECT_EQ(got.offset[p.at(0, 1, 5)], 10.0f);
  EXPECT_EQ(got.scale[p.at(0, 1, 5)], 1.0f);
  check(p, got);
}

// Zero must never enter a minimum or maximum: neither as padding nor as a forgotten initial value.
TEST_F(ChannelStats, OneSidedChannels) {
  for (const int dim : {64, 128}) {
    for (const float side : {-32.0f, 32.0f}) {
      Problem p = make_problem(DType::kFp16, dim, {700, 2200, 5});
      for (int64_t t = 0; t < p.cu.back(); ++t) {
        for (int h = 0; h < kHeads; ++h) {
          for (int c = 0; c < dim; ++c) {
            p.x.at(t, h, c) = encode(DType::kFp16, side + p.x.value(t, h, c));
          }
        }
      }
      check(p, run(p));
    }
  }
}

TEST_F(ChannelStats, ConstantZeroAndTinyChannels) {
  for (const PvType pv : {PvType::kFp8E4m3, PvType::kFp16}) {
    for (const Smooth smooth : {Smooth::kNone, Smooth::kMean, Smooth::kSampled}) {
      Problem p = make_problem(DType::kBf16, 64, {300, 1, 0});
      p.pv = pv;
      p.smooth = smooth;
      set_channel(p, 0, 0, 0.0f);
      set_channel(p, 0, 1, -1.5f);
      set_channel(p, 0, 2, 0.1f);                         // whose sums round
      set_channel(p, 0, 3, 0x1p-133f);                    // bf16's smallest
      p.x.at(0, 0, 4) = encode(DType::kBf16, 0x1p-133f);  // one among zeros
      for (int64_t t = 1; t < 301; ++t) p.x.at(t, 0, 4) = 0;
      const Stats got = run(p);
      EXPECT_EQ(got.scale[p.at(0, 0, 0)], 1.0f);
      EXPECT_EQ(got.scale[p.at(0, 0, 1)] == 1.0f, smooth != Smooth::kNone);
      EXPECT_EQ(got.scale[p.at(0, 0, 4)], sage::kMinAmaxV / 448.0f);
      for (const float scale : got.scale) {
        EXPECT_TRUE(std::isfinite(1.0f / scale) && scale > 0.0f) << scale;
      }
      for (int c = 0; c < 64; ++c) EXPECT_EQ(got.scale[p.at(2, 1, c)], 1.0f) << "empty sequence";
    }
  }
}

TEST_F(ChannelStats, NonFiniteInputShowsInItsChannelOnly) {
  for (const float intruder : {NAN, INFINITY, -INFINITY}) {
    for (const Smooth smooth : {Smooth::kNone, Smooth::kMean, Smooth::kSampled}) {
      for (const int64_t token : {7, 199}) {  // in a whole chunk, in what is left of the sequence
        Problem p = make_problem(DType::kFp16, 64, {200, 50});
        p.smooth = smooth;
        p.x.at(token, 1, 9) = encode(DType::kFp16, intruder);
        const Stats got = run(p);
        for (int b = 0; b < 2; ++b) {
          for (int h = 0; h < kHeads; ++h) {
            for (int c = 0; c < 64; ++c) {
              const bool hit = b == 0 && h == 1 && c == 9;
              EXPECT_EQ(std::isfinite(got.scale[p.at(b, h, c)]), !hit);
              const bool in_offset = hit && smooth == Smooth::kMean;
              EXPECT_TRUE(!in_offset || !std::isfinite(got.offset[p.at(b, h, c)]));
            }
          }
        }
      }
    }
  }
}

TEST_F(ChannelStats, SequenceAloneGivesTheBitsItGivesInTheBatch) {
  const std::vector<int32_t> lengths{700, 33, 257, 2, 128, 1500};
  const Problem all = make_problem(DType::kBf16, 128, lengths);
  const Stats together = run(all);
  for (size_t b = 0; b < lengths.size(); ++b) {
    Problem one = all;
    const int64_t start = all.cu[b], stride = all.x.view.token_stride;
    one.cu = {0, lengths[b]};
    one.x.view.total_tokens = lengths[b];
    one.x.bits.assign(all.x.bits.begin() + start * stride,
                      all.x.bits.begin() + (start + lengths[b]) * stride);
    const Stats alone = run(one);
    const size_t from = all.at(static_cast<int>(b), 0, 0);
    for (size_t i = 0; i < alone.offset.size(); ++i) {
      ASSERT_TRUE(same_bits(alone.offset[i], together.offset[from + i])) << b << " " << i;
      ASSERT_TRUE(same_bits(alone.scale[i], together.scale[from + i])) << b << " " << i;
    }
  }
}

TEST_F(ChannelStats, APowerOfTwoPassesThroughExactly) {
  for (const PvType pv : {PvType::kFp8E4m3, PvType::kFp16}) {
    Problem p = make_problem(DType::kBf16, 128, {333, 40});
    p.pv = pv;
    const Stats once = run(p);
    for (int64_t t = 0; t < p.cu.back(); ++t) {
      for (int h = 0; h < kHeads; ++h) {
        for (int c = 0; c < 128; ++c) {
          p.x.at(t, h, c) = encode(DType::kBf16, 8.0f * p.x.value(t, h, c));
        }
      }
    }
    const Stats scaled = run(p);
    for (size_t i = 0; i < once.offset.size(); ++i) {
      ASSERT_EQ(scaled.offset[i], 8.0f * once.offset[i]);
      ASSERT_EQ(scaled.scale[i], 8.0f * once.scale[i]);
    }
  }
}

TEST_F(ChannelStats, SeventyThousandSequencesOfOneToken) {
  Problem p = make_problem(DType::kBf16, 64, std::vector<int32_t>(70000, 1));
  check(p, run(p));
}

}  // namespace
