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

// What a kernel of the table reads and writes. Pointers are device addresses; fp32 and int32 arrays
// are aligned to 4 bytes, codes to 16. "[a, b]" is row-major without gaps. Sequence b owns rows
// [cu_seqlens[b], cu_seqlens[b + 1]) of q and o, or of k and v (sage/types.h says what cu_seqlens
// have to hold). With batch == 0 or total_q == 0 nothing is launched, and pointers may be null;
// with total_kv == 0 k_codes, k_scales and v_codes.
struct AttentionParams {
  AttentionLayout layout;  // AttentionKernel::layout of this problem, unchanged, or kUnsupported
  int batch = 0;
  int num_qo_heads = 0;  // sage_mma_*: at most 65535
  int num_kv_heads = 0;  // divides num_qo_heads
  int head_dim_v = 0;    // channels of o; V's padding is dropped. sage_sm90: a multiple of 8
  // At most 2^31 - 1. sage_sm90: at most 2^29, and at most 2^30 tiles (of layout.tile_q queries, of
  // 128 keys) times heads.
  int64_t total_q = 0;
  int64_t total_kv = 0;
  const int32_t* cu_seqlens_q = nullptr;   // [batch + 1]
  const int32_t* cu_seqlens_kv = nullptr;  // [batch + 1]
  Mask mask = Mask::kFull;
  float sm_scale = 0.0f;  // finite, at least 1e-20

  const int8_t* q_codes = nullptr;  // [total_q, num_qo_heads, layout.head_dim]
  const float* q_scales = nullptr;  // [num_qo_heads, scale_rows(layout.q_groups, total_q, batch)]
  const int8_t* k_codes = nullptr;  // [total_kv, num_kv_heads, layout.head_dim]
  const float* k_scales = nullptr;  // [num_kv_heads, scale_rows(layout.k_groups, total_kv, batch)]
  const void* v_codes = nullptr;    // v_codes_bytes, in the order AttentionLayout says
  const float* v_scales = nullptr;  // [batch, num_kv_heads, layout.head_dim_v]
  const float* v_offset = nullptr;  // [batch, num_kv_heads, layout.head_dim_v]; nullptr: all 0
  const float* lse_dot = nullptr;   // [num_qo_heads, total_q] q . k_offset; nullptr: all 0

  // Rows [total_q, num_qo_heads, head_dim_v], channel stride 1. Strides in elements, such that rows
  // do not overlap: the smaller one at least head_dim_v, the larger one past all rows of the
  // smaller. sage_mma_*: aligned to 2 bytes (pairs of channels are stored at once where o is
  // aligned to 4 and strides and head_dim_v are even). sage_sm90: o aligned to 16 bytes, strides
  // multiples of 8.
  void* o = nullptr;
  DType o_dtype = DType::kBf16;  // kBf16 or kFp16
  int64_t o_token_stride = 0;
  int64_t o_head_stride = 0;
  float* lse = nullptr;  // [num_qo_heads, total_q]; nullptr: not wanted

  // Aligned to 16 bytes, contents ignored, for one launch at a time. sage_mma_*: none is needed.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;  // at least AttentionKernel::workspace_bytes
};

// The shape of a problem, as far as it decides which kernels can do it.
struct AttentionProblem {
  int num_qo_heads = 32;
  int num_kv_heads = 8;
  int head_dim = 128;          // channels of q and k, without padding
  int head_dim_v = 128;        // channels of v and o
  DType dtype = DType::kBf16;  // of q, k, v and o
  Mask mask = Mask::kFull;
  bool return_lse = false;
};

// One row of the table. `supports` returns nullptr, or the reason for "no"; `layout` is for what is
// supported. `launch` checks the arguments (as `check` does, which launches nothing) and takes the
// device as it is: ask `runs_on` first, as launch_attend and all of sage/sage.h do.
struct AttentionKernel {
  const char* name;
  const char* architectures;  // compute capabilities it is written for, for a reader
  SageSettings defaults;
  const char* (*supports)(const AttentionProblem& problem, const SageSettings& settings);
  bool (*runs_on)(int compute_capability);  // 10 * major + minor, e.g. 90
  AttentionLayout (*layout)(const AttentionProblem& problem, const SageSettings& settings);
  Status (*check)(const AttentionParams& params);
  Status (*launch)(const AttentionParams& params, Stream stream);  // nullptr: built without CUDA
  // Of sizes alone, pointers may be null. nullptr: no workspace is needed.
  size_t (*workspace_bytes)(const AttentionParams& params) = nullptr;
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
