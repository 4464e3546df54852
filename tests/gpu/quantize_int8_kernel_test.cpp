// INT8 codes, scales and the LSE dot product against plain host arithmetic.
#include <algorithm>
#include <bit>
#include <cmath>

#include "gpu/gpu_support.h"

namespace {

using namespace gpu_test;
using sage::DType;
using sage::GroupPattern;
using sage::Rotate;
using sage::ScaleGroups;

constexpr int kHeads = 4;
constexpr int kDotHeads = 2;

struct Codes {
  std::vector<int8_t> codes;
  std::vector<float> scales, dot;
};

struct Problem {
  PackedInput x;
  std::vector<int32_t> cu;
  int padded = 128;
  ScaleGroups groups{};
  Rotate rotate = Rotate::kNone;
  std::vector<float> offset{};      // [batch, heads, padded] or empty
  std::vector<float> dot_offset{};  // [batch, kDotHeads, padded] or empty
  int batch() const { return static_cast<int>(cu.size()) - 1; }
};

Codes run(const Problem& p) {
  const int64_t total = p.x.view.total_tokens;
  const int heads = p.x.view.num_heads;
  const DeviceArray<uint16_t> x(p.x.bits);
  const DeviceArray<int32_t> cu(p.cu);
  const DeviceArray<float> offset(p.offset), dot_offset(p.dot_offset);
  const DeviceArray<int8_t> codes(static_cast<size_t>(total * heads * p.padded));
  const DeviceArray<float> scales(
      static_cast<size_t>(heads * sage::scale_rows(p.groups, total, p.batch())));
  const DeviceArray<float> dot(static_cast<size_t>(heads * total));
  sage::QuantizeInt8Params q;
  q.x = p.x.on_device(x);
  q.cu_seqlens = cu.data();
  q.batch = p.batch();
  q.padded_head_dim = p.padded;
  q.groups = p.groups;
  q.rotate = p.rotate;
  q.codes = codes.data();
  q.scales = scales.data();
  if (!p.offset.empty()) q.offset = offset.data();
  if (!p.dot_offset.empty()) {
    q.dot_offset = dot_offset.data();
    q.dot_num_heads = kDotHeads;
    q.dot = dot.data();
  }
  const sage::Status status = sage::launch_quantize_int8(q, nullptr);
  EXPECT_TRUE(status.ok()) << status.reason;
  EXPECT_EQ(x.download(), p.x.bits) << "the input changed";
  return {codes.download(), scales.download(), dot.download()};
}

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<double> hadamard(const std::vector<double>& x) {
  std::vector<double> y(x.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += std::popcount(i & j) % 2 == 0 ? x[j] : -x[j];
    y[i] /= std::sqrt(static_cast<double>(x.size()));
  }
  return y;
}

// Every code, scale and dot product, and that nothing else was written.
void check(Problem& p, const Codes& got) {
  const int64_t total = p.x.view.total_tokens;
  const int dim = p.x.view.head_dim;
  const auto padded = static_cast<size_t>(p.padded);
  const int64_t scale_rows = sage::scale_rows(p.groups, total, p.batch());
  std::vector<char> owned(got.scales.size(), 0);
  int bad = 0;
  for (int b = 0; b < p.batch(); ++b) {
    const int64_t start = p.cu[static_cast<size_t>(b)];
    const int64_t length = p.cu[static_cast<size_t>(b) + 1] - start;
    for (int h = 0; h < p.x.view.num_heads; ++h) {
      // x as fp32 sees it, its rotation in double, and the magnitude that bounds rounding
      std::vector<std::vector<double>> rows;
      std::vector<double> magnitude;
      for (int64_t t = 0; t < length; ++t) {
        std::vector<double> row(padded, 0.0);
        double sum = 0.0, dot = 0.0, dot_size = 0.0;
        for (int c = 0; c < dim; ++c) {
          const float value = p.x.value(start + t, h, c);
          const size_t at = static_cast<size_t>((b * p.x.view.num_heads + h) * p.padded + c);
          const float offset = p.offset.empty() ? 0.0f : p.offset[at];
          row[static_cast<size_t>(c)] = value - offset;
          sum += std::abs(value) + std::abs(offset);
          if (!p.dot_offset.empty()) {
            const int dot_head = h / (p.x.view.num_heads / kDotHeads);
            const double key =
                p.dot_offset[static_cast<size_t>((b * kDotHeads + dot_head) * p.padded + c)];
            dot += value * key;
            dot_size += std::abs(value * key);
          }
        }
        if (!p.dot_offset.empty()) {
          const float got_dot = got.dot[static_cast<size_t>(h * total + start + t)];
          bad += !(std::abs(got_dot - dot) <= 1e-6 * dot_size);
        }
        const bool rotated = p.rotate == Rotate::kHadamard;
        rows.push_back(rotated ? hadamard(row) : row);
        magnitude.push_back(rotated ? sum / std::sqrt(static_cast<double>(p.padded)) : 0.0);
      }
      std::vector<double> amax(owned.size(), 0.0), slack(owned.size(), 0.0);
      const auto scale_at = [&](int64_t t) {
        return static_cast<size_t>(h * scale_rows + sage::scale_row(p.groups, start, b, t));
      };
      for (int64_t t = 0; t < length; ++t) {
        owned[scale_at(t)] = 1;
        slack[scale_at(t)] =
            std::max(slack[scale_at(t)], magnitude[static_cast<size_t>(t)] * 0x1p-21);
        for (const double x : rows[static_cast<size_t>(t)]) {
          amax[scale_at(t)] = std::max(amax[scale_at(t)], std::abs(x));
        }
      }
      for (int64_t t = 0; t < length; ++t) {
        const float scale = got.scales[scale_at(t)];
        // Without rotation the kernel's arithmetic is reproduced to the bit.
        const double want = std::max(static_cast<float>(amax[scale_at(t)]), 1e-7f) / 127.0f;
        bad += !(std::abs(scale - want) <= slack[scale_at(t)] / 127.0);
        for (size_t c = 0; c < padded; ++c) {
          const double x = rows[static_cast<size_t>(t)][c];
          const int code =
              got.codes[(static_cast<size_t>((start + t) * p.x.view.num_heads + h)) * padded + c];
          if (p.rotate == Rotate::kNone) {
            bad += code != static_cast<int>(std::nearbyint(static_cast<float>(x) / scale));
          } else {
            bad += !(std::abs(x - double{scale} * code) <=
                     0.5 * scale * (1 + 1e-5) + magnitude[static_cast<size_t>(t)] * 0x1p-21);
          }
          bad += code < -127;
        }
      }
    }
  }
  EXPECT_EQ(bad, 0);
  int touched = 0;
  for (size_t i = 0; i < owned.size(); ++i) {
    touched += !owned[i] && !same_bits(got.scales[i], poison_of<float>());
  }
  const size_t live = static_cast<size_t>(p.cu.back()) * kHeads;
  for (size_t i = live * padded; i < got.codes.size(); ++i) {
    touched += got.codes[i] != poison_of<int8_t>();
  }
  for (int h = 0; h < p.x.view.num_heads; ++h) {
    for (int64_t t = p.dot_offset.empty() ? 0 : p.cu.back(); t < total; ++t) {
      touched += !same_bits(got.dot[static_cast<size_t>(h * total + t)], poison_of<float>());
    }
  }
  EXPECT_EQ(touched, 0) << "bytes that nobody owns were written";
}

const std::vector<ScaleGroups>& all_groups() {
  static const std::vector<ScaleGroups> groups{
      {32, 8, GroupPattern::kRowMod8},  {16, 8, GroupPattern::kRowMod8},
      {64, 4, GroupPattern::kPairMod4}, {128, 4, GroupPattern::kPairMod4},
      {16, 1, GroupPattern::kAll},      {32, 1, GroupPattern::kAll},
      {64, 1, GroupPattern::kAll},      {128, 1, GroupPattern::kAll},
  };
  return groups;
}

Problem make_problem(DType dtype, int dim, const std::vector<int32_t>& lengths, int64_t lead,
                     int64_t trail) {
  const std::vector<int32_t> cu = cumulative(lengths);
  return {.x = PackedInput(dtype, cu.back() + 5, cu.back(), kHeads, dim, lead, trail, 1),
          .cu = cu,
          .padded = dim <= 64 ? 64 : 128};
}

class QuantizeInt8 : public GpuTest {};

TEST_F(QuantizeInt8, EveryGroupingDtypeDimAndStride) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (const int dim : {64, 128, 80, 46}) {
      // dense; inside a fused qkv; inside one that breaks the alignment
      for (const auto& [lead, trail] : {std::pair{0, 0}, {8 * dim, 2 * dim}, {3, 2}}) {
        Problem p = make_problem(dtype, dim, odd_lengths(), lead, trail);
        const auto channels = static_cast<size_t>(p.batch() * p.padded);
        for (const ScaleGroups& groups : all_groups()) {
          SCOPED_TRACE(testing::Message() << "dtype " << static_cast<int>(dtype) << " dim " << dim
                                          << " lead " << lead << " block " << groups.block_tokens
                                          << " groups " << groups.groups_per_block);
          p.groups = groups;
          const bool smooth = groups.groups_per_block != 8;  // as K has it
          p.offset = smooth ? random_floats(channels * kHeads, 2) : std::vector<float>{};
          p.dot_offset = smooth ? std::vector<float>{} : random_floats(channels * kDotHeads, 3);
          check(p, run(p));
        }
      }
    }
  }
}

TEST_F(QuantizeInt8, HadamardRotation) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (const int dim : {64, 128, 80, 46}) {
      SCOPED_TRACE(dim);
      Problem p = make_problem(dtype, dim, {0, 1, 65, 129, 3}, 0, 0);
      p.rotate = Rotate::kHadamard;
      p.offset = random_floats(static_cast<size_t>(p.batch() * p.padded) * kHeads, 2);
      for (const size_t i : {size_t{0}, size_t{3}, size_t{7}}) {
        p.groups = all_groups()[i];
        check(p, run(p));
      }
    }
  }
}

TEST_F(QuantizeInt8, OneOutlierChannelIsSpreadByTheRotation) {
  Problem p = make_problem(DType::kFp16, 128, {32}, 0, 0);
  for (int64_t t = 0; t < 32; ++t) {
    for (int h = 0; h < kHeads; ++h) {
      for (int c = 0; c < 128; ++c) p.x.at(t, h, c) = encode(DType::kFp16, c == 9 ? 64.0f : 0.0f);
    }
  }
  p.rotate = Rotate::kHadamard;
  const Codes got = run(p);
  for (int h = 0; h < kHeads; ++h) {
    const auto scale = got.scales[static_cast<size_t>(h * sage::scale_rows(p.groups, 37, 1))];
    EXPECT_FLOAT_EQ(scale, static_cast<float>(64.0 / std::sqrt(128.0) / 127.0));
  }
  for (size_t i = 0; i < 32 * kHeads * 128; ++i) EXPECT_EQ(std::abs(got.codes[i]), 127);
}

TEST_F(QuantizeInt8, SequenceAloneGivesTheBitsItGivesInTheBatch) {
  const std::vector<int32_t> lengths{700, 33, 257, 2};
  for (const ScaleGroups& groups : all_groups()) {
    Problem all = make_problem(DType::kBf16, 128, lengths, 0, 0);
    all.groups = groups;
    all.rotate = Rotate::kHadamard;
    all.offset = random_floats(static_cast<size_t>(all.batch() * 128) * kHeads, 2);
    const Codes together = run(all);
    const int64_t all_rows = sage::scale_rows(groups, all.x.view.total_tokens, all.batch());
    for (size_t b = 0; b < lengths.size(); ++b) {
      Problem one = all;
      const int64_t start = all.cu[b], length = lengths[b], stride = all.x.view.token_stride;
      one.cu = {0, lengths[b]};
      one.x.view.total_tokens = length;
      one.x.bits.assign(all.x.bits.begin() + start * stride,
                        all.x.bits.begin() + (start + length) * stride);
      const auto first = static_cast<std::ptrdiff_t>(b * 128 * kHeads);
      one.offset.assign(all.offset.begin() + first, all.offset.begin() + first + 128 * kHeads);
      const Codes alone = run(one);
      const auto from = together.codes.begin() + start * kHeads * 128;
      EXPECT_TRUE(std::equal(alone.codes.begin(), alone.codes.end(), from));
      const int64_t one_rows = sage::scale_rows(groups, length, 1);
      int different = 0;
      for (int h = 0; h < kHeads; ++h) {
        for (int64_t t = 0; t < length; ++t) {
          const auto a = static_cast<size_t>(h * one_rows + sage::scale_row(groups, 0, 0, t));
          const auto sequence = static_cast<int64_t>(b);
          const auto in_batch =
              static_cast<size_t>(h * all_rows + sage::scale_row(groups, start, sequence, t));
          different += !same_bits(alone.scales[a], together.scales[in_batch]);
        }
      }
      EXPECT_EQ(different, 0);
    }
  }
}

TEST_F(QuantizeInt8, NonFiniteInputShowsInItsGroupOnly) {
  for (const float intruder : {NAN, INFINITY, -INFINITY}) {
    for (const Rotate rotate : {Rotate::kNone, Rotate::kHadamard}) {
      Problem p = make_problem(DType::kBf16, 64, {40, 40}, 0, 0);
      p.rotate = rotate;
      p.x.at(45, 1, 7) = encode(DType::kBf16, intruder);  // sequence 1, token 5: group 5
      const Codes got = run(p);
      const int64_t rows = sage::scale_rows(p.groups, p.x.view.total_tokens, 2);
      for (int h = 0; h < kHeads; ++h) {
        for (int64_t t = 0; t < 80; ++t) {
          const int64_t row = sage::scale_row(p.groups, t / 40 * 40, t / 40, t % 40);
          const bool hit = h == 1 && t >= 40 && t < 72 && t % 8 == 5;
          EXPECT_EQ(std::isfinite(got.scales[static_cast<size_t>(h * rows + row)]), !hit) << t;
        }
      }
    }
  }
}

TEST_F(QuantizeInt8, ZerosGiveTheSmallestScale) {
  Problem p = make_problem(DType::kFp16, 46, {9}, 0, 0);
  for (uint16_t& bits : p.x.bits) bits = 0;
  check(p, run(p));
}

TEST_F(QuantizeInt8, SeventyThousandSequencesOfOneToken) {
  Problem p = make_problem(DType::kBf16, 64, std::vector<int32_t>(70000, 1), 0, 0);
  const Codes got = run(p);
  const int64_t rows = sage::scale_rows(p.groups, p.x.view.total_tokens, p.batch());
  int bad = 0;
  for (int b = 0; b < p.batch(); ++b) {
    for (int h = 0; h < kHeads; ++h) {
      const float scale =
          got.scales[static_cast<size_t>(h * rows + sage::scale_row(p.groups, b, b, 0))];
      for (int c = 0; c < 64; ++c) {
        const float code = got.codes[static_cast<size_t>((b * kHeads + h) * 64 + c)];
        bad += code != std::nearbyint(p.x.value(b, h, c) / scale);
      }
    }
  }
  EXPECT_EQ(bad, 0);
}

}  // namespace
