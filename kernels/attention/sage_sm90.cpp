// What sage_sm90 can do, the layout it reads, and the checks before a launch.
#include "attention/sage_sm90.h"

#include <algorithm>

#include "attention/common.h"
#include "attention/sage_sm90_tiles.h"
#include "status.h"

namespace sage {

const char* supports_sage_sm90(const AttentionProblem& problem, const SageSettings& settings) {
  if (std::max(problem.head_dim, problem.head_dim_v) > 128) return "head_dim above 128";
  if (problem.head_dim <= 0 || problem.head_dim_v <= 0) return "head_dim must be positive";
  if (problem.head_dim_v % 8 != 0) return "head_dim of V must be a multiple of 8";
  if (padded_head_dim(problem.head_dim) != padded_head_dim(problem.head_dim_v)) {
    return "head_dim of Q and of V must both be at most 64 or both above";
  }
  if (problem.num_kv_heads < 1 || problem.num_qo_heads < 1 ||
      problem.num_qo_heads % problem.num_kv_heads != 0) {
    return "num_kv_heads must divide num_qo_heads";
  }
  if (problem.dtype == DType::kFp32) return "the output is bf16 or fp16";
  if (settings.pv != PvType::kFp8E4m3) return "P V in FP8 only";
  if (settings.qk_granularity == Granularity::kPerBlock) {
    return "scales of Q and K per thread or per warp only";
  }
  return nullptr;
}

AttentionLayout sage_sm90_layout(const AttentionProblem& problem, const SageSettings& settings) {
  AttentionLayout layout;
  layout.head_dim = layout.head_dim_v =
      padded_head_dim(std::max(problem.head_dim, problem.head_dim_v));
  layout.tile_q = layout.head_dim == 128 ? kTileRowsD128 : kTileRowsD64;
  layout.tile_k = 64;
  layout.q_groups = query_groups(kQueryBlock, settings.qk_granularity);
  layout.k_groups = key_groups(kTileKeys, settings.qk_granularity);
  layout.pv = PvType::kFp8E4m3;
  layout.v_tile_keys = kTileKeys;
  layout.v_key_order = fragment_key_order();
  layout.p = settings.p;
  layout.p_offset = 0.0f;
  layout.reference.used = true;
  layout.reference.max_code = kMaxCode;
  layout.reference.top_code = kReferenceTop;
  layout.reference.low_code = kReferenceLow;
  layout.reference.span_octaves = kReferenceSpan;
  layout.promote_keys = kPromoteKeys;
  layout.accumulator_bits = 13;
  layout.row_sum_promoted = true;
  layout.lse_bias = settings.p == PMode::kLinear ? kLinearSumBias : 0.0f;
  return layout;
}

// Two counters, then for every sequence its place in the order of work and the items up to it.
size_t sage_sm90_workspace_bytes(const AttentionParams& params) {
  return 2 * sizeof(int32_t) * (1 + static_cast<size_t>(std::max(params.batch, 1)));
}

Status check_sage_sm90(const AttentionParams& p) {
  if (const Status status = check_sizes(p); !status.ok()) return status;
  const AttentionProblem problem = problem_of(p);
  const SageSettings settings = settings_of(p.layout);
  if (const char* reason = supports_sage_sm90(problem, settings)) return unsupported(reason);
  if (const char* reason = difference(p.layout, sage_sm90_layout(problem, settings))) {
    return unsupported(reason);
  }
  if (p.total_q > kMaxTokens || p.total_kv > kMaxTokens) {
    return unsupported("total_q and total_kv are at most 2^29");
  }
  // Items and tiles are counted in 32 bits; half the range is left for CTAs that find no more.
  if (block_count(p.total_q, p.batch, p.layout.tile_q) > kMaxItems / p.num_qo_heads ||
      block_count(p.total_kv, p.batch, kTileKeys) > kMaxItems / p.num_kv_heads) {
    return unsupported("more than 2^30 tiles times heads");
  }
  if (const Status status = check_arrays(p); !status.ok()) return status;
  if (p.batch == 0 || p.total_q == 0) return {};
  if (!is_aligned(p.o, 16) || p.o_token_stride % 8 != 0 || p.o_head_stride % 8 != 0) {
    return misaligned("o must be aligned to 16 bytes, its strides to 8 elements");
  }
  if (p.workspace == nullptr || p.workspace_bytes < sage_sm90_workspace_bytes(p)) {
    return {StatusCode::kWorkspaceTooSmall, "workspace below AttentionKernel::workspace_bytes"};
  }
  if (!is_aligned(p.workspace, 16)) return misaligned("workspace must be aligned to 16 bytes");
  return {};
}

AttentionKernel sage_sm90_row() {
  AttentionKernel row = {};
  row.name = "sage_sm90";
  row.architectures = "sm_90a";
  row.defaults.p = PMode::kLinear;
  row.supports = supports_sage_sm90;
  row.runs_on = [](int compute_capability) { return compute_capability == 90; };
  row.layout = sage_sm90_layout;
  row.check = check_sage_sm90;
#ifdef SAGE_WITH_CUDA
  row.launch = launch_sage_sm90;
#endif
  row.workspace_bytes = sage_sm90_workspace_bytes;
  return row;
}

}  // namespace sage
