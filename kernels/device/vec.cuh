// Vector loads and stores of 16-bit elements as bits, in one access each.
#pragma once
#include <cstdint>
#include <cstring>

namespace sage::device {

template <int kBytes>
struct AccessOf;
template <>
struct AccessOf<2> {
  using Type = uint16_t;
};
template <>
struct AccessOf<4> {
  using Type = uint32_t;
};
template <>
struct AccessOf<8> {
  using Type = uint2;
};
template <>
struct AccessOf<16> {
  using Type = uint4;
};

// kCount 16-bit elements. Stays in registers where indices are compile-time constants.
template <int kCount>
struct Bits16 {
  uint16_t at[kCount];
};

// `from` is aligned to 2 * kCount bytes.
template <int kCount>
__device__ __forceinline__ Bits16<kCount> load_bits(const uint16_t* from) {
  using Access = typename AccessOf<2 * kCount>::Type;
  const Access raw = *reinterpret_cast<const Access*>(from);
  Bits16<kCount> bits;
  memcpy(&bits, &raw, sizeof bits);
  return bits;
}

template <int kCount>
__device__ __forceinline__ void store_bits(uint16_t* to, const Bits16<kCount>& bits) {
  using Access = typename AccessOf<2 * kCount>::Type;
  Access raw;
  memcpy(&raw, &bits, sizeof raw);
  *reinterpret_cast<Access*>(to) = raw;
}

// Eight floats from 16-byte aligned memory.
__device__ __forceinline__ void load_floats(const float* from, float (&x)[8]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  memcpy(&x[0], &low, sizeof low);
  memcpy(&x[4], &high, sizeof high);
}

}  // namespace sage::device
