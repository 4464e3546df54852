// What the attention kernel test works with: random operands quantised on the host, and a
// reference.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "sage/attention.h"

namespace attention_test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  const char* kernel = "sage_mma_fp8";
  std::vector<int> q_lens, kv_lens;
  std::vector<int> ids;  // a sequence's values depend on its id alone; empty: 0, 1, ...
  int num_qo_heads = 4, num_kv_heads = 2, head_dim = 128, head_dim_v = 128;
  sage::DType dtype = sage::DType::kBf16;
  sage::Mask mask = sage::Mask::kFull;
  sage::Granularity granularity = sage::Granularity::kPerThread;
  sage::PMode p = sage::PMode::kExp2;
  float q_gain = 1.0f, v_mean = 1.0f;  // q is N(0, q_gain^2), k is N(0, 1), v is N(v_mean, 1)
  bool lse = true, lse_dot = true, v_offset = true;
  bool o_head_major = false;
  int o_row_padding = 0;  // elements behind each row of heads
  int poisoned = -1;      // sequence with NaN scales and codes

  int batch() const { return static_cast<int>(q_lens.size()); }
  const sage::AttentionKernel& row() const { return *sage::find_attention_kernel(kernel); }
  sage::AttentionLayout layout() const {
    sage::SageSettings settings = row().defaults;
    settings.qk_granularity = granularity;
    settings.p = p;
    return row().layout({num_qo_heads, num_kv_heads, head_dim, head_dim_v, dtype, mask, lse},
                        settings);
  }
  float sm_scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

struct Operands {
  sage::AttentionLayout layout;
  std::vector<int32_t> cu_q, cu_kv;
  std::vector<float> q, k, v;            // [tokens, heads, padded head_dim]
  std::vector<int8_t> q_codes, k_codes;  // like q and k
  std::vector<float> q_scales, k_scales;
  std::vector<unsigned char> v_codes;  // in the layout's order
  std::vector<float> v_values;         // the codes decoded, [tokens, heads, head_dim_v]
  std::vector<float> v_scales, v_offset, lse_dot;
  int64_t total_q() const { return cu_q.back(); }
  int64_t total_kv() const { return cu_kv.back(); }
};

inline std::vector<int32_t> prefix_sum(const std::vector<int>& lens) {
  std::vector<int32_t> cu = {0};
  for (const int n : lens) cu.push_back(cu.back() + n);
  return cu;
}

// One tensor of normal values and its INT8 codes. Scales that no token owns stay NaN.
inline void quantise_int8(const Problem& p, const std::vector<int32_t>& cu, int heads,
                          sage::ScaleGroups groups, int padded, unsigned tensor, float gain,
                          std::vector<float>& values, std::vector<int8_t>& codes,
                          std::vector<float>& scales) {
  const int64_t rows = sage::scale_rows(groups, cu.back(), p.batch());
  values.assign(static_cast<size_t>(cu.back()) * static_cast<size_t>(heads * padded), 0.0f);
  codes.assign(values.size(), 0);
  scales.assign(static_cast<size_t>(heads * rows), kNan);
  for (int b = 0; b < p.batch(); ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t begin = cu[at];
    const int len = cu[at + 1] - cu[at];
    std::mt19937 random(static_cast<unsigned>(p.ids.empty() ? b : p.ids[at]) * 3 + tensor);
    std::normal_distribution<float> normal;
    float* x = values.data() + begin * heads * padded;
    for (int r = 0; r < len * heads; ++r)
      for (int c = 0; c < p.head_dim; ++c) x[r * padded + c] = gain * normal(random);
    const auto scale_of = [&](int token, int head) -> float& {
      return scales[static_cast<size_t>(head * rows + sage::scale_row(groups, begin, b, token))];
    };
    for (int pass = 0; pass < 2; ++pass) {  // scales, then codes
      for (int t = 0; t < len; ++t)
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < padded; ++c) {
            const float value = x[(t * heads + h) * padded + c];
            float& scale = scale_of(t, h);
            if (pass == 0) {
              scale = std::fmax(scale, std::fmax(std::abs(value), 1e-7f) / 127.0f);
            } else {
              const float code = std::nearbyint(value / scale);
              codes[static_cast<size_t>(((begin + t) * heads + h) * padded + c)] =
                  static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
            }
          }
    }
    if (b != p.poisoned) continue;
    for (int t = 0; t < len; ++t)
      for (int h = 0; h < heads; ++h) scale_of(t, h) = kNan;
  }
}

// V, its codes, scales and offsets.
inline void quantise_v(const Problem& p, Operands& x) {
  const sage::AttentionLayout& l = x.layout;
  const bool fp8 = l.pv == sage::PvType::kFp8E4m3;
  const int dim = l.head_dim_v, heads = p.num_kv_heads, tile = l.v_tile_keys;
  const auto channels = static_cast<size_t>(heads * dim);
  const auto storage_rows = static_cast<size_t>(
      fp8 ? sage::block_count(x.total_kv(), p.batch(), tile) * tile : x.total_kv() * 2);
  x.v_codes.assign(storage_rows * channels, 0x7F);  // e4m3 NaN, and fp16 NaN in pairs
  x.v_values.assign(static_cast<size_t>(x.total_kv()) * channels, kNan);
  x.v.assign(x.v_values.size(), 0.0f);
  x.v_scales.assign(static_cast<size_t>(p.batch()) * channels, kNan);
  x.v_offset.assign(x.v_scales.size(), p.v_offset ? kNan : 0.0f);
  for (int b = 0; b < p.batch(); ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t begin = x.cu_kv[at];
    const int len = x.cu_kv[at + 1] - x.cu_kv[at];
    std::mt19937 random(static_cast<unsigned>(p.ids.empty() ? b : p.ids[at]) * 3 + 2);
    std::normal_distribution<float> normal(p.v_mean);
    float* v = x.v.data() + static_cast<size_t>(begin) * channels;
    for (int r = 0; r < len * heads; ++r)
      for (int c = 0; c < p.head_dim_v; ++c) v[r * dim + c] = normal(random);
    for (size_t ch = 0; ch < channels; ++ch) {
      const size_t stat = at * channels + ch;
      float sum = 0, amax = 0;
      for (int t = 0; t < len; ++t) sum += v[static_cast<size_t>(t) * channels + ch];
      if (p.v_offset) x.v_offset[stat] = len == 0 ? 0.0f : sum / static_cast<float>(len);
      for (int t = 0; t < len; ++t)
        amax =
            std::fmax(amax, std::abs(v[static_cast<size_t>(t) * channels + ch] - x.v_offset[stat]));
      const float reach = fp8 || amax == 0 ? amax : std::exp2(std::ceil(std::log2(amax)));
      const float scale = amax == 0 ? 1.0f : reach / l.v_code_max;
      x.v_scales[stat] = b == p.poisoned ? kNan : scale;
      const int h = static_cast<int>(ch) / dim, c = static_cast<int>(ch) % dim;
      for (int t = 0; t < (fp8 ? (len + tile - 1) / tile * tile : len); ++t) {
        const bool live = t < len;
        const size_t token = live ? static_cast<size_t>(begin + t) * channels + ch : 0;
        const float value =
            live ? (v[static_cast<size_t>(t) * channels + ch] - x.v_offset[stat]) / scale : 0.0f;
        if (fp8) {
          const uint8_t code = live && b == p.poisoned ? 0x7F : sagebench::e4m3_from_float(value);
          const auto key = static_cast<uint8_t>(t % sage::AttentionLayout::kKeyOrder);
          const auto order =
              std::find(l.v_key_order.begin(), l.v_key_order.end(), key) - l.v_key_order.begin();
          const int64_t row =
              (sage::first_block(begin, b, tile) + t / tile) * heads * dim + h * dim + c;
          x.v_codes[static_cast<size_t>(row * tile + t % tile - key + order)] = code;
          if (live) x.v_values[token] = sagebench::float_from_e4m3(code);
        } else {
          const uint16_t code = b == p.poisoned ? 0x7FFF : sagebench::fp16_from_float(value);
          std::memcpy(&x.v_codes[token * 2], &code, 2);
          x.v_values[token] = sagebench::float_from_fp16(code);
        }
      }
    }
  }
}

inline Operands make_operands(const Problem& p) {
  Operands x;
  x.layout = p.layout();
  x.cu_q = prefix_sum(p.q_lens);
  x.cu_kv = prefix_sum(p.kv_lens);
  quantise_int8(p, x.cu_q, p.num_qo_heads, x.layout.q_groups, x.layout.head_dim, 0, p.q_gain, x.q,
                x.q_codes, x.q_scales);
  quantise_int8(p, x.cu_kv, p.num_kv_heads, x.layout.k_groups, x.layout.head_dim, 1, 1.0f, x.k,
                x.k_codes, x.k_scales);
  quantise_v(p, x);
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 10.0f);
  x.lse_dot.resize(static_cast<size_t>(x.total_q() * p.num_qo_heads));
  for (float& dot : x.lse_dot) dot = normal(random);
  return x;
}

struct Reference {
  std::vector<double> o, lse;  // [total_q, num_qo_heads, head_dim_v], [num_qo_heads, total_q]
};

inline double rounded_p(sage::PvType pv, double p) {
  return pv == sage::PvType::kFp8E4m3
             ? sagebench::float_from_e4m3(sagebench::e4m3_from_float(static_cast<float>(p)))
             : sagebench::float_from_fp16(sagebench::fp16_from_float(static_cast<float>(p)));
}

inline Reference reference(const Problem& p, const Operands& x) {
  const sage::AttentionLayout& l = x.layout;
  const int64_t q_rows = sage::scale_rows(l.q_groups, x.total_q(), p.batch());
  const int64_t k_rows = sage::scale_rows(l.k_groups, x.total_kv(), p.batch());
  Reference r;
  r.o.assign(static_cast<size_t>(x.total_q() * p.num_qo_heads * p.head_dim_v), 0.0);
  r.lse.assign(static_cast<size_t>(x.total_q() * p.num_qo_heads), -INFINITY);
  std::vector<float> score(static_cast<size_t>(l.tile_k));
  std::vector<double> acc(static_cast<size_t>(p.head_dim_v));
  for (int b = 0; b < p.batch(); ++b) {
    if (b == p.poisoned) continue;
    const auto at = static_cast<size_t>(b);
    const int64_t q_begin = x.cu_q[at], kv_begin = x.cu_kv[at];
    const int q_len = p.q_lens[at], kv_len = p.kv_lens[at];
    for (int h = 0; h < p.num_qo_heads; ++h) {
      const int kv_head = h / (p.num_qo_heads / p.num_kv_heads);
      for (int t = 0; t < q_len; ++t) {
        const int shift = p.mask == sage::Mask::kCausalBottomRight ? kv_len - q_len : 0;
        const int visible =
            p.mask == sage::Mask::kFull ? kv_len : std::clamp(t + 1 + shift, 0, kv_len);
        const int64_t row = q_begin + t;
        const int8_t* q = &x.q_codes[static_cast<size_t>((row * p.num_qo_heads + h) * l.head_dim)];
        const float q_scale = p.sm_scale() * 1.4426950408889634f *
                              x.q_scales[static_cast<size_t>(
                                  h * q_rows + sage::scale_row(l.q_groups, q_begin, b, t))];
        float max = -INFINITY;
        double sum = 0;
        std::fill(acc.begin(), acc.end(), 0.0);
        for (int first = 0; first < visible; first += l.tile_k) {
          const int keys = std::min(l.tile_k, visible - first);
          float now = max;
          for (int j = 0; j < keys; ++j) {
            const int8_t* k = &x.k_codes[static_cast<size_t>(
                ((kv_begin + first + j) * p.num_kv_heads + kv_head) * l.head_dim)];
            int dot = 0;
            for (int c = 0; c < l.head_dim; ++c) dot += q[c] * k[c];
            const float scale =
                q_scale *
                x.k_scales[static_cast<size_t>(
                    kv_head * k_rows + sage::scale_row(l.k_groups, kv_begin, b, first + j))];
            score[static_cast<size_t>(j)] = static_cast<float>(dot) * scale;
            now = std::fmax(now, score[static_cast<size_t>(j)]);
          }
          const double rescale = std::exp2(static_cast<double>(max) - now);
          sum *= rescale;
          for (double& a : acc) a *= rescale;
          max = now;
          for (int j = 0; j < keys; ++j) {
            const double w = rounded_p(
                l.pv,
                std::exp2(static_cast<double>(score[static_cast<size_t>(j)]) - max + l.p_offset));
            const float* v = &x.v_values[static_cast<size_t>(
                ((kv_begin + first + j) * p.num_kv_heads + kv_head) * l.head_dim_v)];
            sum += w;
            for (int c = 0; c < p.head_dim_v; ++c) acc[static_cast<size_t>(c)] += w * v[c];
          }
        }
        if (visible == 0) continue;
        const auto stat =
            (at * static_cast<size_t>(p.num_kv_heads) + static_cast<size_t>(kv_head)) *
            static_cast<size_t>(l.head_dim_v);
        for (int c = 0; c < p.head_dim_v; ++c) {
          const auto ch = static_cast<size_t>(c);
          r.o[static_cast<size_t>((row * p.num_qo_heads + h) * p.head_dim_v + c)] =
              x.v_offset[stat + ch] + x.v_scales[stat + ch] * acc[ch] / sum;
        }
        const auto i = static_cast<size_t>(h * x.total_q() + row);
        r.lse[i] = (max - l.p_offset + std::log2(sum)) * std::log(2.0) +
                   (p.lse_dot ? p.sm_scale() * x.lse_dot[i] : 0.0f);
      }
    }
  }
  return r;
}

}  // namespace attention_test
