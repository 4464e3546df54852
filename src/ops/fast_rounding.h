// Fast rounding to small formats, for loops over whole tensors. fp32 adds and signed integer
// operations without branches: they vectorise on any x86-64 and give the same bits on every
// machine. The plain encoders of core/dtype.h are what they are tested against.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace sagebench {

struct FloatFormat {
  int mantissa_bits;  // explicit ones
  int min_exponent;   // of the smallest normal value
  float max;          // largest finite value: rounding saturates there
  int bits;           // of a code, sign included
  int nan;            // magnitude bits of a NaN
};
inline constexpr FloatFormat kE4m3Format{3, -6, 448.0f, 8, 0x7f};
inline constexpr FloatFormat kFp16Format{10, -14, 65504.0f, 16, 0x7e00};

inline constexpr int32_t kInfinityBits = 0x7f800000;  // fp32; a NaN's magnitude is larger

// Magnitudes of floats compare as integers, and there NaN is the largest of all.
inline int32_t magnitude_of(float x) {
  return std::bit_cast<int32_t>(x) & 0x7fffffff;
}

// All ones for a NaN, else 0. A mask, because GCC turns a comparison into a branch.
inline int32_t nan_mask(int32_t magnitude) {
  return (kInfinityBits - magnitude) >> 31;
}
inline int32_t select(int32_t mask, int32_t if_set, int32_t if_clear) {
  return (mask & if_set) | (~mask & if_clear);
}

// Adding 1.5 * 2^k to a magnitude pushes every bit below the format's spacing out of the fp32 sum,
// rounding half to even; what is left above 1.5 * 2^k counts steps of that spacing.
struct Steps {
  int32_t exponent;  // of the binade, as fp32 bits
  float magic, sum;
};
inline Steps steps_of(FloatFormat f, int32_t magnitude) {
  const int32_t max = std::bit_cast<int32_t>(f.max);
  const int32_t clamped = select((magnitude - max) >> 31, magnitude, max);
  const int32_t exponent = std::max(clamped & kInfinityBits, (f.min_exponent + 127) << 23);
  const float magic = std::bit_cast<float>(exponent + ((23 - f.mantissa_bits) << 23) + (1 << 22));
  return {exponent, magic, std::bit_cast<float>(clamped) + magic};
}

// Nearest value of the format.
inline float round_to(FloatFormat f, float x) {
  const int32_t magnitude = magnitude_of(x), sign = std::bit_cast<int32_t>(x) ^ magnitude;
  const Steps s = steps_of(f, magnitude);
  const int32_t rounded = std::bit_cast<int32_t>(s.sum - s.magic);
  return std::bit_cast<float>(sign | select(nan_mask(magnitude), magnitude, rounded));
}

// Bits of the nearest value of the format.
inline int32_t encode(FloatFormat f, float x) {
  const int32_t magnitude = magnitude_of(x);
  const Steps s = steps_of(f, magnitude);
  const int32_t steps = std::bit_cast<int32_t>(s.sum) - std::bit_cast<int32_t>(s.magic);
  const int32_t binade = (s.exponent >> 23) - (f.min_exponent + 127);
  const int32_t code = (binade << f.mantissa_bits) + steps;
  const int32_t sign = (std::bit_cast<int32_t>(x) >> (32 - f.bits)) & (1 << (f.bits - 1));
  return sign | select(nan_mask(magnitude), f.nan, code);
}

// Integer nearest to x, half to even, saturated to [-127, 127]. NaN gives 0, as the GPU's
// conversion does: a NaN lives on in the scale.
inline int8_t int8_code(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  const int32_t magnitude = magnitude_of(x), sign = std::bit_cast<int32_t>(x) >> 31;
  const float clamped = std::bit_cast<float>(std::min(magnitude, std::bit_cast<int32_t>(127.0f)));
  const int32_t steps = std::bit_cast<int32_t>(clamped + kMagic) - std::bit_cast<int32_t>(kMagic);
  return static_cast<int8_t>(~nan_mask(magnitude) & ((steps ^ sign) - sign));
}

}  // namespace sagebench
