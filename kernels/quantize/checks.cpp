#include "quantize/checks.h"

#include "status.h"

namespace sage {
namespace {

Status check_packed(const PackedTensor& x, const int32_t* cu_seqlens, int batch, int padded) {
  if (batch < 0) return invalid("batch is negative");
  if (x.total_tokens < 0 || x.total_tokens > kMaxRows) {
    return invalid("total_tokens must be in [0, 2^31)");
  }
  if (x.dtype != DType::kBf16 && x.dtype != DType::kFp16) {
    return invalid("input dtype must be bf16 or fp16");
  }
  if (x.num_heads < 1 || x.num_heads > kMaxGridY) return invalid("num_heads must be in [1, 65535]");
  if (padded != 64 && padded != 128) return unsupported("padded head_dim must be 64 or 128");
  if (x.head_dim < 1 || x.head_dim > padded) {
    return invalid("head_dim must be in [1, padded head_dim]");
  }
  if (x.token_stride < 0 || x.head_stride < 0) return invalid("an input stride is negative");
  if (batch > 0 && cu_seqlens == nullptr) return invalid("cu_seqlens is null");
  if (x.total_tokens > 0 && x.data == nullptr) return invalid("input data is null");
  if (!is_aligned(x.data, 2)) return misaligned("input data must be aligned to its element");
  if (!is_aligned(cu_seqlens, 4)) return misaligned("cu_seqlens must be aligned to 4 bytes");
  return {};
}

Status check_grid(int64_t total_tokens, int batch, int block) {
  return block_count(total_tokens, batch, block) <= kMaxGridX
             ? Status{}
             : unsupported("more than 2^31 - 1 blocks of tokens");
}

int groups_of(GroupPattern pattern) {
  switch (pattern) {
    case GroupPattern::kAll:
      return 1;
    case GroupPattern::kRowMod8:
      return 8;
    case GroupPattern::kPairMod4:
      return 4;
  }
  return 0;
}

bool is_known(PvType pv) {
  return pv == PvType::kFp8E4m3 || pv == PvType::kFp16;
}

bool is_permutation(const std::array<uint8_t, AttentionLayout::kKeyOrder>& order) {
  unsigned seen = 0;
  for (const uint8_t key : order) {
    if (key >= order.size()) return false;
    seen |= 1u << key;
  }
  return seen == (1u << order.size()) - 1;
}

}  // namespace

bool loads_in_vectors(const PackedTensor& x) {
  return x.head_dim % 8 == 0 && x.token_stride % 8 == 0 && x.head_stride % 8 == 0 &&
         is_aligned(x.data, 16);
}

size_t channel_stats_workspace_bytes(const ChannelStatsParams& p) {
  if (!needs_stats_partials(p)) return 0;
  return static_cast<size_t>(p.x.total_tokens / kStatsChunkTokens) *
         static_cast<size_t>(p.x.num_heads) * static_cast<size_t>(p.padded_head_dim) *
         kStatsPerChannel * sizeof(float);
}

size_t v_codes_bytes(const AttentionLayout& layout, int64_t total_tokens, int num_heads,
                     int batch) {
  const auto row = static_cast<size_t>(num_heads) * static_cast<size_t>(layout.head_dim_v);
  if (layout.pv == PvType::kFp16) return static_cast<size_t>(total_tokens) * row * 2;
  return static_cast<size_t>(block_count(total_tokens, batch, layout.v_tile_keys)) * row *
         static_cast<size_t>(layout.v_tile_keys);
}

// Partial sums [block_count][num_heads][head_dim_v].
size_t quantize_v_workspace_bytes(const QuantizeVParams& p) {
  return static_cast<size_t>(block_count(p.v.total_tokens, p.batch, p.layout.v_tile_keys)) *
         static_cast<size_t>(p.v.num_heads) * static_cast<size_t>(p.layout.head_dim_v) *
         sizeof(float);
}

Status check(const ChannelStatsParams& p) {
  if (const Status s = check_packed(p.x, p.cu_seqlens, p.batch, p.padded_head_dim); !s.ok()) {
    return s;
  }
  if (p.smooth != Smooth::kNone && p.smooth != Smooth::kMean && p.smooth != Smooth::kSampled) {
    return invalid("unknown smooth");
  }
  if (p.batch > 0 && p.offset == nullptr) return invalid("offset is null");
  if (!is_aligned(p.offset, 4) || !is_aligned(p.scale, 4)) {
    return misaligned("offset and scale must be aligned to 4 bytes");
  }
  if (p.scale != nullptr &&
      (!is_known(p.pv) || (p.v_scale != VScale::kPerChannel && p.v_scale != VScale::kPerHead))) {
    return invalid("unknown pv or v_scale");
  }
  if (p.scale != nullptr && !(p.v_code_max > 0.0f && p.v_code_max <= 65504.0f)) {
    return invalid("v_code_max must be in (0, 65504]");
  }
  const size_t needed = channel_stats_workspace_bytes(p);
  if (p.workspace_bytes < needed) {
    return {StatusCode::kWorkspaceTooSmall, "workspace below channel_stats_workspace_bytes"};
  }
  if (needed > 0 && p.workspace == nullptr) return invalid("workspace is null");
  if (!is_aligned(p.workspace, 16)) return misaligned("workspace must be aligned to 16 bytes");
  return {};
}

Status check(const QuantizeInt8Params& p) {
  if (const Status s = check_packed(p.x, p.cu_seqlens, p.batch, p.padded_head_dim); !s.ok()) {
    return s;
  }
  const int block = p.groups.block_tokens;
  if (block != 16 && block != 32 && block != 64 && block != 128) {
    return unsupported("groups.block_tokens must be 16, 32, 64 or 128");
  }
  const int groups = groups_of(p.groups.pattern);
  if (groups == 0 || p.groups.groups_per_block != groups) {
    return invalid("groups.groups_per_block does not match the pattern");
  }
  if (p.rotate != Rotate::kNone && p.rotate != Rotate::kHadamard) return invalid("unknown rotate");
  if (const Status s = check_grid(p.x.total_tokens, p.batch, block); !s.ok()) return s;
  if (p.x.total_tokens > 0 && (p.codes == nullptr || p.scales == nullptr)) {
    return invalid("codes or scales is null");
  }
  if (!is_aligned(p.codes, 8)) return misaligned("codes must be aligned to 8 bytes");
  if (!is_aligned(p.scales, 4) || !is_aligned(p.dot, 4)) {
    return misaligned("scales and dot must be aligned to 4 bytes");
  }
  if (!is_aligned(p.offset, 16) || !is_aligned(p.dot_offset, 16)) {
    return misaligned("offset and dot_offset must be aligned to 16 bytes");
  }
  if ((p.dot == nullptr) != (p.dot_offset == nullptr)) {
    return invalid("dot and dot_offset are given together or not at all");
  }
  if (p.dot != nullptr && (p.dot_num_heads < 1 || p.x.num_heads % p.dot_num_heads != 0)) {
    return invalid("dot_num_heads must divide num_heads");
  }
  return {};
}

Status check(const QuantizeVParams& p) {
  if (const Status s = check_packed(p.v, p.cu_seqlens, p.batch, p.layout.head_dim_v); !s.ok()) {
    return s;
  }
  if (!is_known(p.layout.pv)) return invalid("unknown layout.pv");
  const int keys = p.layout.v_tile_keys;
  if (keys < 16 || keys > 256 || keys % AttentionLayout::kKeyOrder != 0) {
    return unsupported("v_tile_keys must be a multiple of 16 up to 256");
  }
  if (p.layout.pv == PvType::kFp8E4m3 && !is_permutation(p.layout.v_key_order)) {
    return invalid("v_key_order is not a permutation of 0 .. 15");
  }
  if (const Status s = check_grid(p.v.total_tokens, p.batch, keys); !s.ok()) return s;
  if (p.v.total_tokens > 0 && (p.codes == nullptr || p.offset == nullptr || p.scale == nullptr)) {
    return invalid("codes, offset or scale is null");
  }
  if (!is_aligned(p.codes, 16) || !is_aligned(p.offset, 16) || !is_aligned(p.scale, 16)) {
    return misaligned("codes, offset and scale must be aligned to 16 bytes");
  }
  if (p.o_offset == nullptr) return {};
  if (p.layout.pv != PvType::kFp8E4m3) return unsupported("o_offset is for FP8 codes");
  if (!is_aligned(p.o_offset, 4)) return misaligned("o_offset must be aligned to 4 bytes");
  if (p.batch > 0 && (p.offset == nullptr || p.scale == nullptr)) {
    return invalid("o_offset needs offset and scale");
  }
  if (p.workspace_bytes < quantize_v_workspace_bytes(p)) {
    return {StatusCode::kWorkspaceTooSmall, "workspace below quantize_v_workspace_bytes"};
  }
  if (p.batch > 0 && p.workspace == nullptr) return invalid("workspace is null");
  if (!is_aligned(p.workspace, 16)) return misaligned("workspace must be aligned to 16 bytes");
  return {};
}

}  // namespace sage
