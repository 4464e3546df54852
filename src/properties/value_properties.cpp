// Properties of the values: what attention must do with K shifted, V scaled, V constant, K split.
#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/errors.h"
#include "metrics/spacing.h"
#include "ops/op_parts.h"
#include "properties/properties_parts.h"

namespace sagebench {
namespace {

constexpr const char* kNoRows = "no rows were computed to compare";

// Two runs whose codes differ by a few fp32 roundings: some codes of P flip (metrics/
// attention_checks.cpp derives 2^-8), both outputs are rounded.
constexpr double kSameCodesRelL1 = 0x1p-7;
// One flip of a P that is at most half of its row's sum, and as much again for the other run.
constexpr double kSameCodesLse = 0x1p-3;

AttentionRows rows_of(const Variant& v, const RowSample& rows) {
  return gather_rows(v.c, v.in.cu_seqlens_q, v.out, rows);
}

double largest(const Tensor& t) {
  double amax = 0;
  for (int64_t i = 0; i < t.size(); ++i)
    amax = std::max(amax, std::fabs(static_cast<double>(t.get(i))));
  return amax;
}

double rel_l1(const Case& c, const RowSample& rows, const AttentionRows& actual,
              const AttentionRows& expected) {
  return measure_error(c, rows, actual, expected).all.rel_l1;
}

std::string place_of(const QueryRow& row, int64_t channel) {
  return to_string(Coordinate{row.sequence, row.head, row.token, channel});
}

// The case with other values of V, on the same Q and K.
Variant run_with_v(const Baseline& base, const Tensor& v, const RowSample& rows) {
  return run_variant(base, base.c, make_inputs_from(base.c, dense(base.in.q), dense(base.in.k), v),
                     rows);
}

}  // namespace

// K is first put on a grid of 64 steps to its largest value, so that K and K + shift (64 steps, the
// sign alternating over the channels) are both exact in the dtype.
PropertyCheck check_k_shift(Executor& executor, const Case& c, const Kernel& kernel,
                            const Inputs& in, const StageOutputs& baseline) {
  const char* name = "k_shift";
  const Baseline base{executor, c, kernel, in, baseline};
  if (kernel.settings.smooth_k == sage::Smooth::kNone)
    return skipped(name, "without smooth_k a shift costs accuracy");
  const RowSample rows = rows_to_measure(base);
  if (rows.rows.empty()) return skipped(name, kNoRows);
  Tensor k = dense(in.k);
  const double amax = largest(k);
  if (!(amax > 0 && amax < 16384)) return skipped(name, "K is zero, huge or not finite");
  const double step = std::exp2(std::ceil(std::log2(amax))) / 64;
  Tensor shifted = k;
  const auto shift_of = [&](int64_t channel) { return channel % 2 ? -64 * step : 64 * step; };
  for (int64_t i = 0; i < k.size(); ++i) {
    const double on_grid = std::nearbyint(k.get(i) / step) * step;
    k.set(i, static_cast<float>(on_grid));
    shifted.set(i, static_cast<float>(on_grid + shift_of(i % in.k.dim)));
  }
  const auto run = [&](const Tensor& keys) {
    return run_variant(base, c, make_inputs_from(c, dense(in.q), keys, dense(in.v)), rows);
  };
  const Variant plain = run(k), moved = run(shifted);
  const AttentionRows before = rows_of(plain, rows), after = rows_of(moved, rows);
  const double error = rel_l1(c, rows, after, before);
  if (!(error <= kSameCodesRelL1))
    return failed(name, "O moved by relative L1 " + std::to_string(error) + ", at most " +
                            std::to_string(kSameCodesRelL1) + " allowed");
  const int32_t* cu = in.cu_seqlens_q.as<int32_t>();
  for (size_t r = 0; r < after.lse.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    double dot = 0;
    for (int d = 0; d < in.q.dim; ++d)
      dot += shift_of(d) * in.q.get(cu[row.sequence] + row.token, row.head, d);
    const double expected = before.lse[r] + c.sm_scale * dot, found = after.lse[r];
    const double limit = kSameCodesLse + 0x1p-20 * std::fabs(c.sm_scale * dot);
    if (expected == found || std::fabs(expected - found) <= limit) continue;
    return failed(name, "LSE at " + place_of(row, -1) + ": expected " + std::to_string(expected) +
                            ", found " + std::to_string(found));
  }
  return passed(name, "O moved by relative L1 " + std::to_string(error));
}

PropertyCheck check_v_power_of_two(Executor& executor, const Case& c, const Kernel& kernel,
                                   const Inputs& in, const StageOutputs& baseline) {
  const char* name = "v_power_of_two";
  const Baseline base{executor, c, kernel, in, baseline};
  const RowSample rows = rows_to_measure(base);
  if (rows.rows.empty()) return skipped(name, kNoRows);
  Tensor v = dense(in.v);
  const double factor = largest(v) < 8192 ? 4 : 0.25;
  for (int64_t i = 0; i < v.size(); ++i) v.set(i, static_cast<float>(v.get(i) * factor));
  const Variant scaled = run_with_v(base, v, rows);
  const AttentionRows before = gather_rows(c, in.cu_seqlens_q, baseline, rows),
                      after = rows_of(scaled, rows);
  const auto n = static_cast<size_t>(c.model.head_dim_v);
  const Spacing spacing(c.dtype);
  const double subnormal = 8 * spacing.at(0) / spacing.at(1);  // spacing stops scaling down there
  for (size_t i = 0; i < after.o.size(); ++i) {
    const double expected = before.o[i] * factor;
    const double slack = std::fabs(expected) < subnormal ? spacing.at(0) * 4 : 0;
    if (std::fabs(after.o[i] - expected) <= slack) continue;
    return failed(name, "V times " + std::to_string(factor) + ": O at " +
                            place_of(rows.rows[i / n], static_cast<int64_t>(i % n)) +
                            ": expected " + std::to_string(expected) + ", found " +
                            std::to_string(after.o[i]));
  }
  return passed(name);
}

PropertyCheck check_constant_v(Executor& executor, const Case& c, const Kernel& kernel,
                               const Inputs& in, const StageOutputs& baseline) {
  const char* name = "constant_v";
  const Baseline base{executor, c, kernel, in, baseline};
  const RowSample rows = rows_to_measure(base);
  if (rows.rows.empty()) return skipped(name, kNoRows);
  // 1, 1.25, 1.5 and 1.75: exact in e4m3 when 1.75 is the channel's or the head's largest code.
  const auto value = [](int64_t head, int64_t channel) {
    const double magnitude = 1 + 0.25 * static_cast<double>(channel % 4);
    return (head + channel / 4) % 2 ? -magnitude : magnitude;
  };
  Tensor v = dense(in.v);
  const int64_t heads = v.shape[1], dim = v.shape[2];
  for (int64_t i = 0; i < v.size(); ++i)
    v.set(i, static_cast<float>(value(i / dim % heads, i % dim)));
  const Variant constant = run_with_v(base, v, rows);
  const AttentionRows o = rows_of(constant, rows);
  const int64_t group = c.model.num_qo_heads / c.model.num_kv_heads;
  const Spacing spacing(c.dtype);
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    const auto b = static_cast<size_t>(row.sequence);
    const bool sees = visible_keys(c.mask(), c.batch.qo_len[b], c.batch.kv_len[b], row.token) > 0;
    for (int64_t d = 0; d < dim; ++d) {
      const double expected = sees ? value(row.head / group, d) : 0;
      const double found = o.o[r * static_cast<size_t>(dim) + static_cast<size_t>(d)];
      if (std::fabs(found - expected) <= (sees ? 2 * spacing.at(expected) : 0)) continue;
      return failed(name, "O at " + place_of(row, d) + ": expected " + std::to_string(expected) +
                              ", found " + std::to_string(found));
    }
  }
  return passed(name);
}

// Both halves and the whole miss the exact result by at most the price of the algorithm, so they
// miss each other by at most twice the limit of the case.
PropertyCheck check_kv_split_lse(Executor& executor, const Case& c, const Kernel& kernel,
                                 const Inputs& in, const StageOutputs& baseline) {
  const char* name = "kv_split_lse";
  const Baseline base{executor, c, kernel, in, baseline};
  if (c.mask() != sage::Mask::kFull) return skipped(name, "a causal mask does not split");
  const RowSample rows = rows_to_measure(base);
  if (rows.rows.empty()) return skipped(name, kNoRows);
  Case half = c;
  half.return_lse = true;
  if (kernel.attention)
    if (const char* reason = kernel.attention->supports(problem_of(half), kernel.settings))
      return skipped(name, reason);

  const int32_t* cu = in.cu_seqlens_kv.as<int32_t>();
  AttentionRows parts[2];
  for (int side = 0; side < 2; ++side) {
    std::vector<Tensor> k, v;
    for (int64_t b = 0; b < c.batch.size(); ++b) {
      const int64_t length = cu[b + 1] - cu[b], middle = length / 2;
      const int64_t first = side ? middle : 0, count = side ? length - middle : middle;
      half.batch.kv_len[static_cast<size_t>(b)] = count;
      k.push_back(dense(in.k, cu[b] + first, count));
      v.push_back(dense(in.v, cu[b] + first, count));
    }
    const Variant run = run_variant(
        base, half, make_inputs_from(half, dense(in.q), concatenated(k), concatenated(v)), rows);
    parts[side] = rows_of(run, rows);
  }
  AttentionRows merged;
  const auto n = static_cast<size_t>(c.model.head_dim_v);
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const double max = std::max(parts[0].lse[r], parts[1].lse[r]);
    const bool empty = max == -std::numeric_limits<double>::infinity();
    const double w0 = empty ? 0 : std::exp(parts[0].lse[r] - max),
                 w1 = empty ? 0 : std::exp(parts[1].lse[r] - max);
    for (size_t i = r * n; i < (r + 1) * n; ++i)
      merged.o.push_back(empty ? 0 : (w0 * parts[0].o[i] + w1 * parts[1].o[i]) / (w0 + w1));
  }
  const double limit = 2 * c.validate.tolerance.rel_l1.value_or(0.05);
  const double error = rel_l1(c, rows, merged, gather_rows(c, in.cu_seqlens_q, baseline, rows));
  const std::string detail = "merged halves miss the whole by relative L1 " + std::to_string(error);
  if (error <= limit) return passed(name, detail);
  return failed(name, detail + ", at most " + std::to_string(limit) + " allowed");
}

}  // namespace sagebench
