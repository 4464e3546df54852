// Exact counts by hand, and the overlay of a case's choices on a kernel's defaults.
#include <gtest/gtest.h>

#include "core/hash.h"
#include "ops/host_bytes.h"
#include "ops/op.h"

namespace sagebench {
namespace {

Case small_case(OpKind op) {
  Case c;
  c.op = op;
  c.model = {4, 2, 64, 64};
  c.batch.qo_len = {3, 0, 2};
  c.batch.kv_len = {3, 0, 5};
  c.batch.kv_len_before = {0, 0, 0};
  c.rope.rotary_dim = 64;
  c.cache.page_size = 4;
  c.cache.num_pages = 4;
  return c;
}

const Kernel& supported_kernel(const std::vector<Kernel>& kernels) {
  for (const Kernel& k : kernels)
    if (k.unsupported.empty()) return k;
  throw std::logic_error("no kernel supports the case");
}

TEST(Ops, TableHasEachKindOnce) {
  ASSERT_EQ(ops().size(), 3u);
  for (const Op& op : ops()) EXPECT_EQ(&op_of(op.kind), &op);
}

TEST(Ops, AttentionCountsVisiblePairsOnly) {
  Case c = small_case(OpKind::kAttention);
  const Op& op = op_of(OpKind::kAttention);
  // 3*3 + 2*5 pairs, 4 heads, 2 * (64 + 64) flops a pair
  EXPECT_EQ(op.work(c, supported_kernel(op.kernels(c))).flops, 19.0 * 4 * 256);
  c.causal = true;  // bottom right: 1+2+3, then rows that see 4 and 5 keys
  EXPECT_EQ(op.work(c, supported_kernel(op.kernels(c))).flops, 15.0 * 4 * 256);
  c.bottom_right = false;  // top left: 1+2+3, then 1 and 2
  EXPECT_EQ(op.work(c, supported_kernel(op.kernels(c))).flops, 9.0 * 4 * 256);
}

TEST(Ops, AttentionBytesAreInputsOnceAndOutputsOnce) {
  Case c = small_case(OpKind::kAttention);
  const Op& op = op_of(OpKind::kAttention);
  // q and o: 5 tokens x 4 heads; k and v: 8 tokens x 2 heads; 64 channels of 2 bytes
  EXPECT_EQ(op.work(c, supported_kernel(op.kernels(c))).bytes, (2 * 5 * 4 + 2 * 8 * 2) * 128.0);
  const double without = op.work(c, supported_kernel(op.kernels(c))).bytes;
  c.return_lse = true;
  EXPECT_EQ(op.work(c, supported_kernel(op.kernels(c))).bytes, without + 4.0 * 5 * 4);
}

TEST(Ops, CacheWriteCountsTheWriteSet) {
  Case c = small_case(OpKind::kKvCacheWrite);
  const Op& op = op_of(OpKind::kKvCacheWrite);
  const Kernel kernel = op.kernels(c).at(0);
  // per token: q in and out 4 heads, k in, k out, v in 2 heads; k and v into the cache; table of 3
  // rows
  const double rows = 5 * (2 * 4 + 3 * 2) * 128.0, cache = 5 * 2 * 2 * 128.0, table = 3 * 64 * 4.0;
  EXPECT_EQ(op.work(c, kernel).bytes, rows + cache + table);
  c.cache.slots = {0, -1, 2, 3, -1};
  EXPECT_EQ(op.work(c, kernel).bytes, rows + cache * 3 / 5 + table);
}

TEST(Ops, HostBytesCountTensorsOfInputsOutputsAndReferences) {
  Case c = small_case(OpKind::kAttention);
  const Kernel kernel = supported_kernel(op_of(c.op).kernels(c));
  const double code = kernel.layout.pv == sage::PvType::kFp16 ? 2 : 1;
  const double q = 5 * 4 * 64, k = 8 * 2 * 64, v = k;  // elements; heads of 64 are not padded
  ASSERT_EQ(kernel.layout.head_dim, 64);
  EXPECT_EQ(host_bytes(c, kernel, 0), 2 * (q + k + v) + 2 * (q + k + v * code) + 2 * q);
  EXPECT_EQ(host_bytes(c, kernel, 10) - host_bytes(c, kernel, 0), 10 * 4 * 64 * 8);
  c.validate.rows = Rows::kOff;
  EXPECT_EQ(host_bytes(c, kernel, 0), 2 * (q + k + v) + (q + k + v * code) + 2 * q);

  Case w = small_case(OpKind::kKvCacheWrite);
  w.batch.kv_len = w.batch.qo_len;
  const double rotated = 5 * (4 + 2) * 64, cache = 4 * 4 * 2 * (64 + 64);
  EXPECT_EQ(host_bytes(w, op_of(w.op).kernels(w).at(0), 0),
            2 * (rotated + 5 * 2 * 64) + 2 * 2 * (rotated + cache) + 8 * rotated);
  w.cache.num_pages = INT32_MAX;
  w.cache.page_size = 65536;
  w.model = {1024, 1024, 1024, 1024};
  EXPECT_GT(host_bytes(w, op_of(w.op).kernels(w).at(0), 0), int64_t{1} << 60) << "no overflow";
}

TEST(Ops, ChoicesOverlayDefaultsAndRefusalsCarryAReason) {
  Case c = small_case(OpKind::kPrefill);
  c.sage.qk_granularity = sage::Granularity::kPerWarp;
  const Op& op = op_of(OpKind::kPrefill);
  EXPECT_EQ(supported_kernel(op.kernels(c)).settings.qk_granularity, sage::Granularity::kPerWarp);
  c.batch.kv_len_before = {0, 0, 7};
  for (const Kernel& k : op.kernels(c)) EXPECT_NE(k.unsupported, "") << k.name;
  c = small_case(OpKind::kAttention);
  c.model.head_dim = c.model.head_dim_v = 256;
  for (const Kernel& k : op_of(OpKind::kAttention).kernels(c))
    EXPECT_NE(k.unsupported, "") << k.name;
}

TEST(Hash, IsFnv1a) {
  EXPECT_EQ(hash_hex(""), "cbf29ce484222325");
  EXPECT_EQ(hash_hex("a"), "af63dc4c8601ec8c");
}

}  // namespace
}  // namespace sagebench
