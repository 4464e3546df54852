// Distance between neighbouring values of a 16-bit dtype, cheap enough for every element.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace sagebench {

class Spacing {
 public:
  explicit Spacing(DType dtype)
      : unit_(ulp_at(dtype, 1.0)), smallest_normal_(ulp_at(dtype, 0.0) / unit_) {}
  double at(double value) const {
    constexpr uint64_t kExponent = 0x7ff0'0000'0000'0000;  // what is left is 2^floor(log2 |value|)
    const double power = std::bit_cast<double>(std::bit_cast<uint64_t>(value) & kExponent);
    return std::max(power, smallest_normal_) * unit_;
  }

 private:
  double unit_, smallest_normal_;
};

}  // namespace sagebench
