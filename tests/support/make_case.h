// Small attention problems built by hand: a case, its inputs, and a kernel description to emulate.
#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "ops/op.h"
#include "ops/reference.h"
#include "scenario/case.h"

namespace sagebench::test {

inline Tensor cu_seqlens_of(const std::vector<int64_t>& lengths) {
  Tensor cu(DType::kInt32, {static_cast<int64_t>(lengths.size()) + 1});
  for (size_t b = 0; b < lengths.size(); ++b)
    cu.as<int32_t>()[b + 1] = cu.as<int32_t>()[b] + static_cast<int32_t>(lengths[b]);
  return cu;
}

inline Case make_case(const Model& model, const std::vector<int64_t>& qo_len,
                      const std::vector<int64_t>& kv_len) {
  Case c;
  c.id = c.scenario = "test";
  c.model = model;
  c.batch.qo_len = qo_len;
  c.batch.kv_len = kv_len;
  c.batch.kv_len_before.assign(qo_len.size(), 0);
  c.rope.rotary_dim = model.head_dim;
  c.sm_scale = 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  c.seed = 7;
  return c;
}

// The numbers of an FP8 per_thread kernel with 64-key tiles.
inline Kernel make_kernel(const Model& model, sage::PvType pv = sage::PvType::kFp8E4m3) {
  const auto padded = [](int dim) { return dim <= 64 ? 64 : 128; };
  Kernel k;
  k.name = "test_kernel";
  k.settings.pv = pv;
  k.settings.correct_v = pv == sage::PvType::kFp8E4m3;
  k.layout.head_dim = padded(model.head_dim);
  k.layout.head_dim_v = padded(model.head_dim_v);
  k.layout.q_groups = {32, 8, sage::GroupPattern::kRowMod8};
  k.layout.k_groups = {64, 4, sage::GroupPattern::kPairMod4};
  for (uint8_t i = 0; i < sage::AttentionLayout::kKeyOrder; ++i) k.layout.v_key_order[i] = i;
  k.layout.pv = pv;
  if (pv == sage::PvType::kFp16) {
    k.layout.v_code_max = 256.0f;
    k.layout.p_offset = 0.0f;
  }
  return k;
}

// value(token, head, channel) of a packed tensor [tokens, heads, dim].
using Values = std::function<double(int64_t, int, int)>;

inline Values constant(double value) {
  return [value](int64_t, int, int) { return value; };
}
// N(0, 1); draws in order of the calls.
inline Values normal(uint64_t seed) {
  return [engine = std::mt19937_64(seed)](int64_t, int, int) mutable {
    return std::normal_distribution<double>()(engine);
  };
}
// The same plus `bias`, signs alternating over the channels.
inline Values normal_with_bias(uint64_t seed, double bias) {
  return [n = normal(seed), bias](int64_t t, int h, int d) {
    return n(t, h, d) + (d % 2 == 0 ? bias : -bias);
  };
}

class Problem {
 public:
  Problem(const Case& c, const Values& q, const Values& k, const Values& v) : c(c) {
    in.cu_seqlens_q = cu_seqlens_of(c.batch.qo_len);
    in.cu_seqlens_kv = cu_seqlens_of(c.batch.kv_len);
    in.kv_len_before = Tensor(DType::kInt32, {c.batch.size()});
    for (int64_t b = 0; b < c.batch.size(); ++b)
      in.kv_len_before.as<int32_t>()[b] =
          static_cast<int32_t>(c.batch.kv_len_before[static_cast<size_t>(b)]);
    const auto last = [](const Tensor& cu) { return cu.as<int32_t>()[cu.size() - 1]; };
    const Model& m = c.model;
    fill(in.q_split, in.q, last(in.cu_seqlens_q), m.num_qo_heads, m.head_dim, q);
    fill(in.k_split, in.k, last(in.cu_seqlens_kv), m.num_kv_heads, m.head_dim, k);
    fill(in.v_split, in.v, last(in.cu_seqlens_kv), m.num_kv_heads, m.head_dim_v, v);
  }
  Problem(const Problem&) = delete;

  AttentionOperands operands() const {
    return {in.q, in.k, in.v, &in.cu_seqlens_q, &in.cu_seqlens_kv};
  }
  RowSample all_rows() const {
    Case full = c;
    full.validate.rows = Rows::kFull;
    return sample_rows(full, {});
  }
  AttentionRows exact() const { return exact_attention(c, operands(), all_rows()); }
  StageOutputs codes(const Kernel& kernel) const {
    StageOutputs out;
    emulate_quantisation(c, operands(), kernel, out);
    return out;
  }
  AttentionRows emulated(const Kernel& kernel) const {
    return emulate_attention(c, codes(kernel), in.cu_seqlens_q, in.cu_seqlens_kv, kernel,
                             all_rows());
  }

  Case c;
  Inputs in;

 private:
  void fill(Tensor& tensor, TensorView& view, int64_t tokens, int heads, int dim,
            Values value) const {
    tensor = Tensor(c.dtype, {tokens, heads, dim});
    view = {&tensor, 0, int64_t{heads} * dim, dim, tokens, heads, dim};
    for (int64_t t = 0; t < tokens; ++t)
      for (int h = 0; h < heads; ++h)
        for (int d = 0; d < dim; ++d)
          tensor.set(view.index(t, h, d), static_cast<float>(value(t, h, d)));
  }
};

inline double rel_l1(const std::vector<double>& actual, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::fabs(actual[i] - expected[i]);
    norm += std::fabs(expected[i]);
  }
  return error / norm;
}

}  // namespace sagebench::test
