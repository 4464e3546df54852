#include "core/stats.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace sagebench {
namespace {

constexpr double kConfidence = 0.95;

std::vector<double> sorted(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("statistics of no values");
  std::sort(values.begin(), values.end());
  return values;
}

double middle(const std::vector<double>& sorted_values) {
  const size_t n = sorted_values.size();
  return n % 2 ? sorted_values[n / 2] : 0.5 * (sorted_values[n / 2 - 1] + sorted_values[n / 2]);
}

// ln P(Binomial(n, 1/2) = k); the recurrence over k alone would underflow for large n.
double log_binomial_half(size_t n, size_t k) {
  const auto dn = static_cast<double>(n), dk = static_cast<double>(k);
  return std::lgamma(dn + 1) - std::lgamma(dk + 1) - std::lgamma(dn - dk + 1) - dn * std::log(2.0);
}

}  // namespace

double median(std::vector<double> values) {
  return middle(sorted(std::move(values)));
}

double median_absolute_deviation(const std::vector<double>& values) {
  const double centre = median(values);
  std::vector<double> deviations(values.size());
  std::transform(values.begin(), values.end(), deviations.begin(),
                 [centre](double v) { return std::fabs(v - centre); });
  return median(std::move(deviations));
}

// [x_(k), x_(n+1-k)] misses the median when fewer than k values lie on one side of it:
// probability 2 P(Binomial(n, 1/2) <= k - 1).
size_t median_interval_rank(size_t n, double* coverage) {
  size_t rank = 1;
  double below = std::exp(log_binomial_half(n, 0));  // P(Binomial <= rank - 1)
  while (2 * (rank + 1) <= n + 1) {
    const double next = below + std::exp(log_binomial_half(n, rank));
    if (1 - 2 * next < kConfidence) break;
    below = next;
    ++rank;
  }
  if (coverage) *coverage = std::max(0.0, 1 - 2 * below);
  return rank;
}

MedianInterval median_interval(std::vector<double> values) {
  const std::vector<double> ordered = sorted(std::move(values));
  MedianInterval interval;
  const size_t rank = median_interval_rank(ordered.size(), &interval.coverage);
  interval.low = ordered[rank - 1];
  interval.high = ordered[ordered.size() - rank];
  return interval;
}

}  // namespace sagebench
