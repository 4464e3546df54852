#include "core/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace sagebench {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t size;
  int mantissa_bits;  // explicit ones; 0 for integers
  int min_exponent;   // of the smallest normal value
};
constexpr std::array kRows = {
    DTypeRow{DType::kBf16, "bf16", 2, 7, -126},      DTypeRow{DType::kFp16, "fp16", 2, 10, -14},
    DTypeRow{DType::kFp32, "fp32", 4, 23, -126},     DTypeRow{DType::kInt32, "int32", 4, 0, 0},
    DTypeRow{DType::kInt64, "int64", 8, 0, 0},       DTypeRow{DType::kInt8, "int8", 1, 0, 0},
    DTypeRow{DType::kFp8E4m3, "fp8_e4m3", 1, 3, -6},
};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kRows)
    if (row.dtype == dtype) return row;
  throw std::logic_error("dtype without a row");
}

// |value| rounded half to even to a small float format: returns the magnitude bits, which may carry
// into the exponent (that is what rounding up to the next binade means).
uint32_t round_magnitude(float magnitude, int mantissa_bits, int min_exponent) {
  if (magnitude == 0) return 0;
  int exponent = std::max(std::ilogb(magnitude), min_exponent);
  // steps of the format's spacing at this exponent; exact in double, nearbyint rounds half to even
  const double steps =
      std::nearbyint(std::ldexp(static_cast<double>(magnitude), mantissa_bits - exponent));
  const double biased = exponent - min_exponent;
  return static_cast<uint32_t>(std::ldexp(biased, mantissa_bits) + steps);
}

}  // namespace

size_t size_of(DType dtype) {
  return row_of(dtype).size;
}
std::string_view name_of(DType dtype) {
  return row_of(dtype).name;
}

uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float float_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t fp16_from_float(float value) {
  const uint32_t sign = (std::bit_cast<uint32_t>(value) >> 16) & 0x8000u;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  return static_cast<uint16_t>(sign | round_magnitude(magnitude, 10, -14));
}

float float_from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  // 2^112 takes the exponent from bias 15 to bias 127, subnormals included
  const float value = magnitude < 0x7c00 ? std::bit_cast<float>(magnitude << 13) * 0x1p112f
                                         : std::bit_cast<float>(0x7f800000u | magnitude << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

uint8_t e4m3_from_float(float value) {
  const uint32_t sign = (std::bit_cast<uint32_t>(value) >> 24) & 0x80u;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7fu);
  const float magnitude = std::fabs(value);
  if (magnitude >= 448.0f) return static_cast<uint8_t>(sign | 0x7eu);
  return static_cast<uint8_t>(sign | round_magnitude(magnitude, 3, -6));
}

float float_from_e4m3(uint8_t bits) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t{};
    for (int b = 0; b < 256; ++b) {
      const int exponent = (b >> 3) & 0xf, mantissa = b & 7;
      float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                      : std::ldexp(static_cast<float>(mantissa + 8), exponent - 10);
      if ((b & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
      t[static_cast<size_t>(b)] = b & 0x80 ? -magnitude : magnitude;
    }
    return t;
  }();
  return table[bits];
}

double ulp_at(DType dtype, double value) {
  const DTypeRow& row = row_of(dtype);
  if (row.mantissa_bits == 0) throw std::logic_error("ulp_at of an integer type");
  const int exponent =
      value == 0 ? row.min_exponent : std::max(std::ilogb(value), row.min_exponent);
  return std::ldexp(1.0, exponent - row.mantissa_bits);
}

}  // namespace sagebench
