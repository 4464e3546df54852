// Variable-length attention on quantised operands, one launch for all sequences of a batch, and the
// table of kernels that do it.
//
//   s[i, j] = (q_code[i] . k_code[j]) * q_scale * k_scale * sm_scale, masked positions -inf
//   o[i]    = v_offset + v_scale * sum_j P[i, j] v_code[j] / sum_j P[i, j]
//   lse[i]  = ln sum_j exp(s[i, j]) + sm_scale * (q[i] . k_offset)
// An empty key set gives o = 0 and lse = -inf. Natural logarithm.
#pragma once
#include "sage/layout.h"
#include "sage/quantize.h"
#include "sage/types.h"

namespace sage {

// Which key the last query row of a sequence sees: bottom_right the last one (chunked prefill,
// FlashAttention >= 2.1), top_left key qo_len - 1.
enum class Mask { kFull, kCausalBottomRight, kCausalTopLeft };

struct AttentionParams {
  AttentionLayout layout;
  int batch = 0;
  int num_qo_heads = 0;
  int num_kv_heads = 0;  // divides num_qo_heads
  int head_dim_v = 0;    // channels of o; V's padding is dropped
  int64_t total_q = 0;
  int64_t total_kv = 0;
  const int32_t* cu_seqlens_q = nullptr;   // [batch + 1], device
  const int32_t* cu_seqlens_kv = nullptr;  // [batch + 1], device
  Mask mask = Mask::kFull;
  float sm_scale = 0.0f;

  const int8_t* q_codes = nullptr;  // [total_q, num_qo_heads, layout.head_dim]
  const float* q_scales = nullptr;  // [num_qo_heads, scale_rows(layout.q_groups, total_q, batch)]
  const int8_t* k_codes = nullptr;  // [total_kv, num_kv_heads, layout.head_dim]
  const float* k_scales = nullptr;  // [num_kv_heads, scale_rows(layout.k_groups, total_kv, batch)]
  const void* v_codes = nullptr;    // AttentionLayout says in which order
  const float* v_scales = nullptr;  // [batch, num_kv_heads, layout.head_dim_v]
  const float* v_offset = nullptr;  // [batch, num_kv_heads, layout.head_dim_v], or nullptr
  const float* lse_dot = nullptr;   // [num_qo_heads, total_q] q . k_offset, or nullptr

  void* o = nullptr;  // [total_q, num_qo_heads, head_dim_v]
  DType o_dtype = DType::kBf16;
  int64_t o_token_stride = 0;  // elements
  int64_t o_head_stride = 0;   // elements
  float* lse = nullptr;        // [num_qo_heads, total_q], or nullptr

  void* workspace = nullptr;  // AttentionKernel::workspace_bytes, 16-byte aligned; contents ignored
  size_t workspace_bytes = 0;
};

// The shape of a problem, as far as it decides which kernels can do it.
struct AttentionProblem {
  int num_qo_heads = 32;
  int num_kv_heads = 8;
  int head_dim = 128;
  int head_dim_v = 128;
  DType dtype = DType::kBf16;
  Mask mask = Mask::kFull;
  bool return_lse = false;
};

// One row of the table. `supports` returns nullptr, or the reason for "no".
struct AttentionKernel {
  const char* name;
  const char* architectures;  // compute capabilities it is written for, for a reader
  SageSettings defaults;
  const char* (*supports)(const AttentionProblem& problem, const SageSettings& settings);
  bool (*runs_on)(int compute_capability);  // e.g. 90
  AttentionLayout (*layout)(const AttentionProblem& problem, const SageSettings& settings);
  Status (*check)(const AttentionParams& params);  // what launch would refuse; launches nothing
  Status (*launch)(const AttentionParams& params, Stream stream);  // nullptr: built without CUDA
  size_t (*workspace_bytes)(const AttentionParams& params) = nullptr;  // nullptr: none is needed
};

struct AttentionKernelList {
  const AttentionKernel* first;
  int count;
  const AttentionKernel* begin() const { return first; }
  const AttentionKernel* end() const { return first + count; }
};
AttentionKernelList attention_kernels();
const AttentionKernel* find_attention_kernel(const char* name);  // nullptr: no such kernel

}  // namespace sage
