// What a subject (a GPU kernel, or the emulated op on the CPU) leaves behind, stage by stage, in a
// form that does not depend on who made it. Empty tensors are stages that the op does not have.
#pragma once
#include <string>
#include <vector>

#include "core/tensor.h"
#include "scenario/case.h"

namespace sagebench {

// Stage names, in pipeline order: the first that diverges is the one to blame.
enum class Stage { kRope, kCache, kOffset, kQkCodes, kVCodes, kO, kLse };
const char* name_of(Stage stage);  // "rope", "cache", "offset", "qk_codes", "v_codes", "o", "lse"

struct StageOutputs {
  // rope, cache
  Tensor q_rope;       // dtype [total_q, Hq, D]
  Tensor k_rope;       // dtype [total_q, Hkv, D]
  Tensor key_cache;    // dtype, Inputs::cache_shape
  Tensor value_cache;  // dtype
  // quantisation; D and Dv padded as the layout says
  Tensor k_offset;  // fp32 [batch, Hkv, D]
  Tensor v_offset;  // fp32 [batch, Hkv, Dv]
  Tensor q_codes;   // int8 [total_q, Hq, D]
  Tensor q_scales;  // fp32 [Hq, scale_rows]
  Tensor k_codes;   // int8 [total_kv, Hkv, D]
  Tensor k_scales;  // fp32 [Hkv, scale_rows]
  Tensor
      v_codes;  // fp8_e4m3 or fp16 [total_kv, Hkv, Dv]: token order, whatever the kernel's storage
  Tensor v_scales;  // fp32 [batch, Hkv, Dv]
  Tensor o_offset;  // fp32 [batch, Hkv, Dv], when what rounding V took is put back
  Tensor lse_dot;   // fp32 [Hq, total_q], when smoothing and LSE meet
  // result. A subject that computes only sampled rows leaves the others NaN.
  Tensor o;    // dtype [total_q, Hq, head_dim_v]
  Tensor lse;  // fp32 [Hq, total_q]
};

// What attention adds to its output; may be empty.
inline const Tensor& added_to_output(const StageOutputs& s) {
  return s.o_offset.empty() ? s.v_offset : s.o_offset;
}

// V codes from the kernel's storage order (sage::AttentionLayout) to token order.
Tensor unpack_v_codes(const Case& c, const sage::AttentionLayout& layout,
                      const Tensor& cu_seqlens_kv, const std::vector<std::byte>& storage);

}  // namespace sagebench
