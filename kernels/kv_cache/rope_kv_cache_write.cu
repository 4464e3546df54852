// Rotary embedding of q and k and the paged write of k and v. One CTA per token: warp 0 finds the
// token's sequence, position and slot; then every thread takes a fixed column of channels, keeps
// its cos and sin in registers and walks the heads.
//
// In place is safe: both halves of a pair are read by the thread that writes them, before it does.
#include "device/convert.cuh"
#include "device/launch.cuh"
#include "device/packed.cuh"
#include "device/vec.cuh"
#include "kv_cache/checks.h"
#include "sage/kv_cache.h"

namespace sage {
namespace {

constexpr int kThreads = 256;

struct Token {
  bool live;         // false: padding row or past max_position
  int64_t position;  // in the sequence, cached tokens included
  int64_t page;      // -1: not cached
  int64_t slot;      // in the page
};

// Called by one warp.
__device__ __forceinline__ Token find_token(const RopeKvCacheWriteParams& p, int64_t row) {
  const int b = device::last_at_most(p.batch, row, [&](int i) { return p.cu_seqlens[i]; });
  const int64_t start = p.cu_seqlens[b];
  Token token{row >= start && row < p.cu_seqlens[b + 1], row - start, -1, 0};
  if (p.kv_len_before != nullptr) token.position += p.kv_len_before[b];
  token.live = token.live && token.position >= 0 &&
               (p.style == RopeStyle::kNone || token.position < p.max_position);
  if (!token.live || p.key_cache == nullptr) return token;

  // Positions and slots are below 2^32: 32-bit division.
  const auto page_size = static_cast<uint32_t>(p.page_size);
  int64_t slot = token.position;
  int64_t page = -1;
  if (p.slot_mapping != nullptr) {
    slot = p.slot_mapping[row];
    if (slot >= 0 && slot < p.num_pages * p.page_size)
      page = static_cast<uint32_t>(slot) / page_size;
  } else {
    const uint32_t index = static_cast<uint32_t>(slot) / page_size;
    if (index < static_cast<uint32_t>(p.max_pages_per_sequence)) {
      page = p.page_table[int64_t{b} * p.max_pages_per_sequence + index];
    }
  }
  if (page >= 0 && page < p.num_pages) {
    token.page = page;
    token.slot = static_cast<uint32_t>(slot) % page_size;
  }
  return token;
}

// kVec consecutive entries of the rotation table as fp32.
template <class Table, int kVec>
__device__ __forceinline__ void load_table(const void* table, int64_t index, float (&x)[kVec]) {
  if constexpr (std::is_same_v<Table, float>) {
    const auto* from = static_cast<const float*>(table) + index;
    if constexpr (kVec == 8) {
      device::load_floats(from, x);
    } else {
      const auto bits = device::load_bits<2 * kVec>(reinterpret_cast<const uint16_t*>(from));
      memcpy(&x, &bits, sizeof x);
    }
  } else {
    const auto bits = device::load_bits<kVec>(static_cast<const uint16_t*>(table) + index);
#pragma unroll
    for (int i = 0; i < kVec; ++i) x[i] = device::float_of<Table>(bits.at[i]);
  }
}

template <class T>
__device__ __forceinline__ void rotate_pair(float cos, float sin, uint16_t& x_bits,
                                            uint16_t& y_bits) {
  const float x = device::float_of<T>(x_bits), y = device::float_of<T>(y_bits);
  x_bits = device::bits_of<T>(x * cos - y * sin);
  y_bits = device::bits_of<T>(y * cos + x * sin);
}

// NeoX pairs element i of the two vectors; interleaved pairs neighbours within each.
template <class T, int kVec>
__device__ __forceinline__ void rotate_unit(bool neox, const float (&cos)[kVec],
                                            const float (&sin)[kVec], device::Bits16<kVec>& first,
                                            device::Bits16<kVec>& second) {
  if (neox || kVec == 1) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) rotate_pair<T>(cos[i], sin[i], first.at[i], second.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      device::Bits16<kVec>& both = i < kVec / 2 ? first : second;
      rotate_pair<T>(cos[i], sin[i], both.at[2 * i % kVec], both.at[(2 * i + 1) % kVec]);
    }
  }
}

template <class T, class Table, int kVec>
__global__ void __launch_bounds__(kThreads)
    rope_kv_cache_write_kernel(const RopeKvCacheWriteParams p) {
  using Bits = device::Bits16<kVec>;
  __shared__ Token shared_token;
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 32) {
    const Token token = find_token(p, row);
    if (thread == 0) shared_token = token;
  }
  __syncthreads();
  const Token token = shared_token;
  if (!token.live) return;
  const bool cached = token.page >= 0;

  // A unit is two vectors whose elements form pairs, or one vector that is copied.
  const bool neox = p.style == RopeStyle::kNeox;
  const int half = p.rotary_dim / 2;
  const int pair_units = half / kVec;
  const int units = pair_units + (p.head_dim - p.rotary_dim) / kVec;
  const int columns = min(units, kThreads);
  const int rows = kThreads / columns;
  const int first_head = p.q_out != nullptr ? 0 : p.num_qo_heads;
  const int last_head = p.num_qo_heads + (p.k_out != nullptr || cached ? p.num_kv_heads : 0);

  for (int unit = thread % columns; unit < units && thread < columns * rows; unit += columns) {
    const bool rotates = unit < pair_units;
    const int a = !rotates ? p.rotary_dim + (unit - pair_units) * kVec
                  : neox   ? unit * kVec
                           : 2 * unit * kVec;
    const int b = neox ? a + half : a + kVec;
    float cos[kVec], sin[kVec];
    if (rotates) {
      const int64_t entry = token.position * p.rotary_dim + unit * kVec;
      load_table<Table>(p.cos_sin, entry, cos);
      load_table<Table>(p.cos_sin, entry + half, sin);
    }
    for (int h = first_head + thread / columns; h < last_head; h += rows) {
      const bool is_q = h < p.num_qo_heads;
      const int64_t head = is_q ? h : h - p.num_qo_heads;
      const auto* in = static_cast<const uint16_t*>(is_q ? p.q : p.k) +
                       row * (is_q ? p.q_token_stride : p.k_token_stride) +
                       head * (is_q ? p.q_head_stride : p.k_head_stride);
      Bits first = device::load_bits<kVec>(in + a), second{};
      if (rotates) {
        second = device::load_bits<kVec>(in + b);
        rotate_unit<T>(neox, cos, sin, first, second);
      }
      uint16_t* out = static_cast<uint16_t*>(is_q ? p.q_out : p.k_out);
      if (out != nullptr) {
        out += row * (is_q ? p.q_out_token_stride : p.k_out_token_stride) +
               head * (is_q ? p.q_out_head_stride : p.k_out_head_stride);
        device::store_bits<kVec>(out + a, first);
        if (rotates) device::store_bits<kVec>(out + b, second);
      }
      if (!is_q && cached) {
        out = static_cast<uint16_t*>(p.key_cache) + token.page * p.k_page_stride +
              token.slot * p.k_slot_stride + head * p.k_cache_head_stride;
        device::store_bits<kVec>(out + a, first);
        if (rotates) device::store_bits<kVec>(out + b, second);
      }
    }
  }

  if (!cached) return;
  const int v_units = p.head_dim_v / kVec;
  for (int i = thread; i < v_units * p.num_kv_heads; i += kThreads) {
    const int64_t head = i / v_units;
    const int channel = i % v_units * kVec;
    const auto* in = static_cast<const uint16_t*>(p.v) + row * p.v_token_stride +
                     head * p.v_head_stride + channel;
    auto* out = static_cast<uint16_t*>(p.value_cache) + token.page * p.v_page_stride +
                token.slot * p.v_slot_stride + head * p.v_cache_head_stride + channel;
    device::store_bits<kVec>(out, device::load_bits<kVec>(in));
  }
}

}  // namespace

Status launch_rope_kv_cache_write(const RopeKvCacheWriteParams& params, Stream stream) {
  if (const Status status = check(params); !status.ok()) return status;
  if (params.total_tokens == 0 || params.batch == 0) return {};
  RopeKvCacheWriteParams p = params;
  if (p.style == RopeStyle::kNone) p.rotary_dim = 0;
  return device::with_type(p.dtype, [&](auto type) {
    return device::with_bool(p.cos_sin_dtype == DType::kFp32, [&](auto fp32_table) {
      return device::with_int<8, 4, 2, 1>(vector_width(p), [&](auto width) {
        using T = decltype(type);
        using Table = std::conditional_t<fp32_table(), float, T>;
        return device::launch(rope_kv_cache_write_kernel<T, Table, width()>,
                              dim3(static_cast<unsigned>(p.total_tokens)), kThreads, 0, stream, p);
      });
    });
  });
}

}  // namespace sage
