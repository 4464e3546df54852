#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/tensor.h"

namespace sagebench {
namespace {

// Every finite code decodes to a value that encodes back to it.
TEST(DType, EveryCodeRoundTrips) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const auto bits = static_cast<uint16_t>(b);
    if (const float f = float_from_fp16(bits); !std::isnan(f)) {
      EXPECT_EQ(fp16_from_float(f), bits);
    }
    if (const float f = float_from_bf16(bits); !std::isnan(f)) {
      EXPECT_EQ(bf16_from_float(f), bits);
    }
  }
  for (int b = 0; b < 256; ++b) {
    const auto bits = static_cast<uint8_t>(b);
    if (const float f = float_from_e4m3(bits); !std::isnan(f)) {
      EXPECT_EQ(e4m3_from_float(f), bits);
    }
  }
}

TEST(DType, TiesGoToEven) {
  EXPECT_EQ(bf16_from_float(1.0f + 0x1p-8f), bf16_from_float(1.0f));
  EXPECT_EQ(bf16_from_float(1.0f + 3 * 0x1p-8f), bf16_from_float(1.0f + 4 * 0x1p-8f));
  EXPECT_EQ(fp16_from_float(1.0f + 0x1p-11f), fp16_from_float(1.0f));
  EXPECT_EQ(e4m3_from_float(1.0f + 0x1p-4f), e4m3_from_float(1.0f));
  EXPECT_EQ(e4m3_from_float(0x1p-10f), 0);                    // half of the smallest subnormal
  EXPECT_EQ(e4m3_from_float(3 * 0x1p-10f), 2);                // 1.5 steps round to 2
  EXPECT_EQ(e4m3_from_float(15.6f), e4m3_from_float(16.0f));  // carries into the exponent
}

TEST(DType, OverflowAndNaN) {
  EXPECT_EQ(float_from_e4m3(e4m3_from_float(1e9f)), 448.0f);
  EXPECT_EQ(float_from_e4m3(e4m3_from_float(-1e9f)), -448.0f);
  EXPECT_TRUE(std::isnan(float_from_e4m3(e4m3_from_float(NAN))));
  EXPECT_TRUE(std::isinf(float_from_fp16(fp16_from_float(65520.0f))));
  EXPECT_EQ(float_from_fp16(fp16_from_float(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(float_from_bf16(bf16_from_float(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(NAN))));
}

TEST(DType, UlpIsTheDistanceToTheNextCode) {
  EXPECT_EQ(ulp_at(DType::kBf16, 1.5), 0x1p-7);
  EXPECT_EQ(ulp_at(DType::kFp16, 0.0), 0x1p-24);
  EXPECT_EQ(ulp_at(DType::kFp8E4m3, 300.0), 32.0);
}

TEST(Tensor, ViewReadsThroughStrides) {
  Tensor t(DType::kFp16, {3, 10});
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, static_cast<float>(i));
  const TensorView v{&t, 2, 10, 4, 3, 2, 4};
  EXPECT_EQ(v.get(2, 1, 3), 29.0f);
  float row[4];
  v.read_row(1, 1, row);
  EXPECT_EQ(row[0], 16.0f);
  EXPECT_EQ(row[3], 19.0f);
}

TEST(ParallelFor, VisitsEachIndexOnceAndRethrows) {
  std::vector<std::atomic<int>> seen(1000);
  parallel_for(1000, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
  for (const auto& s : seen) EXPECT_EQ(s, 1);
  EXPECT_THROW(parallel_for(10,
                            [](int64_t i) {
                              if (i == 7) throw std::runtime_error("7");
                            }),
               std::runtime_error);
  parallel_for(0, [](int64_t) { FAIL(); });
}

TEST(Memory, WhatIsLeftIsLessThanTheMachineHas) {
  const std::optional<int64_t> left = available_memory();
  ASSERT_TRUE(left);
  EXPECT_GT(*left, int64_t{1} << 20);
  EXPECT_LT(*left, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

TEST(Memory, SizesAreReadable) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1023), "1023 bytes");
  EXPECT_EQ(size_text(1536), "1.50 KiB");
  EXPECT_EQ(size_text(int64_t{5} << 30), "5.00 GiB");
  EXPECT_EQ(size_text(int64_t{1} << 62), "4096.00 PiB");
}

}  // namespace
}  // namespace sagebench
