// Codes of V. One CTA takes the keys of one tile of one head.
//
// FP8: a thread turns four keys in storage order x eight channels into eight words of four codes,
// the tile is transposed in shared memory and leaves as one contiguous run of words. Where an
// o_offset is wanted, each CTA also sums what rounding took, and correct_offset_kernel adds these
// sums in the order of the tiles.
// FP16: rows stay rows.
#include "device/convert.cuh"
#include "device/launch.cuh"
#include "device/packed.cuh"
#include "quantize/checks.h"
#include "sage/quantize.h"

namespace sage {
namespace {

constexpr int kThreads = 256;
constexpr int kKeysPerWord = 4;

// v_key_order in 4 bits each: a shift, where an indexed array would lie in local memory.
uint64_t key_order_of(const AttentionLayout& layout) {
  uint64_t order = 0;
  for (int i = 0; i < AttentionLayout::kKeyOrder; ++i) {
    order |= uint64_t{layout.v_key_order[i]} << 4 * i;
  }
  return order;
}

// (v - offset) / scale of eight channels of a row; padding channels 0.
struct ChannelQuotient {
  float offset[8];
  device::Divisor by_scale[8];
  __device__ __forceinline__ ChannelQuotient(const QuantizeVParams& p, int64_t channels) {
    float scale[8];
    device::load_floats(p.offset + channels, offset);
    device::load_floats(p.scale + channels, scale);
#pragma unroll
    for (int c = 0; c < 8; ++c) by_scale[c] = device::Divisor(scale[c]);
  }
  __device__ __forceinline__ void apply(int channel, int head_dim, float (&x)[8]) const {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      x[c] = channel + c < head_dim ? by_scale[c].quotient(x[c] - offset[c]) : 0.0f;
    }
  }
};

// Partial sums of tile `index` of a head, one per channel.
template <int kPadded>
__device__ __forceinline__ float* partial_at(const QuantizeVParams& p, int64_t index, int head) {
  return static_cast<float*>(p.workspace) + (index * p.v.num_heads + head) * kPadded;
}

template <class T, int kPadded, bool kVectors>
__global__ void __launch_bounds__(kThreads)
    quantize_v_fp8_kernel(const QuantizeVParams p, const uint64_t order) {
  constexpr int kLanes = kPadded / 8;
  extern __shared__ uint32_t tile[];  // [kPadded][words + 1]: the pad spreads channels over banks
  const int words = p.layout.v_tile_keys / kKeysPerWord;
  const device::TokenBlock block =
      device::find_block(p.cu_seqlens, p.batch, p.layout.v_tile_keys, blockIdx.x);
  if (block.tokens <= 0) return;

  const int head = blockIdx.y;
  const int channel = static_cast<int>(threadIdx.x) % kLanes * 8;
  const auto* data = static_cast<const uint16_t*>(p.v.data) + head * p.v.head_stride;
  const ChannelQuotient quotient(
      p, (int64_t{block.sequence} * p.v.num_heads + head) * kPadded + channel);
  float lost[8] = {};  // to rounding, of this thread's keys

  for (int word = static_cast<int>(threadIdx.x) / kLanes; word < words; word += kThreads / kLanes) {
    const auto keys = static_cast<uint32_t>(order >> 4 * kKeysPerWord * (word % 4));
    const int first = word / 4 * AttentionLayout::kKeyOrder;
    float x[kKeysPerWord][8] = {};  // keys past the sequence's end stay 0
#pragma unroll
    for (int i = 0; i < kKeysPerWord; ++i) {
      const int key = first + static_cast<int>(keys >> 4 * i & 0xf);
      if (key < block.tokens) {
        device::load_channels<T, kVectors>(data + (block.row + key) * p.v.token_stride, channel,
                                           p.v.head_dim, x[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kKeysPerWord; ++i) {
      const int key = first + static_cast<int>(keys >> 4 * i & 0xf);
      if (key < block.tokens) quotient.apply(channel, p.v.head_dim, x[i]);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const uint32_t low = device::e4m3_codes(x[0][c], x[1][c]);
      const uint32_t high = device::e4m3_codes(x[2][c], x[3][c]);
      tile[(channel + c) * (words + 1) + word] = low | high << 16;
      if (p.o_offset != nullptr) {
        const float2 a = device::e4m3_values(low), b = device::e4m3_values(high);
        lost[c] += (x[0][c] - a.x) + (x[1][c] - a.y) + (x[2][c] - b.x) + (x[3][c] - b.y);
      }
    }
  }
  __shared__ alignas(16) float sums[kThreads * 8];  // [thread / kLanes][channel]
  auto* mine = reinterpret_cast<float4*>(sums + threadIdx.x * 8);
  mine[0] = make_float4(lost[0], lost[1], lost[2], lost[3]);
  mine[1] = make_float4(lost[4], lost[5], lost[6], lost[7]);
  __syncthreads();
  if (p.o_offset != nullptr && threadIdx.x < kPadded) {
    float sum = 0.0f;
    for (int i = 0; i < kThreads / kLanes; ++i) sum += sums[i * kPadded + threadIdx.x];
    partial_at<kPadded>(p, block.index, head)[threadIdx.x] = sum;
  }
  auto* out = static_cast<uint32_t*>(p.codes) +
              (block.index * p.v.num_heads + head) * (int64_t{kPadded} * words);
  for (int i = static_cast<int>(threadIdx.x); i < kPadded * words; i += kThreads) {
    out[i] = tile[i / words * (words + 1) + i % words];
  }
}

// One CTA per (sequence, head): kSlices interleaved sums over the tiles of a channel, then theirs.
constexpr int kSlices = 8;

template <int kPadded>
__global__ void __launch_bounds__(kSlices* kPadded) correct_offset_kernel(const QuantizeVParams p) {
  __shared__ float sums[kSlices * kPadded];
  const int b = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int channel = static_cast<int>(threadIdx.x) % kPadded;
  const int length = p.cu_seqlens[b + 1] - p.cu_seqlens[b];
  const int tiles = (length + p.layout.v_tile_keys - 1) / p.layout.v_tile_keys;
  const int64_t first = first_block(p.cu_seqlens[b], b, p.layout.v_tile_keys);
  float sum = 0.0f;
#pragma unroll 4
  for (int t = static_cast<int>(threadIdx.x) / kPadded; t < tiles; t += kSlices) {
    sum += partial_at<kPadded>(p, first + t, head)[channel];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kPadded) return;
  for (int s = 1; s < kSlices; ++s) sum += sums[s * kPadded + channel];
  const int64_t at = (int64_t{b} * p.v.num_heads + head) * kPadded + channel;
  const float mean = length > 0 ? sum / static_cast<float>(length) : 0.0f;
  p.o_offset[at] = fmaf(mean, length > 0 ? p.scale[at] : 0.0f, p.offset[at]);
}

template <class T, int kPadded, bool kVectors>
__global__ void __launch_bounds__(kThreads) quantize_v_fp16_kernel(const QuantizeVParams p) {
  constexpr int kLanes = kPadded / 8;
  const device::TokenBlock block =
      device::find_block(p.cu_seqlens, p.batch, p.layout.v_tile_keys, blockIdx.x);
  if (block.tokens <= 0) return;

  const int head = blockIdx.y;
  const int channel = static_cast<int>(threadIdx.x) % kLanes * 8;
  const auto* data = static_cast<const uint16_t*>(p.v.data) + head * p.v.head_stride;
  const ChannelQuotient quotient(
      p, (int64_t{block.sequence} * p.v.num_heads + head) * kPadded + channel);

  for (int key = static_cast<int>(threadIdx.x) / kLanes; key < block.tokens;
       key += kThreads / kLanes) {
    float x[8];
    device::load_channels<T, kVectors>(data + (block.row + key) * p.v.token_stride, channel,
                                       p.v.head_dim, x);
    quotient.apply(channel, p.v.head_dim, x);
    device::Bits16<8> codes;
#pragma unroll
    for (int c = 0; c < 8; ++c) codes.at[c] = device::fp16_code(x[c]);
    device::store_bits<8>(static_cast<uint16_t*>(p.codes) +
                              ((block.row + key) * p.v.num_heads + head) * kPadded + channel,
                          codes);
  }
}

}  // namespace

Status launch_quantize_v(const QuantizeVParams& params, Stream stream) {
  if (const Status status = check(params); !status.ok()) return status;
  if (params.v.total_tokens == 0 || params.batch == 0) return {};
  const AttentionLayout& layout = params.layout;
  const dim3 grid(
      static_cast<unsigned>(block_count(params.v.total_tokens, params.batch, layout.v_tile_keys)),
      static_cast<unsigned>(params.v.num_heads));
  return device::with_type(params.v.dtype, [&](auto type) {
    return device::with_int<64, 128>(layout.head_dim_v, [&](auto padded) {
      return device::with_bool(loads_in_vectors(params.v), [&](auto vectors) {
        using T = decltype(type);
        if (layout.pv == PvType::kFp16) {
          return device::launch(quantize_v_fp16_kernel<T, padded(), vectors()>, grid, kThreads, 0,
                                stream, params);
        }
        const size_t shared_bytes = size_t{padded()} * (layout.v_tile_keys / kKeysPerWord + 1) * 4;
        const Status status =
            device::launch(quantize_v_fp8_kernel<T, padded(), vectors()>, grid, kThreads,
                           shared_bytes, stream, params, key_order_of(layout));
        if (!status.ok() || params.o_offset == nullptr) return status;
        return device::launch(
            correct_offset_kernel<padded()>,
            dim3(static_cast<unsigned>(params.batch), static_cast<unsigned>(params.v.num_heads)),
            kSlices * padded(), 0, stream, params);
      });
    });
  });
}

}  // namespace sage
