#include "attention/common.h"

#include <cmath>
#include <initializer_list>

#include "status.h"
#include "strides.h"

namespace sage {

AttentionProblem problem_of(const AttentionParams& p) {
  return {p.num_qo_heads, p.num_kv_heads, p.layout.head_dim, p.head_dim_v,
          p.o_dtype,      p.mask,         p.lse != nullptr};
}

SageSettings settings_of(const AttentionLayout& layout) {
  SageSettings settings;
  settings.qk_granularity = layout.q_groups.groups_per_block > 1 ? Granularity::kPerThread
                            : layout.q_groups.block_tokens == layout.tile_q ? Granularity::kPerBlock
                                                                            : Granularity::kPerWarp;
  settings.pv = layout.pv;
  settings.p = layout.p;
  settings.correct_v = layout.pv == PvType::kFp8E4m3;
  return settings;
}

const char* difference(const AttentionLayout& layout, const AttentionLayout& own) {
  // One binding per member: a new one is an error here until it is compared.
  const auto& [head_dim, head_dim_v, tile_q, tile_k, q_groups, k_groups, pv, v_tile_keys,
               v_key_order, v_code_max, p, p_offset, reference, promote_keys, accumulator_bits,
               row_sum_promoted, lse_bias] = layout;
  struct Row {
    bool same;
    const char* otherwise;
  };
  const Row rows[] = {
      {head_dim == own.head_dim, "layout.head_dim is not the kernel's own"},
      {head_dim_v == own.head_dim_v, "layout.head_dim_v is not the kernel's own"},
      {tile_q == own.tile_q, "layout.tile_q is not the kernel's own"},
      {tile_k == own.tile_k, "layout.tile_k is not the kernel's own"},
      {q_groups == own.q_groups, "layout.q_groups is not the kernel's own"},
      {k_groups == own.k_groups, "layout.k_groups is not the kernel's own"},
      {pv == own.pv, "layout.pv is not the kernel's own"},
      {v_tile_keys == own.v_tile_keys, "layout.v_tile_keys is not the kernel's own"},
      {v_key_order == own.v_key_order, "layout.v_key_order is not the kernel's own"},
      {v_code_max == own.v_code_max, "layout.v_code_max is not the kernel's own"},
      {p == own.p, "layout.p is not the kernel's own"},
      {p_offset == own.p_offset, "layout.p_offset is not the kernel's own"},
      {reference == own.reference, "layout.reference is not the kernel's own"},
      {promote_keys == own.promote_keys, "layout.promote_keys is not the kernel's own"},
      {accumulator_bits == own.accumulator_bits, "layout.accumulator_bits is not the kernel's own"},
      {row_sum_promoted == own.row_sum_promoted, "layout.row_sum_promoted is not the kernel's own"},
      {lse_bias == own.lse_bias, "layout.lse_bias is not the kernel's own"},
  };
  for (const Row& row : rows)
    if (!row.same) return row.otherwise;
  return nullptr;
}

bool operator==(const AttentionLayout& a, const AttentionLayout& b) {
  return difference(a, b) == nullptr;
}

Status check_sizes(const AttentionParams& p) {
  if (p.batch < 0) return invalid("batch is negative");
  if (p.total_q < 0 || p.total_q > kMaxRows || p.total_kv < 0 || p.total_kv > kMaxRows) {
    return invalid("total_q and total_kv must be in [0, 2^31)");
  }
  if (p.num_qo_heads < 1 || p.num_kv_heads < 1 || p.num_qo_heads % p.num_kv_heads != 0) {
    return invalid("num_kv_heads must divide num_qo_heads");
  }
  if (p.head_dim_v < 1 || p.head_dim_v > p.layout.head_dim_v) {
    return invalid("head_dim_v must be in [1, layout.head_dim_v]");
  }
  if (p.mask != Mask::kFull && p.mask != Mask::kCausalBottomRight &&
      p.mask != Mask::kCausalTopLeft) {
    return invalid("unknown mask");
  }
  // The smallest scales times it must stay above 0, for masked scores to stay at -inf.
  if (!std::isfinite(p.sm_scale) || p.sm_scale < 1e-20f) {
    return invalid("sm_scale must be finite and at least 1e-20");
  }
  if (p.o_dtype != DType::kBf16 && p.o_dtype != DType::kFp16) {
    return invalid("o must be bf16 or fp16");
  }
  return {};
}

Status check_arrays(const AttentionParams& p) {
  if (p.o_token_stride < 0 || p.o_head_stride < 0) return invalid("a stride of o is negative");
  if (p.batch == 0 || p.total_q == 0) return {};  // nothing is read or written
  if (p.cu_seqlens_q == nullptr || p.cu_seqlens_kv == nullptr) {
    return invalid("cu_seqlens_q or cu_seqlens_kv is null");
  }
  if (p.q_codes == nullptr || p.q_scales == nullptr || p.v_scales == nullptr || p.o == nullptr) {
    return invalid("q_codes, q_scales, v_scales or o is null");
  }
  if (p.total_kv > 0 && (p.k_codes == nullptr || p.k_scales == nullptr || p.v_codes == nullptr)) {
    return invalid("k_codes, k_scales or v_codes is null");
  }
  if (!stay_apart(p.head_dim_v,
                  {{p.total_q, p.o_token_stride}, {p.num_qo_heads, p.o_head_stride}})) {
    return invalid("with these strides rows of o overlap");
  }
  if (!is_aligned(p.q_codes, 16) || !is_aligned(p.k_codes, 16) || !is_aligned(p.v_codes, 16)) {
    return misaligned("q_codes, k_codes and v_codes must be aligned to 16 bytes");
  }
  for (const void* words :
       {static_cast<const void*>(p.cu_seqlens_q), static_cast<const void*>(p.cu_seqlens_kv),
        static_cast<const void*>(p.q_scales), static_cast<const void*>(p.k_scales),
        static_cast<const void*>(p.v_scales), static_cast<const void*>(p.v_offset),
        static_cast<const void*>(p.lse_dot), static_cast<const void*>(p.lse)}) {
    if (!is_aligned(words, 4)) {
      return misaligned("fp32 and int32 arrays must be aligned to 4 bytes");
    }
  }
  if (!is_aligned(p.o, 2)) return misaligned("o must be aligned to its element");
  return {};
}

}  // namespace sage
