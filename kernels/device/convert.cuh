// Conversions between the element types of the operators, by bits.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "device/reduce.cuh"
#include "device/vec.cuh"

namespace sage::device {

template <class T>
__device__ __forceinline__ float float_of(uint16_t bits);
template <>
__device__ __forceinline__ float float_of<__nv_bfloat16>(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
template <>
__device__ __forceinline__ float float_of<__half>(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}

// Rounds half to even; overflow is infinity.
template <class T>
__device__ __forceinline__ uint16_t bits_of(float x);
template <>
__device__ __forceinline__ uint16_t bits_of<__nv_bfloat16>(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
template <>
__device__ __forceinline__ uint16_t bits_of<__half>(float x) {
  return __half_as_ushort(__float2half_rn(x));
}

// Channels [channel, channel + 8) of a row of head_dim channels; those past its end are 0.
// kVectors: the row is 16-byte aligned and head_dim a multiple of 8.
template <class T, bool kVectors>
__device__ __forceinline__ void load_channels(const uint16_t* row, int channel, int head_dim,
                                              float (&x)[8]) {
  Bits16<8> bits{};
  if constexpr (kVectors) {
    if (channel < head_dim) bits = load_bits<8>(row + channel);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (channel + i < head_dim) bits.at[i] = row[channel + i];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = float_of<T>(bits.at[i]);
}

// x / value, correctly rounded, for many x: the residual of the first quotient, exact in an FMA,
// corrects it. Holds while value, 1 / value and the quotients that matter are normal: the floors on
// amax see to that. An infinite or NaN value gives NaN, never a plausible quotient.
struct Divisor {
  float value, inverse;
  Divisor() = default;
  __device__ __forceinline__ explicit Divisor(float v) : value(v), inverse(1.0f / v) {}
  __device__ __forceinline__ float quotient(float x) const {
    const float estimate = x * inverse;
    return fmaf(fmaf(-estimate, value, x), inverse, estimate);
  }
};

// Four INT8 codes, rounded half to even by adding 1.5 * 2^23, which leaves them in the low byte.
// |x| < 127.5 for every x / scale where scale = amax / 127, so nothing is left to saturate.
__device__ __forceinline__ uint32_t int8_codes(float a, float b, float c, float d) {
  constexpr float kRound = 12582912.0f;
  const uint32_t low = __byte_perm(__float_as_uint(a + kRound), __float_as_uint(b + kRound), 0x40);
  const uint32_t high = __byte_perm(__float_as_uint(c + kRound), __float_as_uint(d + kRound), 0x40);
  return __byte_perm(low, high, 0x5410);
}
// FP8 and FP16 codes round half to even, saturate, and keep NaN.
// Two codes, the first in the low byte.
__device__ __forceinline__ uint32_t e4m3_codes(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}
// Values of two codes.
__device__ __forceinline__ float2 e4m3_values(uint32_t codes) {
  const auto pair = static_cast<__nv_fp8x2_storage_t>(codes);
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
}
__device__ __forceinline__ uint16_t fp16_code(float x) {
  return bits_of<__half>(nan_max(nan_min(x, 65504.0f), -65504.0f));
}

}  // namespace sage::device
