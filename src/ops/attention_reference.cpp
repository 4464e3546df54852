#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "core/parallel.h"
#include "ops/fast_rounding.h"
#include "ops/moving_reference.h"
#include "ops/reference.h"
#include "ops/row_plan.h"

namespace sagebench {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr int64_t kBlockKeys = 256;  // keys converted at a time: 256 KiB of doubles at 128 channels

// Where Q, K or V come from: packed rows [first, first + out.rows()) of one head, as doubles.
struct Source {
  int dim;
  std::function<void(int64_t first, int head, Eigen::Ref<Matrix> out)> read;
};
// Scores of the visible keys become weights; returns their sum and the LSE.
struct Normaliser {
  double sum, lse;
};
using Softmax = std::function<Normaliser(Eigen::Ref<Eigen::RowVectorXd> scores)>;

Source from_view(const TensorView& x) {
  return {x.dim, [&x](int64_t first, int head, Eigen::Ref<Matrix> out) {
            Eigen::RowVectorXf row(x.dim);
            for (Eigen::Index i = 0; i < out.rows(); ++i) {
              x.read_row(first + i, head, row.data());
              out.row(i) = row.cast<double>();
            }
          }};
}

Normaliser plain_softmax(Eigen::Ref<Eigen::RowVectorXd> s) {
  const double max = s.maxCoeff<Eigen::PropagateNaN>();
  double sum = 0;
  for (double& x : s) sum += x = std::exp(x - max);
  return {sum, max + std::log(sum)};
}

// P as the kernel rounds it: per tile, against the running maximum in base 2, then brought to the
// final maximum without further rounding.
Normaliser rounded_softmax(const sage::AttentionLayout& layout, Eigen::Ref<Eigen::RowVectorXd> s) {
  const FloatFormat format = layout.pv == sage::PvType::kFp8E4m3 ? kE4m3Format : kFp16Format;
  s *= std::numbers::log2e;
  const double final_max = s.maxCoeff<Eigen::PropagateNaN>();
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (Eigen::Index t = 0; t < s.size(); t += layout.tile_k) {
    auto tile = s.segment(t, std::min<Eigen::Index>(layout.tile_k, s.size() - t));
    max = std::max(max, tile.maxCoeff());
    const double to_final = std::exp2(max - final_max);
    for (double& x : tile) {
      const auto p = static_cast<float>(std::exp2(x - max + layout.p_offset));
      sum += x = round_to(format, p) * to_final;
    }
  }
  return {sum, (final_max - layout.p_offset + std::log2(sum)) * std::numbers::ln2};
}

// The same relative to a moving reference; sums in double, brought to every new reference.
Normaliser coded_softmax(const sage::AttentionLayout& layout, Eigen::Ref<Eigen::RowVectorXd> s) {
  const bool linear = layout.p == sage::PMode::kLinear;
  s *= std::numbers::log2e;
  std::vector<float> references;  // of each tile
  ReferenceState reference;
  for (Eigen::Index t = 0; t < s.size(); t += layout.tile_k) {
    auto tile = s.segment(t, std::min<Eigen::Index>(layout.tile_k, s.size() - t));
    const double lead = 8 * (tile.maxCoeff() - reference.now);
    reference.move(layout.reference, static_cast<float>(linear ? std::nearbyint(lead) : lead));
    references.push_back(reference.now);
    for (double& x : tile) {
      x -= reference.now;
      x = linear ? value_of_code(std::nearbyint(8 * x))
                 : round_to(kE4m3Format, static_cast<float>(std::exp2(x - 7)));
    }
  }
  double sum = 0;
  for (size_t t = 0; t < references.size(); ++t) {
    const Eigen::Index first = static_cast<Eigen::Index>(t) * layout.tile_k;
    auto tile = s.segment(first, std::min<Eigen::Index>(layout.tile_k, s.size() - first));
    tile *= std::exp2(references[t] - reference.now);
    sum += tile.sum();
  }
  return {sum, (reference.now + 7 + std::log2(sum)) * std::numbers::ln2 - layout.lse_bias};
}

void attend(const Case& c, const RowChunk& chunk, const Source& q, const Source& k, const Source& v,
            const Softmax& softmax, AttentionRows& out) {
  const auto num_rows = static_cast<Eigen::Index>(chunk.rows.size());
  const int64_t keys = chunk.max_visible();
  // rows see ever more keys: those that see key j are the last ones
  const auto first_row_past = [&](int64_t key) {
    return std::partition_point(chunk.rows.begin(), chunk.rows.end(),
                                [key](const PlannedRow& r) { return r.visible <= key; }) -
           chunk.rows.begin();
  };

  Matrix queries(num_rows, q.dim), scores(num_rows, keys);
  for (Eigen::Index r = 0; r < num_rows; ++r) {
    const PlannedRow& row = chunk.rows[static_cast<size_t>(r)];
    q.read(chunk.q_start + row.token, row.head, queries.middleRows(r, 1));
  }
  queries *= c.sm_scale;

  Matrix block(std::min(keys, kBlockKeys), k.dim);
  for (int64_t j = 0; j < keys; j += kBlockKeys) {
    const int64_t n = std::min(kBlockKeys, keys - j), count = num_rows - first_row_past(j);
    k.read(chunk.kv_start + j, chunk.kv_head, block.topRows(n));
    scores.block(num_rows - count, j, count, n).noalias() =
        queries.bottomRows(count) * block.topRows(n).transpose();
  }

  std::vector<Normaliser> normalisers(chunk.rows.size());
  for (size_t r = 0; r < chunk.rows.size(); ++r)
    if (const int64_t visible = chunk.rows[r].visible; visible > 0)
      normalisers[r] = softmax(scores.row(static_cast<Eigen::Index>(r)).head(visible));

  Matrix o = Matrix::Zero(num_rows, v.dim);
  block.resize(std::min(keys, kBlockKeys), v.dim);
  for (int64_t j = 0; j < keys; j += kBlockKeys) {
    const int64_t n = std::min(kBlockKeys, keys - j);
    v.read(chunk.kv_start + j, chunk.kv_head, block.topRows(n));
    const Eigen::Index partial = first_row_past(j), whole = first_row_past(j + n - 1);
    o.bottomRows(num_rows - whole).noalias() +=
        scores.block(whole, j, num_rows - whole, n) * block.topRows(n);
    for (Eigen::Index r = partial; r < whole; ++r) {  // a key out of sight must not even be 0 * NaN
      const int64_t seen = chunk.rows[static_cast<size_t>(r)].visible - j;
      o.row(r).noalias() += scores.row(r).segment(j, seen) * block.topRows(seen);
    }
  }

  for (size_t r = 0; r < chunk.rows.size(); ++r) {
    const PlannedRow& row = chunk.rows[r];
    if (row.visible == 0) continue;
    const auto index = static_cast<size_t>(row.index), dim = static_cast<size_t>(v.dim);
    out.lse[index] = normalisers[r].lse;
    Eigen::Map<Eigen::RowVectorXd>(out.o.data() + index * dim, v.dim) =
        o.row(static_cast<Eigen::Index>(r)) / normalisers[r].sum;
  }
}

AttentionRows attend_all(const Case& c, const AttentionOperands& x, const RowSample& rows,
                         const Source& q, const Source& k, const Source& v,
                         const Softmax& softmax) {
  AttentionRows out;
  out.o.assign(rows.rows.size() * static_cast<size_t>(v.dim), 0.0);
  out.lse.assign(rows.rows.size(), -std::numeric_limits<double>::infinity());
  const RowPlan plan = plan_rows(c, *x.cu_seqlens_q, *x.cu_seqlens_kv, rows);
  parallel_for(static_cast<int64_t>(plan.chunks.size()), [&](int64_t i) {
    attend(c, plan.chunks[static_cast<size_t>(i)], q, k, v, softmax, out);
  });
  return out;
}

// The sequence of a packed row.
int64_t sequence_of(const Tensor& cu_seqlens, int64_t row) {
  const int32_t* cu = cu_seqlens.as<int32_t>();
  return std::upper_bound(cu, cu + cu_seqlens.size(), row) - cu - 1;
}

// Dequantised INT8 codes [tokens, heads, D], rotated if the kernel rotates: q . k does not change.
Source from_int8(const Tensor& codes, const Tensor& scales, sage::ScaleGroups groups,
                 const Tensor& cu_seqlens) {
  const int64_t heads = codes.shape[1], dim = codes.shape[2], scale_rows = scales.shape[1];
  return {static_cast<int>(dim),
          [=, &codes, &scales, &cu_seqlens](int64_t first, int head, Eigen::Ref<Matrix> out) {
            const int64_t sequence = sequence_of(cu_seqlens, first);
            const int64_t start = cu_seqlens.as<int32_t>()[sequence];
            for (Eigen::Index i = 0; i < out.rows(); ++i) {
              const int8_t* code = codes.as<int8_t>() + ((first + i) * heads + head) * dim;
              const double scale =
                  scales.as<float>()[head * scale_rows +
                                     sage::scale_row(groups, start, sequence, first + i - start)];
              for (Eigen::Index d = 0; d < dim; ++d) out(i, d) = code[d] * scale;
            }
          }};
}

// Dequantised V without its padding.
Source from_v_codes(const StageOutputs& codes, int dim, const Tensor& cu_seqlens) {
  const int64_t heads = codes.v_codes.shape[1], padded = codes.v_codes.shape[2];
  const TensorView view{&codes.v_codes,          0,  heads * padded, padded, codes.v_codes.shape[0],
                        static_cast<int>(heads), dim};
  return {dim, [=, &codes, &cu_seqlens](int64_t first, int head, Eigen::Ref<Matrix> out) {
            const int64_t stats = (sequence_of(cu_seqlens, first) * heads + head) * padded;
            using Stats = Eigen::Map<const Eigen::RowVectorXf>;
            const auto scale = Stats(codes.v_scales.as<float>() + stats, dim).cast<double>();
            from_view(view).read(first, head, out);
            out.array().rowwise() *= scale.array();
            if (const Tensor& offset = added_to_output(codes); !offset.empty())
              out.rowwise() += Stats(offset.as<float>() + stats, dim).cast<double>();
          }};
}

// What the scores of a row lost with K's offset: nothing in O, sm_scale * (q . k_offset) in LSE.
void restore_lse(const Case& c, const AttentionOperands& x, const Tensor& k_offset,
                 const RowSample& rows, AttentionRows& out) {
  const int group = c.model.num_qo_heads / c.model.num_kv_heads;
  const int32_t* cu_q = x.cu_seqlens_q->as<int32_t>();
  std::vector<float> q(static_cast<size_t>(x.q.dim));
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const QueryRow& row = rows.rows[i];
    const float* offset = k_offset.as<float>() +
                          (row.sequence * k_offset.shape[1] + row.head / group) * k_offset.shape[2];
    x.q.read_row(cu_q[row.sequence] + row.token, row.head, q.data());
    double dot = 0;
    for (size_t d = 0; d < q.size(); ++d) dot += static_cast<double>(q[d]) * offset[d];
    out.lse[i] += c.sm_scale * dot;
  }
}

}  // namespace

AttentionRows exact_attention(const Case& c, const AttentionOperands& x, const RowSample& rows) {
  return attend_all(c, x, rows, from_view(x.q), from_view(x.k), from_view(x.v), plain_softmax);
}

AttentionRows priced_attention(const Case& c, const AttentionOperands& x, const StageOutputs& codes,
                               const Kernel& kernel, const RowSample& rows, Price price) {
  const sage::AttentionLayout& layout = kernel.layout;
  const Source q = from_view(x.q), k = from_view(x.k), v = from_view(x.v);
  switch (price) {
    case Price::kNothing:
      break;
    case Price::kQk: {
      AttentionRows out = attend_all(
          c, x, rows, from_int8(codes.q_codes, codes.q_scales, layout.q_groups, *x.cu_seqlens_q),
          from_int8(codes.k_codes, codes.k_scales, layout.k_groups, *x.cu_seqlens_kv), v,
          plain_softmax);
      if (!codes.k_offset.empty()) restore_lse(c, x, codes.k_offset, rows, out);
      return out;
    }
    case Price::kP:
      return attend_all(c, x, rows, q, k, v, [&](Eigen::Ref<Eigen::RowVectorXd> s) {
        return layout.reference.used ? coded_softmax(layout, s) : rounded_softmax(layout, s);
      });
    case Price::kV:
      return attend_all(c, x, rows, q, k, from_v_codes(codes, x.v.dim, *x.cu_seqlens_kv),
                        plain_softmax);
  }
  return exact_attention(c, x, rows);
}

}  // namespace sagebench
