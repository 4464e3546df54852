#include "ops/stages.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "core/error.h"
#include "support/make_case.h"

namespace sagebench {
namespace {

using namespace test;  // NOLINT: the helpers of this directory

TEST(Stages, NamesAreInPipelineOrder) {
  std::vector<std::string> names;
  for (const Stage stage : {Stage::kRope, Stage::kCache, Stage::kOffset, Stage::kQkCodes,
                            Stage::kVCodes, Stage::kO, Stage::kLse})
    names.push_back(name_of(stage));
  EXPECT_EQ(names, (std::vector<std::string>{"rope", "cache", "offset", "qk_codes", "v_codes", "o",
                                             "lse"}));
}

// Storage written the way layout.h says, one key at a time, everything else 0x55.
TEST(UnpackVCodes, Fp8TilesBecomeTokens) {
  const Case c = make_case({2, 2, 64, 64}, {1, 1, 1}, {70, 0, 17});
  sage::AttentionLayout layout = make_kernel(c.model).layout;
  for (size_t p = 0; p < layout.v_key_order.size(); ++p)
    layout.v_key_order[p] = static_cast<uint8_t>(p * 5 % 16);
  const Tensor cu = cu_seqlens_of(c.batch.kv_len);
  const int64_t tile = layout.v_tile_keys, heads = 2, dim = 64;
  std::vector<std::byte> storage(
      static_cast<size_t>(sage::block_count(87, 3, 64) * heads * dim * tile), std::byte{0x55});
  const auto code_of = [](int64_t row, int64_t h, int64_t d) {
    return static_cast<uint8_t>(row * 31 + h * 7 + d);
  };
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t position = 0; position < 128; ++position) {
      const int64_t start = cu.as<int32_t>()[b], run = position % 16;
      const int64_t key = position - run + layout.v_key_order[static_cast<size_t>(run)];
      if (key >= c.batch.kv_len[static_cast<size_t>(b)]) continue;
      const int64_t at_tile = sage::first_block(start, b, 64) + position / tile;
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < dim; ++d)
          storage[static_cast<size_t>(((at_tile * heads + h) * dim + d) * tile + position % tile)] =
              std::byte{code_of(start + key, h, d)};
    }
  const Tensor codes = unpack_v_codes(c, layout, cu, storage);
  ASSERT_EQ(codes.shape, (std::vector<int64_t>{87, 2, 64}));
  ASSERT_EQ(codes.dtype, DType::kFp8E4m3);
  for (int64_t t = 0; t < 87; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t d = 0; d < dim; ++d)
        ASSERT_EQ(codes.as<uint8_t>()[(t * heads + h) * dim + d], code_of(t, h, d));
}

TEST(UnpackVCodes, Fp16RowsAreTokensAlready) {
  const Case c = make_case({2, 1, 64, 64}, {1}, {3});
  const sage::AttentionLayout layout = make_kernel(c.model, sage::PvType::kFp16).layout;
  std::vector<std::byte> storage(3 * 64 * 2);
  for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<std::byte>(i);
  const Tensor codes = unpack_v_codes(c, layout, cu_seqlens_of({3}), storage);
  EXPECT_EQ(codes.dtype, DType::kFp16);
  EXPECT_EQ(codes.bytes, storage);
}

TEST(UnpackVCodes, TooLittleStorageIsAnError) {
  const Case c = make_case({2, 1, 64, 64}, {1}, {65});
  const sage::AttentionLayout layout = make_kernel(c.model).layout;
  const std::vector<std::byte> storage(2 * 64 * 64 - 1);
  EXPECT_THROW(unpack_v_codes(c, layout, cu_seqlens_of({65}), storage), Error);
}

}  // namespace
}  // namespace sagebench
