#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "inputs/inputs.h"
#include "inputs/pages.h"

namespace sagebench {
namespace {

Case cache_case(std::vector<int64_t> qo_len, std::vector<int64_t> before, int page_size) {
  Case c;
  c.op = OpKind::kKvCacheWrite;
  c.model = {2, 1, 8, 4};
  c.batch.qo_len = c.batch.kv_len = std::move(qo_len);
  c.batch.kv_len_before = std::move(before);
  c.rope.rotary_dim = 8;
  c.cache.page_size = page_size;
  c.cache.num_pages = needed_pages(c.batch, page_size) + 2;
  c.seed = 3;
  return c;
}

TEST(Pages, NeededCountsCachedAndNewTokens) {
  const Case c = cache_case({5, 0, 1, 3}, {0, 4, 4, 0}, 4);
  EXPECT_EQ(pages_per_sequence(c.batch, 4), (std::vector<int64_t>{2, 1, 2, 1}));
  EXPECT_EQ(needed_pages(c.batch, 4), 6);
  EXPECT_EQ(needed_pages(c.batch, 1), 5 + 4 + 5 + 3);
}

TEST(Pages, TableRowsAreDistinctPagesAndPadding) {
  for (const Allocation allocation :
       {Allocation::kShuffled, Allocation::kSequential, Allocation::kReverse}) {
    Case c = cache_case({5, 0, 1, 3}, {0, 4, 4, 0}, 4);
    c.cache.allocation = allocation;
    const PageMap map = make_page_map(c, c.cache.num_pages);
    EXPECT_TRUE(map.slot_mapping.empty());
    ASSERT_EQ(map.page_table.shape, (std::vector<int64_t>{4, 2}));
    const int32_t* table = map.page_table.as<int32_t>();
    std::set<int32_t> used;
    for (int i = 0; i < 8; ++i) {
      const bool padding = i == 3 || i == 7;
      if (padding) {
        EXPECT_EQ(table[i], -1);
      } else {
        EXPECT_TRUE(used.insert(table[i]).second) << "page " << table[i] << " twice";
      }
      EXPECT_LT(table[i], c.cache.num_pages);
    }
    EXPECT_GE(*used.begin(), 0);
    if (allocation == Allocation::kSequential) {
      EXPECT_EQ(table[6], 5);
    }
    if (allocation == Allocation::kReverse) {
      EXPECT_EQ(table[0], c.cache.num_pages - 1);
    }
  }
}

TEST(Pages, ShuffleFollowsTheSeed) {
  Case c = cache_case({4000}, {0}, 16);
  const std::vector<int64_t> a = page_order(c, 252);
  EXPECT_EQ(a, page_order(c, 252));
  EXPECT_FALSE(std::is_sorted(a.begin(), a.end()));
  c.seed = 4;
  EXPECT_NE(a, page_order(c, 252));
}

// The two ways to say where a token goes say the same.
TEST(Pages, SlotMappingIsTheTableSpelledOut) {
  for (const int page_size : {1, 3, 64}) {
    Case c = cache_case({65, 0, 1, 7}, {0, 5, 63, 130}, page_size);
    const PageMap by_table = make_page_map(c, c.cache.num_pages);
    c.cache.index = CacheIndex::kSlotMapping;
    const PageMap by_slot = make_page_map(c, c.cache.num_pages);
    EXPECT_TRUE(by_slot.page_table.empty());
    const int64_t columns = by_table.page_table.shape[1];
    int64_t token = 0;
    for (size_t b = 0; b < 4; ++b)
      for (int64_t t = 0; t < c.batch.qo_len[b]; ++t, ++token) {
        const int64_t position = c.batch.kv_len_before[b] + t;
        const int64_t page =
            by_table.page_table
                .as<int32_t>()[static_cast<int64_t>(b) * columns + position / page_size];
        EXPECT_EQ(by_slot.slot_mapping.as<int64_t>()[token],
                  page * page_size + position % page_size);
      }
    EXPECT_EQ(token, by_slot.slot_mapping.size());
  }
}

TEST(Pages, ExplicitPagesAndSlots) {
  Case c = cache_case({5, 3}, {0, 0}, 4);
  c.cache.page_ids = {4, -1, 2};
  const PageMap pages = make_page_map(c, 6);
  EXPECT_EQ(
      std::vector<int32_t>(pages.page_table.as<int32_t>(), pages.page_table.as<int32_t>() + 4),
      (std::vector<int32_t>{4, -1, 2, -1}));
  c.cache.index = CacheIndex::kSlotMapping;
  const PageMap skipped = make_page_map(c, 6);
  EXPECT_EQ(skipped.slot_mapping.as<int64_t>()[3], 19);
  EXPECT_EQ(skipped.slot_mapping.as<int64_t>()[4], -1) << "a skipped page";
  c.cache.page_ids.clear();
  c.cache.slots = {7, -1, 0, 1, 2, 3, 4, 5};
  EXPECT_EQ(make_page_map(c, 6).slot_mapping.as<int64_t>()[1], -1);
  c.cache.slots.pop_back();
  EXPECT_THROW(make_page_map(c, 6), std::logic_error);
  c.cache.slots.clear();
  EXPECT_THROW(make_page_map(c, 2), std::logic_error) << "three pages needed";
}

TEST(Pages, CacheShapeFollowsTheLayout) {
  Case c = cache_case({5, 3}, {0, 9}, 4);
  EXPECT_EQ(make_inputs(c).cache_shape, (std::vector<int64_t>{7, 1, 4, 8}));
  c.cache.kv_layout = KvLayout::kNhd;
  c.model.num_kv_heads = 2;
  const Inputs in = make_inputs(c);
  EXPECT_EQ(in.cache_shape, (std::vector<int64_t>{7, 4, 2, 8}));
  EXPECT_EQ(in.cos_sin.shape, (std::vector<int64_t>{12, 8})) << "largest position and one";
  EXPECT_EQ(in.kv_len_before.as<int32_t>()[1], 9);
}

}  // namespace
}  // namespace sagebench
