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

struct SageAttentionParams {
  const AttentionKernel* kernel = nullptr;  // a row of attention_kernels()
  SageSettings settings;
  PackedTensor q, k, v;  // q: [total_q, num_qo_heads, head_dim], ...
  int batch = 0;
  const int32_t* cu_seqlens_q = nullptr;   // [batch + 1], device
  const int32_t* cu_seqlens_kv = nullptr;  // [batch + 1], device
  Mask mask = Mask::kFull;
  float sm_scale = 0.0f;                          // usually 1 / sqrt(head_dim)
  void* o = nullptr;                              // [total_q, num_qo_heads, head_dim_v], dtype of q
  int64_t o_token_stride = 0, o_head_stride = 0;  // elements
  float* lse = nullptr;                           // [num_qo_heads, total_q], or nullptr
};

// The stages' operands inside one workspace allocation. nullptr where a stage is not needed.
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
// With base == nullptr only sizes are computed: query `bytes`, allocate (256-byte aligned), call
// again.
SageWorkspace plan_workspace(const SageAttentionParams& params, void* base);

// The stages one by one, for callers that time, check or overlap them, and all of them in order.
Status launch_k_stats(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_v_stats(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_q_codes(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_k_codes(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_v_codes(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_attend(const SageAttentionParams& params, const SageWorkspace& w, Stream stream);
Status launch_sage_attention(const SageAttentionParams& params, void* workspace,
                             size_t workspace_bytes, Stream stream);

// Packed qkv in, cache written, attention out: RoPE and cache write, then attention over the tokens
// of this call (where kv_len_before > 0, the cached keys in front of them are not attended).
// rope.q_out and rope.k_out must be set; they become attention.q and attention.k. attention.v is
// usually rope.v.
Status launch_prefill(const RopeKvCacheWriteParams& rope, const SageAttentionParams& attention,
                      void* workspace, size_t workspace_bytes, Stream stream);

}  // namespace sage
