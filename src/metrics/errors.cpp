#include "metrics/errors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "metrics/tally.h"

namespace sagebench {
namespace {

// How rows fall into slices: the coordinate that names the row's slice, nullopt if it is in none.
struct SliceKind {
  const char* name;
  std::optional<Coordinate> (*of)(const QueryRow& row, int64_t qo_len, int tile_q);
};
constexpr SliceKind kSliceKinds[] = {
    {"sequence",
     [](const QueryRow& r, int64_t, int) {
       return std::optional(Coordinate{r.sequence, -1, -1, -1});
     }},
    {"head",
     [](const QueryRow& r, int64_t, int) {
       return std::optional(Coordinate{-1, r.head, -1, -1});
     }},
    {"sequence_head",
     [](const QueryRow& r, int64_t, int) {
       return std::optional(Coordinate{r.sequence, r.head, -1, -1});
     }},
    {"tail_tile",  // the rows of a sequence's last, partly filled tile
     [](const QueryRow& r, int64_t qo_len, int tile_q) {
       return r.token >= qo_len / tile_q * tile_q
                  ? std::optional(Coordinate{r.sequence, -1, qo_len / tile_q * tile_q, -1})
                  : std::nullopt;
     }},
    {"last_token",
     [](const QueryRow& r, int64_t qo_len, int) {
       return r.token == qo_len - 1 ? std::optional(Coordinate{r.sequence, -1, r.token, -1})
                                    : std::nullopt;
     }},
    {"row",
     [](const QueryRow& r, int64_t, int) {
       return std::optional(Coordinate{r.sequence, r.head, r.token, -1});
     }},
};

using SliceMap = std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, ErrorSums>;

std::optional<WorstSlice> worst_of(const char* kind, const SliceMap& slices) {
  std::optional<WorstSlice> worst;
  for (const auto& [key, sums] : slices) {
    const ErrorValues values = sums.values();
    if (worst && !(values.rel_l1 > worst->values.rel_l1)) continue;
    const auto [sequence, head, token, channel] = key;
    worst = WorstSlice{kind, {sequence, head, token, channel}, values};
  }
  return worst;
}

void count_nonfinite(const std::vector<double>& values, const RowSample& rows, int64_t row_size,
                     ErrorReport& report) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (report.nan_count + report.inf_count == 0) {
      const QueryRow& r = rows.rows[i / static_cast<size_t>(row_size)];
      report.first_nonfinite = {r.sequence, r.head, r.token, static_cast<int64_t>(i) % row_size};
    }
    (std::isnan(values[i]) ? report.nan_count : report.inf_count) += 1;
  }
}

}  // namespace

void ErrorSums::add(double actual, double reference, double rms) {
  ++count;
  if (!std::isfinite(actual) || !std::isfinite(reference)) {
    ++bad;
    return;
  }
  const double error = std::fabs(actual - reference);
  actual_square += actual * actual;
  reference_square += reference * reference;
  product += actual * reference;
  abs_error += error;
  abs_reference += std::fabs(reference);
  error_square += error * error;
  if (error > max_error_rms * rms) max_error_rms = error / rms;
}

void ErrorSums::merge(const ErrorSums& o) {
  actual_square += o.actual_square;
  reference_square += o.reference_square;
  product += o.product;
  abs_error += o.abs_error;
  abs_reference += o.abs_reference;
  error_square += o.error_square;
  max_error_rms = std::max(max_error_rms, o.max_error_rms);
  count += o.count;
  bad += o.bad;
}

ErrorValues ErrorSums::values() const {
  if (bad) return {-1, kInfinity, kInfinity, kInfinity, kInfinity};
  ErrorValues v;
  if (count == 0) return v;
  // Against an all-zero reference the ratios have no scale: equal is perfect, else infinitely off.
  const bool zero = reference_square == 0, equal = abs_error == 0;
  v.rmse = std::sqrt(error_square / static_cast<double>(count));
  v.max_error_rms = max_error_rms;
  v.rel_l1 = equal ? 0 : zero ? kInfinity : abs_error / abs_reference;
  v.norm_ratio = equal ? 1 : zero ? kInfinity : product / reference_square;
  if (equal)
    v.cosine = 1;
  else if (zero || actual_square == 0)
    v.cosine = 0;
  else
    v.cosine = product / (std::sqrt(actual_square) * std::sqrt(reference_square));
  return v;
}

double row_rms(const double* row, int64_t n) {
  double square = 0;
  for (int64_t i = 0; i < n; ++i)
    if (std::isfinite(row[i])) square += row[i] * row[i];
  return n == 0 ? 0 : std::sqrt(square / static_cast<double>(n));
}

std::vector<SliceErrors> errors_per_sequence_head(const RowSample& rows, int64_t row_size,
                                                  const std::vector<double>& actual,
                                                  const std::vector<double>& reference) {
  std::vector<SliceErrors> slices;
  ErrorSums sums;
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    if (slices.empty() || slices.back().at.sequence != row.sequence ||
        slices.back().at.head != row.head) {
      sums = {};
      slices.push_back({{row.sequence, row.head, -1, -1}, 0, {}});
    }
    const size_t start = r * static_cast<size_t>(row_size);
    const double rms = row_rms(&reference[start], row_size);
    for (size_t i = start; i < start + static_cast<size_t>(row_size); ++i)
      sums.add(actual[i], reference[i], rms);
    ++slices.back().rows;
    slices.back().values = sums.values();
  }
  return slices;
}

ErrorReport measure_error(const Case& c, const RowSample& rows, const AttentionRows& actual,
                          const AttentionRows& reference, int tile_q) {
  ErrorReport report;
  const int64_t row_size = c.model.head_dim_v;
  std::array<SliceMap, std::size(kSliceKinds)> slices;
  std::vector<ErrorSums> channels(static_cast<size_t>(c.model.num_qo_heads * row_size));
  ErrorSums all;
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    const double* a = &actual.o[r * static_cast<size_t>(row_size)];
    const double* e = &reference.o[r * static_cast<size_t>(row_size)];
    const double rms = row_rms(e, row_size);
    ErrorSums sums;
    for (int64_t i = 0; i < row_size; ++i) {
      sums.add(a[i], e[i], rms);
      channels[static_cast<size_t>(row.head * row_size + i)].add(a[i], e[i], rms);
    }
    all.merge(sums);
    const int64_t qo_len = c.batch.qo_len[static_cast<size_t>(row.sequence)];
    for (size_t k = 0; k < std::size(kSliceKinds); ++k)
      if (const auto at = kSliceKinds[k].of(row, qo_len, tile_q))
        slices[k][{at->sequence, at->head, at->token, at->channel}].merge(sums);
  }
  report.all = all.values();
  for (size_t k = 0; k < std::size(kSliceKinds); ++k)
    if (auto worst = worst_of(kSliceKinds[k].name, slices[k])) report.worst.push_back(*worst);
  SliceMap by_channel;
  for (size_t i = 0; i < channels.size(); ++i)
    if (channels[i].count) {
      const auto at = static_cast<int64_t>(i);
      by_channel[{-1, at / row_size, -1, at % row_size}] = channels[i];
    }
  if (auto worst = worst_of("v_channel", by_channel)) report.worst.push_back(*worst);
  for (const SliceErrors& s : errors_per_sequence_head(rows, row_size, actual.o, reference.o))
    if (s.values.cosine < report.worst_cosine) {
      report.worst_cosine = s.values.cosine;
      report.worst_cosine_at = s.at;
    }
  count_nonfinite(actual.o, rows, row_size, report);
  for (size_t r = 0; r < std::min(actual.lse.size(), reference.lse.size()); ++r)
    report.lse_max_error =
        std::max(report.lse_max_error, error_between(reference.lse[r], actual.lse[r]));
  return report;
}

}  // namespace sagebench
