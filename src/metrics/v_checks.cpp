// Codes and scales of V, recomputed from the subject's own offsets and scales.
#include <algorithm>

#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

constexpr double kScaleSlack = 0x1p-20;  // relative: amax / code_max in fp32
constexpr double kCancel = 0x1p-22;      // of |v| + |offset|: the subtraction in fp32
constexpr double kCodeSlack = 0x1p-22;   // relative: one ulp of fp32 on x / scale, by a reciprocal

// The values that round to each code: [low, high], by halves of the gaps to its neighbours. The
// largest finite codes take everything beyond, because V saturates.
struct Rounding {
  double value, low, high;
};
std::vector<Rounding> rounding_table(DType dtype) {
  const bool fp8 = dtype == DType::kFp8E4m3;
  const uint32_t sign = fp8 ? 0x80 : 0x8000, largest = fp8 ? 0x7e : 0x7bff;
  const auto decode = [fp8](uint32_t bits) -> double {
    return fp8 ? float_from_e4m3(static_cast<uint8_t>(bits))
               : float_from_fp16(static_cast<uint16_t>(bits));
  };
  std::vector<Rounding> table(size_t{2} * sign);
  for (uint32_t bits = 0; bits < sign; ++bits) {
    Rounding r{kInfinity, kInfinity, kInfinity};  // NaN and infinity: right for nothing
    if (bits <= largest) {
      r.value = decode(bits);
      r.high = bits == largest ? kInfinity : 0.5 * (r.value + decode(bits + 1));
      r.low = bits == 0 ? -r.high : 0.5 * (r.value + decode(bits - 1));
    }
    table[bits] = r;
    table[bits | sign] = {-r.value, -r.high, -r.low};
    if (bits > largest) table[bits | sign] = r;
  }
  return table;
}

double scale_of(double amax, const sage::AttentionLayout& layout) {
  if (amax == 0) return 1;
  amax = std::max<double>(amax, sage::kMinAmaxV);
  if (layout.pv == sage::PvType::kFp16) amax = std::exp2(std::ceil(std::log2(amax)));
  return amax / layout.v_code_max;
}

struct ChannelMax {
  double amax = 0, low = 0, high = 0;
  bool finite = true;
  void add(double value, double slack) {
    const double size = std::fabs(value);
    finite &= size < kInfinity;
    amax = std::max(amax, size);
    low = std::max(low, size - slack);
    high = std::max(high, size + slack);
  }
  void add(const ChannelMax& o) {
    finite &= o.finite;
    amax = std::max(amax, o.amax);
    low = std::max(low, o.low);
    high = std::max(high, o.high);
  }
};

// What rounding took from a channel, and what an fp32 sum of it may be off by.
struct Lost {
  double sum = 0, size = 0, slack = 0;
  void add(double term, double rounding) {
    sum += term;
    size += std::fabs(term);
    slack += rounding;
  }
};

enum { kScale, kCode, kCorrection, kRules };

struct VChecker {
  const TensorView& v;
  const Kernel& kernel;
  const StageOutputs& out;
  const std::vector<Rounding> table;
  const bool fp8;
  const int64_t padded;

  float offset(int64_t row, int64_t d) const {
    return out.v_offset.empty() ? 0.0f : out.v_offset.as<float>()[row * padded + d];
  }

  // Calls fn(token in sequence, channel, value, slack, row of the packed tensor).
  template <class Fn>
  void each(int64_t first, int64_t length, int head, int64_t row, const Fn& fn) const {
    std::vector<float> x(static_cast<size_t>(v.dim));
    std::vector<double> offsets(x.size());
    for (int d = 0; d < v.dim; ++d) offsets[static_cast<size_t>(d)] = offset(row, d);
    for (int64_t t = 0; t < length; ++t) {
      v.read_row(first + t, head, x.data());
      for (int d = 0; d < v.dim; ++d) {
        const double raw = x[static_cast<size_t>(d)], c = offsets[static_cast<size_t>(d)];
        fn(t, d, raw - c, c == 0 ? 0 : kCancel * (std::fabs(raw) + std::fabs(c)));
      }
    }
  }

  void check(int64_t sequence, int64_t first, int64_t length, int head,
             std::array<Tally, kRules>& tallies) const {
    const int64_t row = sequence * v.heads + head;
    const float* scales = out.v_scales.as<float>() + row * padded;
    std::vector<ChannelMax> maxima(static_cast<size_t>(v.dim));
    each(first, length, head, row, [&](int64_t, int d, double value, double slack) {
      maxima[static_cast<size_t>(d)].add(value, slack);
    });
    if (kernel.settings.v_scale == sage::VScale::kPerHead) {
      ChannelMax all;
      for (const ChannelMax& m : maxima) all.add(m);
      std::fill(maxima.begin(), maxima.end(), all);
    }
    for (int d = 0; d < v.dim; ++d)
      check_scale(maxima[static_cast<size_t>(d)], scales[d], {sequence, head, -1, d}, tallies);
    const bool corrected = !out.o_offset.empty() && length > 0;
    std::vector<Lost> lost(maxima.size());
    each(first, length, head, row, [&](int64_t t, int d, double value, double slack) {
      const int64_t at = ((first + t) * v.heads + head) * padded + d;
      const size_t bits = fp8 ? out.v_codes.as<uint8_t>()[at] : out.v_codes.as<uint16_t>()[at];
      const Rounding& code = table[bits];
      if (corrected)
        lost[static_cast<size_t>(d)].add(value - double{scales[d]} * code.value,
                                         slack + kFp32Unit * std::fabs(value));
      if (!maxima[static_cast<size_t>(d)].finite) return;  // codes of NaN and infinity are open
      const double inverse = 1 / static_cast<double>(scales[d]);
      const double exact = value * inverse;
      const double outside = std::max({code.low - exact, exact - code.high, 0.0});
      tallies[kCode].add(std::isfinite(code.value) ? outside : kInfinity,
                         kCodeSlack * std::fabs(exact) + slack * inverse, exact, code.value,
                         {sequence, head, t, d});
    });
    if (corrected) check_correction(sequence, head, length, lost, tallies);
  }

  void check_correction(int64_t sequence, int head, int64_t length, const std::vector<Lost>& lost,
                        std::array<Tally, kRules>& tallies) const {
    const int64_t row = sequence * v.heads + head;
    const auto n = static_cast<double>(length);
    for (int d = 0; d < v.dim; ++d) {
      const Lost& l = lost[static_cast<size_t>(d)];
      const double expected = offset(row, d) + l.sum / n;
      const double actual = out.o_offset.as<float>()[row * padded + d];
      const double limit =
          mean_limit(n, l.size / n) + l.slack / n + 2 * kFp32Unit * std::fabs(expected);
      tallies[kCorrection].add(error_of_sum(expected, actual), std::isfinite(limit) ? limit : 0,
                               expected, actual, {sequence, head, -1, d});
    }
  }

  void check_scale(const ChannelMax& m, double scale, const Coordinate& at,
                   std::array<Tally, kRules>& tallies) const {
    if (!m.finite) {  // a NaN or an infinity must live on, in the scale
      tallies[kScale].add(std::isfinite(scale) ? kInfinity : 0, 0, NAN, scale, at);
      return;
    }
    if (m.low == 0 && m.high > 0) {  // nothing but rounding: any scale gives codes, checked below
      const bool usable = scale > 0 && scale < kInfinity;
      tallies[kScale].add(usable ? 0 : kInfinity, 0, 1, scale, at);
      return;
    }
    const double expected = scale_of(m.amax, kernel.layout);
    const double play = scale_of(m.high, kernel.layout) - scale_of(m.low, kernel.layout);
    tallies[kScale].add(error_between(expected, scale), kScaleSlack * expected + play, expected,
                        scale, at);
  }
};

}  // namespace

void check_v_codes(const AttentionOperands& x, const Kernel& kernel, const StageOutputs& out,
                   std::vector<StageCheck>& checks) {
  const VChecker checker{x.v,
                         kernel,
                         out,
                         rounding_table(out.v_codes.dtype),
                         out.v_codes.dtype == DType::kFp8E4m3,
                         out.v_codes.shape[2]};
  const int32_t* cu = x.cu_seqlens_kv->as<int32_t>();
  const int64_t batch = x.cu_seqlens_kv->size() - 1;
  auto [scales, codes, corrections] =
      tally_over<kRules>(batch * x.v.heads, [&](int64_t i, auto& tallies) {
        const int64_t b = i / x.v.heads;
        checker.check(b, cu[b], cu[b + 1] - cu[b], static_cast<int>(i % x.v.heads), tallies);
      });
  if (scales.checked)
    checks.push_back(
        finish(Stage::kVCodes, "v scales: max |v - offset| of the channel / code_max", scales));
  if (codes.checked)
    checks.push_back(finish(Stage::kVCodes, "v codes: nearest to (v - offset) / scale", codes));
  if (corrections.checked)
    checks.push_back(finish(
        Stage::kVCodes, "o_offset: v_offset + mean of v - v_offset - scale * code", corrections));
}

}  // namespace sagebench
