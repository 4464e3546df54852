// Host side of the mma.sync kernels: what they can do, the numbers they produce, argument checks.
#include "attention/sage_mma.h"

#include "status.h"

namespace sage {
namespace {

int padded(int head_dim) {
  return head_dim <= 64 ? 64 : 128;
}

bool same(const ScaleGroups& a, const ScaleGroups& b) {
  return a.block_tokens == b.block_tokens && a.groups_per_block == b.groups_per_block &&
         a.pattern == b.pattern;
}

ScaleGroups q_groups_of(Granularity granularity) {
  switch (granularity) {
    case Granularity::kPerThread:
      return {32, 8, GroupPattern::kRowMod8};
    case Granularity::kPerWarp:
      return {32, 1, GroupPattern::kAll};
    case Granularity::kPerBlock:
      break;
  }
  return {kSageMmaTileQ, 1, GroupPattern::kAll};
}

ScaleGroups k_groups_of(Granularity granularity) {
  return granularity == Granularity::kPerThread
             ? ScaleGroups{kSageMmaTileK, 4, GroupPattern::kPairMod4}
             : ScaleGroups{kSageMmaTileK, 1, GroupPattern::kAll};
}

bool known_groups(const AttentionLayout& layout) {
  for (const Granularity g :
       {Granularity::kPerThread, Granularity::kPerWarp, Granularity::kPerBlock})
    if (same(layout.q_groups, q_groups_of(g)) && same(layout.k_groups, k_groups_of(g))) return true;
  return false;
}

}  // namespace

const char* supports_sage_mma(PvType pv, const AttentionProblem& p, const SageSettings& settings) {
  if (settings.pv != pv)
    return pv == PvType::kFp8E4m3 ? "pv: this kernel computes P V in fp8_e4m3 only"
                                  : "pv: this kernel computes P V in fp16 only";
  if (settings.p != PMode::kExp2) return "p: this kernel computes exp2 only";
  if (p.head_dim < 1 || p.head_dim > 128) return "head_dim: 1 to 128";
  if (p.head_dim_v < 1 || p.head_dim_v > 128) return "head_dim_v: 1 to 128";
  if (p.num_kv_heads < 1 || p.num_qo_heads < 1 || p.num_qo_heads % p.num_kv_heads != 0)
    return "num_kv_heads must divide num_qo_heads";
  if (p.dtype == DType::kFp32) return "dtype: bf16 or fp16";
  return nullptr;
}

AttentionLayout sage_mma_layout(PvType pv, const AttentionProblem& problem,
                                const SageSettings& settings) {
  AttentionLayout layout;
  layout.head_dim = padded(problem.head_dim);
  layout.head_dim_v = padded(problem.head_dim_v);
  layout.tile_q = kSageMmaTileQ;
  layout.tile_k = layout.v_tile_keys = layout.promote_keys = kSageMmaTileK;
  layout.q_groups = q_groups_of(settings.qk_granularity);
  layout.k_groups = k_groups_of(settings.qk_granularity);
  layout.pv = pv;
  // Byte j of lane t's A fragment is P of key 8 (j / 2) + 2 t + j % 2: the scores it owns.
  for (int i = 0; i < AttentionLayout::kKeyOrder; ++i)
    layout.v_key_order[static_cast<size_t>(i)] =
        static_cast<uint8_t>(8 * (i % 4 / 2) + 2 * (i / 4) + i % 2);
  if (pv == PvType::kFp16) {
    layout.v_code_max = 256.0f;  // with P up to 2^15, a tile's sum stays far inside fp32
    layout.p_offset = 15.0f;     // fp16 then reaches weights of 2^-39 of the largest
  } else {
    layout.p_offset = 8.807354922f;  // log2(448), e4m3's largest value
  }
  return layout;
}

Status check_sage_mma(PvType pv, const AttentionParams& p) {
  if (p.batch < 0 || p.total_q < 0 || p.total_kv < 0) return invalid("sizes must not be negative");
  if (p.total_q > kMaxRows || p.total_kv > kMaxRows)
    return invalid("total_q and total_kv are limited to 2^31 - 1: cu_seqlens are int32");
  if (p.num_kv_heads < 1 || p.num_qo_heads < 1 || p.num_qo_heads % p.num_kv_heads != 0)
    return invalid("num_kv_heads must divide num_qo_heads");
  if (p.num_qo_heads > kMaxGridY) return unsupported("num_qo_heads is limited to 65535");
  const AttentionLayout& layout = p.layout;
  if (layout.pv != pv || layout.tile_k != kSageMmaTileK || layout.v_tile_keys != kSageMmaTileK ||
      !known_groups(layout))
    return invalid("layout: not one that this kernel described");
  if ((layout.head_dim != 64 && layout.head_dim != 128) ||
      (layout.head_dim_v != 64 && layout.head_dim_v != 128))
    return unsupported("layout.head_dim and layout.head_dim_v: 64 or 128");
  if (p.head_dim_v < 1 || p.head_dim_v > layout.head_dim_v)
    return invalid("head_dim_v: 1 to layout.head_dim_v");
  if (p.o_dtype == DType::kFp32) return unsupported("o_dtype: bf16 or fp16");
  if (p.batch == 0 || p.total_q == 0) return {};
  if (p.cu_seqlens_q == nullptr || p.cu_seqlens_kv == nullptr)
    return invalid("cu_seqlens_q and cu_seqlens_kv must not be null");
  if (p.q_codes == nullptr || p.q_scales == nullptr || p.o == nullptr)
    return invalid("q_codes, q_scales and o must not be null");
  if (p.total_kv > 0 && (p.k_codes == nullptr || p.k_scales == nullptr || p.v_codes == nullptr ||
                         p.v_scales == nullptr))
    return invalid("k_codes, k_scales, v_codes and v_scales must not be null");
  if (!is_aligned(p.q_codes, 16) || !is_aligned(p.k_codes, 16) || !is_aligned(p.v_codes, 16))
    return misaligned("q_codes, k_codes and v_codes must be aligned to 16 bytes");
  if (!is_aligned(p.o, 2)) return misaligned("o must be aligned to its element");
  return {};
}

}  // namespace sage
