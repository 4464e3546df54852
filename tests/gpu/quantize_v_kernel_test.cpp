// V codes in storage order against plain host arithmetic.
#include <algorithm>
#include <cmath>

#include "gpu/gpu_support.h"

namespace {

using namespace gpu_test;
using sage::AttentionLayout;
using sage::DType;
using sage::PvType;

constexpr int kHeads = 3;
using KeyOrder = std::array<uint8_t, AttentionLayout::kKeyOrder>;
constexpr KeyOrder kIdentity{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr KeyOrder kShuffled{0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
constexpr KeyOrder kScattered{5, 12, 3, 14, 0, 9, 7, 1, 15, 2, 11, 6, 8, 13, 4, 10};

struct Problem {
  PackedInput v;
  std::vector<int32_t> cu;
  AttentionLayout layout;
  std::vector<float> offset, scale;  // [batch, heads, head_dim_v]
  int batch() const { return static_cast<int>(cu.size()) - 1; }
  size_t at(int b, int h, int c) const {
    return static_cast<size_t>((b * kHeads + h) * layout.head_dim_v + c);
  }
};

Problem make_problem(DType dtype, int dim, PvType pv, const std::vector<int32_t>& lengths,
                     int64_t lead = 0, int64_t trail = 0) {
  const std::vector<int32_t> cu = cumulative(lengths);
  Problem p{.v = PackedInput(dtype, cu.back() + 3, cu.back(), kHeads, dim, lead, trail, 7),
            .cu = cu,
            .layout = {},
            .offset = {},
            .scale = {}};
  p.layout.head_dim_v = dim <= 64 ? 64 : 128;
  p.layout.pv = pv;
  p.layout.v_key_order = kShuffled;
  std::mt19937 generator(3);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (size_t i = 0; i < p.at(p.batch(), 0, 0); ++i) {
    p.offset.push_back(uniform(generator));
    // small enough that some codes saturate
    p.scale.push_back(std::exp2(uniform(generator)) * (pv == PvType::kFp16 ? 0.5f : 0.008f));
  }
  return p;
}

// o_offset: what is added back, where it is wanted.
std::vector<std::byte> run(const Problem& p, std::vector<float>* o_offset = nullptr) {
  const DeviceArray<uint16_t> v(p.v.bits);
  const DeviceArray<int32_t> cu(p.cu);
  const DeviceArray<float> offset(p.offset), scale(p.scale);
  const DeviceArray<std::byte> codes(
      sage::v_codes_bytes(p.layout, p.v.view.total_tokens, kHeads, p.batch()));
  sage::QuantizeVParams q;
  q.v = p.v.on_device(v);
  q.cu_seqlens = cu.data();
  q.batch = p.batch();
  q.layout = p.layout;
  q.offset = offset.data();
  q.scale = scale.data();
  q.codes = codes.data();
  const DeviceArray<float> added(p.offset.size());
  const DeviceArray<std::byte> workspace(sage::quantize_v_workspace_bytes(q));
  if (o_offset != nullptr) {
    q.o_offset = added.data();
    q.workspace = workspace.data();
    q.workspace_bytes = sage::quantize_v_workspace_bytes(q);
  }
  const sage::Status status = sage::launch_quantize_v(q, nullptr);
  EXPECT_TRUE(status.ok()) << status.reason;
  EXPECT_EQ(v.download(), p.v.bits) << "the input changed";
  if (o_offset != nullptr) *o_offset = added.download();
  return codes.download();
}

// The whole buffer, poison where nothing is owned.
std::vector<std::byte> expected(Problem& p) {
  const int dim = p.layout.head_dim_v, keys = p.layout.v_tile_keys;
  std::vector<std::byte> want(
      sage::v_codes_bytes(p.layout, p.v.view.total_tokens, kHeads, p.batch()), std::byte{kPoison});
  for (int b = 0; b < p.batch(); ++b) {
    const int64_t start = p.cu[static_cast<size_t>(b)];
    const int64_t length = p.cu[static_cast<size_t>(b) + 1] - start;
    const int64_t stored =
        p.layout.pv == PvType::kFp16 ? length : (length + keys - 1) / keys * keys;
    for (int h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < stored; ++i) {
        for (int c = 0; c < dim; ++c) {
          // position i of the storage holds this key
          const int64_t key = p.layout.pv == PvType::kFp16
                                  ? i
                                  : i - i % 16 + p.layout.v_key_order[static_cast<size_t>(i % 16)];
          float x = 0.0f;
          if (key < length && c < p.v.view.head_dim) {
            x = (p.v.value(start + key, h, c) - p.offset[p.at(b, h, c)]) / p.scale[p.at(b, h, c)];
          }
          if (p.layout.pv == PvType::kFp16) {
            const uint16_t code = sagebench::fp16_from_float(std::clamp(x, -65504.0f, 65504.0f));
            const auto at = static_cast<size_t>(((start + i) * kHeads + h) * dim + c);
            std::memcpy(&want[2 * at], &code, 2);
          } else {
            const int64_t tile = sage::first_block(start, b, keys) + i / keys;
            const auto at = static_cast<size_t>(((tile * kHeads + h) * dim + c) * keys + i % keys);
            want[at] = std::byte{sagebench::e4m3_from_float(x)};
          }
        }
      }
    }
  }
  return want;
}

class QuantizeV : public GpuTest {};

TEST_F(QuantizeV, EveryTypeDimTileOrderAndStride) {
  for (const PvType pv : {PvType::kFp8E4m3, PvType::kFp16}) {
    for (const DType dtype : {DType::kBf16, DType::kFp16}) {
      for (const int dim : {64, 128, 80, 46}) {
        for (const auto& [lead, trail] : {std::pair{0, 0}, {6 * dim, 0}, {5, 1}}) {
          Problem p = make_problem(dtype, dim, pv, odd_lengths(), lead, trail);
          for (const int keys : {64, 128, 48}) {
            for (const KeyOrder& order : {kIdentity, kShuffled, kScattered}) {
              SCOPED_TRACE(testing::Message()
                           << "pv " << static_cast<int>(pv) << " dtype " << static_cast<int>(dtype)
                           << " dim " << dim << " lead " << lead << " keys " << keys);
              p.layout.v_tile_keys = keys;
              p.layout.v_key_order = order;
              const std::vector<std::byte> got = run(p), want = expected(p);
              ASSERT_EQ(got.size(), want.size());
              const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin());
              EXPECT_EQ(g - got.begin(), static_cast<std::ptrdiff_t>(got.size()))
                  << "first difference";
              if (pv == PvType::kFp16) break;  // has no order
            }
          }
        }
      }
    }
  }
}

TEST_F(QuantizeV, CorrectionIsTheMeanOfWhatRoundingTook) {
  for (const int dim : {64, 128, 46}) {
    std::vector<int32_t> lengths = odd_lengths();
    lengths.push_back(5000);  // many tiles
    Problem p = make_problem(DType::kBf16, dim, PvType::kFp8E4m3, lengths);
    std::vector<float> got;
    run(p, &got);
    for (int b = 0; b < p.batch(); ++b) {
      const int start = p.cu[static_cast<size_t>(b)];
      const int length = p.cu[static_cast<size_t>(b) + 1] - start;
      for (int h = 0; h < kHeads; ++h) {
        for (int c = 0; c < p.layout.head_dim_v; ++c) {
          const size_t at = p.at(b, h, c);
          double lost = 0.0, size = 0.0;
          for (int i = 0; i < length && c < dim; ++i) {
            const float x = (p.v.value(start + i, h, c) - p.offset[at]) / p.scale[at];
            lost += double{x} - sagebench::float_from_e4m3(sagebench::e4m3_from_float(x));
            size += std::fabs(x);
          }
          const double mean = length > 0 ? p.scale[at] * lost / length : 0.0;
          const double play = length > 0 ? p.scale[at] * size / length : 0.0;
          ASSERT_NEAR(got[at], p.offset[at] + mean, 1e-6 * (std::fabs(p.offset[at]) + play))
              << "sequence " << b << " head " << h << " channel " << c;
        }
      }
    }
  }
}

TEST_F(QuantizeV, NanIsNotLaundered) {
  for (const PvType pv : {PvType::kFp8E4m3, PvType::kFp16}) {
    Problem p = make_problem(DType::kBf16, 64, pv, {1});
    p.v.at(0, 0, 3) = kNanBits;
    p.scale[p.at(0, 1, 4)] = NAN;
    p.offset[p.at(0, 2, 5)] = NAN;
    const std::vector<std::byte> got = run(p);
    for (int h = 0; h < kHeads; ++h) {
      for (int c = 0; c < 64; ++c) {
        bool nan = false;
        const auto at = static_cast<size_t>(h * 64 + c);
        if (pv == PvType::kFp16) {
          uint16_t bits = 0;
          std::memcpy(&bits, &got[2 * at], 2);
          nan = std::isnan(sagebench::float_from_fp16(bits));
        } else {
          const auto bits = static_cast<uint8_t>(got[at * 64]);
          nan = std::isnan(sagebench::float_from_e4m3(bits));
        }
        EXPECT_EQ(nan, c == 3 + h) << h << " " << c;
      }
    }
  }
}

TEST_F(QuantizeV, SeventyThousandSequencesOfOneToken) {
  for (const PvType pv : {PvType::kFp8E4m3, PvType::kFp16}) {
    Problem p = make_problem(DType::kFp16, 64, pv, std::vector<int32_t>(70000, 1));
    p.layout.v_tile_keys = 16;
    EXPECT_TRUE(run(p) == expected(p));
  }
}

}  // namespace
