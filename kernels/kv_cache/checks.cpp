#include "kv_cache/checks.h"

#include <initializer_list>

#include "status.h"
#include "strides.h"

namespace sage {
namespace {

// A token's heads x channels stay below 2^31.
constexpr int kMaxHeads = 65535;
constexpr int kMaxDim = 16384;
constexpr int64_t kMaxSlots = UINT32_MAX;

bool writes_cache(const RopeKvCacheWriteParams& p) {
  return p.key_cache != nullptr;
}

Status check_rotation(const RopeKvCacheWriteParams& p) {
  if (p.style == RopeStyle::kNone) return {};
  if (p.style != RopeStyle::kNeox && p.style != RopeStyle::kInterleaved) {
    return invalid("unknown rope style");
  }
  if (p.rotary_dim < 0 || p.rotary_dim % 2 != 0) return invalid("rotary_dim must be even");
  if (p.rotary_dim > p.head_dim) return invalid("rotary_dim is above head_dim");
  if (p.cos_sin_dtype != DType::kFp32 && p.cos_sin_dtype != p.dtype) {
    return invalid("cos_sin dtype must be fp32 or that of q and k");
  }
  if (p.max_position < 0) return invalid("max_position is negative");
  if (p.rotary_dim > 0 && p.max_position > 0 && p.cos_sin == nullptr) {
    return invalid("cos_sin is null");
  }
  if (!is_aligned(p.cos_sin, p.cos_sin_dtype == DType::kFp32 ? 4 : 2)) {
    return misaligned("cos_sin must be aligned to its element");
  }
  return {};
}

Status check_rows(const RopeKvCacheWriteParams& p) {
  const bool any = p.total_tokens > 0 && p.batch > 0;
  if (any && p.q_out != nullptr && p.num_qo_heads > 0 && p.q == nullptr)
    return invalid("q is null");
  if (any && (p.k_out != nullptr || writes_cache(p)) && p.k == nullptr) return invalid("k is null");
  if (any && writes_cache(p) && p.v == nullptr) return invalid("v is null");
  for (const int64_t stride :
       {p.q_token_stride, p.q_head_stride, p.k_token_stride, p.k_head_stride, p.v_token_stride,
        p.v_head_stride, p.q_out_token_stride, p.q_out_head_stride, p.k_out_token_stride,
        p.k_out_head_stride, p.k_page_stride, p.k_slot_stride, p.k_cache_head_stride,
        p.v_page_stride, p.v_slot_stride, p.v_cache_head_stride}) {
    if (stride < 0) return invalid("a stride is negative");
  }
  if (p.q_out != nullptr && !stay_apart(p.head_dim, {{p.total_tokens, p.q_out_token_stride},
                                                     {p.num_qo_heads, p.q_out_head_stride}})) {
    return invalid("with these strides rows of q_out overlap");
  }
  if (p.k_out != nullptr && !stay_apart(p.head_dim, {{p.total_tokens, p.k_out_token_stride},
                                                     {p.num_kv_heads, p.k_out_head_stride}})) {
    return invalid("with these strides rows of k_out overlap");
  }
  if (p.q_out != nullptr && p.q_out == p.q &&
      (p.q_out_token_stride != p.q_token_stride || p.q_out_head_stride != p.q_head_stride)) {
    return invalid("q_out is q with other strides");
  }
  if (p.k_out != nullptr && p.k_out == p.k &&
      (p.k_out_token_stride != p.k_token_stride || p.k_out_head_stride != p.k_head_stride)) {
    return invalid("k_out is k with other strides");
  }
  for (const void* pointer :
       {p.q, p.k, p.v, static_cast<const void*>(p.q_out), static_cast<const void*>(p.k_out)}) {
    if (!is_aligned(pointer, 2)) return misaligned("rows must be aligned to their element");
  }
  return {};
}

Status check_cache(const RopeKvCacheWriteParams& p) {
  if ((p.key_cache == nullptr) != (p.value_cache == nullptr)) {
    return invalid("key_cache and value_cache are given together or not at all");
  }
  if (!writes_cache(p)) return {};
  if (p.head_dim_v < 1 || p.head_dim_v > kMaxDim) {
    return invalid("head_dim_v must be in [1, 16384]");
  }
  if (p.page_size < 1) return invalid("page_size must be at least 1");
  if (p.num_pages < 0) return invalid("num_pages is negative");
  if (p.num_pages > kMaxSlots / p.page_size) return unsupported("the cache has 2^32 slots or more");
  if ((p.page_table == nullptr) == (p.slot_mapping == nullptr)) {
    return invalid("give exactly one of page_table and slot_mapping");
  }
  if (p.page_table != nullptr && p.max_pages_per_sequence < 1) {
    return invalid("max_pages_per_sequence must be at least 1");
  }
  if (!stay_apart(p.head_dim, {{p.num_pages, p.k_page_stride},
                               {p.page_size, p.k_slot_stride},
                               {p.num_kv_heads, p.k_cache_head_stride}})) {
    return invalid("with these strides rows of key_cache overlap");
  }
  if (!stay_apart(p.head_dim_v, {{p.num_pages, p.v_page_stride},
                                 {p.page_size, p.v_slot_stride},
                                 {p.num_kv_heads, p.v_cache_head_stride}})) {
    return invalid("with these strides rows of value_cache overlap");
  }
  if (!is_aligned(p.key_cache, 2) || !is_aligned(p.value_cache, 2)) {
    return misaligned("caches must be aligned to their element");
  }
  if (!is_aligned(p.page_table, 4) || !is_aligned(p.slot_mapping, 8)) {
    return misaligned("page_table and slot_mapping must be aligned to their element");
  }
  return {};
}

}  // namespace

Status check(const RopeKvCacheWriteParams& p) {
  if (p.dtype != DType::kBf16 && p.dtype != DType::kFp16) {
    return invalid("dtype must be bf16 or fp16");
  }
  if (p.batch < 0) return invalid("batch is negative");
  if (p.total_tokens < 0 || p.total_tokens > kMaxRows) {
    return invalid("total_tokens must be in [0, 2^31)");
  }
  if (p.num_qo_heads < 0 || p.num_kv_heads < 0 || p.num_qo_heads > kMaxHeads ||
      p.num_kv_heads > kMaxHeads) {
    return invalid("head counts must be in [0, 65535]");
  }
  if (p.num_kv_heads == 0 && (p.k_out != nullptr || writes_cache(p))) {
    return invalid("num_kv_heads is 0, but k_out or a cache is given");
  }
  if (p.head_dim < 1 || p.head_dim > kMaxDim) return invalid("head_dim must be in [1, 16384]");
  if (p.q_out == nullptr && p.k_out == nullptr && p.key_cache == nullptr &&
      p.value_cache == nullptr) {
    return invalid("no output is given");
  }
  if (p.batch > 0 && p.cu_seqlens == nullptr) return invalid("cu_seqlens is null");
  if (!is_aligned(p.cu_seqlens, 4) || !is_aligned(p.kv_len_before, 4)) {
    return misaligned("cu_seqlens and kv_len_before must be aligned to 4 bytes");
  }
  for (const auto part : {check_rotation, check_cache, check_rows}) {
    if (const Status s = part(p); !s.ok()) return s;
  }
  return {};
}

int vector_width(const RopeKvCacheWriteParams& p) {
  const int rotary = p.style == RopeStyle::kNone ? 0 : p.rotary_dim;
  const size_t table_element = p.cos_sin_dtype == DType::kFp32 ? 4 : 2;
  for (int width = 8; width > 1; width /= 2) {
    const auto bytes = static_cast<size_t>(width) * 2;
    const size_t table_bytes = static_cast<size_t>(width) * table_element;
    bool fits = rotary / 2 % width == 0 && p.head_dim % width == 0;
    fits = fits && (rotary == 0 || is_aligned(p.cos_sin, table_bytes < 16 ? table_bytes : 16));
    for (const void* pointer :
         {p.q, p.k, static_cast<const void*>(p.q_out), static_cast<const void*>(p.k_out),
          static_cast<const void*>(p.key_cache)}) {
      fits = fits && is_aligned(pointer, bytes);
    }
    for (const int64_t stride :
         {p.q_token_stride, p.q_head_stride, p.k_token_stride, p.k_head_stride,
          p.q_out_token_stride, p.q_out_head_stride, p.k_out_token_stride, p.k_out_head_stride}) {
      fits = fits && stride % width == 0;
    }
    if (writes_cache(p)) {
      fits = fits && p.head_dim_v % width == 0 && is_aligned(p.v, bytes) &&
             is_aligned(p.value_cache, bytes);
      for (const int64_t stride :
           {p.v_token_stride, p.v_head_stride, p.k_page_stride, p.k_slot_stride,
            p.k_cache_head_stride, p.v_page_stride, p.v_slot_stride, p.v_cache_head_stride}) {
        fits = fits && stride % width == 0;
      }
    }
    if (fits) return width;
  }
  return 1;
}

}  // namespace sage
