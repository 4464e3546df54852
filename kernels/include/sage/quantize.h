// Pre-processing of SageAttention: channel statistics, INT8 codes of Q and K, FP8/FP16 codes of V.
// All launchers: no allocation, no synchronisation, graph-capturable, deterministic (no atomics),
// so that a sequence gives the same bits alone and in any batch.
//
// Packed ("varlen") tensors: sequence b owns rows [cu_seqlens[b], cu_seqlens[b + 1]). Strides are
// in elements, 0 or above (0: read again); the channel stride is 1. Input pointers are aligned to
// the element; where they and the strides are multiples of 16 bytes and head_dim % 8 == 0, loads
// are vectors (faster). All pointers are device addresses, all int32 and fp32 arrays aligned to 4
// bytes unless more is said; "[a, b]" is row-major without gaps. With total_tokens == 0 inputs,
// codes and scales may be null, with batch == 0 cu_seqlens and the offset of ChannelStatsParams.
// At most 2^31 - 1 tokens, 65535 heads, 128 channels.
//
// Non-finite input stays visible: a NaN or infinity makes the scales it takes part in NaN or
// infinite (and a mean offset too), and with them everything computed from those codes. INT8 codes
// under such a scale are unspecified.
#pragma once
#include "sage/layout.h"
#include "sage/types.h"

namespace sage {

// A read-only packed tensor [total_tokens, num_heads, head_dim].
struct PackedTensor {
  const void* data = nullptr;
  DType dtype = DType::kBf16;  // kBf16 or kFp16
  int64_t total_tokens = 0;
  int num_heads = 0;
  int head_dim = 0;
  int64_t token_stride = 0;  // elements
  int64_t head_stride = 0;   // elements
};

// Offset (and, for V, scale) per (sequence, head, channel).
// mean:    offset = sum of all tokens / length, accumulated in fp32.
// sampled: offset = mean of n = min(length, kOffsetSamples) tokens, at floor(i * length / n).
inline constexpr int kOffsetSamples = 32;
// Scale of V, amax = max |x - offset|: see AttentionLayout::v_code_max. amax = 0 (an all-zero or
// constant channel, an empty sequence) gives 1; a smaller amax than this floor counts as the floor,
// so that 1 / scale and the codes' quotients stay normal numbers.
inline constexpr float kMinAmaxV = 0x1p-100f;
struct ChannelStatsParams {
  PackedTensor x;
  const int32_t* cu_seqlens = nullptr;  // [batch + 1], device
  int batch = 0;
  // 64 or 128: channels of offset and scale; padding is 0 (offset) and 1 (scale).
  int padded_head_dim = 0;
  Smooth smooth = Smooth::kMean;
  float* offset = nullptr;  // [batch, num_heads, padded_head_dim]; zeros are written for kNone
  float* scale =
      nullptr;  // same shape, or nullptr. per_head: of the largest amax of the head's channels
  PvType pv = PvType::kFp8E4m3;          // read only if scale
  VScale v_scale = VScale::kPerChannel;  // read only if scale
  float v_code_max = 448.0f;             // read only if scale; in (0, 65504]
  void* workspace = nullptr;   // aligned to 16 bytes, contents ignored, for one launch at a time
  size_t workspace_bytes = 0;  // at least channel_stats_workspace_bytes
};
// Of sizes, smooth, and whether scale is null; 0 for kNone or kSampled without scale.
size_t channel_stats_workspace_bytes(const ChannelStatsParams& params);
Status launch_channel_stats(const ChannelStatsParams& params, Stream stream);

// codes = round_half_even((x - offset) H / scale), scale = max(amax, 1e-7) / 127, saturated to
// [-127, 127]; H is the identity or the orthonormal Hadamard matrix over padded_head_dim channels.
// Channels head_dim .. padded_head_dim - 1 read as 0 before the rotation.
struct QuantizeInt8Params {
  PackedTensor x;
  const int32_t* cu_seqlens = nullptr;  // [batch + 1], device
  int batch = 0;
  int padded_head_dim = 0;  // 64 or 128
  ScaleGroups groups;       // block_tokens 16, 32, 64 or 128; groups_per_block as of the pattern
  Rotate rotate = Rotate::kNone;
  // [batch, num_heads, padded_head_dim], aligned to 16 bytes; nullptr: nothing removed (always for
  // Q).
  const float* offset = nullptr;
  // [total_tokens, num_heads, padded_head_dim], aligned to 8 bytes (attention wants 16).
  int8_t* codes = nullptr;
  // [num_heads, scale_rows(groups, total_tokens, batch)]; groups without a token are not written.
  float* scales = nullptr;

  // Q only, for the LSE: dot[h, token] = q . k_offset of the KV head that h reads, before rotation.
  // dot_offset [batch, dot_num_heads, padded_head_dim], aligned to 16 bytes; both null: not wanted.
  const float* dot_offset = nullptr;
  int dot_num_heads = 0;  // divides num_heads
  float* dot = nullptr;   // [num_heads, total_tokens]
};
Status launch_quantize_int8(const QuantizeInt8Params& params, Stream stream);

// V codes in the order the attention kernel's layout asks for: (v - offset) / scale, rounded half
// to even, saturated. Of the layout only head_dim_v (64 or 128), pv, v_tile_keys (a multiple of 16
// up to 256) and v_key_order are read.
struct QuantizeVParams {
  PackedTensor v;
  const int32_t* cu_seqlens = nullptr;  // [batch + 1], device
  int batch = 0;
  AttentionLayout layout;
  const float* offset = nullptr;  // [batch, num_heads, layout.head_dim_v], aligned to 16 bytes
  const float* scale = nullptr;   // [batch, num_heads, layout.head_dim_v], aligned to 16 bytes
  void* codes = nullptr;          // v_codes_bytes, aligned to 16 bytes

  // FP8 only: what attention adds to its output, so that the mean of V survives rounding:
  // o_offset = offset + scale * (sum over the sequence of (v - offset) / scale - code) / length.
  // Attention over many keys averages V; of the rounding errors only this mean does not average
  // out.
  float* o_offset = nullptr;  // [batch, num_heads, layout.head_dim_v]; nullptr: not wanted
  void* workspace = nullptr;  // aligned to 16 bytes
  size_t workspace_bytes = 0;
};
size_t quantize_v_workspace_bytes(const QuantizeVParams& params);  // where o_offset is wanted
size_t v_codes_bytes(const AttentionLayout& layout, int64_t total_tokens, int num_heads, int batch);
Status launch_quantize_v(const QuantizeVParams& params, Stream stream);

}  // namespace sage
