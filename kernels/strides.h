// Do the rows of an output keep out of each other's way?
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace sage {

struct Dimension {
  int64_t count, stride;
};

// Rows of `width` elements, one at every combination of multiples of the strides: true if each
// dimension steps over all that lies within the smaller ones, as it does in every view of an array.
template <size_t kCount>
bool stay_apart(int64_t width, const Dimension (&dimensions)[kCount]) {
  std::array<Dimension, kCount> ascending;
  std::copy(std::begin(dimensions), std::end(dimensions), ascending.begin());
  std::sort(ascending.begin(), ascending.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  for (const Dimension& d : ascending) {
    if (d.count <= 1) continue;
    if (d.stride < width || d.stride > (INT64_MAX - width) / (d.count - 1)) return false;
    width += (d.count - 1) * d.stride;
  }
  return true;
}

}  // namespace sage
