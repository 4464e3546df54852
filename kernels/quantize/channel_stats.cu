// Offset and scale per (sequence, head, channel), in two kernels without atomics.
//
// chunk_stats_kernel: one CTA reduces one whole chunk of a sequence for one head to partials.
// channel_stats_kernel: one CTA per (sequence, head) adds its partials in order, then what is left
// at the sequence's end, and derives offset and scale. A short sequence needs only this kernel.
// The order of every sum depends on the sequence's own length alone.
#include "device/convert.cuh"
#include "device/launch.cuh"
#include "device/packed.cuh"
#include "device/reduce.cuh"
#include "quantize/checks.h"
#include "sage/quantize.h"

namespace sage {
namespace {

constexpr int kThreads = 256;
constexpr int kSlices = 16;  // independent sums over a sequence's partials

struct Stats {
  float sum = 0.0f;
  float min = INFINITY;
  float max = -INFINITY;
  __device__ __forceinline__ void add(const Stats& other) {
    sum += other.sum;
    min = device::nan_min(min, other.min);
    max = device::nan_max(max, other.max);
  }
};

// [row of threads][channel] of one CTA: eight channels per thread at most.
struct SharedStats {
  alignas(16) float sum[kThreads * 8];
  alignas(16) float min[kThreads * 8];
  alignas(16) float max[kThreads * 8];
  // Four at once: single words, eight apart, would meet in the same banks.
  __device__ __forceinline__ void put4(int i, const Stats* s) {
    *reinterpret_cast<float4*>(sum + i) = make_float4(s[0].sum, s[1].sum, s[2].sum, s[3].sum);
    *reinterpret_cast<float4*>(min + i) = make_float4(s[0].min, s[1].min, s[2].min, s[3].min);
    *reinterpret_cast<float4*>(max + i) = make_float4(s[0].max, s[1].max, s[2].max, s[3].max);
  }
  __device__ __forceinline__ Stats get(int i) const { return {sum[i], min[i], max[i]}; }
};

// Statistics of `count` rows, row_at(i) the packed row of the i-th. Thread c < kPadded returns
// those of channel c. Called by the whole CTA; leaves `shared` free for reuse.
template <class T, int kPadded, bool kVectors, class RowAt>
__device__ Stats rows_stats(const PackedTensor& x, int head, int count, SharedStats& shared,
                            RowAt row_at) {
  constexpr int kLanes = kPadded / 8;
  constexpr int kSlots = kThreads / kLanes;
  const int channel = static_cast<int>(threadIdx.x) % kLanes * 8;
  const int slot = static_cast<int>(threadIdx.x) / kLanes;
  const auto* data = static_cast<const uint16_t*>(x.data) + head * x.head_stride;

  Stats mine[8];
#pragma unroll 4
  for (int i = slot; i < count; i += kSlots) {
    float value[8];
    device::load_channels<T, kVectors>(data + row_at(i) * x.token_stride, channel, x.head_dim,
                                       value);
#pragma unroll
    for (int c = 0; c < 8; ++c) mine[c].add({value[c], value[c], value[c]});
  }
  shared.put4(slot * kPadded + channel, mine);
  shared.put4(slot * kPadded + channel + 4, mine + 4);
  __syncthreads();
  Stats total;
  if (threadIdx.x < kPadded) {
    for (int s = 0; s < kSlots; ++s) total.add(shared.get(s * kPadded + threadIdx.x));
  }
  __syncthreads();
  return total;
}

// Partials [chunk][head][sum, min, max][kPadded].
template <int kPadded>
__device__ __forceinline__ float* partial_at(const ChannelStatsParams& p, int64_t chunk, int head) {
  return static_cast<float*>(p.workspace) +
         (chunk * p.x.num_heads + head) * (kStatsPerChannel * kPadded);
}

template <class T, int kPadded, bool kVectors>
__global__ void __launch_bounds__(kThreads) chunk_stats_kernel(const ChannelStatsParams p) {
  __shared__ SharedStats shared;
  const auto first_chunk = [&](int b) { return int64_t{p.cu_seqlens[b] / kStatsChunkTokens}; };
  const int64_t index = blockIdx.x;
  const int b = device::last_at_most(p.batch, index, first_chunk);
  const int64_t start = p.cu_seqlens[b];
  const int64_t chunk = index - first_chunk(b);
  if (chunk < 0 || (chunk + 1) * kStatsChunkTokens > p.cu_seqlens[b + 1] - start) return;

  const int head = blockIdx.y;
  const int64_t first_row = start + chunk * kStatsChunkTokens;
  const Stats stats = rows_stats<T, kPadded, kVectors>(p.x, head, kStatsChunkTokens, shared,
                                                       [&](int i) { return first_row + i; });
  if (threadIdx.x < kPadded) {
    float* out = partial_at<kPadded>(p, index, head) + threadIdx.x;
    out[0 * kPadded] = stats.sum;
    out[1 * kPadded] = stats.min;
    out[2 * kPadded] = stats.max;
  }
}

template <int kPadded>
__device__ __forceinline__ void add_partial4(const ChannelStatsParams& p, int64_t chunk, int head,
                                             int channel, Stats* to) {
  const float* in = partial_at<kPadded>(p, chunk, head) + channel;
  float part[kStatsPerChannel][4];
#pragma unroll
  for (int i = 0; i < kStatsPerChannel; ++i) {
    const float4 four = *reinterpret_cast<const float4*>(in + i * kPadded);
    memcpy(part[i], &four, sizeof four);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) to[c].add({part[0][c], part[1][c], part[2][c]});
}

// Partials of `count` chunks from `first` on, added in kSlices interleaved sums, then in slice
// order. Thread c < kPadded returns channel c. Called by the whole CTA.
template <int kPadded>
__device__ Stats partials_stats(const ChannelStatsParams& p, int64_t first, int64_t count, int head,
                                SharedStats& shared) {
  constexpr int kColumns = kThreads / (kPadded / 4);
  constexpr int kMine = kSlices / kColumns;  // slices of one thread
  const int channel = static_cast<int>(threadIdx.x) % (kPadded / 4) * 4;
  const int column = static_cast<int>(threadIdx.x) / (kPadded / 4);
  // One dimension: nvcc 13.0 zeroes the later rows of a 2-D array instead of running Stats'
  // initialisers.
  Stats mine[kMine * 4];
  int64_t base = 0;
#pragma unroll 2
  for (; base + kSlices <= count; base += kSlices) {  // unguarded: many loads in flight
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      add_partial4<kPadded>(p, first + base + j * kColumns + column, head, channel, mine + 4 * j);
    }
  }
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const int64_t chunk = base + j * kColumns + column;
    if (chunk < count) add_partial4<kPadded>(p, first + chunk, head, channel, mine + 4 * j);
    shared.put4((j * kColumns + column) * kPadded + channel, mine + 4 * j);
  }
  __syncthreads();
  Stats total;
  if (threadIdx.x < kPadded) {
    for (int s = 0; s < kSlices; ++s) total.add(shared.get(s * kPadded + threadIdx.x));
  }
  __syncthreads();
  return total;
}

__device__ __forceinline__ float scale_of(float amax, PvType pv, float code_max) {
  if (amax == 0.0f) return 1.0f;
  amax = device::nan_max(amax, kMinAmaxV);
  if (pv == PvType::kFp16 && isfinite(amax)) {  // up to a power of two: carry into the exponent
    amax = __uint_as_float((__float_as_uint(amax) + 0x7fffffu) & 0x7f800000u);
  }
  return amax / code_max;
}

template <class T, int kPadded, bool kVectors>
__global__ void __launch_bounds__(kThreads) channel_stats_kernel(const ChannelStatsParams p) {
  __shared__ SharedStats shared;
  const int64_t b = blockIdx.x;
  const int head = blockIdx.y;
  const int channel = threadIdx.x;
  const int64_t start = p.cu_seqlens[b];
  const int64_t length = p.cu_seqlens[b + 1] - start;

  Stats stats;
  if (needs_stats_partials(p)) {
    const int64_t chunks = length / kStatsChunkTokens;
    if (chunks > 0) {
      stats = partials_stats<kPadded>(p, start / kStatsChunkTokens, chunks, head, shared);
    }
    const int64_t first_left = start + chunks * kStatsChunkTokens;
    const int left = static_cast<int>(length - chunks * kStatsChunkTokens);
    stats.add(rows_stats<T, kPadded, kVectors>(p.x, head, left, shared,
                                               [&](int i) { return first_left + i; }));
  }

  float offset = 0.0f;
  if (p.smooth == Smooth::kMean && length > 0) offset = stats.sum / static_cast<float>(length);
  if (p.smooth == Smooth::kSampled && length > 0) {
    const int samples = static_cast<int>(length < kOffsetSamples ? length : kOffsetSamples);
    const auto row_at = [&](int i) { return start + i * length / samples; };
    const Stats sampled = rows_stats<T, kPadded, kVectors>(p.x, head, samples, shared, row_at);
    offset = sampled.sum / static_cast<float>(samples);
  }
  const bool padding = channel >= p.x.head_dim;
  const int64_t out = (b * p.x.num_heads + head) * kPadded + channel;
  if (channel < kPadded) p.offset[out] = padding ? 0.0f : offset;
  if (p.scale == nullptr) return;

  float amax = 0.0f;
  if (!padding && length > 0) {
    amax = device::nan_max(stats.max - offset, offset - stats.min);
  }
  if (p.v_scale == VScale::kPerHead) {
    if (channel < kPadded) shared.max[channel] = amax;
    __syncthreads();
    for (int c = 0; c < kPadded; ++c) amax = device::nan_max(amax, shared.max[c]);
  }
  if (channel < kPadded) p.scale[out] = padding ? 1.0f : scale_of(amax, p.pv, p.v_code_max);
}

template <class T, int kPadded, bool kVectors>
Status launch_both(const ChannelStatsParams& p, Stream stream) {
  const auto heads = static_cast<unsigned>(p.x.num_heads);
  const int64_t chunks = p.x.total_tokens / kStatsChunkTokens;
  if (needs_stats_partials(p) && chunks > 0) {
    const Status status =
        device::launch(chunk_stats_kernel<T, kPadded, kVectors>,
                       dim3(static_cast<unsigned>(chunks), heads), kThreads, 0, stream, p);
    if (!status.ok()) return status;
  }
  return device::launch(channel_stats_kernel<T, kPadded, kVectors>,
                        dim3(static_cast<unsigned>(p.batch), heads), kThreads, 0, stream, p);
}

}  // namespace

Status launch_channel_stats(const ChannelStatsParams& params, Stream stream) {
  if (const Status status = check(params); !status.ok()) return status;
  if (params.batch == 0) return {};
  return device::with_type(params.x.dtype, [&](auto type) {
    return device::with_int<64, 128>(params.padded_head_dim, [&](auto padded) {
      return device::with_bool(loads_in_vectors(params.x), [&](auto vectors) {
        return launch_both<decltype(type), padded(), vectors()>(params, stream);
      });
    });
  });
}

}  // namespace sage
