// Fast rounding to small floating-point formats, for loops over whole tensors. Plain fp32 adds and
// integer operations that vectorise and give the same bits on every machine; the plain encoders of
// core/dtype.h are what they are tested against.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sagebench {

struct FloatFormat {
  int mantissa_bits;  // explicit ones
  int min_exponent;   // of the smallest normal value
  float max;          // largest finite value
};
inline constexpr FloatFormat kE4m3{3, -6, 448.0f};
inline constexpr FloatFormat kFp16Format{10, -14, 65504.0f};

inline float saturate(float x, float limit) {
  x = x > limit ? limit : x;  // in this order NaN stays NaN
  return x < -limit ? -limit : x;
}

// x to the nearest value of the format, half to even. |x| must not pass the largest value by more
// than rounding. Adding 1.5 * 2^k pushes every bit below the format's spacing out of the fp32 sum.
inline float round_to(FloatFormat f, float x) {
  const uint32_t exponent = std::max(std::bit_cast<uint32_t>(x) & 0x7f800000u,
                                     static_cast<uint32_t>(f.min_exponent + 127) << 23);
  const uint32_t shift = static_cast<uint32_t>(23 - f.mantissa_bits) << 23;
  const float magic = 1.5f * std::bit_cast<float>(exponent + shift);
  return (x + magic) - magic;
}

// Integer nearest to x, half to even, saturated to [-127, 127]; NaN gives 0, as the GPU's
// conversion does: a NaN lives on in the scale.
inline int8_t int8_code(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  x = saturate(x, 127.0f);
  x = (x + kMagic) - kMagic;
  return static_cast<int8_t>(x == x ? x : 0.0f);
}

// Bits of a value that the format holds exactly, sign apart.
inline uint32_t magnitude_bits(FloatFormat f, float magnitude) {
  const float smallest_normal =
      std::bit_cast<float>(static_cast<uint32_t>(f.min_exponent + 127) << 23);
  const float subnormal_steps =
      std::bit_cast<float>(static_cast<uint32_t>(f.mantissa_bits - f.min_exponent + 127) << 23);
  const uint32_t rebias = static_cast<uint32_t>(f.min_exponent - 1 + 127) << f.mantissa_bits;
  return magnitude < smallest_normal
             ? static_cast<uint32_t>(magnitude * subnormal_steps)
             : (std::bit_cast<uint32_t>(magnitude) >> (23 - f.mantissa_bits)) - rebias;
}

inline uint8_t encode_e4m3(float x) {  // saturates
  const uint32_t sign = (std::bit_cast<uint32_t>(x) >> 24) & 0x80u;
  const float magnitude = round_to(kE4m3, saturate(std::fabs(x), kE4m3.max));
  return static_cast<uint8_t>(sign | (x == x ? magnitude_bits(kE4m3, magnitude) : 0x7fu));
}

inline uint16_t encode_fp16(float x) {  // saturates
  const uint32_t sign = (std::bit_cast<uint32_t>(x) >> 16) & 0x8000u;
  const float magnitude = round_to(kFp16Format, saturate(std::fabs(x), kFp16Format.max));
  return static_cast<uint16_t>(sign | (x == x ? magnitude_bits(kFp16Format, magnitude) : 0x7e00u));
}

inline float decode_fp16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu, sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  // 2^112 moves the exponent from bias 15 to bias 127, subnormals included
  const float value = magnitude < 0x7c00u ? std::bit_cast<float>(magnitude << 13) * 0x1p112f
                                          : std::bit_cast<float>(0x7f800000u | magnitude << 13);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

}  // namespace sagebench
