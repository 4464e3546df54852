#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

TEST(Visibility, ClosedFormsMatchCounting) {
  for (int64_t q = 0; q <= 9; ++q)
    for (int64_t kv = 0; kv <= 9; ++kv) {
      std::map<sage::Mask, int64_t> pairs;
      for (int64_t row = 0; row < q; ++row) {
        std::map<sage::Mask, int64_t> keys;
        for (int64_t j = 0; j < kv; ++j) {
          keys[sage::Mask::kFull] += 1;
          keys[sage::Mask::kCausalTopLeft] += j <= row;
          keys[sage::Mask::kCausalBottomRight] += kv - 1 - j >= q - 1 - row;
        }
        for (const auto mask :
             {sage::Mask::kFull, sage::Mask::kCausalTopLeft, sage::Mask::kCausalBottomRight}) {
          EXPECT_EQ(visible_keys(mask, q, kv, row), keys[mask]) << q << " " << kv << " " << row;
          pairs[mask] += keys[mask];
        }
      }
      for (const auto mask :
           {sage::Mask::kFull, sage::Mask::kCausalTopLeft, sage::Mask::kCausalBottomRight})
        EXPECT_EQ(visible_pairs(mask, q, kv), pairs[mask]) << q << " " << kv;
    }
  EXPECT_EQ(visible_pairs(sage::Mask::kCausalBottomRight, 1 << 20, 1 << 20),
            (int64_t{1} << 19) * ((1 << 20) + 1));
}

using Key = std::tuple<int32_t, int32_t, int64_t>;
Key key(const QueryRow& r) {
  return {r.sequence, r.head, r.token};
}

void expect_well_formed(const Case& c, const RowSample& sample) {
  for (size_t i = 0; i < sample.rows.size(); ++i) {
    const QueryRow& r = sample.rows[i];
    ASSERT_GE(r.token, 0);
    ASSERT_LT(r.token, c.batch.qo_len[static_cast<size_t>(r.sequence)]);
    ASSERT_LT(r.head, c.model.num_qo_heads);
    if (i > 0) {
      ASSERT_LT(key(sample.rows[i - 1]), key(r));
    }
  }
}

// The rows of each (sequence, head).
std::map<std::pair<int, int>, std::set<int64_t>> by_pair(const RowSample& sample) {
  std::map<std::pair<int, int>, std::set<int64_t>> pairs;
  for (const QueryRow& r : sample.rows) pairs[{r.sequence, r.head}].insert(r.token);
  return pairs;
}

TEST(SampleRows, SmallCasesAreChecked) {
  Case c = make_case({4, 2, 64, 64}, {7, 0, 130}, {7, 5, 130});
  const RowSample sample = sample_rows(c, {});
  expect_well_formed(c, sample);
  EXPECT_EQ(sample.total, 4 * 137);
  EXPECT_TRUE(sample.complete());
}

TEST(SampleRows, TheSettingOverrulesTheCost) {
  Case c = make_case({4, 2, 64, 64}, {500}, {500});
  c.validate.rows = Rows::kOff;
  EXPECT_TRUE(sample_rows(c, {}).rows.empty());
  EXPECT_EQ(sample_rows(c, {}).total, 2000);
  c.validate.rows = Rows::kSampled;
  EXPECT_FALSE(sample_rows(c, {}).complete());
  EXPECT_GE(sample_rows(c, {}).rows.size(), 4u * 8);
  c = make_case({32, 8, 128, 128}, {4096}, {4096});
  EXPECT_FALSE(sample_rows(c, {}).complete());
  c.validate.rows = Rows::kFull;
  EXPECT_TRUE(sample_rows(c, {}).complete());
  c.op = OpKind::kKvCacheWrite;
  EXPECT_EQ(sample_rows(c, {}).total, 0);
}

TEST(SampleRows, EveryHeadHasItsEndsAndTheEdgesAreVisited) {
  Case c = make_case({32, 8, 128, 128}, {4000, 4001}, {4000, 4001});
  c.op = OpKind::kPrefill;
  c.causal = true;
  c.cache.page_size = 24;
  const sage::AttentionLayout layout = make_kernel(c.model).layout;  // tiles of 128 x 64
  const RowSample sample = sample_rows(c, layout);
  expect_well_formed(c, sample);
  EXPECT_FALSE(sample.complete());
  const auto pairs = by_pair(sample);
  EXPECT_EQ(pairs.size(), 64u);
  std::set<int64_t> tile_q, tile_k, page;  // rows relative to the nearest edge
  for (const auto& [pair, rows] : pairs) {
    EXPECT_TRUE(rows.count(0));
    EXPECT_TRUE(rows.count(c.batch.qo_len[static_cast<size_t>(pair.first)] - 1));
    EXPECT_GE(rows.size(), 10u);
    for (const int64_t r : rows) {
      tile_q.insert((r + 64) % 128 - 64);
      tile_k.insert((r + 32) % 64 - 32);
      page.insert((r + 12) % 24 - 12);
    }
  }
  for (const auto* edges : {&tile_q, &tile_k, &page})
    for (const int64_t distance : {-1, 0, 1}) EXPECT_TRUE(edges->count(distance));
}

TEST(SampleRows, RowsAroundTheMaskEdgeAreVisited) {
  for (const bool bottom_right : {true, false}) {
    Case c = make_case({32, 8, 128, 128}, {8000}, {3000});
    c.causal = true;
    c.bottom_right = bottom_right;
    std::set<int64_t> tokens;
    for (const QueryRow& r : sample_rows(c, {}).rows) tokens.insert(r.token);
    const int64_t edge = bottom_right ? 5000 : 2999;
    EXPECT_TRUE(tokens.count(edge) && tokens.count(edge - 1));
  }
}

TEST(SampleRows, SeededAndDeterministic) {
  Case c = make_case({32, 8, 128, 128}, {6000}, {6000});
  const auto keys = [&c] {
    std::vector<Key> out;
    for (const QueryRow& r : sample_rows(c, {}).rows) out.push_back(key(r));
    return out;
  };
  const auto first = keys();
  EXPECT_EQ(first, keys());
  c.seed += 1;
  EXPECT_NE(first, keys());
}

TEST(SampleRows, LongCasesStayWithinTheBudget) {
  Case c = make_case({32, 8, 128, 128}, {131072}, {131072});
  const RowSample sample = sample_rows(c, {});
  EXPECT_EQ(by_pair(sample).size(), 32u);  // no head is left out
  EXPECT_GE(sample.rows.size(), 2u * 32);
  EXPECT_LE(sample.rows.size(), 8u * 32);
}

TEST(SampleRows, TooManyPairsStillCoverEverySequenceAndHead) {
  Case c =
      make_case({32, 8, 128, 128}, std::vector<int64_t>(70000, 1), std::vector<int64_t>(70000, 1));
  const RowSample sample = sample_rows(c, {});
  expect_well_formed(c, sample);
  EXPECT_EQ(sample.total, 32 * 70000);
  EXPECT_LT(sample.rows.size(), 200000u);
  std::set<int32_t> sequences, heads;
  for (const QueryRow& r : sample.rows) {
    sequences.insert(r.sequence);
    heads.insert(r.head);
  }
  EXPECT_EQ(sequences.size(), 70000u);
  EXPECT_EQ(heads.size(), 32u);
}

TEST(SampleRows, FewerSequencesThanHeadsStillCoverBoth) {
  Case c = make_case({128, 8, 128, 128}, {0, 1 << 20, 3, 1 << 20}, {0, 1 << 20, 3, 1 << 20});
  const auto pairs = by_pair(sample_rows(c, {}));
  std::set<int> sequences, heads;
  for (const auto& [pair, rows] : pairs) {
    sequences.insert(pair.first);
    heads.insert(pair.second);
    EXPECT_TRUE(rows.count(c.batch.qo_len[static_cast<size_t>(pair.first)] - 1));
  }
  EXPECT_EQ(sequences, (std::set{1, 2, 3}));
  EXPECT_EQ(heads.size(), 128u);
}

TEST(SampleRows, NoRowsAtAll) {
  Case c = make_case({4, 2, 64, 64}, {0, 0}, {5, 0});
  c.validate.rows = Rows::kSampled;
  EXPECT_TRUE(sample_rows(c, {}).complete());
  c = make_case({4, 2, 64, 64}, {}, {});
  c.validate.rows = Rows::kSampled;
  EXPECT_TRUE(sample_rows(c, {}).rows.empty());
}

}  // namespace
}  // namespace sagebench
