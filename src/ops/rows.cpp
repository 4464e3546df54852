#include <algorithm>
#include <numeric>
#include <random>

#include "ops/op.h"
#include "ops/reference.h"

namespace sagebench {

int64_t visible_keys(sage::Mask mask, int64_t qo_len, int64_t kv_len, int64_t row) {
  if (mask == sage::Mask::kFull) return kv_len;
  const int64_t shift = mask == sage::Mask::kCausalBottomRight ? kv_len - qo_len : 0;
  return std::clamp<int64_t>(row + 1 + shift, 0, kv_len);
}

int64_t visible_pairs(sage::Mask mask, int64_t qo_len, int64_t kv_len) {
  if (mask == sage::Mask::kFull) return qo_len * kv_len;
  // a triangle over the shorter side, and for the rows or keys it leaves out all or nothing
  const int64_t side = std::min(qo_len, kv_len), triangle = side * (side + 1) / 2;
  if (mask == sage::Mask::kCausalBottomRight) return triangle + (kv_len - side) * qo_len;
  return triangle + (qo_len - side) * kv_len;
}

namespace {

// Exact and emulated attention together: 4.3e9 (128k keys) to 6.1e9 (a trace of short prompts) were
// measured on one core of a 2 GHz Xeon.
constexpr double kFlopsPerSecond = 5e9;
constexpr double kAllRowsSeconds = 1.0;  // of one core: below it every row is checked
constexpr double kSampleSeconds = 4.0;   // of one core, for a sample
constexpr int64_t kRowKeys = 32;         // fixed cost of a row, in keys
// A row of 128 channels takes 1 KiB in each of up to six results.
constexpr size_t kMaxSampledRows = size_t{1} << 17;

// Strata in the order in which rounds visit them: each round offers one row of one stratum to every
// (sequence, head), and draws anew for each, so that heads cover different edges.
enum class Stratum { kLast, kFirst, kMaskEdge, kTileQ, kTileK, kPage, kRandom };
constexpr int kEdgeRounds = 4;  // of kTileQ .. kRandom

struct Shape {  // one sequence
  int64_t qo_len, kv_len, kv_len_before;
};

class Sampler {
 public:
  Sampler(const Case& c, const sage::AttentionLayout& layout)
      : c_(c), layout_(layout), random_(c.seed) {}

  // A row of the stratum, or -1: there is none, or the draw missed.
  int64_t draw(Stratum stratum, const Shape& s) {
    const bool causal = c_.mask() != sage::Mask::kFull;
    switch (stratum) {
      case Stratum::kLast:
        return s.qo_len - 1;
      case Stratum::kFirst:
        return 0;
      case Stratum::kMaskEdge: {  // the first row that sees a key, or all keys; or the one before
        if (!causal || s.kv_len >= s.qo_len) return -1;
        const int64_t edge = c_.bottom_right ? s.qo_len - s.kv_len : s.kv_len - 1;
        return inside(edge - below(2), s);
      }
      case Stratum::kTileQ:
        return near_edge(layout_.tile_q, 0, s);
      case Stratum::kTileK:  // of the keys a row sees: without a mask all rows see the same
        return causal ? near_edge(layout_.tile_k, c_.bottom_right ? s.kv_len - s.qo_len : 0, s)
                      : -1;
      case Stratum::kPage:
        return op_of(c_.op).caches ? near_edge(c_.cache.page_size, s.kv_len_before, s) : -1;
      case Stratum::kRandom:
        return below(s.qo_len);
    }
    return -1;
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  template <class T>
  void shuffle(std::vector<T>& values) {  // std::shuffle differs between standard libraries
    for (auto i = static_cast<int64_t>(values.size()) - 1; i > 0; --i)
      std::swap(values[static_cast<size_t>(i)], values[static_cast<size_t>(below(i + 1))]);
  }

 private:
  static int64_t inside(int64_t row, const Shape& s) { return row < s.qo_len ? row : -1; }

  // A row r with r + shift at a multiple of `size`, or one beside it.
  int64_t near_edge(int64_t size, int64_t shift, const Shape& s) {
    const int64_t first = std::max<int64_t>(shift, 0) / size + 1, last = (s.qo_len + shift) / size;
    if (last < first) return -1;
    const int64_t edge = (first + below(last - first + 1)) * size - shift;
    return inside(std::max<int64_t>(edge - 1 + below(3), 0), s);
  }

  const Case& c_;
  const sage::AttentionLayout& layout_;
  std::mt19937_64 random_;
};

std::vector<QueryRow> all_rows(const Case& c) {
  std::vector<QueryRow> rows;
  for (int64_t b = 0; b < c.batch.size(); ++b)
    for (int h = 0; h < c.model.num_qo_heads; ++h)
      for (int64_t t = 0; t < c.batch.qo_len[static_cast<size_t>(b)]; ++t)
        rows.push_back({static_cast<int32_t>(b), h, t});
  return rows;
}

std::vector<QueryRow> stratified_rows(const Case& c, const sage::AttentionLayout& layout,
                                      double budget_keys) {
  const int64_t heads = c.model.num_qo_heads;
  std::vector<int64_t> live;  // sequences with rows
  for (int64_t b = 0; b < c.batch.size(); ++b)
    if (c.batch.qo_len[static_cast<size_t>(b)] > 0) live.push_back(b);
  const auto num_live = static_cast<int64_t>(live.size());
  const auto shape_of = [&](int64_t pair) {
    const auto b = static_cast<size_t>(live[static_cast<size_t>(pair / heads)]);
    return Shape{c.batch.qo_len[b], c.batch.kv_len[b],
                 b < c.batch.kv_len_before.size() ? c.batch.kv_len_before[b] : 0};
  };

  Sampler sampler(c, layout);
  std::vector<std::vector<int64_t>> taken(static_cast<size_t>(num_live * heads));
  size_t count = 0;
  const auto take = [&](int64_t pair, int64_t row, bool always) {
    std::vector<int64_t>& rows = taken[static_cast<size_t>(pair)];
    if (row < 0 || std::find(rows.begin(), rows.end(), row) != rows.end()) return;
    const Shape s = shape_of(pair);
    const auto cost =
        static_cast<double>(kRowKeys + visible_keys(c.mask(), s.qo_len, s.kv_len, row));
    if (!always && (cost > budget_keys || count >= kMaxSampledRows)) return;
    rows.push_back(row);
    budget_keys -= cost;
    ++count;
  };

  // Whatever it costs: every sequence's last row for some head, and every head for some sequence.
  const int64_t first_head = sampler.below(heads);
  if (num_live > 0)
    for (int64_t i = 0; i < std::max(num_live, heads); ++i) {
      const int64_t pair = i % num_live * heads + (i + first_head) % heads;
      take(pair, sampler.draw(Stratum::kLast, shape_of(pair)), true);
    }

  std::vector<Stratum> rounds{Stratum::kLast, Stratum::kFirst, Stratum::kMaskEdge,
                              Stratum::kMaskEdge};
  for (int i = 0; i < kEdgeRounds; ++i)
    rounds.insert(rounds.end(), {Stratum::kRandom, Stratum::kTileQ, Stratum::kTileK, Stratum::kPage,
                                 Stratum::kRandom});
  std::vector<int64_t> pairs(taken.size());
  std::iota(pairs.begin(), pairs.end(), 0);
  sampler.shuffle(pairs);
  for (const Stratum stratum : rounds) {
    if (budget_keys < kRowKeys || count >= kMaxSampledRows) break;
    for (const int64_t pair : pairs) take(pair, sampler.draw(stratum, shape_of(pair)), false);
  }

  std::vector<QueryRow> rows;
  rows.reserve(count);
  for (int64_t pair = 0; pair < num_live * heads; ++pair) {
    std::vector<int64_t>& tokens = taken[static_cast<size_t>(pair)];
    std::sort(tokens.begin(), tokens.end());
    for (const int64_t t : tokens)
      rows.push_back({static_cast<int32_t>(live[static_cast<size_t>(pair / heads)]),
                      static_cast<int32_t>(pair % heads), t});
  }
  return rows;
}

}  // namespace

RowSample sample_rows(const Case& c, const sage::AttentionLayout& layout) {
  if (!op_of(c.op).attends) return {};
  RowSample sample;
  double keys = 0;  // of all rows of one head
  for (size_t b = 0; b < c.batch.qo_len.size(); ++b) {
    sample.total += c.batch.qo_len[b] * c.model.num_qo_heads;
    keys += static_cast<double>(visible_pairs(c.mask(), c.batch.qo_len[b], c.batch.kv_len[b]) +
                                kRowKeys * c.batch.qo_len[b]);
  }
  const int references = std::max(1, int{c.validate.exact} + int{c.validate.emulated});
  const double flops_per_key = 2.0 * (c.model.head_dim + c.model.head_dim_v) * references;
  const double seconds = keys * c.model.num_qo_heads * flops_per_key / kFlopsPerSecond;

  if (c.validate.rows == Rows::kOff) return sample;
  if (c.validate.rows == Rows::kFull ||
      (c.validate.rows == Rows::kAuto && seconds <= kAllRowsSeconds))
    sample.rows = all_rows(c);
  else
    sample.rows = stratified_rows(c, layout, kSampleSeconds * kFlopsPerSecond / flops_per_key);
  return sample;
}

}  // namespace sagebench
