// O and LSE against the emulation of the subject's own codes.
//
// Where both round the same P and sum in fp32, two things separate a right kernel from its
// emulation. Limits below follow from them; they hold for any input and are calibrated on hardware.
//  1. The cast of O: half an ulp of the output dtype, u = 2^-9 (bf16) or 2^-12 (fp16) relative.
//  2. P near a rounding boundary. The exponent of P is off by some 2^-18 (fp32 products and
//     ex2.approx), a code of P spans 2^-4 .. 2^-3 of it (e4m3; fp16: 2^-11 .. 2^-10), so about one
//     P in 10^4 falls on the other side (fp16: one in 50), by one code, relative `flip`. What flips
//     is the sum over keys, without V's offset: call that part s = o - v_offset.
//     - Many keys: flips are independent, and relative to s they add up to flip * sqrt(share of
//       flips), 2^-3 * 0.01 = 2^-9.6 for e4m3; many_keys allows 2^-8, flip / 32.
//     - Few keys: one flip of a key with weight w moves O by flip * w (1 - w) |v - v'|, at most
//       flip / 4 of the distance of two values; a channel's is at most 8 of the row's RMS of s. The
//       largest P of a row sits at the top code and cannot flip.
//     - A slice of R rows sees at most one such row in R: flip / 2 of one row's sum.
#include <algorithm>

#include "metrics/cache_map.h"
#include "metrics/errors.h"
#include "metrics/spacing.h"
#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

constexpr double kLseRounding = 0x1p-21;  // of the terms of an LSE: two or three fp32 roundings

struct Limits {
  double flip;       // one code of P, relative
  double cast;       // rounding of O, relative
  double many_keys;  // relative L1 of flips in a long row
  Limits(const Case& c, const Kernel& kernel)
      : flip(kernel.layout.pv == sage::PvType::kFp8E4m3 ? 0x1p-3 : 0x1p-10),
        cast(c.dtype == DType::kFp16 ? 0x1p-12 : 0x1p-9),
        many_keys(flip / 32 + kFp32Sums) {}

  double slice(int64_t rows) const { return many_keys + flip / 2 / static_cast<double>(rows); }
  double element(double ulp, double rms) const { return ulp + (2 * flip + kFp32Sums) * rms; }
  // ln of a sum of which one P, at most half of it, flips.
  double lse() const { return flip / 2; }
  // Flips of long rows have both signs and add up to far less in a mean than in a row: a tenth of
  // what O may show, where an H200 needs 0.003 of the whole (at most 7.4e-5 in a row, mma kernels).
  // One row of few keys may still flip as far as lse() allows.
  double lse_mean(int64_t rows) const {
    return (many_keys + 0x1p-12) / 10 + flip / 2 / static_cast<double>(rows);
  }

 private:
  static constexpr double kFp32Sums = 0x1p-12;  // order of fp32 sums over up to 2^17 keys
};

// Bits of a 16-bit dtype that are all set in infinities and NaNs.
uint16_t exponent_of(DType dtype) {
  return dtype == DType::kFp16 ? 0x7c00 : 0x7f80;
}

bool all_finite(const TensorView& x, const Tensor& cu_seqlens) {
  const uint16_t exponent = exponent_of(x.base->dtype);
  const int64_t tokens = cu_seqlens.as<int32_t>()[cu_seqlens.size() - 1];
  const auto [bad] = tally_over<1>(tokens, [&](int64_t t, auto& tallies) {
    int wrong = 0;
    for (int head = 0; head < x.heads; ++head) {
      const uint16_t* row = x.base->as<uint16_t>() + x.index(t, head, 0);
      for (int d = 0; d < x.dim; ++d) wrong += (row[d] & exponent) == exponent;
    }
    tallies[0].wrong += wrong;
  });
  return bad.wrong == 0;
}

// Rows are sorted: those of one (sequence, head) are consecutive.
bool last_of_slice(const RowSample& rows, size_t r) {
  return r + 1 == rows.rows.size() || rows.rows[r + 1].sequence != rows.rows[r].sequence ||
         rows.rows[r + 1].head != rows.rows[r].head;
}

enum class RowState : unsigned char { kFinite, kBad, kAllNan, kPoison };
RowState state_of(const Tensor& o, int64_t row, unsigned char poison) {
  const auto n = static_cast<int>(o.shape.back());
  const uint16_t* x = o.as<uint16_t>() + row * n;
  const uint16_t exponent = exponent_of(o.dtype), filled = static_cast<uint16_t>(poison * 0x0101);
  int untouched = 0, nan = 0, bad = 0;
  for (int i = 0; i < n; ++i) {
    untouched += x[i] == filled;
    nan += (x[i] & 0x7fff) > exponent;
    bad += (x[i] & exponent) == exponent;
  }
  return untouched == n ? RowState::kPoison
         : nan == n     ? RowState::kAllNan
         : bad          ? RowState::kBad
                        : RowState::kFinite;
}

}  // namespace

void check_o_written(const Case& c, const AttentionOperands& x, const StageOutputs& out,
                     const RowSample& rows, unsigned char poison, std::vector<StageCheck>& checks) {
  const std::vector<TokenOwner> owners = token_owners(*x.cu_seqlens_q);
  const int heads = c.model.num_qo_heads;
  const auto tokens = static_cast<int64_t>(owners.size());
  std::vector<RowState> states(owners.size() * static_cast<size_t>(heads));
  parallel_for(tokens, [&](int64_t t) {
    for (int h = 0; h < heads; ++h)
      states[static_cast<size_t>(t * heads + h)] = state_of(out.o, t * heads + h, poison);
  });
  // A subject that computes only the sample leaves every other row NaN; one that left any other
  // row must have written them all.
  std::vector<bool> sampled(states.size());
  const int32_t* cu = x.cu_seqlens_q->as<int32_t>();
  for (const QueryRow& r : rows.rows)
    sampled[static_cast<size_t>((cu[r.sequence] + r.token) * heads + r.head)] = true;
  bool only_sample = true;
  for (size_t i = 0; i < states.size(); ++i)
    only_sample &= sampled[i] || states[i] == RowState::kAllNan;

  const bool finite = all_finite(x.q, *x.cu_seqlens_q) && all_finite(x.k, *x.cu_seqlens_kv) &&
                      all_finite(x.v, *x.cu_seqlens_kv);
  Tally written, sound;
  for (size_t i = 0; i < states.size(); ++i) {
    if (only_sample && !sampled[i]) continue;
    const TokenOwner& owner = owners[i / static_cast<size_t>(heads)];
    const Coordinate at{owner.sequence, static_cast<int64_t>(i) % heads, owner.token, -1};
    written.add(states[i] == RowState::kPoison ? kInfinity : 0, 0, 0,
                out.o.get(static_cast<int64_t>(i) * out.o.shape.back()), at);
    const bool bad = states[i] == RowState::kBad || states[i] == RowState::kAllNan;
    sound.add(bad ? kInfinity : 0, 0, 0, bad ? NAN : 0, at);
  }
  if (written.checked) checks.push_back(finish(Stage::kO, "every row written", written));
  if (sound.checked && finite)
    checks.push_back(finish(Stage::kO, "finite, as all inputs are", sound));
}

void check_o(const Case& c, const Kernel& kernel, const StageOutputs& out, const RowSample& rows,
             const AttentionRows& actual, const AttentionRows& expected,
             std::vector<StageCheck>& checks) {
  const Limits limits(c, kernel);
  const Spacing spacing(c.dtype);
  const int64_t n = c.model.head_dim_v, padded = kernel.layout.head_dim_v;
  const int64_t kv_heads = c.model.num_kv_heads, group = c.model.num_qo_heads / kv_heads;
  const Tensor& added = added_to_output(out);
  Tally elements, slices;
  std::vector<double> sum(static_cast<size_t>(n));  // the row without V's offset
  double error = 0, cast = 0, summed = 0;           // L1 of a slice: error, O, O without offset
  int64_t count = 0;
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    const double* e = &expected.o[r * sum.size()];
    const double* a = &actual.o[r * sum.size()];
    const int64_t stats = (row.sequence * kv_heads + row.head / group) * padded;
    for (int64_t d = 0; d < n; ++d) {
      const double offset = added.empty() ? 0 : added.as<float>()[stats + d];
      sum[static_cast<size_t>(d)] = e[d] == 0 ? 0 : e[d] - offset;  // no keys: no offset either
    }
    const double rms = row_rms(sum.data(), n);
    for (int64_t d = 0; d < n; ++d) {
      const double limit = std::isfinite(e[d]) ? limits.element(spacing.at(e[d]), rms) : 0;
      elements.add(error_between(e[d], a[d]), limit, e[d], a[d],
                   {row.sequence, row.head, row.token, d});
      if (!std::isfinite(e[d])) continue;
      error += error_between(e[d], a[d]);
      cast += limits.cast * std::fabs(e[d]) + spacing.at(0) / 2;
      summed += std::fabs(sum[static_cast<size_t>(d)]);
    }
    ++count;
    if (!last_of_slice(rows, r)) continue;
    slices.add(error, cast + limits.slice(count) * summed, 0, error,
               {row.sequence, row.head, -1, -1});
    error = cast = summed = 0;
    count = 0;
  }
  if (elements.checked)
    checks.push_back(finish(Stage::kO,
                            "against the emulation of the subject's codes: 1 ulp + one code of P",
                            elements));
  if (slices.checked)
    checks.push_back(
        finish(Stage::kO,
               "against the emulation of the subject's codes: sum of errors per (sequence, head)",
               slices));
}

void check_lse(const Case& c, const Kernel& kernel, const StageOutputs& out,
               const Tensor& cu_seqlens_q, const RowSample& rows, const AttentionRows& actual,
               const AttentionRows& expected, std::vector<StageCheck>& checks) {
  const Limits limits(c, kernel);
  const int32_t* cu = cu_seqlens_q.as<int32_t>();
  const int64_t tokens = cu[cu_seqlens_q.size() - 1];
  Tally elements, means;
  double sum = 0, rounding = 0;
  int64_t count = 0;
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    const double e = expected.lse[r], a = actual.lse[r];
    const double error = error_between(e, a);
    const double dot =
        out.lse_dot.empty()
            ? 0
            : c.sm_scale * out.lse_dot.get(row.head * tokens + cu[row.sequence] + row.token);
    // the terms of the LSE round in fp32
    const double fp32 =
        std::isfinite(e) ? kLseRounding * (1 + std::fabs(e) + 2 * std::fabs(dot)) : 0;
    elements.add(error, std::isfinite(e) ? limits.lse() + fp32 : 0, e, a,
                 {row.sequence, row.head, row.token, -1});
    sum += error;
    rounding += fp32;
    ++count;
    if (!last_of_slice(rows, r)) continue;
    means.add(sum / static_cast<double>(count),
              limits.lse_mean(count) + rounding / static_cast<double>(count), 0,
              sum / static_cast<double>(count), {row.sequence, row.head, -1, -1});
    sum = rounding = 0;
    count = 0;
  }
  if (elements.checked)
    checks.push_back(finish(Stage::kLse, "against the emulation of the subject's codes", elements));
  if (means.checked)
    checks.push_back(finish(Stage::kLse, "mean error per (sequence, head)", means));
}

}  // namespace sagebench
