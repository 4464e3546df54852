// The operators composed: one call from 16-bit tensors to attention output, with or without the
// rotary embedding and the paged cache write in front. Stages are the launchers of the other
// headers, in the order of `SageWorkspace`.
#pragma once
#include "sage/attention.h"
#include "sage/kv_cache.h"
#include "sage/layout.h"
#include "sage/quantize.h"
#include "sage/types.h"

namespace sage {

// Pointers are device addresses. q, k and v are as PackedTensor says (16-byte rows are faster),
// of one dtype, kBf16 or kFp16; q and k have one head_dim, k and v one num_heads and total_tokens.
struct SageAttentionParams {
  const AttentionKernel* kernel = nullptr;  // a row of attention_kernels()
  SageSettings settings;                    // e.g. kernel->defaults
  PackedTensor q;                           // [total_q, num_qo_heads, head_dim]
  PackedTensor k;                           // [total_kv, num_kv_heads, head_dim]
  PackedTensor v;                           // [total_kv, num_kv_heads, head_dim_v]
  int batch = 0;
  const int32_t* cu_seqlens_q = nullptr;   // [batch + 1]
  const int32_t* cu_seqlens_kv = nullptr;  // [batch + 1]
  Mask mask = Mask::kFull;
  float sm_scale = 0.0f;  // usually 1 / sqrt(head_dim)
  // [total_q, num_qo_heads, head_dim_v] in the dtype of q. Alignment and strides:
  // AttentionParams::o (16 bytes and multiples of 8 elements suit every kernel).
  void* o = nullptr;
  int64_t o_token_stride = 0, o_head_stride = 0;  // elements
  float* lse = nullptr;                           // [num_qo_heads, total_q]; nullptr: not wanted
};

// Do these lengths fit packed tensors of total_tokens rows? For a host copy of cu_seqlens [batch +
// 1]; the launchers take them on the device, where they do not look.
Status check_lengths(const int32_t* cu_seqlens, int batch, int64_t total_tokens);

// The stages' operands inside one workspace allocation, each aligned to 256 bytes, shaped as
// AttentionParams and ChannelStatsParams say. nullptr where a stage is not needed.
struct SageWorkspace {
  AttentionLayout layout;
  float* k_offset = nullptr;  // [batch, num_kv_heads, layout.head_dim]
  float* v_offset = nullptr;  // [batch, num_kv_heads, layout.head_dim_v]
  float* v_scales = nullptr;  // [batch, num_kv_heads, layout.head_dim_v]
  float* o_offset = nullptr;  // [batch, num_kv_heads, layout.head_dim_v], if settings.correct_v
  float* lse_dot = nullptr;   // [num_qo_heads, total_q]
  int8_t* q_codes = nullptr;
  float* q_scales = nullptr;
  int8_t* k_codes = nullptr;
  float* k_scales = nullptr;
  void* v_codes = nullptr;
  void* stats = nullptr;  // scratch of launch_channel_stats
  size_t stats_bytes = 0;
  void* v_sums = nullptr;  // scratch of launch_quantize_v
  size_t v_sums_bytes = 0;
  void* attend = nullptr;  // scratch of launch_attend
  size_t attend_bytes = 0;
  size_t bytes = 0;  // of the whole allocation
};
// Lays `workspace` out from `base`, which is aligned to 256 bytes. With base == nullptr only sizes
// are computed: query `bytes`, allocate, call again. No address in `params` is looked at, but
// whether lse is null. Unless the status is kOk, `workspace` is empty.
Status plan_workspace(const SageAttentionParams& params, void* base, SageWorkspace& workspace);

// The stages one by one, in this order, for callers that time, check or overlap them: each reads
// what the ones before left in `w`. launch_k_stats launches nothing where w.k_offset is not needed.
Status launch_k_stats(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_v_stats(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_q_codes(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_k_codes(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_v_codes(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_attend(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
// All of them. The arguments of every stage and the current device are checked before the first.
// Contents of the workspace are ignored; it serves one launch at a time.
Status launch_sage_attention(const SageAttentionParams& params, void* workspace,
                             size_t workspace_bytes, Stream stream);

// Packed qkv in, cache written, attention out: RoPE and cache write, then attention over the tokens
// of this call (where kv_len_before > 0, the cached keys in front of them are not attended).
//
// The caller fills `rope`, q_out, k_out and v included (v even without a cache), and of `attention`
// kernel, settings, batch (that of rope), mask, sm_scale, o, its strides and lse. The rest follows
// from rope: attention.q is q_out, attention.k is k_out, attention.v is v, each with rope's dtype,
// sizes and strides, and both cu_seqlens are rope.cu_seqlens. These members are left as constructed
// or say exactly that: anything else is kInvalidArgument.
//
// The workspace is that of the attention; rope needs none.
Status plan_prefill_workspace(const RopeKvCacheWriteParams& rope,
                              const SageAttentionParams& attention, void* base,
                              SageWorkspace& workspace);
Status launch_prefill(const RopeKvCacheWriteParams& rope, const SageAttentionParams& attention,
                      void* workspace, size_t workspace_bytes, Stream stream);

}  // namespace sage
