#include "attention/sage_mma.h"

#include "attention/common.h"
#include "status.h"

namespace sage {
namespace {

constexpr KeyOrder identity_key_order() {
  KeyOrder order{};
  for (size_t p = 0; p < order.size(); ++p) order[p] = static_cast<uint8_t>(p);
  return order;
}

}  // namespace

const char* sage_mma_supports(PvType pv, const AttentionProblem& problem,
                              const SageSettings& settings) {
  if (problem.head_dim < 1 || problem.head_dim_v < 1) return "head_dim must be positive";
  if (problem.head_dim > 128 || problem.head_dim_v > 128) return "head_dim is at most 128";
  if (problem.num_kv_heads < 1 || problem.num_qo_heads < 1 ||
      problem.num_qo_heads % problem.num_kv_heads != 0) {
    return "num_kv_heads must divide num_qo_heads";
  }
  if (problem.num_qo_heads > kMaxGridY) return "num_qo_heads is at most 65535";
  if (problem.dtype != DType::kBf16 && problem.dtype != DType::kFp16) {
    return "inputs and output are bf16 or fp16";
  }
  if (settings.pv != pv) {
    return pv == PvType::kFp8E4m3 ? "P V runs in FP8; sage_mma_fp16 has FP16"
                                  : "P V runs in FP16; sage_mma_fp8 has FP8";
  }
  if (pv == PvType::kFp16 && settings.correct_v) return "correct_v is for FP8 codes of V";
  if (settings.p != PMode::kExp2) return "P is exp2; linear codes are not available";
  return nullptr;
}

AttentionLayout sage_mma_layout(PvType pv, const AttentionProblem& problem,
                                const SageSettings& settings) {
  const bool fp8 = pv == PvType::kFp8E4m3;
  AttentionLayout l;
  l.head_dim = padded_head_dim(problem.head_dim);
  l.head_dim_v = padded_head_dim(problem.head_dim_v);
  l.tile_q = kSageMmaTileQ;
  l.tile_k = kSageMmaTileK;
  const Granularity granularity = settings.qk_granularity;
  l.q_groups = query_groups(
      granularity == Granularity::kPerBlock ? kSageMmaTileQ : kSageMmaWarpRows, granularity);
  l.k_groups = key_groups(kSageMmaTileK, granularity);
  l.pv = pv;
  l.v_tile_keys = kSageMmaTileK;
  l.v_key_order = fp8 ? fragment_key_order() : identity_key_order();
  // FP16: 2^15 keeps 29 octaves of V below its largest value, and sums of 64 products with P stay
  // far inside fp32.
  l.v_code_max = fp8 ? 448.0f : 32768.0f;
  l.p = PMode::kExp2;
  l.p_offset = fp8 ? kSageMmaPOffsetFp8 : kSageMmaPOffsetFp16;
  l.promote_keys = kSageMmaTileK;
  l.accumulator_bits = 0;
  return l;
}

Status check_sage_mma(PvType pv, const AttentionParams& p) {
  if (const Status status = check_sizes(p); !status.ok()) return status;
  const AttentionProblem problem = problem_of(p);
  const SageSettings settings = settings_of(p.layout);
  if (const char* reason = sage_mma_supports(pv, problem, settings)) return unsupported(reason);
  if (const char* reason = difference(p.layout, sage_mma_layout(pv, problem, settings))) {
    return unsupported(reason);
  }
  if (block_count(p.total_q, p.batch, kSageMmaTileQ) > kMaxGridX) {
    return unsupported("more than 2^31 - 1 query tiles");
  }
  return check_arrays(p);
}

}  // namespace sage
