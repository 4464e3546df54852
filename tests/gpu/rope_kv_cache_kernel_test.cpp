// RoPE and the paged cache write: every element of every buffer, those that must not change too.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "gpu/gpu_support.h"
#include "sage/kv_cache.h"

namespace {

using namespace gpu_test;
using sage::DType;
using sage::RopeStyle;

enum class CacheLayout { kHnd, kNhd, kPairedHnd };  // paired: one buffer [pages, 2, ...]
enum class Index { kPageTable, kSlotMapping, kNone };

struct Setup {
  DType dtype = DType::kBf16;
  RopeStyle style = RopeStyle::kNeox;
  bool fp32_table = true;
  int q_heads = 4, kv_heads = 2;
  int dim = 128, dim_v = 128, rotary = 128;
  int lead = 0;  // elements before q in a packed row: an odd one breaks the alignment
  CacheLayout layout = CacheLayout::kHnd;
  Index index = Index::kPageTable;
  int page_size = 16;
  bool in_place = false;
  bool want_q = true, want_k = true;
  std::vector<int32_t> lengths = odd_lengths();
  int max_position = 720;  // some tokens of the longest sequence are past it

  friend std::ostream& operator<<(std::ostream& out, const Setup& s) {
    return out << "dtype " << static_cast<int>(s.dtype) << " style " << static_cast<int>(s.style)
               << " fp32_table " << s.fp32_table << " dim " << s.dim << "/" << s.dim_v << " rotary "
               << s.rotary << " lead " << s.lead << " layout " << static_cast<int>(s.layout)
               << " index " << static_cast<int>(s.index) << " page " << s.page_size << " in place "
               << s.in_place;
  }
};

// An expected buffer: bits, and where a rotated value stands the exact value and its tolerance.
struct Image {
  std::vector<uint16_t> bits;
  std::vector<double> value, tolerance;  // tolerance < 0: the bits are exact
  explicit Image(std::vector<uint16_t> initial)
      : bits(std::move(initial)), value(bits.size()), tolerance(bits.size(), -1.0) {}
  Image(size_t count) : Image(std::vector<uint16_t>(count, poison_of<uint16_t>())) {}
};

void expect_image(const std::vector<uint16_t>& got, const Image& want, DType dtype,
                  const char* what) {
  ASSERT_EQ(got.size(), want.bits.size());
  size_t bad = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;) {
    const bool same = want.tolerance[i] < 0.0
                          ? got[i] == want.bits[i]
                          : std::abs(decode(dtype, got[i]) - want.value[i]) <= want.tolerance[i];
    if (!same) {
      ++bad;
      first = i;
    }
  }
  EXPECT_EQ(bad, 0u) << what << ", first at " << first << ": got bits " << got[first] << ", want "
                     << (want.tolerance[first] < 0.0 ? want.bits[first] : want.value[first]);
}

struct Batch {
  Setup s;
  std::vector<int32_t> cu, before, page_table;
  std::vector<int64_t> slots;
  std::vector<uint16_t> qkv, table;
  std::vector<float> table_fp32;
  int64_t rows = 0, stride = 0, k_at = 0, v_at = 0, pages = 0;
  int pages_per_sequence = 0;
  int64_t k_page = 0, k_slot = 0, k_head = 0, v_page = 0, v_slot = 0, v_head = 0, v_cache_at = 0;
  size_t k_cache_size = 0, v_cache_size = 0;  // paired: all in k_cache

  explicit Batch(const Setup& setup) : s(setup), cu(cumulative(setup.lengths)) {
    rows = cu.back() + 4;
    k_at = s.lead + int64_t{s.q_heads} * s.dim;
    v_at = k_at + int64_t{s.kv_heads} * s.dim;
    stride = v_at + int64_t{s.kv_heads} * s.dim_v;
    std::mt19937 generator(11);
    std::normal_distribution<float> normal;
    qkv.assign(static_cast<size_t>(rows * stride), kNanBits);
    for (int64_t i = 0; i < cu.back() * stride; ++i) {
      if (i % stride >= s.lead) {
        qkv[static_cast<size_t>(i)] = encode(s.dtype, normal(generator));
      }
    }
    qkv[static_cast<size_t>(v_at)] = 0x7fc1;  // a NaN with a payload, in v: copied as it is
    for (int32_t b = 0; b < static_cast<int32_t>(s.lengths.size()); ++b)
      before.push_back(b * 5 % 43);
    for (int64_t i = 0; i < int64_t{s.max_position} * s.rotary; ++i) {
      const int half = std::max(s.rotary / 2, 1);
      const auto pair = static_cast<double>(i % half);
      const double angle = static_cast<double>(i / s.rotary) * std::pow(1e4, -pair / half);
      const auto x = static_cast<float>(i % s.rotary < half ? std::cos(angle) : std::sin(angle));
      table.push_back(encode(s.dtype, x));
      table_fp32.push_back(s.fp32_table ? x : decode(s.dtype, table.back()));
    }
    make_pages(generator);
  }

  void make_pages(std::mt19937& generator) {
    const int32_t longest = *std::max_element(s.lengths.begin(), s.lengths.end()) + 43;
    pages_per_sequence = (longest + s.page_size - 1) / s.page_size - 1;  // the last page is missing
    pages_per_sequence = std::max(pages_per_sequence, 1);
    const auto entries = s.lengths.size() * static_cast<size_t>(pages_per_sequence);
    pages = static_cast<int64_t>(entries);
    for (size_t i = 0; i < entries; ++i) page_table.push_back(static_cast<int32_t>(i));
    std::shuffle(page_table.begin(), page_table.end(), generator);
    for (size_t i = 0; i < entries; i += 7) page_table[i] = -1;
    page_table[entries / 2] = static_cast<int32_t>(pages);  // outside the cache
    for (int64_t i = 0; i < rows; ++i) slots.push_back(i * 3 % (pages * s.page_size));
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    slots.resize(static_cast<size_t>(rows), -1);
    std::shuffle(slots.begin(), slots.end(), generator);
    slots[1] = pages * s.page_size;
    slots[2] = int64_t{1} << 40;
    slots[3] = -(int64_t{1} << 40);

    const int64_t page = s.page_size, heads = s.kv_heads;
    const bool nhd = s.layout == CacheLayout::kNhd;
    k_slot = nhd ? heads * s.dim : s.dim;
    k_head = nhd ? s.dim : page * s.dim;
    v_slot = nhd ? heads * s.dim_v : s.dim_v;
    v_head = nhd ? s.dim_v : page * s.dim_v;
    k_page = page * heads * s.dim;
    v_page = page * heads * s.dim_v;
    if (s.layout == CacheLayout::kPairedHnd) {
      v_cache_at = k_page;
      k_page = v_page = k_page + v_page;
    }
    k_cache_size = static_cast<size_t>(pages * k_page);
    v_cache_size = s.layout == CacheLayout::kPairedHnd ? 0 : static_cast<size_t>(pages * v_page);
  }

  // Page and slot of a token, or a negative page.
  std::pair<int64_t, int64_t> place(int64_t b, int64_t row, int64_t position) const {
    if (s.index == Index::kNone) return {-1, 0};
    if (s.index == Index::kSlotMapping) {
      const int64_t slot = slots[static_cast<size_t>(row)];
      if (slot < 0 || slot >= pages * s.page_size) return {-1, 0};
      return {slot / s.page_size, slot % s.page_size};
    }
    const int64_t i = position / s.page_size;
    if (i >= pages_per_sequence) return {-1, 0};
    const int64_t page = page_table[static_cast<size_t>(b * pages_per_sequence + i)];
    return {page < pages ? page : -1, position % s.page_size};
  }

  // Puts channel c of a rotated (or copied) head into `to` at `at`.
  void put(Image& to, int64_t at, int64_t head_at, int c, int64_t position) const {
    const auto bits = [&](int i) { return qkv[static_cast<size_t>(head_at + i)]; };
    const auto i = static_cast<size_t>(at);
    if (s.style == RopeStyle::kNone || c >= s.rotary) {
      to.bits[i] = bits(c);
      to.tolerance[i] = -1.0;
      return;
    }
    const bool neox = s.style == RopeStyle::kNeox;
    const int half = s.rotary / 2;
    const int pair = neox ? c % half : c / 2;
    const bool is_x = neox ? c < half : c % 2 == 0;
    const double x = decode(s.dtype, bits(neox ? pair : 2 * pair));
    const double y = decode(s.dtype, bits(neox ? pair + half : 2 * pair + 1));
    const float* row = table_fp32.data() + position * s.rotary;
    const double cos = row[pair], sin = row[half + pair];
    to.value[i] = is_x ? x * cos - y * sin : y * cos + x * sin;
    to.tolerance[i] =
        std::max(0.5 *
                     sagebench::ulp_at(s.dtype == DType::kBf16 ? sagebench::DType::kBf16
                                                               : sagebench::DType::kFp16,
                                       to.value[i]) *
                     (1 + 0x1p-10),
                 0.0) +
        0x1p-22 * (std::abs(x) + std::abs(y));
  }
};

void run_and_check(const Setup& setup) {
  SCOPED_TRACE(testing::Message() << setup);
  const Batch b(setup);
  const Setup& s = b.s;
  const DeviceArray<uint16_t> qkv(b.qkv), table(b.table);
  const DeviceArray<float> table_fp32(b.table_fp32);
  const DeviceArray<int32_t> cu(b.cu), before(b.before), page_table(b.page_table);
  const DeviceArray<int64_t> slots(b.slots);
  const size_t pad = static_cast<size_t>(s.lead % 2);  // outputs as misaligned as the inputs
  const DeviceArray<uint16_t> k_cache(b.k_cache_size + pad), v_cache(b.v_cache_size + pad);
  // q_out [rows, heads, dim], k_out [heads, rows, dim]
  const DeviceArray<uint16_t> q_out(static_cast<size_t>(b.rows * s.q_heads * s.dim));
  const DeviceArray<uint16_t> k_out(static_cast<size_t>(b.rows * s.kv_heads * s.dim));

  sage::RopeKvCacheWriteParams p;
  p.dtype = s.dtype;
  p.batch = static_cast<int>(s.lengths.size());
  p.num_qo_heads = s.q_heads;
  p.num_kv_heads = s.kv_heads;
  p.head_dim = s.dim;
  p.head_dim_v = s.dim_v;
  p.total_tokens = b.rows;
  p.q = qkv.data() + s.lead;
  p.k = qkv.data() + b.k_at;
  p.v = qkv.data() + b.v_at;
  p.q_token_stride = p.k_token_stride = p.v_token_stride = b.stride;
  p.q_head_stride = p.k_head_stride = s.dim;
  p.v_head_stride = s.dim_v;
  p.cu_seqlens = cu.data();
  p.kv_len_before = before.data();
  p.style = s.style;
  p.rotary_dim = s.rotary;
  p.cos_sin = s.fp32_table ? static_cast<const void*>(table_fp32.data()) : table.data();
  p.cos_sin_dtype = s.fp32_table ? DType::kFp32 : s.dtype;
  p.max_position = s.max_position;
  if (s.in_place) {
    p.q_out = qkv.data() + s.lead;
    p.k_out = qkv.data() + b.k_at;
    p.q_out_token_stride = p.k_out_token_stride = b.stride;
    p.q_out_head_stride = p.k_out_head_stride = s.dim;
  } else {
    p.q_out = q_out.data();
    p.k_out = k_out.data();
    p.q_out_token_stride = int64_t{s.q_heads} * s.dim;
    p.q_out_head_stride = s.dim;
    p.k_out_token_stride = s.dim;
    p.k_out_head_stride = b.rows * s.dim;
  }
  if (!s.want_q) p.q_out = nullptr;
  if (!s.want_k) p.k_out = nullptr;
  if (s.index != Index::kNone) {
    p.key_cache = k_cache.data() + pad;
    p.value_cache = b.v_cache_at > 0 ? k_cache.data() + pad + b.v_cache_at : v_cache.data() + pad;
    p.num_pages = b.pages;
    p.page_size = s.page_size;
    p.k_page_stride = b.k_page, p.k_slot_stride = b.k_slot, p.k_cache_head_stride = b.k_head;
    p.v_page_stride = b.v_page, p.v_slot_stride = b.v_slot, p.v_cache_head_stride = b.v_head;
    if (s.index == Index::kPageTable) {
      p.page_table = page_table.data();
      p.max_pages_per_sequence = b.pages_per_sequence;
    } else {
      p.slot_mapping = slots.data();
    }
  }
  const sage::Status status = sage::launch_rope_kv_cache_write(p, nullptr);
  ASSERT_TRUE(status.ok()) << status.reason;

  Image want_qkv(b.qkv), want_q(q_out.bytes() / 2), want_k(k_out.bytes() / 2);
  Image want_k_cache(b.k_cache_size + pad), want_v_cache(b.v_cache_size + pad);
  for (int64_t i = 0; i < p.batch; ++i) {
    const int64_t start = b.cu[static_cast<size_t>(i)], end = b.cu[static_cast<size_t>(i) + 1];
    for (int64_t row = start; row < end; ++row) {
      const int64_t position = row - start + b.before[static_cast<size_t>(i)];
      if (s.style != RopeStyle::kNone && position >= s.max_position) continue;
      const auto [page, slot] = b.place(i, row, position);
      for (int h = 0; h < s.q_heads + s.kv_heads; ++h) {
        const bool is_q = h < s.q_heads;
        const int64_t head = is_q ? h : h - s.q_heads;
        const int64_t in = row * b.stride + (is_q ? s.lead : b.k_at) + head * s.dim;
        Image& out = s.in_place ? want_qkv : is_q ? want_q : want_k;
        const int64_t out_at = s.in_place ? in
                               : is_q     ? (row * s.q_heads + head) * s.dim
                                          : (head * b.rows + row) * s.dim;
        for (int c = 0; c < s.dim; ++c) {
          if (is_q ? s.want_q : s.want_k) b.put(out, out_at + c, in, c, position);
          if (!is_q && page >= 0) {
            const int64_t at = page * b.k_page + slot * b.k_slot + head * b.k_head + c;
            b.put(want_k_cache, static_cast<int64_t>(pad) + at, in, c, position);
          }
        }
        for (int c = 0; !is_q && page >= 0 && c < s.dim_v; ++c) {
          const int64_t at = b.v_cache_at + page * b.v_page + slot * b.v_slot + head * b.v_head + c;
          Image& cache = b.v_cache_at > 0 ? want_k_cache : want_v_cache;
          cache.bits[pad + static_cast<size_t>(at)] =
              b.qkv[static_cast<size_t>(row * b.stride + b.v_at + head * s.dim_v + c)];
        }
      }
    }
  }
  expect_image(qkv.download(), want_qkv, s.dtype, "qkv");
  expect_image(q_out.download(), want_q, s.dtype, "q_out");
  expect_image(k_out.download(), want_k, s.dtype, "k_out");
  expect_image(k_cache.download(), want_k_cache, s.dtype, "key cache");
  expect_image(v_cache.download(), want_v_cache, s.dtype, "value cache");
}

class RopeKvCacheWrite : public GpuTest {};

TEST_F(RopeKvCacheWrite, EveryStyleTableDtypeAndDim) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kInterleaved}) {
      for (const bool fp32_table : {true, false}) {
        for (const auto& [dim, rotary] : {std::pair{128, 128},
                                          {64, 64},
                                          {80, 32},
                                          {80, 80},
                                          {46, 46},
                                          {46, 20},
                                          {111, 110},
                                          {128, 0},
                                          {24, 8}}) {
          for (const int lead : {0, 8, 3}) {
            run_and_check({.dtype = dtype,
                           .style = style,
                           .fp32_table = fp32_table,
                           .dim = dim,
                           .dim_v = dim,
                           .rotary = rotary,
                           .lead = lead,
                           .lengths = {0, 1, 7, 65, 0, 130},
                           .max_position = 140});
          }
        }
      }
    }
  }
}

TEST_F(RopeKvCacheWrite, EveryCacheLayoutIndexAndPageSize) {
  for (const CacheLayout layout : {CacheLayout::kHnd, CacheLayout::kNhd, CacheLayout::kPairedHnd}) {
    for (const Index index : {Index::kPageTable, Index::kSlotMapping, Index::kNone}) {
      for (const int page_size : {1, 3, 16, 64}) {
        for (const bool in_place : {false, true}) {
          run_and_check({.dim = 64,
                         .dim_v = 40,
                         .rotary = 64,
                         .layout = layout,
                         .index = index,
                         .page_size = page_size,
                         .in_place = in_place});
        }
      }
    }
  }
}

TEST_F(RopeKvCacheWrite, InPlaceInEveryStyle) {
  for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kInterleaved}) {
    for (const auto& [dim, rotary] : {std::pair{128, 128}, {80, 32}, {111, 110}, {46, 44}}) {
      run_and_check({.style = style, .dim = dim, .dim_v = 64, .rotary = rotary, .in_place = true});
    }
  }
}

TEST_F(RopeKvCacheWrite, OutputsThatAreNotWanted) {
  run_and_check({.want_q = false});
  run_and_check({.want_k = false});
  run_and_check({.want_q = false, .want_k = false});
  run_and_check({.q_heads = 0, .want_q = false});
  run_and_check({.q_heads = 71, .kv_heads = 1});
}

TEST_F(RopeKvCacheWrite, SeventyThousandSequencesOfOneToken) {
  run_and_check({.q_heads = 1,
                 .kv_heads = 1,
                 .dim = 8,
                 .dim_v = 8,
                 .rotary = 8,
                 .lengths = std::vector<int32_t>(70000, 1),
                 .max_position = 64});
}

TEST_F(RopeKvCacheWrite, OffsetsBeyondFourBillionElements) {
  constexpr int kDim = 64;
  constexpr int64_t kPageStride = (int64_t{1} << 31) + 64;  // page 2 starts past 2^32
  constexpr size_t kBytes = (2 * kPageStride + 2 * kDim) * 2;
  if (device_free_bytes() < kBytes + (size_t{1} << 30)) GTEST_SKIP() << "needs 10 GB of GPU memory";
  const std::vector<uint16_t> k(kDim, 0x1234), v(kDim, 0x4321);
  const DeviceArray<uint16_t> k_in(k), v_in(v), cache(kBytes / 2);
  const DeviceArray<int32_t> cu(std::vector<int32_t>{0, 1}), table(std::vector<int32_t>{2});
  sage::RopeKvCacheWriteParams p;
  p.batch = p.num_kv_heads = p.page_size = p.max_pages_per_sequence = 1;
  p.head_dim = p.head_dim_v = kDim;
  p.total_tokens = 1;
  p.k = k_in.data();
  p.v = v_in.data();
  p.cu_seqlens = cu.data();
  p.style = RopeStyle::kNone;
  p.key_cache = cache.data();
  p.value_cache = cache.data() + kDim;
  p.num_pages = 3;
  p.k_page_stride = p.v_page_stride = kPageStride;
  p.page_table = table.data();
  const sage::Status status = sage::launch_rope_kv_cache_write(p, nullptr);
  ASSERT_TRUE(status.ok()) << status.reason;
  synchronize();
  std::vector<uint16_t> got(2 * kDim), want(k);
  device_copy(got.data(), cache.data() + 2 * kPageStride, got.size() * 2);
  want.insert(want.end(), v.begin(), v.end());
  EXPECT_EQ(got, want);
}

}  // namespace
