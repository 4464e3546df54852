#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/parallel.h"
#include "ops/encode.h"
#include "ops/reference.h"
#include "ops/row_plan.h"

// Every fp32 operation that decides a code or an output is written out in order, so that a row does
// not depend on the machine, nor on the rows computed beside it.
namespace sagebench {
namespace {

using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr float kInf = std::numeric_limits<float>::infinity();

// ---- one row of P V ----------------------------------------------------------------------------

// acc[d] += sum_j p[j] v[j][d], keys in increasing order, each sum in fp32.
void accumulate_fp32(const float* p, const float* v, int64_t keys, int64_t dim, float* acc) {
  constexpr int kLanes = 32;
  using Lanes = Eigen::Array<float, kLanes, 1>;
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Lanes sum = Eigen::Map<const Lanes>(acc + d);
    for (int64_t j = 0; j < keys; ++j) sum += p[j] * Eigen::Map<const Lanes>(v + j * dim + d);
    Eigen::Map<Lanes>(acc + d) = sum;
  }
  for (; d < dim; ++d)
    for (int64_t j = 0; j < keys; ++j) acc[d] += p[j] * v[j * dim + d];
}

// The same through an adder of `bits` fraction bits: in each step of 32 keys the products and the
// accumulator are aligned to the largest exponent, truncated toward zero and added.
void accumulate_truncated(const float* p, const float* v, int64_t keys, int64_t dim, int bits,
                          float* acc) {
  constexpr int64_t kStep = 32;
  for (int64_t j0 = 0; j0 < keys; j0 += kStep)
    for (int64_t d = 0; d < dim; ++d) {
      const int64_t n = std::min(kStep, keys - j0);
      const auto product = [&](int64_t j) { return p[j0 + j] * v[(j0 + j) * dim + d]; };
      float largest = std::fabs(acc[d]), plain_sum = acc[d];
      for (int64_t j = 0; j < n; ++j) {
        largest = std::max(largest, std::fabs(product(j)));
        plain_sum += product(j);
      }
      if (largest == 0 || !std::isfinite(plain_sum)) {
        acc[d] = plain_sum;
        continue;
      }
      const double per_unit = std::ldexp(1.0, bits - std::ilogb(largest));
      auto sum = static_cast<int64_t>(acc[d] * per_unit);
      for (int64_t j = 0; j < n; ++j) sum += static_cast<int64_t>(product(j) * per_unit);
      acc[d] = static_cast<float>(static_cast<double>(sum) / per_unit);
    }
}

// ---- attention on codes ------------------------------------------------------------------------

struct RowState {
  float max = -kInf, sum = 0;
  int64_t pending = 0;  // keys in the accumulator since it was last added to fp32 registers
};

class Attention {
 public:
  Attention(const Case& c, const StageOutputs& codes, const Kernel& kernel)
      : c_(c),
        codes_(codes),
        layout_(kernel.layout),
        format_(layout_.pv == sage::PvType::kFp8E4m3 ? kE4m3Format : kFp16Format),
        scale_log2_(static_cast<float>(c.sm_scale) * std::numbers::log2e_v<float>) {}

  void run(const RowChunk& chunk, AttentionRows& out) const {
    const auto rows = static_cast<Eigen::Index>(chunk.rows.size());
    FloatMatrix q(rows, layout_.head_dim), k(layout_.tile_k, layout_.head_dim);
    FloatMatrix v(layout_.tile_k, layout_.head_dim_v), scores(rows, layout_.tile_k);
    FloatMatrix o = FloatMatrix::Zero(rows, layout_.head_dim_v), acc = o;
    std::vector<float> q_scale(chunk.rows.size()), k_scale(static_cast<size_t>(layout_.tile_k));
    std::vector<RowState> states(chunk.rows.size());
    for (size_t r = 0; r < chunk.rows.size(); ++r)
      q_scale[r] = load_q(chunk, chunk.rows[r], q.row(static_cast<Eigen::Index>(r)).data());

    size_t first = 0;  // rows that see a key of this tile: the last ones
    for (int64_t j = 0; j < chunk.max_visible(); j += layout_.tile_k) {
      const int64_t keys = std::min<int64_t>(layout_.tile_k, chunk.max_visible() - j);
      while (chunk.rows[first].visible <= j) ++first;
      load_tile(chunk, j, keys, k, k_scale.data(), v);
      // |dot| < 2^24: exact in fp32 in any order
      const auto live = rows - static_cast<Eigen::Index>(first);
      scores.block(rows - live, 0, live, keys).noalias() =
          q.bottomRows(live) * k.topRows(keys).transpose();
      for (size_t r = first; r < chunk.rows.size(); ++r) {
        const auto i = static_cast<Eigen::Index>(r);
        const int64_t seen = std::min(keys, chunk.rows[r].visible - j);
        add_tile(seen, q_scale[r] * scale_log2_, k_scale.data(), v.data(), scores.row(i).data(),
                 states[r], o.row(i).data(), acc.row(i).data());
      }
    }
    for (size_t r = 0; r < chunk.rows.size(); ++r) {
      const auto i = static_cast<Eigen::Index>(r);
      o.row(i) += acc.row(i);
      if (chunk.rows[r].visible > 0) finish(chunk, chunk.rows[r], states[r], o.row(i).data(), out);
    }
  }

 private:
  // Codes as floats; returns the scale.
  float load_q(const RowChunk& chunk, const PlannedRow& row, float* out) const {
    const int64_t at = (chunk.q_start + row.token) * c_.model.num_qo_heads + row.head;
    const int8_t* code = codes_.q_codes.as<int8_t>() + at * layout_.head_dim;
    std::copy(code, code + layout_.head_dim, out);
    return codes_.q_scales
        .as<float>()[row.head * codes_.q_scales.shape[1] +
                     sage::scale_row(layout_.q_groups, chunk.q_start, row.sequence, row.token)];
  }

  void load_tile(const RowChunk& chunk, int64_t first_key, int64_t keys, FloatMatrix& k,
                 float* k_scale, FloatMatrix& v) const {
    const float* scales = codes_.k_scales.as<float>() + chunk.kv_head * codes_.k_scales.shape[1];
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t at = (chunk.kv_start + first_key + j) * c_.model.num_kv_heads + chunk.kv_head;
      const int8_t* code = codes_.k_codes.as<int8_t>() + at * layout_.head_dim;
      std::copy(code, code + layout_.head_dim, k.row(j).data());
      k_scale[j] =
          scales[sage::scale_row(layout_.k_groups, chunk.kv_start, chunk.sequence, first_key + j)];
      const int64_t v_at = at * layout_.head_dim_v;
      if (layout_.pv == sage::PvType::kFp8E4m3)
        std::transform(codes_.v_codes.as<uint8_t>() + v_at,
                       codes_.v_codes.as<uint8_t>() + v_at + layout_.head_dim_v, v.row(j).data(),
                       float_from_e4m3);
      else
        std::transform(codes_.v_codes.as<uint16_t>() + v_at,
                       codes_.v_codes.as<uint16_t>() + v_at + layout_.head_dim_v, v.row(j).data(),
                       float_from_fp16);
    }
  }

  // One tile of one row: s[keys] holds the integer scores, and P afterwards.
  void add_tile(int64_t keys, float q_scale_log2, const float* k_scale, const float* v, float* s,
                RowState& state, float* o, float* acc) const {
    float max = state.max;
    for (int64_t j = 0; j < keys; ++j) {
      s[j] *= q_scale_log2 * k_scale[j];
      max = s[j] > max ? s[j] : max;
    }
    const float alpha = std::exp2(state.max - max);
    float sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const float p = std::exp2(s[j] - max + layout_.p_offset);
      sum += s[j] = round_to(format_, p);
    }
    state.max = max;
    state.sum = state.sum * alpha + sum;
    if (alpha != 1.0f)
      for (int64_t d = 0; d < layout_.head_dim_v; ++d) {
        o[d] *= alpha;
        acc[d] *= alpha;
      }
    for (int64_t j = 0; j < keys;) {
      const int64_t n = std::min(keys - j, layout_.promote_keys - state.pending);
      add_products(s + j, v + j * layout_.head_dim_v, n, acc);
      j += n;
      state.pending += n;
      if (state.pending == layout_.promote_keys) promote(state, o, acc);
    }
  }

  void add_products(const float* p, const float* v, int64_t keys, float* acc) const {
    if (layout_.accumulator_bits == 0)
      accumulate_fp32(p, v, keys, layout_.head_dim_v, acc);
    else
      accumulate_truncated(p, v, keys, layout_.head_dim_v, layout_.accumulator_bits, acc);
  }

  void promote(RowState& state, float* o, float* acc) const {
    for (int64_t d = 0; d < layout_.head_dim_v; ++d) o[d] += acc[d];
    std::fill_n(acc, layout_.head_dim_v, 0.0f);
    state.pending = 0;
  }

  void finish(const RowChunk& chunk, const PlannedRow& row, const RowState& state, const float* o,
              AttentionRows& out) const {
    const int64_t stats =
        (int64_t{chunk.sequence} * c_.model.num_kv_heads + chunk.kv_head) * layout_.head_dim_v;
    const float* scale = codes_.v_scales.as<float>() + stats;
    const float* offset = codes_.v_offset.empty() ? nullptr : codes_.v_offset.as<float>() + stats;
    double* to = out.o.data() + row.index * c_.model.head_dim_v;
    for (int d = 0; d < c_.model.head_dim_v; ++d)
      to[d] = o[d] * scale[d] / state.sum + (offset ? offset[d] : 0.0f);

    float lse = (state.max - layout_.p_offset + std::log2(state.sum)) * std::numbers::ln2_v<float>;
    if (!codes_.lse_dot.empty())
      lse += static_cast<float>(c_.sm_scale) *
             codes_.lse_dot
                 .as<float>()[row.head * codes_.lse_dot.shape[1] + chunk.q_start + row.token];
    out.lse[static_cast<size_t>(row.index)] = lse;
  }

  const Case& c_;
  const StageOutputs& codes_;
  const sage::AttentionLayout& layout_;
  const FloatFormat format_;
  const float scale_log2_;
};

}  // namespace

AttentionRows emulate_attention(const Case& c, const StageOutputs& codes,
                                const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                                const Kernel& kernel, const RowSample& rows) {
  if (kernel.layout.p == sage::PMode::kLinear)
    throw Error(ExitCode::kInternal, "kernel " + kernel.name + ": P mode linear is not emulated");
  if (kernel.layout.tile_k < 1 || kernel.layout.promote_keys < 1)
    throw Error(ExitCode::kInternal,
                "kernel " + kernel.name + ": tile_k and promote_keys must be positive");
  AttentionRows out;
  out.o.assign(rows.rows.size() * static_cast<size_t>(c.model.head_dim_v), 0.0);
  out.lse.assign(rows.rows.size(), -std::numeric_limits<double>::infinity());
  const RowPlan plan = plan_rows(c, cu_seqlens_q, cu_seqlens_kv, rows);
  const Attention attention(c, codes, kernel);
  parallel_for(static_cast<int64_t>(plan.chunks.size()),
               [&](int64_t i) { attention.run(plan.chunks[static_cast<size_t>(i)], out); });
  return out;
}

}  // namespace sagebench
