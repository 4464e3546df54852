// Sums from which every error value follows, so that slices of any shape share one pass.
#pragma once
#include <vector>

#include "metrics.h"

namespace sagebench {

struct ErrorSums {
  double actual_square = 0, reference_square = 0, product = 0;
  double abs_error = 0, abs_reference = 0, error_square = 0;
  double max_error_rms = 0;  // largest |error| in units of the reference row's RMS
  int64_t count = 0;
  int64_t bad = 0;  // NaN or infinite in either

  void add(double actual, double reference, double row_rms);
  void merge(const ErrorSums& other);
  ErrorValues values() const;  // any bad element: infinitely wrong
};

double row_rms(const double* row, int64_t n);

// One (sequence, head) of a row sample: its rows are consecutive.
struct SliceErrors {
  Coordinate at;
  int64_t rows = 0;
  ErrorValues values;
};
std::vector<SliceErrors> errors_per_sequence_head(const RowSample& rows, int64_t row_size,
                                                  const std::vector<double>& actual,
                                                  const std::vector<double>& reference);

}  // namespace sagebench
