// Fixed point (rng.h) to the bits of a 16-bit type: to fp32 once, then rounded half to even.
// C++17, usable in device code; the same integer operations everywhere.
#pragma once
#include <cstdint>
#include <cstring>

#include "inputs/rng.h"

namespace sagebench {

SAGEBENCH_HOST_DEVICE inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

SAGEBENCH_HOST_DEVICE inline float float_of_fixed(int64_t value) {
  return static_cast<float>(value) * (1.0f / static_cast<float>(kFixedOne));
}

// NaN stays NaN; finite values past the largest become infinity.
SAGEBENCH_HOST_DEVICE inline uint16_t encode_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

SAGEBENCH_HOST_DEVICE inline uint16_t encode_fp16(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65536
  if (magnitude >= 0x38800000u) {  // normal: rebias by 112, drop 13 bits
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  const uint32_t shift = 126u - (magnitude >> 23);  // subnormal, in steps of 2^-24
  if (shift > 24u) return static_cast<uint16_t>(sign);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t steps = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  const bool up = rest > half || (rest == half && (steps & 1u));
  return static_cast<uint16_t>(sign | (steps + up));
}

}  // namespace sagebench
