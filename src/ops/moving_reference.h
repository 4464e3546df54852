// P relative to a moving reference (kernels/include/sage/layout.h): its state of one query row.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>

#include "core/dtype.h"
#include "sage/layout.h"

namespace sagebench {

struct ReferenceState {
  float now = 0, highest = 0;  // octaves
  bool started = false;

  // For a tile whose largest code, relative to `now`, is `lead`. Octaves to add to the codes of
  // this tile, and to the exponents of all sums made before it.
  // No such code (every score NaN): nothing moves.
  float move(const sage::MovingReference& rule, float lead) {
    started |= !std::isfinite(lead);
    if (!std::isfinite(lead)) return 0;
    const float before = now, step = std::ceil((lead - static_cast<float>(rule.top_code)) / 8);
    if (!started) {
      now = highest = step;
      started = true;
    } else if (lead > static_cast<float>(rule.max_code) ||
               lead < static_cast<float>(rule.low_code)) {
      now = std::max(now + step, highest - static_cast<float>(rule.span_octaves));
      highest = std::max(highest, now);
    }
    return before - now;
  }
};

// Value of a linear code: the e4m3 number of the byte it is clamped to; 255 is NaN.
inline float value_of_code(double code) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v{};
    for (size_t i = 0; i < v.size(); ++i) v[i] = float_from_e4m3(static_cast<uint8_t>(i));
    return v;
  }();
  return !(code < 255) ? values[255] : values[static_cast<size_t>(std::max(code, 0.0))];
}

// Nearest integer, half to even, of |x| < 2^51, without a call.
inline double nearest(double x) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  return x + kMagic - kMagic;
}

}  // namespace sagebench
