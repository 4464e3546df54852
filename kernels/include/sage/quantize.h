// Pre-processing of SageAttention: channel statistics, INT8 codes of Q and K, FP8/FP16 codes of V.
// All launchers: no allocation, no synchronisation, graph-capturable, deterministic (no atomics),
// so that a sequence gives the same bits alone and in any batch.
//
// Packed ("varlen") tensors: sequence b owns rows [cu_seqlens[b], cu_seqlens[b + 1]). Strides are
// in elements; the channel stride is 1. Input pointers are aligned to the element; where they and
// the strides are multiples of 16 bytes and head_dim % 8 == 0, loads are vectors (faster).
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
  int padded_head_dim = 0;  // channels of offset and scale; padding is 0 (offset) and 1 (scale)
  Smooth smooth = Smooth::kMean;
  float* offset = nullptr;  // [batch, num_heads, padded_head_dim]; all zeros for Smooth::kNone
  float* scale =
      nullptr;  // same shape, or nullptr. per_head: of the largest amax of the head's channels
  PvType pv = PvType::kFp8E4m3;          // read only if scale
  VScale v_scale = VScale::kPerChannel;  // read only if scale
  float v_code_max = 448.0f;             // read only if scale
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};
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
  ScaleGroups groups;
  Rotate rotate = Rotate::kNone;
  const float* offset =
      nullptr;              // K: [batch, num_heads, padded_head_dim]; nullptr: nothing removed
  int8_t* codes = nullptr;  // [total_tokens, num_heads, padded_head_dim]
  float* scales = nullptr;  // [num_heads, scale_rows(groups, total_tokens, batch)]

  // Q only, for the LSE: dot[h, token] = q . k_offset of the KV head that h reads, before rotation.
  const float* dot_offset =
      nullptr;            // [batch, dot_num_heads, padded_head_dim]; nullptr: not wanted
  int dot_num_heads = 0;  // divides num_heads
  float* dot = nullptr;   // [num_heads, total_tokens]
};
Status launch_quantize_int8(const QuantizeInt8Params& params, Stream stream);

// V codes in the order the attention kernel's layout asks for: (v - offset) / scale, rounded half
// to even, saturated.
struct QuantizeVParams {
  PackedTensor v;
  const int32_t* cu_seqlens = nullptr;  // [batch + 1], device
  int batch = 0;
  AttentionLayout layout;
  const float* offset = nullptr;  // [batch, num_heads, layout.head_dim_v]
  const float* scale = nullptr;   // [batch, num_heads, layout.head_dim_v]
  void* codes = nullptr;          // v_codes_bytes

  // FP8 only: what attention adds to its output, so that the mean of V survives rounding:
  // o_offset = offset + scale * (sum over the sequence of (v - offset) / scale - code) / length.
  // Attention over many keys averages V; of the rounding errors only this mean does not average
  // out.
  float* o_offset = nullptr;  // [batch, num_heads, layout.head_dim_v]; nullptr: not wanted
  void* workspace = nullptr;  // 16-byte aligned
  size_t workspace_bytes = 0;
};
size_t quantize_v_workspace_bytes(const QuantizeVParams& params);  // where o_offset is wanted
size_t v_codes_bytes(const AttentionLayout& layout, int64_t total_tokens, int num_heads, int batch);
Status launch_quantize_v(const QuantizeVParams& params, Stream stream);

}  // namespace sage
