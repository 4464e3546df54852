// INT8 codes of Q or K. One CTA takes one block of tokens of one head; eight lanes' worth of
// channels per thread, up to four rows each, all kept in registers between amax and rounding.
//
// The rows of a slot are equal modulo 8, and every group pattern is a union of such classes: amax
// goes through registers (rows), shuffles (channels) and one shared value per slot (groups).
#include "device/convert.cuh"
#include "device/launch.cuh"
#include "device/packed.cuh"
#include "device/reduce.cuh"
#include "quantize/checks.h"
#include "sage/quantize.h"

namespace sage {
namespace {

constexpr int kRows = 4;      // of one thread
constexpr int kMinSlots = 8;  // row classes modulo 8
constexpr int kMaxSlots = 32;
constexpr float kMinAmax = 1e-7f;

constexpr int slots_of(int block_tokens) {
  return block_tokens / kRows < kMinSlots ? kMinSlots : block_tokens / kRows;
}
static_assert(slots_of(128) == kMaxSlots, "the largest block fills the largest CTA");

// Orthonormal Walsh-Hadamard transform (Sylvester's order) over kPadded channels, eight per lane of
// kPadded / 8 neighbouring lanes. Every lane of the warp calls.
template <int kPadded>
__device__ __forceinline__ void rotate_hadamard(float (&x)[8], int lane) {
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if ((c & step) == 0) {
        const float a = x[c], b = x[c + step];
        x[c] = a + b;
        x[c + step] = a - b;
      }
    }
  }
#pragma unroll
  for (int step = 1; step < kPadded / 8; step *= 2) {
    const float sign = (lane & step) == 0 ? 1.0f : -1.0f;
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] = fmaf(sign, x[c], __shfl_xor_sync(~0u, x[c], step));
  }
  constexpr float kNorm = kPadded == 64 ? 0.125f : 0.08838834764831845f;  // 1 / sqrt(kPadded)
#pragma unroll
  for (int c = 0; c < 8; ++c) x[c] *= kNorm;
}

template <class T, int kPadded, bool kVectors>
__global__ void __launch_bounds__(kMaxSlots* kPadded / 8)
    quantize_int8_kernel(const QuantizeInt8Params p) {
  constexpr int kLanes = kPadded / 8;
  __shared__ float slot_amax[kMaxSlots];
  const ScaleGroups groups = p.groups;
  const device::TokenBlock block =
      device::find_block(p.cu_seqlens, p.batch, groups.block_tokens, blockIdx.x);
  if (block.tokens <= 0) return;

  const int head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int channel = lane * 8;
  const int slot = static_cast<int>(threadIdx.x) / kLanes;
  const int slots = slots_of(groups.block_tokens);
  const auto* data = static_cast<const uint16_t*>(p.x.data) + head * p.x.head_stride;

  float x[kRows][8] = {};  // rows slot + i * slots; 0 past the sequence's end
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = slot + i * slots;
    if (row < block.tokens) {
      device::load_channels<T, kVectors>(data + (block.row + row) * p.x.token_stride, channel,
                                         p.x.head_dim, x[i]);
    }
  }

  if (p.dot != nullptr) {
    const int dot_head = head / (p.x.num_heads / p.dot_num_heads);
    float key[8];
    device::load_floats(
        p.dot_offset + (int64_t{block.sequence} * p.dot_num_heads + dot_head) * kPadded + channel,
        key);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float dot = 0.0f;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (channel + c < p.x.head_dim) dot = fmaf(x[i][c], key[c], dot);
      }
      dot = device::lanes_sum<kLanes>(dot);
      const int row = slot + i * slots;
      if (lane == 0 && row < block.tokens) p.dot[head * p.x.total_tokens + block.row + row] = dot;
    }
  }

  if (p.offset != nullptr) {
    float offset[8];
    device::load_floats(
        p.offset + (int64_t{block.sequence} * p.x.num_heads + head) * kPadded + channel, offset);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool live = slot + i * slots < block.tokens;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (live && channel + c < p.x.head_dim) x[i][c] -= offset[c];
      }
    }
  }
  if (p.rotate == Rotate::kHadamard) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) rotate_hadamard<kPadded>(x[i], lane);
  }

  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int c = 0; c < 8; ++c) amax = device::nan_max(amax, fabsf(x[i][c]));
  }
  amax = device::lanes_max<kLanes>(amax);
  if (lane == 0) slot_amax[slot] = amax;
  __syncthreads();
  const int group = group_in_block(groups.pattern, slot);
  bool first_of_group = slot < block.tokens;
  for (int s = 0; s < slots; ++s) {
    if (group_in_block(groups.pattern, s) != group) continue;
    amax = device::nan_max(amax, slot_amax[s]);
    first_of_group = first_of_group && s >= slot;
  }

  const float scale = device::nan_max(amax, kMinAmax) / 127.0f;
  if (lane == 0 && first_of_group) {
    const int64_t row = block.index * groups.groups_per_block + group;
    p.scales[head * scale_rows(groups, p.x.total_tokens, p.batch) + row] = scale;
  }
  const device::Divisor by_scale(scale);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = slot + i * slots;
    if (row >= block.tokens) break;
    float code[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) code[c] = by_scale.quotient(x[i][c]);
    const uint2 codes{device::int8_codes(code[0], code[1], code[2], code[3]),
                      device::int8_codes(code[4], code[5], code[6], code[7])};
    int8_t* out = p.codes + ((block.row + row) * p.x.num_heads + head) * kPadded + channel;
    *reinterpret_cast<uint2*>(out) = codes;
  }
}

}  // namespace

Status launch_quantize_int8(const QuantizeInt8Params& params, Stream stream) {
  if (const Status status = check(params); !status.ok()) return status;
  if (params.x.total_tokens == 0 || params.batch == 0) return {};
  const int block = params.groups.block_tokens;
  const dim3 grid(static_cast<unsigned>(block_count(params.x.total_tokens, params.batch, block)),
                  static_cast<unsigned>(params.x.num_heads));
  return device::with_type(params.x.dtype, [&](auto type) {
    return device::with_int<64, 128>(params.padded_head_dim, [&](auto padded) {
      return device::with_bool(loads_in_vectors(params.x), [&](auto vectors) {
        return device::launch(quantize_int8_kernel<decltype(type), padded(), vectors()>, grid,
                              slots_of(block) * padded() / 8, 0, stream, params);
      });
    });
  });
}

}  // namespace sage
