// The case's limits on the result against the exact one.
#include <algorithm>

#include "metrics/errors.h"
#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

// Beyond these a case is wrong unless it says otherwise.
constexpr double kDefaultCosine = 0.998;
constexpr double kDefaultRelL1 = 0.05;

// Rows where the exact result is finite. The others have no error, only a position.
RowSample finite_rows(const RowSample& rows, int64_t row_size, const AttentionRows& actual,
                      const AttentionRows& exact, std::vector<double>& a, std::vector<double>& e,
                      Tally& positions) {
  RowSample kept;
  kept.total = rows.total;
  const auto n = static_cast<std::ptrdiff_t>(row_size);
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    const auto ea = exact.o.begin() + static_cast<std::ptrdiff_t>(r) * n;
    const auto aa = actual.o.begin() + static_cast<std::ptrdiff_t>(r) * n;
    const bool finite = std::all_of(ea, ea + n, [](double v) { return std::isfinite(v); });
    for (std::ptrdiff_t d = 0; d < n; ++d)
      positions.add(std::isfinite(ea[d]) == std::isfinite(aa[d]) ? 0 : kInfinity, 0, ea[d], aa[d],
                    {row.sequence, row.head, row.token, d});
    if (!finite) continue;
    kept.rows.push_back(row);
    a.insert(a.end(), aa, aa + n);
    e.insert(e.end(), ea, ea + n);
  }
  return kept;
}

}  // namespace

void check_limits(const Case& c, const RowSample& rows, const AttentionRows& actual,
                  const AttentionRows& exact, const Accuracy& accuracy,
                  std::vector<StageCheck>& checks) {
  const Tolerance& t = c.validate.tolerance;
  const double cosine = t.cosine.value_or(kDefaultCosine),
               rel_l1 = t.rel_l1.value_or(kDefaultRelL1);
  std::vector<double> a, e;
  Tally positions, cosines, errors;
  const RowSample finite = finite_rows(rows, c.model.head_dim_v, actual, exact, a, e, positions);
  for (const SliceErrors& s : errors_per_sequence_head(finite, c.model.head_dim_v, a, e)) {
    cosines.add(1 - s.values.cosine, 1 - cosine, 1, s.values.cosine, s.at);
    errors.add(s.values.rel_l1, rel_l1, 0, s.values.rel_l1, s.at);
  }
  const auto append = [&](const char* rule, const Tally& tally) {
    if (!tally.checked) return;
    checks.push_back(finish(Stage::kO, rule, tally));
    checks.back().is_limit = true;
  };
  if (positions.checked)
    checks.push_back(
        finish(Stage::kO, "against exact: NaN and infinities in the same places", positions));
  append("against exact: relative L1 per (sequence, head)", errors);
  append("against exact: 1 - cosine per (sequence, head)", cosines);
  if (finite.rows.empty()) return;
  const ErrorReport& report = accuracy.kernel_vs_exact;
  if (t.worst_row)
    for (const WorstSlice& s : report.worst)
      if (s.kind == "row") {
        Tally row;
        row.add(s.values.rel_l1, *t.worst_row, 0, s.values.rel_l1, s.at);
        append("against exact: relative L1 of the worst row", row);
      }
  if (t.norm_ratio) {
    Tally norm;
    norm.add(std::fabs(report.all.norm_ratio - 1), *t.norm_ratio, 1, report.all.norm_ratio, {});
    append("against exact: |norm ratio - 1| of the whole case", norm);
  }
}

}  // namespace sagebench
