// Order statistics of repeated measurements. No distribution is assumed.
#pragma once
#include <cstddef>
#include <vector>

namespace sagebench {

// All of them take the values in any order; an empty list throws std::invalid_argument.
double median(std::vector<double> values);
// Median of |value - median|, unscaled.
double median_absolute_deviation(const std::vector<double>& values);

// Confidence interval of the median from order statistics (binomial with p = 1/2): the narrowest
// symmetric pair of ranks whose coverage is at least 95 %.
struct MedianInterval {
  double low = 0, high = 0;
  double coverage = 0;  // below 0.95 for fewer than kSamplesFor95 values: then it is the range
};
inline constexpr size_t kSamplesFor95 = 6;
MedianInterval median_interval(std::vector<double> values);

// Rank k (1-based) such that [x_(k), x_(n + 1 - k)] covers the median with at least 95 %, or 1.
size_t median_interval_rank(size_t n, double* coverage = nullptr);

}  // namespace sagebench
