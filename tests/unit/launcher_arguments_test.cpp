// Every launcher refuses bad arguments with a named status before anything is launched: no GPU
// needed, and the same with and without CUDA.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "sage/kv_cache.h"
#include "sage/quantize.h"

namespace {

using sage::DType;
using sage::StatusCode;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
alignas(16) char memory[64];  // never touched: launchers look at addresses only

template <class Params>
struct Row {
  const char* name;
  StatusCode code;
  void (*spoil)(Params& p);
};

template <class Params, size_t kCount>
void expect_refused(const Params& valid, sage::Status (*launch)(const Params&, sage::Stream),
                    const Row<Params> (&rows)[kCount]) {
  for (const Row<Params>& row : rows) {
    Params p = valid;
    row.spoil(p);
    const sage::Status status = launch(p, nullptr);
    EXPECT_EQ(status.code, row.code) << row.name << ": " << status.reason;
    EXPECT_STRNE(status.reason, "") << row.name;
  }
}

TEST(LauncherArguments, QuantizeInt8) {
  using Params = sage::QuantizeInt8Params;
  Params valid;
  valid.x = {memory, DType::kBf16, 8, 2, 64, 128, 64};
  valid.cu_seqlens = reinterpret_cast<const int32_t*>(memory);
  valid.batch = 1;
  valid.padded_head_dim = 64;
  valid.codes = reinterpret_cast<int8_t*>(memory);
  valid.scales = reinterpret_cast<float*>(memory);
  const Row<Params> rows[] = {
      {"no data", kInvalid, [](Params& p) { p.x.data = nullptr; }},
      {"no cu_seqlens", kInvalid, [](Params& p) { p.cu_seqlens = nullptr; }},
      {"no codes", kInvalid, [](Params& p) { p.codes = nullptr; }},
      {"no scales", kInvalid, [](Params& p) { p.scales = nullptr; }},
      {"batch", kInvalid, [](Params& p) { p.batch = -1; }},
      {"tokens", kInvalid, [](Params& p) { p.x.total_tokens = -1; }},
      {"2^40 tokens", kInvalid, [](Params& p) { p.x.total_tokens = int64_t{1} << 40; }},
      {"no heads", kInvalid, [](Params& p) { p.x.num_heads = 0; }},
      {"fp32", kInvalid, [](Params& p) { p.x.dtype = DType::kFp32; }},
      {"head_dim 0", kInvalid, [](Params& p) { p.x.head_dim = 0; }},
      {"head_dim above padded", kInvalid, [](Params& p) { p.x.head_dim = 65; }},
      {"stride", kInvalid, [](Params& p) { p.x.token_stride = -8; }},
      {"padded 256", StatusCode::kUnsupported, [](Params& p) { p.padded_head_dim = 256; }},
      {"block 48", StatusCode::kUnsupported, [](Params& p) { p.groups.block_tokens = 48; }},
      {"groups", kInvalid, [](Params& p) { p.groups.groups_per_block = 4; }},
      {"dot alone", kInvalid, [](Params& p) { p.dot = reinterpret_cast<float*>(memory); }},
      {"dot heads", kInvalid,
       [](Params& p) {
         p.dot = reinterpret_cast<float*>(memory);
         p.dot_offset = p.dot;
         p.dot_num_heads = 3;
       }},
      {"odd data", StatusCode::kMisaligned, [](Params& p) { p.x.data = memory + 1; }},
      {"odd codes", StatusCode::kMisaligned, [](Params& p) { ++p.codes; }},
      {"odd scales", StatusCode::kMisaligned,
       [](Params& p) { p.scales = reinterpret_cast<float*>(memory + 2); }},
      {"odd offset", StatusCode::kMisaligned,
       [](Params& p) { p.offset = reinterpret_cast<float*>(memory + 4); }},
  };
  expect_refused(valid, sage::launch_quantize_int8, rows);
}

TEST(LauncherArguments, ChannelStats) {
  using Params = sage::ChannelStatsParams;
  Params valid;
  valid.x = {memory, DType::kFp16, 1000, 2, 64, 128, 64};
  valid.cu_seqlens = reinterpret_cast<const int32_t*>(memory);
  valid.batch = 1;
  valid.padded_head_dim = 64;
  valid.offset = reinterpret_cast<float*>(memory);
  valid.scale = valid.offset;
  valid.workspace = memory;
  valid.workspace_bytes = sage::channel_stats_workspace_bytes(valid);
  EXPECT_EQ(valid.workspace_bytes, 7u * 2 * 64 * 3 * 4);
  const Row<Params> rows[] = {
      {"no data", kInvalid, [](Params& p) { p.x.data = nullptr; }},
      {"no cu_seqlens", kInvalid, [](Params& p) { p.cu_seqlens = nullptr; }},
      {"no offset", kInvalid, [](Params& p) { p.offset = nullptr; }},
      {"no workspace", kInvalid, [](Params& p) { p.workspace = nullptr; }},
      {"small workspace", StatusCode::kWorkspaceTooSmall, [](Params& p) { --p.workspace_bytes; }},
      {"code_max", kInvalid, [](Params& p) { p.v_code_max = 0.0f; }},
      {"code_max NaN", kInvalid, [](Params& p) { p.v_code_max = NAN; }},
      {"padded 96", StatusCode::kUnsupported, [](Params& p) { p.padded_head_dim = 96; }},
      {"head_dim", kInvalid, [](Params& p) { p.x.head_dim = 128; }},
      {"heads", kInvalid, [](Params& p) { p.x.num_heads = 65536; }},
      {"odd data", StatusCode::kMisaligned, [](Params& p) { p.x.data = memory + 1; }},
      {"odd workspace", StatusCode::kMisaligned, [](Params& p) { p.workspace = memory + 4; }},
      {"odd offset", StatusCode::kMisaligned,
       [](Params& p) { p.offset = reinterpret_cast<float*>(memory + 2); }},
  };
  expect_refused(valid, sage::launch_channel_stats, rows);
  valid.smooth = sage::Smooth::kSampled;
  valid.scale = nullptr;
  EXPECT_EQ(sage::channel_stats_workspace_bytes(valid), 0u);
}

TEST(LauncherArguments, QuantizeV) {
  using Params = sage::QuantizeVParams;
  Params valid;
  valid.v = {memory, DType::kFp16, 1000, 2, 64, 128, 64};
  valid.cu_seqlens = reinterpret_cast<const int32_t*>(memory);
  valid.batch = 3;
  valid.layout.head_dim_v = 64;
  for (uint8_t i = 0; i < 16; ++i) valid.layout.v_key_order[i] = i;
  valid.offset = reinterpret_cast<const float*>(memory);
  valid.scale = valid.offset;
  valid.codes = memory;
  const Row<Params> rows[] = {
      {"no data", kInvalid, [](Params& p) { p.v.data = nullptr; }},
      {"no offset", kInvalid, [](Params& p) { p.offset = nullptr; }},
      {"no scale", kInvalid, [](Params& p) { p.scale = nullptr; }},
      {"no codes", kInvalid, [](Params& p) { p.codes = nullptr; }},
      {"head_dim", kInvalid, [](Params& p) { p.v.head_dim = 65; }},
      {"padded", StatusCode::kUnsupported, [](Params& p) { p.layout.head_dim_v = 96; }},
      {"tile", StatusCode::kUnsupported, [](Params& p) { p.layout.v_tile_keys = 40; }},
      {"order", kInvalid, [](Params& p) { p.layout.v_key_order[0] = 1; }},
      {"order range", kInvalid, [](Params& p) { p.layout.v_key_order[0] = 16; }},
      {"odd codes", StatusCode::kMisaligned, [](Params& p) { p.codes = memory + 8; }},
  };
  expect_refused(valid, sage::launch_quantize_v, rows);
  EXPECT_EQ(sage::v_codes_bytes(valid.layout, 1000, 2, 3), (1000u / 64 + 3) * 2 * 64 * 64);
  valid.layout.pv = sage::PvType::kFp16;
  EXPECT_EQ(sage::v_codes_bytes(valid.layout, 1000, 2, 3), 1000u * 2 * 64 * 2);
}

TEST(LauncherArguments, RopeKvCacheWrite) {
  using Params = sage::RopeKvCacheWriteParams;
  Params valid;
  valid.batch = 1;
  valid.num_qo_heads = valid.num_kv_heads = 2;
  valid.head_dim = valid.head_dim_v = valid.rotary_dim = 64;
  valid.total_tokens = 8;
  valid.q = valid.k = valid.v = valid.cos_sin = memory;
  valid.q_token_stride = valid.k_token_stride = valid.v_token_stride = 384;
  valid.q_head_stride = valid.k_head_stride = valid.v_head_stride = 64;
  valid.cu_seqlens = reinterpret_cast<const int32_t*>(memory);
  valid.max_position = 10;
  valid.q_out = valid.k_out = memory;
  valid.q_out_token_stride = valid.k_out_token_stride = 384;
  valid.q_out_head_stride = valid.k_out_head_stride = 64;
  valid.key_cache = valid.value_cache = memory;
  valid.num_pages = 4;
  valid.page_size = 16;
  valid.k_page_stride = valid.v_page_stride = 2048;
  valid.k_slot_stride = valid.v_slot_stride = 64;
  valid.k_cache_head_stride = valid.v_cache_head_stride = 1024;
  valid.page_table = reinterpret_cast<const int32_t*>(memory);
  valid.max_pages_per_sequence = 2;
  static const auto* const slots = reinterpret_cast<const int64_t*>(memory);
  const Row<Params> rows[] = {
      {"fp32", kInvalid, [](Params& p) { p.dtype = DType::kFp32; }},
      {"batch", kInvalid, [](Params& p) { p.batch = -1; }},
      {"tokens", kInvalid, [](Params& p) { p.total_tokens = int64_t{1} << 40; }},
      {"q heads", kInvalid, [](Params& p) { p.num_qo_heads = -1; }},
      {"no kv heads", kInvalid, [](Params& p) { p.num_kv_heads = 0; }},
      {"head_dim", kInvalid, [](Params& p) { p.head_dim = 0; }},
      {"head_dim_v", kInvalid, [](Params& p) { p.head_dim_v = 0; }},
      {"odd rotary_dim", kInvalid, [](Params& p) { p.rotary_dim = 31; }},
      {"rotary_dim above head_dim", kInvalid, [](Params& p) { p.rotary_dim = 66; }},
      {"negative rotary_dim", kInvalid, [](Params& p) { p.rotary_dim = -2; }},
      {"no table", kInvalid, [](Params& p) { p.cos_sin = nullptr; }},
      {"table dtype", kInvalid, [](Params& p) { p.cos_sin_dtype = DType::kFp16; }},
      {"max_position", kInvalid, [](Params& p) { p.max_position = -1; }},
      {"no cu_seqlens", kInvalid, [](Params& p) { p.cu_seqlens = nullptr; }},
      {"no q", kInvalid, [](Params& p) { p.q = nullptr; }},
      {"no k", kInvalid, [](Params& p) { p.k = nullptr; }},
      {"no v", kInvalid, [](Params& p) { p.v = nullptr; }},
      {"one cache", kInvalid, [](Params& p) { p.value_cache = nullptr; }},
      {"page_size", kInvalid, [](Params& p) { p.page_size = 0; }},
      {"num_pages", kInvalid, [](Params& p) { p.num_pages = -1; }},
      {"2^33 slots", StatusCode::kUnsupported, [](Params& p) { p.num_pages = int64_t{1} << 29; }},
      {"no index", kInvalid, [](Params& p) { p.page_table = nullptr; }},
      {"both indices", kInvalid, [](Params& p) { p.slot_mapping = slots; }},
      {"table width", kInvalid, [](Params& p) { p.max_pages_per_sequence = 0; }},
      {"slot stride", kInvalid, [](Params& p) { p.k_slot_stride = 32; }},
      {"page stride", kInvalid, [](Params& p) { p.v_page_stride = -2048; }},
      {"q_out stride", kInvalid, [](Params& p) { p.q_out_head_stride = 0; }},
      {"in place, other strides", kInvalid, [](Params& p) { p.k_out_token_stride = 512; }},
      {"input stride", kInvalid, [](Params& p) { p.q_token_stride = -384; }},
      {"odd q", StatusCode::kMisaligned, [](Params& p) { p.q = memory + 1; }},
      {"odd cache", StatusCode::kMisaligned, [](Params& p) { p.key_cache = memory + 1; }},
      {"odd table", StatusCode::kMisaligned, [](Params& p) { p.cos_sin = memory + 2; }},
      {"nothing to write", kInvalid,
       [](Params& p) { p.q_out = p.k_out = p.key_cache = p.value_cache = nullptr; }},
  };
  expect_refused(valid, sage::launch_rope_kv_cache_write, rows);
  valid.total_tokens = 0;  // valid, and nothing to launch
  const StatusCode empty = sage::launch_rope_kv_cache_write(valid, nullptr).code;
  EXPECT_TRUE(empty == StatusCode::kOk || empty == StatusCode::kUnsupported);
}

}  // namespace
