// Two references for sage_sm90: exact attention, and the kernel's own rules with sums in double.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "gpu/attention_run.h"

namespace attention_test {

inline double from_e4m3(int code) {
  return sagebench::float_from_e4m3(static_cast<uint8_t>(code));
}

inline int to_e4m3(double x) {
  const double a = std::min(std::fabs(x), 448.0);
  int exponent = 0;
  std::frexp(a, &exponent);
  const int step = std::max(exponent - 1, -6) - 3;
  const double n = std::nearbyint(std::ldexp(a, -step));  // 8..16 quanta, fewer below 2^-6
  const int code = n < 8 ? static_cast<int>(n) : (step + 9) * 8 + static_cast<int>(n);
  return code | (x < 0 ? 128 : 0);
}

struct Row {
  std::vector<double> o;
  double lse = -std::numeric_limits<double>::infinity();
};

// `rules`: from the codes, as MovingReference says, with sums in double; else exact, from the
// inputs.
inline Row reference_row(const Problem& s, const Operands& x, int b, int i, int h, bool rules) {
  const size_t sequence = static_cast<size_t>(b);
  const int n = s.kv_lens[sequence], kv_head = h / (s.num_qo_heads / s.num_kv_heads);
  const int d = x.layout.head_dim, d_v = x.layout.head_dim_v;  // padding is 0 in every tensor
  const auto at = [](int64_t token, int head, int heads, int dim) {
    return static_cast<size_t>((token * heads + head) * dim);
  };
  const int shift = s.mask == sage::Mask::kCausalBottomRight ? n - s.q_lens[sequence] : 0;
  const int keys = s.mask == sage::Mask::kFull ? n : std::clamp(i + 1 + shift, 0, n);
  const size_t q_at = at(x.cu_q[sequence] + i, h, s.num_qo_heads, d);
  const float sm_scale = s.sm_scale();
  const float per_score = static_cast<float>(double{sm_scale} * 8.0 * 1.4426950408889634);
  const auto q_rows = sage::scale_rows(x.layout.q_groups, x.cu_q.back(), s.batch());
  const auto k_rows = sage::scale_rows(x.layout.k_groups, x.cu_kv.back(), s.batch());
  const float q_unit =
      x.q_scales[static_cast<size_t>(h * q_rows +
                                     sage::scale_row(x.layout.q_groups, x.cu_q[sequence], b, i))] *
      per_score;
  const bool linear = s.p == sage::PMode::kLinear;
  const sage::MovingReference& rule = x.layout.reference;

  Row row;
  row.o.assign(static_cast<size_t>(d_v), 0.0);
  double sum = 0.0, exact_max = -1e300;
  float reference = 0.0f, highest = 0.0f;
  for (int first = 0; first < keys; first += x.layout.tile_k) {
    const int count = std::min(x.layout.tile_k, keys - first);
    std::vector<double> score(static_cast<size_t>(count));
    std::vector<float> unit(score.size());
    const auto code = [&](size_t j) {
      if (!linear) {
        const float c = std::fma(-12582912.0f, unit[j], -7.0f - reference);
        return 8.0 *
               (double{std::fma(12582912.0f + static_cast<float>(score[j]), unit[j], c)} + 7.0);
      }
      const float c = std::fma(-12582912.0f, unit[j], -8.0f * reference);
      return std::nearbyint((12582912.0 + score[j]) * double{unit[j]} + double{c});
    };
    for (int j = 0; j < count; ++j) {
      const size_t k_at = at(x.cu_kv[sequence] + first + j, kv_head, s.num_kv_heads, d);
      double dot = 0.0;
      for (int c = 0; c < d; ++c) {
        const size_t channel = static_cast<size_t>(c);
        dot += rules ? x.q_codes[q_at + channel] * x.k_codes[k_at + channel]
                     : double{x.q[q_at + channel]} * x.k[k_at + channel];
      }
      score[static_cast<size_t>(j)] = dot;
      const float k_scale = x.k_scales[static_cast<size_t>(
          kv_head * k_rows + sage::scale_row(x.layout.k_groups, x.cu_kv[sequence], b, first + j))];
      unit[static_cast<size_t>(j)] =
          linear ? std::max(std::fma(q_unit, k_scale, 3.0f) - 3.0f, 0x1p-22f)
                 : std::max(q_unit * 0.125f * k_scale, 0x1p-60f);
    }
    double rescale = 1.0;
    if (rules) {
      double lead = -1e300;
      for (size_t j = 0; j < score.size(); ++j) lead = std::max(lead, code(j));
      const float step =
          std::ceil((static_cast<float>(lead) - static_cast<float>(rule.top_code)) / 8.0f);
      const float before = reference;
      if (first == 0) {
        reference = highest = step;
      } else if (lead > rule.max_code || lead < rule.low_code) {
        reference = std::max(reference + step, highest - static_cast<float>(rule.span_octaves));
        highest = std::max(highest, reference);
        rescale = std::exp2(before - reference);
      }
    } else {
      double largest = exact_max;
      for (double value : score) largest = std::max(largest, value * sm_scale);
      rescale = std::exp(exact_max - largest);
      exact_max = largest;
    }
    sum *= rescale;
    for (double& o : row.o) o *= rescale;
    for (int j = 0; j < count; ++j) {
      const size_t index = static_cast<size_t>(j);
      const double p = !rules    ? std::exp(score[index] * sm_scale - exact_max)
                       : !linear ? from_e4m3(to_e4m3(std::exp2(code(index) / 8.0 - 7.0)))
                                 : from_e4m3(static_cast<int>(std::clamp(code(index), 0.0, 255.0)));
      sum += p;
      const size_t v_at = at(x.cu_kv[sequence] + first + j, kv_head, s.num_kv_heads, d_v);
      for (int c = 0; c < d_v; ++c) {
        row.o[static_cast<size_t>(c)] +=
            p * (rules ? x.v_values : x.v)[v_at + static_cast<size_t>(c)];
      }
    }
  }
  if (keys == 0) return row;
  for (int c = 0; c < d_v; ++c) {
    const auto channel = static_cast<size_t>(c);
    const size_t stat = at(b, kv_head, s.num_kv_heads, d_v) + channel;
    row.o[channel] *= (rules ? double{x.v_scales[stat]} : 1.0) / sum;
    if (rules) row.o[channel] += x.v_offset[stat];
  }
  row.lse = std::log(sum) +
            (rules ? 0.6931471805599453 * (reference + 7.0) - x.layout.lse_bias : exact_max);
  if (s.lse_dot) {
    row.lse += sm_scale * x.lse_dot[static_cast<size_t>(h * x.total_q() + x.cu_q[sequence] + i)];
  }
  return row;
}

struct Errors {
  double relative_l1 = 0.0, lse = 0.0;
};

// Every `stride`-th row of every sequence and head, and always the last row.
inline Errors compare(const Problem& s, const Operands& x, const Output& output, bool rules,
                      int stride = 1) {
  double difference = 0.0, norm = 0.0;
  Errors errors;
  for (int b = 0; b < s.batch(); ++b) {
    const int rows = s.q_lens[static_cast<size_t>(b)];
    for (int h = 0; h < s.num_qo_heads; ++h) {
      for (int i = 0; i < rows; ++i) {
        if (i % stride != 0 && i != rows - 1) continue;
        const Row expected = reference_row(s, x, b, i, h, rules);
        const int token = x.cu_q[static_cast<size_t>(b)] + i;
        for (int c = 0; c < s.head_dim_v; ++c) {
          const int64_t index = (int64_t{token} * s.num_qo_heads + h) * s.head_dim_v + c;
          const double got = output.o[static_cast<size_t>(index)];
          EXPECT_TRUE(std::isfinite(got)) << b << ' ' << i << ' ' << h << ' ' << c;
          difference += std::fabs(got - expected.o[static_cast<size_t>(c)]);
          norm += std::fabs(expected.o[static_cast<size_t>(c)]);
        }
        const double lse = output.lse[static_cast<size_t>(h * x.cu_q.back() + token)];
        if (std::isinf(expected.lse)) {
          EXPECT_EQ(lse, expected.lse);
        } else {
          EXPECT_FALSE(std::isnan(lse));
          errors.lse = std::max(errors.lse, std::fabs(lse - expected.lse));
        }
      }
    }
  }
  errors.relative_l1 = norm > 0.0 ? difference / norm : difference;
  return errors;
}

}  // namespace attention_test
