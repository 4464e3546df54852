// What sage_sm90 can do, the layout it reads, and the checks before a launch.
#include "attention/sage_sm90.h"

#include <algorithm>
#include <cmath>

#include "attention/sage_sm90_tiles.h"
#include "status.h"

namespace sage {
namespace {

int padded(int head_dim) {
  return head_dim <= 64 ? 64 : 128;
}

}  // namespace

const char* supports_sage_sm90(const AttentionProblem& problem, const SageSettings& settings) {
  if (std::max(problem.head_dim, problem.head_dim_v) > 128) return "head_dim above 128";
  if (problem.head_dim <= 0 || problem.head_dim_v <= 0) return "head_dim must be positive";
  if (problem.head_dim_v % 8 != 0) return "head_dim of V must be a multiple of 8";
  if (padded(problem.head_dim) != padded(problem.head_dim_v)) {
    return "head_dim of Q and of V must both be at most 64 or both above";
  }
  if (problem.num_kv_heads <= 0 || problem.num_qo_heads % problem.num_kv_heads != 0) {
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
  const bool per_thread = settings.qk_granularity == Granularity::kPerThread;
  AttentionLayout layout;
  layout.head_dim = layout.head_dim_v = padded(std::max(problem.head_dim, problem.head_dim_v));
  layout.tile_q = layout.head_dim == 128 ? kTileRowsD128 : kTileRowsD64;
  layout.tile_k = 64;
  layout.q_groups = per_thread ? ScaleGroups{kQueryBlock, 8, GroupPattern::kRowMod8}
                               : ScaleGroups{kQueryBlock, 1, GroupPattern::kAll};
  layout.k_groups = per_thread ? ScaleGroups{kTileKeys, 4, GroupPattern::kPairMod4}
                               : ScaleGroups{kTileKeys, 1, GroupPattern::kAll};
  layout.pv = PvType::kFp8E4m3;
  layout.v_tile_keys = kTileKeys;
  // Byte j of lane t's A fragment holds P of key 8 (j / 2) + 2 t + j % 2: what its scores are.
  for (int position = 0; position < AttentionLayout::kKeyOrder; ++position) {
    const int lane = position / 4, byte = position % 4;
    layout.v_key_order[static_cast<size_t>(position)] =
        static_cast<uint8_t>(8 * (byte / 2) + 2 * lane + byte % 2);
  }
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
  if (p.batch < 0 || p.total_q < 0 || p.total_kv < 0) return invalid("negative sizes");
  if (p.num_kv_heads <= 0 || p.num_qo_heads <= 0 || p.num_qo_heads % p.num_kv_heads != 0) {
    return invalid("num_kv_heads must divide num_qo_heads");
  }
  if (p.layout.head_dim != p.layout.head_dim_v ||
      (p.layout.head_dim != 64 && p.layout.head_dim != 128)) {
    return unsupported("head_dim and head_dim_v must both be padded to 64 or to 128");
  }
  if (p.layout.pv != PvType::kFp8E4m3 || p.layout.v_tile_keys != kTileKeys ||
      p.layout.q_groups.block_tokens != kQueryBlock ||
      p.layout.k_groups.block_tokens != kTileKeys) {
    return invalid("the layout is not the one of sage_sm90");
  }
  if (p.head_dim_v <= 0 || p.head_dim_v > p.layout.head_dim_v || p.head_dim_v % 8 != 0) {
    return unsupported("head_dim_v must be a multiple of 8 within the layout's");
  }
  if (p.o_dtype == DType::kFp32) return unsupported("the output is bf16 or fp16");
  if (!(std::isfinite(p.sm_scale) && p.sm_scale > 0.0f)) {
    return invalid("sm_scale must be finite and above 0");
  }
  if (p.total_q >= INT32_MAX || p.total_kv >= INT32_MAX - kTileKeys) {
    return unsupported("at most 2^31 packed tokens");
  }
  if (p.batch == 0 || p.total_q == 0) return {};
  if (!p.cu_seqlens_q || !p.cu_seqlens_kv || !p.q_codes || !p.q_scales || !p.o) {
    return invalid("a required pointer is null");
  }
  if (p.total_kv > 0 && (!p.k_codes || !p.k_scales || !p.v_codes || !p.v_scales)) {
    return invalid("a required pointer is null");
  }
  if (!is_aligned(p.q_codes, 16) || !is_aligned(p.k_codes, 16) || !is_aligned(p.v_codes, 16)) {
    return misaligned("codes of Q, K and V must be 16-byte aligned");
  }
  if (!is_aligned(p.o, 16) || p.o_token_stride % 8 != 0 || p.o_head_stride % 8 != 0) {
    return misaligned("o and its strides must be multiples of 16 bytes");
  }
  if (!is_aligned(p.workspace, 16)) return misaligned("the workspace must be 16-byte aligned");
  if (!p.workspace || p.workspace_bytes < sage_sm90_workspace_bytes(p)) {
    return {StatusCode::kWorkspaceTooSmall, "see AttentionKernel::workspace_bytes"};
  }
  return {};
}

AttentionKernel sage_sm90_row() {
  AttentionKernel row = {};
  row.name = "sage_sm90";
  row.architectures = "sm_90a";
  row.defaults.p = PMode::kLinear;
  row.defaults.smooth_v = Smooth::kNone;
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
