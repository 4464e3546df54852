// The running outcome of one rule over many elements, and how it becomes a StageCheck.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "metrics.h"

namespace sagebench {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline constexpr double kFp32Unit = 0x1p-24;  // one rounding, relative

// A serial fp32 sum of n values of one sign strays by about sqrt(n) / 3 roundings of the total, any
// blocked sum by less: sqrt(n) is three deviations. The constant covers short sums and the
// division.
inline double mean_limit(double n, double mean_magnitude) {
  return kFp32Unit * (8 + std::sqrt(n)) * mean_magnitude;
}

// Error of two values, non-finite positions first: the same NaN or infinity is no error, one that
// stands alone is an infinite one.
inline double error_between(double expected, double actual) {
  if (std::isfinite(expected) && std::isfinite(actual)) return std::fabs(actual - expected);
  const bool same = std::isnan(expected) ? std::isnan(actual) : expected == actual;
  return same ? 0 : kInfinity;
}

// The same for a sum over the inputs: an infinity and a NaN among them may meet in either order.
inline double error_of_sum(double expected, double actual) {
  return std::isfinite(expected) || std::isfinite(actual) ? error_between(expected, actual) : 0;
}

struct Tally {
  int64_t checked = 0, wrong = 0;
  double worst = 0, limit = 0;  // of the element with the largest error in units of its limit
  double ratio = -1;
  double expected = 0, actual = 0;
  Coordinate at;

  void add(double error, double limit_here, double expected_here, double actual_here,
           const Coordinate& here) {
    ++checked;
    wrong += !(error <= limit_here);
    if (!(error <= ratio * limit_here)) keep(error, limit_here, expected_here, actual_here, here);
  }
  void merge(const Tally& other) {
    checked += other.checked;
    wrong += other.wrong;
    if (!(other.ratio > ratio)) return;
    worst = other.worst;
    limit = other.limit;
    ratio = other.ratio;
    expected = other.expected;
    actual = other.actual;
    at = other.at;
  }

 private:
  void keep(double error, double limit_here, double expected_here, double actual_here,
            const Coordinate& here) {
    const double here_ratio = error == 0 ? 0 : std::isnan(error) ? kInfinity : error / limit_here;
    if (!(here_ratio > ratio)) return;
    worst = error;
    limit = limit_here;
    ratio = here_ratio;
    expected = expected_here;
    actual = actual_here;
    at = here;
  }
};

// fn(i, tallies) for every i on all cores; merged in the order of i, so that the worst place named
// does not depend on the number of threads.
template <size_t N, class Fn>
std::array<Tally, N> tally_over(int64_t count, const Fn& fn) {
  const int64_t chunk = std::max<int64_t>(1, count / (int64_t{64} * num_threads()));
  const int64_t chunks = (count + chunk - 1) / chunk;
  std::vector<std::array<Tally, N>> parts(static_cast<size_t>(chunks));
  parallel_for(chunks, [&](int64_t p) {
    for (int64_t i = p * chunk; i < std::min(count, (p + 1) * chunk); ++i)
      fn(i, parts[static_cast<size_t>(p)]);
  });
  std::array<Tally, N> all;
  for (const auto& part : parts)
    for (size_t n = 0; n < N; ++n) all[n].merge(part[n]);
  return all;
}

// A check that looked at nothing has passed only if there was nothing to look at: callers leave it
// out then.
StageCheck finish(Stage stage, std::string rule, const Tally& tally);

}  // namespace sagebench
