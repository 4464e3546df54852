#include "ops/pv_sum.h"

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/fast_rounding.h"

namespace sagebench {
namespace {

constexpr int64_t kStep = 32;

// 16 channels of one step. A NaN stays one; a product that is NaN makes the channel NaN.
template <int kLanes>
void add_step(const float* p, const float* v, int64_t keys, int64_t dim, int bits, float* acc) {
  float product[kStep][kLanes], largest[kLanes], poison[kLanes], per_unit[kLanes];
  int32_t sum[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    largest[l] = std::max(0x1p-100f, std::fabs(acc[l]));  // no exponent leaves fp32 below
    poison[l] = 0 * acc[l];
  }
  for (int64_t j = 0; j < keys; ++j)
    for (int l = 0; l < kLanes; ++l) {
      const float x = product[j][l] = p[j] * v[j * dim + l], size = std::fabs(x);
      largest[l] = largest[l] < size ? size : largest[l];
      poison[l] += 0 * x;
    }
  for (int l = 0; l < kLanes; ++l) {  // 2^(bits - exponent of the largest)
    const uint32_t exponent = std::bit_cast<uint32_t>(largest[l]) & uint32_t{kInfinityBits};
    per_unit[l] = std::bit_cast<float>((static_cast<uint32_t>(254 + bits) << 23) - exponent);
    sum[l] = static_cast<int32_t>(acc[l] * per_unit[l]);
  }
  for (int64_t j = 0; j < keys; ++j)
    for (int l = 0; l < kLanes; ++l) sum[l] += static_cast<int32_t>(product[j][l] * per_unit[l]);
  for (int l = 0; l < kLanes; ++l) acc[l] = static_cast<float>(sum[l]) / per_unit[l] + poison[l];
}

}  // namespace

void accumulate_fp32(const float* p, const float* v, int64_t keys, int64_t dim, float* acc) {
  constexpr int kLanes = 32;
  using Lanes = Eigen::Array<float, kLanes, 1>;
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Lanes sum = Eigen::Map<const Lanes>(acc + d);
    for (int64_t j = 0; j < keys; ++j) sum += p[j] * Eigen::Map<const Lanes>(v + j * dim + d);
    Eigen::Map<Lanes>(acc + d) = sum;
  }
  for (; d < dim; ++d)
    for (int64_t j = 0; j < keys; ++j) acc[d] += p[j] * v[j * dim + d];
}

void accumulate_truncated(const float* p, const float* v, int64_t keys, int64_t dim, int bits,
                          float* acc) {
  constexpr int kLanes = 16;
  for (int64_t j = 0; j < keys; j += kStep) {
    const int64_t n = std::min(kStep, keys - j);
    const float* rows = v + j * dim;
    int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) add_step<kLanes>(p + j, rows + d, n, dim, bits, acc + d);
    for (; d < dim; ++d) add_step<1>(p + j, rows + d, n, dim, bits, acc + d);
  }
}

}  // namespace sagebench
