// Operands of sage_sm90 quantised on the host, the launch, and two references: exact attention, and
// the kernel's own rules with sums in double.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "gpu/gpu_support.h"
#include "sage/attention.h"

namespace sage_sm90_test {

using gpu_test::DeviceArray;
using sage::AttentionLayout;
using sage::AttentionParams;
using sage::Mask;

struct Shape {
  std::vector<int> q_lens, kv_lens;
  int heads = 2, kv_heads = 1, head_dim = 128;
  Mask mask = Mask::kFull;
  sage::PMode p = sage::PMode::kLinear;
  sage::Granularity granularity = sage::Granularity::kPerThread;
  float v_bias = 0.0f, q_gain = 1.0f;
};

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

// Inputs, and their codes with NaN in every scale and V tile that no sequence owns.
struct Operands {
  Shape shape;
  AttentionLayout layout;
  std::vector<int32_t> cu_q{0}, cu_kv{0};
  std::vector<double> q, k, v;
  std::vector<int8_t> q_codes, k_codes;
  std::vector<uint8_t> v_codes;
  std::vector<float> q_scales, k_scales, v_scales;

  size_t at(int token, int head, int heads) const {
    return (static_cast<size_t>(token) * static_cast<size_t>(heads) + static_cast<size_t>(head)) *
           static_cast<size_t>(shape.head_dim);
  }
  size_t v_at(int sequence, int key, int kv_head, int channel) const {
    const int in_tile = key % layout.v_tile_keys, group = in_tile % AttentionLayout::kKeyOrder;
    const auto order = std::find(layout.v_key_order.begin(), layout.v_key_order.end(), group);
    const int position = in_tile - group + static_cast<int>(order - layout.v_key_order.begin());
    const auto tile =
        sage::first_block(cu_kv[static_cast<size_t>(sequence)], sequence, layout.v_tile_keys) +
        key / layout.v_tile_keys;
    return static_cast<size_t>(((tile * shape.kv_heads + kv_head) * shape.head_dim + channel) *
                                   layout.v_tile_keys +
                               position);
  }
};

inline void quantise(const Operands& o, const std::vector<double>& x,
                     const std::vector<int32_t>& cu, int heads, sage::ScaleGroups groups,
                     std::vector<int8_t>& codes, std::vector<float>& scales) {
  const int batch = static_cast<int>(cu.size()) - 1;
  const auto rows = sage::scale_rows(groups, cu.back(), batch);
  scales.assign(static_cast<size_t>(heads * rows), std::numeric_limits<float>::quiet_NaN());
  codes.assign(x.size(), 0x7F);
  for (int b = 0; b < batch; ++b) {
    const int start = cu[static_cast<size_t>(b)], end = cu[static_cast<size_t>(b) + 1];
    for (int h = 0; h < heads; ++h) {
      std::vector<float> largest(scales.size(), 0.0f);
      for (int pass = 0; pass < 2; ++pass) {
        for (int t = start; t < end; ++t) {
          const auto row =
              static_cast<size_t>(h * rows + sage::scale_row(groups, start, b, t - start));
          for (int c = 0; c < o.shape.head_dim; ++c) {
            const size_t i = o.at(t, h, heads) + static_cast<size_t>(c);
            if (pass == 0) {
              largest[row] = std::max(largest[row], static_cast<float>(std::fabs(x[i])));
              scales[row] = std::max(largest[row], 1e-7f) / 127.0f;
            } else {
              codes[i] = static_cast<int8_t>(
                  std::clamp(std::nearbyint(x[i] / scales[row]), -127.0, 127.0));
            }
          }
        }
      }
    }
  }
}

inline Operands make_operands(const sage::AttentionKernel& kernel, const Shape& shape) {
  Operands o;
  o.shape = shape;
  sage::AttentionProblem problem;
  problem.num_qo_heads = shape.heads;
  problem.num_kv_heads = shape.kv_heads;
  problem.head_dim = problem.head_dim_v = shape.head_dim;
  sage::SageSettings settings = kernel.defaults;
  settings.p = shape.p;
  settings.qk_granularity = shape.granularity;
  EXPECT_EQ(kernel.supports(problem, settings), nullptr);
  o.layout = kernel.layout(problem, settings);
  for (int n : shape.q_lens) o.cu_q.push_back(o.cu_q.back() + n);
  for (int n : shape.kv_lens) o.cu_kv.push_back(o.cu_kv.back() + n);

  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  o.q.resize(o.at(o.cu_q.back(), 0, shape.heads));
  o.k.resize(o.at(o.cu_kv.back(), 0, shape.kv_heads));
  o.v.resize(o.k.size());
  for (double& x : o.q) x = normal(random) * shape.q_gain;
  for (double& x : o.k) x = normal(random);
  for (size_t i = 0; i < o.v.size(); ++i) {
    o.v[i] = normal(random) + (i % 2 ? shape.v_bias : -shape.v_bias);
  }
  quantise(o, o.q, o.cu_q, shape.heads, o.layout.q_groups, o.q_codes, o.q_scales);
  quantise(o, o.k, o.cu_kv, shape.kv_heads, o.layout.k_groups, o.k_codes, o.k_scales);

  const int batch = static_cast<int>(shape.kv_lens.size());
  const auto tiles = sage::block_count(o.cu_kv.back(), batch, o.layout.v_tile_keys);
  o.v_codes.assign(
      static_cast<size_t>(tiles * shape.kv_heads * shape.head_dim * o.layout.v_tile_keys), 0x7F);
  o.v_scales.resize(static_cast<size_t>(batch * shape.kv_heads * shape.head_dim));
  for (int b = 0; b < batch; ++b) {
    const int n = shape.kv_lens[static_cast<size_t>(b)], start = o.cu_kv[static_cast<size_t>(b)];
    const int padded = (n + o.layout.v_tile_keys - 1) / o.layout.v_tile_keys * o.layout.v_tile_keys;
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int c = 0; c < shape.head_dim; ++c) {
        const auto value = [&](int key) {
          return o.v[o.at(start + key, h, shape.kv_heads) + static_cast<size_t>(c)];
        };
        double largest = 1e-7;
        for (int key = 0; key < n; ++key) largest = std::max(largest, std::fabs(value(key)));
        const float scale = static_cast<float>(largest) / 448.0f;
        o.v_scales[static_cast<size_t>((b * shape.kv_heads + h) * shape.head_dim + c)] = scale;
        for (int key = 0; key < padded; ++key) {
          o.v_codes[o.v_at(b, key, h, c)] =
              key < n ? static_cast<uint8_t>(to_e4m3(value(key) / scale)) : uint8_t{0};
        }
      }
    }
  }
  return o;
}

struct Output {
  std::vector<uint16_t> o;
  std::vector<float> lse;
};

// fp16 output, so that rounding it hides less. Poisoned before the launch.
inline Output run(const sage::AttentionKernel& kernel, const Operands& x) {
  const DeviceArray<int32_t> cu_q(x.cu_q), cu_kv(x.cu_kv);
  const DeviceArray<int8_t> q_codes(x.q_codes), k_codes(x.k_codes);
  const DeviceArray<uint8_t> v_codes(x.v_codes);
  const DeviceArray<float> q_scales(x.q_scales), k_scales(x.k_scales), v_scales(x.v_scales);
  const DeviceArray<uint16_t> o(x.q.size());
  const DeviceArray<float> lse(x.q.size() / static_cast<size_t>(x.shape.head_dim));
  AttentionParams p;
  p.layout = x.layout;
  p.batch = static_cast<int>(x.shape.q_lens.size());
  p.num_qo_heads = x.shape.heads;
  p.num_kv_heads = x.shape.kv_heads;
  p.head_dim_v = x.shape.head_dim;
  p.total_q = x.cu_q.back();
  p.total_kv = x.cu_kv.back();
  p.cu_seqlens_q = cu_q.data();
  p.cu_seqlens_kv = cu_kv.data();
  p.mask = x.shape.mask;
  p.sm_scale = 1.0f / std::sqrt(static_cast<float>(x.shape.head_dim));
  p.q_codes = q_codes.data();
  p.q_scales = q_scales.data();
  p.k_codes = k_codes.data();
  p.k_scales = k_scales.data();
  p.v_codes = v_codes.data();
  p.v_scales = v_scales.data();
  p.o = o.data();
  p.o_dtype = sage::DType::kFp16;
  p.o_token_stride = x.shape.heads * x.shape.head_dim;
  p.o_head_stride = x.shape.head_dim;
  p.lse = lse.data();
  p.workspace_bytes = kernel.workspace_bytes(p);
  const DeviceArray<uint8_t> workspace(p.workspace_bytes);
  p.workspace = workspace.data();
  const sage::Status status = kernel.launch(p, nullptr);
  EXPECT_TRUE(status.ok()) << status.reason;
  return {o.download(), lse.download()};
}

struct Row {
  std::vector<double> o;
  double lse = -std::numeric_limits<double>::infinity();
};

// `rules`: from the codes, as MovingReference says, with sums in double; else exact, from the
// inputs.
inline Row reference_row(const Operands& x, int b, int i, int h, bool rules) {
  const Shape& s = x.shape;
  const size_t sequence = static_cast<size_t>(b);
  const int n = s.kv_lens[sequence], kv_head = h / (s.heads / s.kv_heads), d = s.head_dim;
  const int shift = s.mask == Mask::kCausalBottomRight ? n - s.q_lens[sequence] : 0;
  const int keys = s.mask == Mask::kFull ? n : std::clamp(i + 1 + shift, 0, n);
  const size_t q_at = x.at(x.cu_q[sequence] + i, h, s.heads);
  const float sm_scale = 1.0f / std::sqrt(static_cast<float>(d));
  const float per_score = static_cast<float>(double{sm_scale} * 8.0 * 1.4426950408889634);
  const auto q_rows =
      sage::scale_rows(x.layout.q_groups, x.cu_q.back(), static_cast<int>(s.q_lens.size()));
  const auto k_rows =
      sage::scale_rows(x.layout.k_groups, x.cu_kv.back(), static_cast<int>(s.q_lens.size()));
  const float q_unit =
      x.q_scales[static_cast<size_t>(h * q_rows +
                                     sage::scale_row(x.layout.q_groups, x.cu_q[sequence], b, i))] *
      per_score;
  const bool linear = s.p == sage::PMode::kLinear;
  const sage::MovingReference& rule = x.layout.reference;

  Row row;
  row.o.assign(static_cast<size_t>(d), 0.0);
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
      const size_t k_at = x.at(x.cu_kv[sequence] + first + j, kv_head, s.kv_heads);
      double dot = 0.0;
      for (int c = 0; c < d; ++c) {
        const size_t channel = static_cast<size_t>(c);
        dot += rules ? x.q_codes[q_at + channel] * x.k_codes[k_at + channel]
                     : x.q[q_at + channel] * x.k[k_at + channel];
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
      const size_t v_at = x.at(x.cu_kv[sequence] + first + j, kv_head, s.kv_heads);
      for (int c = 0; c < d; ++c) {
        row.o[static_cast<size_t>(c)] +=
            p * (rules ? from_e4m3(x.v_codes[x.v_at(b, first + j, kv_head, c)])
                       : x.v[v_at + static_cast<size_t>(c)]);
      }
    }
  }
  if (keys == 0) return row;
  for (int c = 0; c < d; ++c) {
    const float scale = x.v_scales[static_cast<size_t>((b * s.kv_heads + kv_head) * d + c)];
    row.o[static_cast<size_t>(c)] *= (rules ? double{scale} : 1.0) / sum;
  }
  row.lse = std::log(sum) +
            (rules ? 0.6931471805599453 * (reference + 7.0) - x.layout.lse_bias : exact_max);
  return row;
}

struct Errors {
  double relative_l1 = 0.0, lse = 0.0;
};

// Every `stride`-th row of every sequence and head, and always the last row.
inline Errors compare(const Operands& x, const Output& output, bool rules, int stride = 1) {
  double difference = 0.0, norm = 0.0;
  Errors errors;
  for (int b = 0; b < static_cast<int>(x.shape.q_lens.size()); ++b) {
    const int rows = x.shape.q_lens[static_cast<size_t>(b)];
    for (int h = 0; h < x.shape.heads; ++h) {
      for (int i = 0; i < rows; ++i) {
        if (i % stride != 0 && i != rows - 1) continue;
        const Row expected = reference_row(x, b, i, h, rules);
        const int token = x.cu_q[static_cast<size_t>(b)] + i;
        for (int c = 0; c < x.shape.head_dim; ++c) {
          const double got = sagebench::float_from_fp16(
              output.o[x.at(token, h, x.shape.heads) + static_cast<size_t>(c)]);
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

}  // namespace sage_sm90_test
