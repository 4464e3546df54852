// Every launcher refuses bad arguments with a named status before anything is launched: no GPU
// needed, and the same with and without CUDA.
#include <cmath>
#include <cstdint>

#include "sage/kv_cache.h"
#include "sage/quantize.h"
#include "support/bad_arguments.h"

namespace {

using bad_arguments::address;
using bad_arguments::Change;
using bad_arguments::kLaunches;
using bad_arguments::set_member;
using bad_arguments::Subject;
using sage::DType;
using sage::StatusCode;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

// What is wrong with a packed tensor is wrong with it in every launcher.
template <class Params, sage::PackedTensor Params::*kTensor>
std::vector<Change<Params>> packed_changes() {
  using P = Params;
  return {{"tokens < 0", kInvalid, [](P& p) { (p.*kTensor).total_tokens = -1; }},
          {"2^31 tokens", kInvalid, [](P& p) { (p.*kTensor).total_tokens = int64_t{1} << 31; }},
          {"heads 0", kInvalid, [](P& p) { (p.*kTensor).num_heads = 0; }},
          {"heads 65536", kInvalid, [](P& p) { (p.*kTensor).num_heads = 65536; }},
          {"fp32", kInvalid, [](P& p) { (p.*kTensor).dtype = DType::kFp32; }},
          {"head_dim 0", kInvalid, [](P& p) { (p.*kTensor).head_dim = 0; }},
          {"head_dim above padded", kInvalid, [](P& p) { (p.*kTensor).head_dim = 65; }},
          {"head_dim 63", StatusCode::kOk, [](P& p) { (p.*kTensor).head_dim = 63; }},
          {"token stride < 0", kInvalid, [](P& p) { (p.*kTensor).token_stride = -8; }},
          {"head stride < 0", kInvalid, [](P& p) { (p.*kTensor).head_stride = -8; }},
          {"batch < 0", kInvalid, [](P& p) { p.batch = -1; }},
          {"no sequences", StatusCode::kOk, [](P& p) { p.batch = 0, p.cu_seqlens = nullptr; }}};
}

TEST(LauncherArguments, QuantizeInt8) {
  using P = sage::QuantizeInt8Params;
  P valid;
  valid.x = {address<char>(), DType::kBf16, 8, 2, 64, 128, 64};
  valid.cu_seqlens = address<int32_t>();
  valid.batch = 1;
  valid.padded_head_dim = 64;
  valid.codes = address<int8_t>();
  valid.scales = address<float>();
  valid.dot = address<float>();
  valid.dot_offset = address<float>();
  valid.dot_num_heads = 1;
  const Subject<P> subject = {
      valid, [](const P& p) { return sage::launch_quantize_int8(p, nullptr); }, kLaunches};
  subject.change(packed_changes<P, &P::x>());
  subject.change(
      {{"padded 256", kUnsupported, [](P& p) { p.padded_head_dim = 256; }},
       {"block 48", kUnsupported, [](P& p) { p.groups.block_tokens = 48; }},
       {"block 256", kUnsupported, [](P& p) { p.groups.block_tokens = 256; }},
       {"groups 4", kInvalid, [](P& p) { p.groups.groups_per_block = 4; }},
       {"unknown pattern", kInvalid,
        [](P& p) {
          p.groups.pattern = static_cast<sage::GroupPattern>(9);
          p.groups.groups_per_block = 0;
        }},
       {"unknown rotate", kInvalid, [](P& p) { p.rotate = static_cast<sage::Rotate>(2); }},
       {"2^31 blocks", kUnsupported,
        [](P& p) { p.batch = INT32_MAX, p.x.total_tokens = INT32_MAX; }},
       {"no dot", StatusCode::kOk, [](P& p) { p.dot = nullptr, p.dot_offset = nullptr; }},
       {"dot heads 0", kInvalid, [](P& p) { p.dot_num_heads = 0; }},
       {"dot heads 3", kInvalid, [](P& p) { p.dot_num_heads = 3; }}});
  subject.move({{"x", [](P& p, char* at) { p.x.data = at; }, 2, true},
                {"cu_seqlens", set_member<P, &P::cu_seqlens>, 4, true},
                {"codes", set_member<P, &P::codes>, 8, true},
                {"scales", set_member<P, &P::scales>, 4, true},
                {"offset", set_member<P, &P::offset>, 16, false},
                {"dot without dot_offset", set_member<P, &P::dot>, 4, true},
                {"dot_offset without dot", set_member<P, &P::dot_offset>, 16, true}});
}

TEST(LauncherArguments, ChannelStats) {
  using P = sage::ChannelStatsParams;
  P valid;
  valid.x = {address<char>(), DType::kFp16, 1000, 2, 64, 128, 64};
  valid.cu_seqlens = address<int32_t>();
  valid.batch = 1;
  valid.padded_head_dim = 64;
  valid.offset = valid.scale = address<float>();
  valid.workspace = address<char>();
  valid.workspace_bytes = sage::channel_stats_workspace_bytes(valid);
  EXPECT_EQ(valid.workspace_bytes, 7u * 2 * 64 * 3 * 4);
  const Subject<P> subject = {
      valid, [](const P& p) { return sage::launch_channel_stats(p, nullptr); }, kLaunches};
  subject.change(packed_changes<P, &P::x>());
  subject.change(
      {{"padded 96", kUnsupported, [](P& p) { p.padded_head_dim = 96; }},
       {"small workspace", StatusCode::kWorkspaceTooSmall, [](P& p) { --p.workspace_bytes; }},
       {"code_max 0", kInvalid, [](P& p) { p.v_code_max = 0.0f; }},
       {"code_max NaN", kInvalid, [](P& p) { p.v_code_max = NAN; }},
       {"code_max of bf16", kInvalid, [](P& p) { p.v_code_max = 1e6f; }},
       {"code_max 0, no scale", StatusCode::kOk,
        [](P& p) { p.v_code_max = 0.0f, p.scale = nullptr; }},
       {"unknown smooth", kInvalid, [](P& p) { p.smooth = static_cast<sage::Smooth>(3); }},
       {"unknown pv", kInvalid, [](P& p) { p.pv = static_cast<sage::PvType>(3); }},
       {"unknown v_scale", kInvalid, [](P& p) { p.v_scale = static_cast<sage::VScale>(3); }}});
  subject.move({{"x", [](P& p, char* at) { p.x.data = at; }, 2, true},
                {"cu_seqlens", set_member<P, &P::cu_seqlens>, 4, true},
                {"offset", set_member<P, &P::offset>, 4, true},
                {"scale", set_member<P, &P::scale>, 4, false},
                {"workspace", set_member<P, &P::workspace>, 16, true}});
  valid.smooth = sage::Smooth::kSampled;
  valid.scale = nullptr;
  EXPECT_EQ(sage::channel_stats_workspace_bytes(valid), 0u);
}

TEST(LauncherArguments, QuantizeV) {
  using P = sage::QuantizeVParams;
  P valid;
  valid.v = {address<char>(), DType::kFp16, 1000, 2, 64, 128, 64};
  valid.cu_seqlens = address<int32_t>();
  valid.batch = 3;
  valid.layout.head_dim_v = 64;
  for (uint8_t i = 0; i < 16; ++i) valid.layout.v_key_order[i] = i;
  valid.offset = valid.scale = address<float>();
  valid.codes = address<char>();
  const Subject<P> subject = {valid, [](const P& p) { return sage::launch_quantize_v(p, nullptr); },
                              kLaunches};
  subject.change(packed_changes<P, &P::v>());
  subject.change(
      {{"padded 96", kUnsupported, [](P& p) { p.layout.head_dim_v = 96; }},
       {"tile 0", kUnsupported, [](P& p) { p.layout.v_tile_keys = 0; }},
       {"tile 40", kUnsupported, [](P& p) { p.layout.v_tile_keys = 40; }},
       {"tile 272", kUnsupported, [](P& p) { p.layout.v_tile_keys = 272; }},
       {"key twice", kInvalid, [](P& p) { p.layout.v_key_order[0] = 1; }},
       {"key 16", kInvalid, [](P& p) { p.layout.v_key_order[0] = 16; }},
       {"unknown pv", kInvalid, [](P& p) { p.layout.pv = static_cast<sage::PvType>(3); }},
       {"2^31 tiles", kUnsupported,
        [](P& p) { p.batch = INT32_MAX, p.v.total_tokens = INT32_MAX; }}});
  subject.move({{"v", [](P& p, char* at) { p.v.data = at; }, 2, true},
                {"cu_seqlens", set_member<P, &P::cu_seqlens>, 4, true},
                {"offset", set_member<P, &P::offset>, 16, true},
                {"scale", set_member<P, &P::scale>, 16, true},
                {"codes", set_member<P, &P::codes>, 16, true}});
  EXPECT_EQ(sage::v_codes_bytes(valid.layout, 1000, 2, 3), (1000u / 64 + 3) * 2 * 64 * 64);
  valid.layout.pv = sage::PvType::kFp16;
  EXPECT_EQ(sage::v_codes_bytes(valid.layout, 1000, 2, 3), 1000u * 2 * 64 * 2);
}

using Rope = sage::RopeKvCacheWriteParams;

Subject<Rope> rope_subject() {
  Rope valid;
  valid.batch = 1;
  valid.num_qo_heads = valid.num_kv_heads = 2;
  valid.head_dim = valid.head_dim_v = valid.rotary_dim = 64;
  valid.total_tokens = 8;
  valid.q = valid.k = valid.v = valid.cos_sin = address<char>();
  valid.q_token_stride = valid.k_token_stride = valid.v_token_stride = 384;
  valid.q_head_stride = valid.k_head_stride = valid.v_head_stride = 64;
  valid.cu_seqlens = address<int32_t>();
  valid.max_position = 10;
  valid.q_out = valid.k_out = address<char>();
  valid.q_out_token_stride = valid.k_out_token_stride = 384;
  valid.q_out_head_stride = valid.k_out_head_stride = 64;
  valid.key_cache = valid.value_cache = address<char>();
  valid.num_pages = 4;
  valid.page_size = 16;
  valid.k_page_stride = valid.v_page_stride = 2048;
  valid.k_slot_stride = valid.v_slot_stride = 64;
  valid.k_cache_head_stride = valid.v_cache_head_stride = 1024;
  valid.page_table = address<int32_t>();
  valid.max_pages_per_sequence = 2;
  return {valid, [](const Rope& p) { return sage::launch_rope_kv_cache_write(p, nullptr); },
          kLaunches};
}

TEST(LauncherArguments, RopeKvCacheWritePointers) {
  using P = Rope;
  rope_subject().move({{"q", set_member<P, &P::q>, 2, true},
                       {"k", set_member<P, &P::k>, 2, true},
                       {"v", set_member<P, &P::v>, 2, true},
                       {"cu_seqlens", set_member<P, &P::cu_seqlens>, 4, true},
                       {"kv_len_before", set_member<P, &P::kv_len_before>, 4, false},
                       {"cos_sin", set_member<P, &P::cos_sin>, 4, true},
                       {"q_out", set_member<P, &P::q_out>, 2, false},
                       {"k_out", set_member<P, &P::k_out>, 2, false},
                       {"key_cache", set_member<P, &P::key_cache>, 2, true},
                       {"value_cache", set_member<P, &P::value_cache>, 2, true},
                       {"page_table", set_member<P, &P::page_table>, 4, true}});
  Subject<Rope> by_slots = rope_subject();
  by_slots.valid.page_table = nullptr;
  by_slots.valid.slot_mapping = address<int64_t>();
  by_slots.move({{"slot_mapping", set_member<P, &P::slot_mapping>, 8, true}});
}

TEST(LauncherArguments, RopeKvCacheWriteSizesAndChoices) {
  using P = Rope;
  rope_subject().change(
      {{"fp32", kInvalid, [](P& p) { p.dtype = DType::kFp32; }},
       {"batch", kInvalid, [](P& p) { p.batch = -1; }},
       {"tokens < 0", kInvalid, [](P& p) { p.total_tokens = -1; }},
       {"2^31 tokens", kInvalid, [](P& p) { p.total_tokens = int64_t{1} << 31; }},
       {"no tokens", StatusCode::kOk, [](P& p) { p.total_tokens = 0; }},
       {"q heads -1", kInvalid, [](P& p) { p.num_qo_heads = -1; }},
       {"q heads 65536", kInvalid, [](P& p) { p.num_qo_heads = 65536; }},
       {"kv heads -1", kInvalid, [](P& p) { p.num_kv_heads = -1; }},
       {"kv heads 0", kInvalid, [](P& p) { p.num_kv_heads = 0; }},
       {"head_dim 0", kInvalid, [](P& p) { p.head_dim = 0; }},
       {"head_dim 16385", kInvalid, [](P& p) { p.head_dim = 16385; }},
       {"head_dim_v 0", kInvalid, [](P& p) { p.head_dim_v = 0; }},
       {"head_dim_v 16385", kInvalid, [](P& p) { p.head_dim_v = 16385; }},
       {"unknown style", kInvalid, [](P& p) { p.style = static_cast<sage::RopeStyle>(7); }},
       {"rotary_dim 31", kInvalid, [](P& p) { p.rotary_dim = 31; }},
       {"rotary_dim 66", kInvalid, [](P& p) { p.rotary_dim = 66; }},
       {"rotary_dim -2", kInvalid, [](P& p) { p.rotary_dim = -2; }},
       {"table dtype", kInvalid, [](P& p) { p.cos_sin_dtype = DType::kFp16; }},
       {"max_position", kInvalid, [](P& p) { p.max_position = -1; }},
       {"no rotation, no table", StatusCode::kOk,
        [](P& p) { p.style = sage::RopeStyle::kNone, p.cos_sin = nullptr; }},
       {"no cache", StatusCode::kOk,
        [](P& p) { p.key_cache = p.value_cache = nullptr, p.head_dim_v = 0, p.v = nullptr; }},
       {"page_size", kInvalid, [](P& p) { p.page_size = 0; }},
       {"num_pages", kInvalid, [](P& p) { p.num_pages = -1; }},
       {"2^33 slots", kUnsupported, [](P& p) { p.num_pages = int64_t{1} << 29; }},
       {"two indices", kInvalid, [](P& p) { p.slot_mapping = address<int64_t>(); }},
       {"table width", kInvalid, [](P& p) { p.max_pages_per_sequence = 0; }},
       {"nothing to write", kInvalid,
        [](P& p) { p.q_out = p.k_out = p.key_cache = p.value_cache = nullptr; }}});
}

TEST(LauncherArguments, RopeKvCacheWriteStrides) {
  using P = Rope;
  rope_subject().change(
      {{"q token", kInvalid, [](P& p) { p.q_token_stride = -384; }},
       {"q head", kInvalid, [](P& p) { p.q_head_stride = -64; }},
       {"k token", kInvalid, [](P& p) { p.k_token_stride = -384; }},
       {"k head", kInvalid, [](P& p) { p.k_head_stride = -64; }},
       {"v token", kInvalid, [](P& p) { p.v_token_stride = -384; }},
       {"v head", kInvalid, [](P& p) { p.v_head_stride = -64; }},
       {"q_out heads on top of each other", kInvalid, [](P& p) { p.q_out_head_stride = 0; }},
       {"q_out tokens within heads", kInvalid, [](P& p) { p.q_out_token_stride = 64; }},
       {"k_out in place, other strides", kInvalid, [](P& p) { p.k_out_token_stride = 512; }},
       {"k_out < 0", kInvalid, [](P& p) { p.k_out_head_stride = -64; }},
       {"slots overlap", kInvalid, [](P& p) { p.k_slot_stride = 32; }},
       {"slots within heads", kInvalid, [](P& p) { p.v_slot_stride = 1024; }},
       {"heads within slots", kInvalid, [](P& p) { p.k_cache_head_stride = 64 * 15; }},
       {"pages within pages", kInvalid, [](P& p) { p.v_page_stride = 2047; }},
       {"pages past 2^63", kInvalid, [](P& p) { p.k_page_stride = INT64_MAX / 2; }},
       {"page < 0", kInvalid, [](P& p) { p.v_page_stride = -2048; }},
       {"one page needs no stride", StatusCode::kOk,
        [](P& p) { p.num_pages = 1, p.k_page_stride = p.v_page_stride = 0; }},
       {"slots before heads", StatusCode::kOk,
        [](P& p) {
          p.k_slot_stride = p.v_slot_stride = 128;
          p.k_cache_head_stride = p.v_cache_head_stride = 64;
        }},
       {"k and v in one buffer", StatusCode::kOk,
        [](P& p) { p.k_page_stride = p.v_page_stride = 4096; }}});
}

}  // namespace
