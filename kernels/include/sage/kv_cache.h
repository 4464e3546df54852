// Rotary position embedding and paged KV-cache write in one pass over a packed qkv.
//
// A pair (x, y) at position pos becomes (x cos - y sin, y cos + x sin), in fp32, rounded once
// (RoFormer, arXiv 2104.09864). V is copied bit for bit.
//
// All pointers are device addresses, aligned to their element; strides are in elements, channel
// stride 1. Accesses are up to 16 bytes wide: as wide as every pointer, stride, head_dim,
// head_dim_v and rotary_dim / 2 allows. Whatever cu_seqlens, kv_len_before, page_table and
// slot_mapping hold, nothing outside of the arrays described here is read or written.
#pragma once
#include "sage/types.h"

namespace sage {

enum class RopeStyle {
  kNone,        // copy
  kNeox,        // pairs (i, i + rotary_dim / 2)
  kInterleaved  // pairs (2i, 2i + 1)
};

struct RopeKvCacheWriteParams {
  DType dtype = DType::kBf16;  // of q, k, v and both caches: kBf16 or kFp16
  int batch = 0;
  int num_qo_heads = 0;  // at most 65535; 0: no q
  int num_kv_heads = 0;  // at most 65535; 0: no k and v
  int head_dim = 0;      // channels of q and k, 1 .. 16384
  int head_dim_v = 0;    // channels of v, 1 .. 16384; not read without a cache
  // Rows of q, k, v, at most 2^31 - 1; those from cu_seqlens[batch] on are padding: not read.
  int64_t total_tokens = 0;

  // Packed rows: [total_tokens, heads, dim]. For a fused qkv all three point into one buffer and
  // share token_stride. Strides are 0 or above.
  const void* q = nullptr;  // read if q_out
  const void* k = nullptr;  // read if k_out or a cache
  const void* v = nullptr;  // read if a cache
  int64_t q_token_stride = 0, q_head_stride = 0;
  int64_t k_token_stride = 0, k_head_stride = 0;
  int64_t v_token_stride = 0, v_head_stride = 0;

  // Token t of sequence b is row cu_seqlens[b] + t, at position kv_len_before[b] + t.
  const int32_t* cu_seqlens = nullptr;     // [batch + 1], device
  const int32_t* kv_len_before = nullptr;  // [batch], device, or nullptr: all 0

  // Rotation table [max_position, rotary_dim] without gaps: cos in the first half of a row, sin in
  // the second.
  RopeStyle style = RopeStyle::kNeox;
  int rotary_dim = 0;  // even, <= head_dim; channels from rotary_dim on are copied
  const void* cos_sin = nullptr;
  DType cos_sin_dtype = DType::kFp32;  // kFp32 or dtype
  // A token at or past it is skipped: nothing written, no row read. kNone reads no table and has no
  // such limit.
  int64_t max_position = 0;

  // Rotated q and k, for attention. q_out may be q itself (in place, with the strides of q), k_out
  // may be k; any other overlap is an error that is not noticed. nullptr: not wanted. Rows do not
  // overlap: the smaller stride is at least head_dim, the larger goes past all rows of the smaller.
  void* q_out = nullptr;
  void* k_out = nullptr;
  int64_t q_out_token_stride = 0, q_out_head_stride = 0;
  int64_t k_out_token_stride = 0, k_out_head_stride = 0;

  // Caches as pages of slots. HND is [page][head][slot][dim], NHD [page][slot][head][dim]: the same
  // code through strides, which may also describe views of a larger buffer. Slots do not overlap:
  // each stride goes past all that lies within the smaller ones.
  void* key_cache = nullptr;  // nullptr (with value_cache): rotate only
  void* value_cache = nullptr;
  int64_t num_pages = 0;  // num_pages * page_size stays below 2^32
  int page_size = 0;      // tokens per page, any >= 1
  int64_t k_page_stride = 0, k_slot_stride = 0, k_cache_head_stride = 0;
  int64_t v_page_stride = 0, v_slot_stride = 0, v_cache_head_stride = 0;

  // Exactly one of the two. A negative page or slot, or one outside the cache, is skipped: q_out
  // and k_out are still written, the cache is not.
  const int32_t* page_table = nullptr;  // [batch, max_pages_per_sequence], device
  int max_pages_per_sequence = 0;
  const int64_t* slot_mapping = nullptr;  // [total_tokens]: page * page_size + slot, device
};

Status launch_rope_kv_cache_write(const RopeKvCacheWriteParams& params, Stream stream);

}  // namespace sage
