#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

// One row per position: cos and sin of (position + 1) * (i + 1) / 10.
Tensor rotation_table(int64_t positions, int rotary_dim, DType dtype = DType::kFp32) {
  Tensor table(dtype, {positions, rotary_dim});
  for (int64_t p = 0; p < positions; ++p)
    for (int i = 0; i < rotary_dim / 2; ++i) {
      const double angle = static_cast<double>(p + 1) * (i + 1) / 10;
      table.set(p * rotary_dim + i, static_cast<float>(std::cos(angle)));
      table.set(p * rotary_dim + rotary_dim / 2 + i, static_cast<float>(std::sin(angle)));
    }
  return table;
}

Case cache_case(const std::vector<int64_t>& lengths) {
  Case c = make_case({2, 2, 8, 4}, lengths, lengths);
  c.op = OpKind::kKvCacheWrite;
  return c;
}

// ---- RoPE --------------------------------------------------------------------------------------

TEST(Rope, ClosedFormOfEveryStyle) {
  struct Row {
    sage::RopeStyle style;
    int rotary_dim;
    std::vector<std::pair<int, int>> pairs;  // channels (x, y) of angle 1, 2, ...
  };
  const Row table[] = {
      {sage::RopeStyle::kNeox, 8, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {sage::RopeStyle::kNeox, 4, {{0, 2}, {1, 3}}},
      {sage::RopeStyle::kInterleaved, 8, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {sage::RopeStyle::kInterleaved, 6, {{0, 1}, {2, 3}, {4, 5}}},
      {sage::RopeStyle::kNone, 0, {}},
  };
  for (const Row& row : table) {
    Case c = cache_case({2, 3});
    c.batch.kv_len_before = {0, 5};
    c.rope.style = row.style;
    c.rope.rotary_dim = row.rotary_dim;
    Problem p(c, normal(1), normal(2), normal(3));
    p.in.cos_sin = rotation_table(8, row.rotary_dim);
    const RopeReference exact = exact_rope(c, p.in);
    StageOutputs out;
    emulate_rope(c, p.in, out);
    for (int64_t t = 0; t < 5; ++t)
      for (int h = 0; h < 2; ++h) {
        const double position = static_cast<double>(t < 2 ? t : 5 + t - 2);
        std::vector<double> expected(8), magnitude(8);
        for (int d = 0; d < 8; ++d) expected[static_cast<size_t>(d)] = p.in.k.get(t, h, d);
        for (size_t i = 0; i < row.pairs.size(); ++i) {
          const auto [x_at, y_at] = row.pairs[i];
          const double angle = (position + 1) * (static_cast<double>(i) + 1) / 10;
          const double x = p.in.k.get(t, h, x_at), y = p.in.k.get(t, h, y_at);
          expected[static_cast<size_t>(x_at)] = x * std::cos(angle) - y * std::sin(angle);
          expected[static_cast<size_t>(y_at)] = y * std::cos(angle) + x * std::sin(angle);
          magnitude[static_cast<size_t>(x_at)] = magnitude[static_cast<size_t>(y_at)] =
              std::fabs(x) + std::fabs(y);
        }
        for (size_t d = 0; d < 8; ++d) {
          const int64_t at = (t * 2 + h) * 8 + static_cast<int64_t>(d);
          const double value = exact.k[static_cast<size_t>(at)];
          EXPECT_NEAR(value, expected[d], 1e-7 * magnitude[d]);  // the table is fp32
          EXPECT_NEAR(out.k_rope.get(at), value,
                      std::max(0.5 * ulp_at(DType::kBf16, value), 0x1p-22 * magnitude[d]) * 1.001);
        }
      }
  }
}

TEST(Rope, QTurnsAsKDoes) {
  Case c = cache_case({4});
  Problem p(c, normal(1), normal(1), normal(3));  // q = k
  p.in.cos_sin = rotation_table(4, 8);
  StageOutputs out;
  emulate_rope(c, p.in, out);
  EXPECT_EQ(out.q_rope.bytes, out.k_rope.bytes);
  const RopeReference exact = exact_rope(c, p.in);
  EXPECT_EQ(exact.q, exact.k);
}

TEST(Rope, TableInTheInputsDtypeIsReadAsItIs) {
  Case c = cache_case({1});
  Problem p(c, constant(1), constant(1), constant(0));
  p.in.cos_sin = rotation_table(1, 8, DType::kBf16);
  const double cos = p.in.cos_sin.get(0), sin = p.in.cos_sin.get(4);
  const RopeReference exact = exact_rope(c, p.in);
  EXPECT_EQ(exact.k[0], cos - sin);
  EXPECT_EQ(exact.k[4], cos + sin);
}

TEST(Rope, ChannelsThatDoNotTurnKeepTheirBits) {
  for (const auto style : {sage::RopeStyle::kNone, sage::RopeStyle::kNeox}) {
    Case c = cache_case({3});
    c.rope.style = style;
    c.rope.rotary_dim = style == sage::RopeStyle::kNone ? 0 : 4;
    Problem p(c, normal(1), normal(2), normal(3));
    p.in.cos_sin = rotation_table(3, c.rope.rotary_dim);
    p.in.k_split.as<uint16_t>()[6] = 0x7fa5;  // a NaN with a payload
    StageOutputs out;
    emulate_rope(c, p.in, out);
    for (int64_t i = 0; i < out.k_rope.size(); ++i) {
      if (i % 8 >= c.rope.rotary_dim) {
        EXPECT_EQ(out.k_rope.as<uint16_t>()[i], p.in.k_split.as<uint16_t>()[i]);
      }
    }
  }
}

// ---- cache write -------------------------------------------------------------------------------

constexpr unsigned char kPoison = 0xA5;

// The slot of every token as a plain list; -1 is nowhere.
class CacheWrite : public testing::Test {
 protected:
  CacheWrite() : c(cache_case({3, 0, 6})) {
    c.batch.kv_len_before = {2, 0, 1};
    c.cache.page_size = 4;
    c.rope.style = sage::RopeStyle::kNone;
    c.rope.rotary_dim = 0;
  }

  // Every byte of both caches: the tokens' at their slots, poison everywhere else.
  void expect_slots(const std::vector<int64_t>& slots, const Tensor& page_table,
                    const Tensor& slot_mapping) {
    for (const KvLayout kv_layout : {KvLayout::kHnd, KvLayout::kNhd}) {
      c.cache.kv_layout = kv_layout;
      Problem p(c, normal(1), normal(2), normal(3));
      p.in.page_table = page_table;
      p.in.slot_mapping = slot_mapping;
      const bool hnd = kv_layout == KvLayout::kHnd;
      p.in.cache_shape =
          hnd ? std::vector<int64_t>{kPages, 2, 4, 8} : std::vector<int64_t>{kPages, 4, 2, 8};
      StageOutputs out;
      emulate_rope(c, p.in, out);
      emulate_cache_write(c, p.in, kPoison, out);
      expect_cache(out.key_cache, p.in.k, slots, hnd);
      expect_cache(out.value_cache, p.in.v, slots, hnd);
    }
  }

  static void expect_cache(const Tensor& cache, const TensorView& x,
                           const std::vector<int64_t>& slots, bool hnd) {
    std::vector<uint16_t> expected(static_cast<size_t>(kPages * 4 * 2 * x.dim), 0xA5A5);
    for (size_t t = 0; t < slots.size(); ++t)
      for (int64_t h = 0; slots[t] >= 0 && h < 2; ++h)
        for (int64_t d = 0; d < x.dim; ++d) {
          const int64_t page = slots[t] / 4, slot = slots[t] % 4;
          const int64_t row = hnd ? (page * 2 + h) * 4 + slot : (page * 4 + slot) * 2 + h;
          expected[static_cast<size_t>(row * x.dim + d)] = x.base->as<uint16_t>()[x.index(
              static_cast<int64_t>(t), static_cast<int>(h), static_cast<int>(d))];
        }
    ASSERT_EQ(cache.bytes.size(), expected.size() * 2);
    EXPECT_EQ(std::memcmp(cache.bytes.data(), expected.data(), cache.bytes.size()), 0);
  }

  static constexpr int64_t kPages = 6;
  Case c;
};

TEST_F(CacheWrite, PageTable) {
  Tensor table(DType::kInt32, {3, 2});
  const int32_t pages[] = {5, 0, -1, -1, 2, 4};
  std::copy(std::begin(pages), std::end(pages), table.as<int32_t>());
  // positions 2, 3, 4 of sequence 0 and 1 .. 6 of sequence 2
  expect_slots({22, 23, 0, 9, 10, 11, 16, 17, 18}, table, {});
}

TEST_F(CacheWrite, PagesOutsideTheCacheOrTheTableAreSkipped) {
  Tensor table(DType::kInt32, {3, 1});
  const int32_t pages[] = {-1, 0, 6};
  std::copy(std::begin(pages), std::end(pages), table.as<int32_t>());
  expect_slots(std::vector<int64_t>(9, -1), table, {});
  table.as<int32_t>()[2] = 3;  // one page: positions 4 .. 6 have no entry
  expect_slots({-1, -1, -1, 13, 14, 15, -1, -1, -1}, table, {});
}

TEST_F(CacheWrite, SlotMapping) {
  Tensor slots(DType::kInt64, {9});
  const int64_t list[] = {23, 0, -1, 7, 24, int64_t{1} << 40, -5, 1, 12};
  std::copy(std::begin(list), std::end(list), slots.as<int64_t>());
  expect_slots({23, 0, -1, 7, -1, -1, -1, 1, 12}, {}, slots);
}

TEST_F(CacheWrite, TokensPastTheRotationTableAreSkipped) {
  c.rope.style = sage::RopeStyle::kNeox;
  c.rope.rotary_dim = 8;
  Problem p(c, normal(1), normal(2), normal(3));
  p.in.cos_sin = rotation_table(5, 8);  // positions 5 and 6 of sequence 2 are past it
  p.in.cache_shape = {kPages, 2, 4, 8};
  p.in.slot_mapping = Tensor(DType::kInt64, {9});
  for (int64_t t = 0; t < 9; ++t) p.in.slot_mapping.as<int64_t>()[t] = t;
  StageOutputs out;
  emulate_rope(c, p.in, out);
  emulate_cache_write(c, p.in, kPoison, out);
  for (int64_t t = 0; t < 9; ++t) {
    const bool skipped = out.value_cache.as<uint16_t>()[(t / 4 * 8 + t % 4) * 4] == 0xA5A5;
    EXPECT_EQ(skipped, t >= 7) << t;
  }
}

TEST_F(CacheWrite, KeysAreWrittenRotated) {
  c.rope.style = sage::RopeStyle::kInterleaved;
  c.rope.rotary_dim = 8;
  c.cache.kv_layout = KvLayout::kNhd;
  Problem p(c, normal(1), normal(2), normal(3));
  p.in.cos_sin = rotation_table(7, 8);
  p.in.cache_shape = {kPages, 4, 2, 8};
  p.in.slot_mapping = Tensor(DType::kInt64, {9});
  for (int64_t t = 0; t < 9; ++t) p.in.slot_mapping.as<int64_t>()[t] = t;
  StageOutputs out;
  emulate_rope(c, p.in, out);
  emulate_cache_write(c, p.in, kPoison, out);
  EXPECT_EQ(
      std::memcmp(out.key_cache.bytes.data(), out.k_rope.bytes.data(), out.k_rope.bytes.size()), 0);
  EXPECT_NE(out.k_rope.bytes, p.in.k_split.bytes);
}

}  // namespace
}  // namespace sagebench
