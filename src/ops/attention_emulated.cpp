#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/parallel.h"
#include "ops/fast_rounding.h"
#include "ops/moving_reference.h"
#include "ops/pv_sum.h"
#include "ops/reference.h"
#include "ops/row_plan.h"

// Every fp32 operation that decides a code or an output is written out in order, so that a row does
// not depend on the machine, nor on the rows computed beside it.
namespace sagebench {
namespace {

using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr float kInf = std::numeric_limits<float>::infinity();

// ---- attention on codes ------------------------------------------------------------------------

struct RowState {
  float max = -kInf;  // running maximum, base 2
  ReferenceState reference;
  float sum = 0, sum_acc = 0;  // sum_acc: the accumulator's part, if row_sum_promoted
  int64_t pending = 0;         // keys since the last promotion that was due
};

// Keys of a tile, shared by the rows of a chunk.
struct Tile {
  FloatMatrix k, v;
  std::vector<float> k_scale;
  std::vector<float> ones;  // V of the row sum
  // the keys' scale rows, counted from the tile's first
  std::vector<size_t> group;
  std::vector<float> scale_of_group, unit, constant;  // the last two: of the row at hand
};

class Attention {
 public:
  Attention(const Case& c, const StageOutputs& codes, const Kernel& kernel)
      : c_(c),
        codes_(codes),
        layout_(kernel.layout),
        format_(layout_.pv == sage::PvType::kFp8E4m3 ? kE4m3Format : kFp16Format),
        scale_log2_(static_cast<float>(c.sm_scale) * std::numbers::log2e_v<float>),
        codes_per_score_(
            static_cast<float>(double{static_cast<float>(c.sm_scale)} * 8 * std::numbers::log2e)) {}

  void run(const RowChunk& chunk, AttentionRows& out) const {
    const auto rows = static_cast<Eigen::Index>(chunk.rows.size());
    FloatMatrix q(rows, layout_.head_dim), scores(rows, layout_.tile_k);
    Tile tile = make_tile();
    FloatMatrix o = FloatMatrix::Zero(rows, layout_.head_dim_v), acc = o;
    std::vector<float> q_scale(chunk.rows.size());
    std::vector<RowState> states(chunk.rows.size());
    for (size_t r = 0; r < chunk.rows.size(); ++r)
      q_scale[r] = load_q(chunk, chunk.rows[r], q.row(static_cast<Eigen::Index>(r)).data());

    size_t first = 0;  // rows that see a key of this tile: the last ones
    for (int64_t j = 0; j < chunk.max_visible(); j += layout_.tile_k) {
      const int64_t keys = std::min<int64_t>(layout_.tile_k, chunk.max_visible() - j);
      while (chunk.rows[first].visible <= j) ++first;
      load_tile(chunk, j, keys, tile);
      // |dot| < 2^24: exact in fp32 in any order
      const auto live = rows - static_cast<Eigen::Index>(first);
      scores.block(rows - live, 0, live, keys).noalias() =
          q.bottomRows(live) * tile.k.topRows(keys).transpose();
      for (size_t r = first; r < chunk.rows.size(); ++r) {
        const auto i = static_cast<Eigen::Index>(r);
        const int64_t seen = std::min(keys, chunk.rows[r].visible - j);
        float* s = scores.row(i).data();
        const float alpha = layout_.reference.used
                                ? move_reference(seen, q_scale[r], tile, s, states[r])
                                : raise_maximum(seen, q_scale[r], tile, s, states[r]);
        add_tile(seen, alpha, tile, s, states[r], o.row(i).data(), acc.row(i).data());
      }
    }
    for (size_t r = 0; r < chunk.rows.size(); ++r) {
      const auto i = static_cast<Eigen::Index>(r);
      o.row(i) += acc.row(i);
      states[r].sum += states[r].sum_acc;
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

  Tile make_tile() const {
    const auto keys = static_cast<size_t>(layout_.tile_k);
    const auto blocks = static_cast<size_t>(layout_.tile_k / layout_.k_groups.block_tokens + 2);
    const size_t groups = blocks * static_cast<size_t>(layout_.k_groups.groups_per_block);
    return {FloatMatrix(layout_.tile_k, layout_.head_dim),
            FloatMatrix(layout_.tile_k, layout_.head_dim_v),
            std::vector<float>(keys),
            std::vector<float>(keys, 1.0f),
            std::vector<size_t>(keys),
            std::vector<float>(groups),
            std::vector<float>(groups),
            std::vector<float>(groups)};
  }

  void load_tile(const RowChunk& chunk, int64_t first_key, int64_t keys, Tile& tile) const {
    const float* scales = codes_.k_scales.as<float>() + chunk.kv_head * codes_.k_scales.shape[1];
    const int64_t block = layout_.k_groups.block_tokens;
    const int64_t first_group = sage::scale_row(layout_.k_groups, chunk.kv_start, chunk.sequence,
                                                first_key / block * block);
    for (int64_t j = 0; j < keys; ++j) {
      const auto key = static_cast<size_t>(j);
      const int64_t at = (chunk.kv_start + first_key + j) * c_.model.num_kv_heads + chunk.kv_head;
      const int8_t* code = codes_.k_codes.as<int8_t>() + at * layout_.head_dim;
      std::copy(code, code + layout_.head_dim, tile.k.row(j).data());
      const int64_t row =
          sage::scale_row(layout_.k_groups, chunk.kv_start, chunk.sequence, first_key + j);
      tile.group[key] = static_cast<size_t>(row - first_group);
      tile.scale_of_group[tile.group[key]] = tile.k_scale[key] = scales[row];
      const int64_t v_at = at * layout_.head_dim_v;
      if (layout_.pv == sage::PvType::kFp8E4m3)
        std::transform(codes_.v_codes.as<uint8_t>() + v_at,
                       codes_.v_codes.as<uint8_t>() + v_at + layout_.head_dim_v,
                       tile.v.row(j).data(), float_from_e4m3);
      else
        std::transform(codes_.v_codes.as<uint16_t>() + v_at,
                       codes_.v_codes.as<uint16_t>() + v_at + layout_.head_dim_v,
                       tile.v.row(j).data(), float_from_fp16);
    }
  }

  // Integer scores s[keys] become P. Returns the factor of what was summed before.
  float raise_maximum(int64_t keys, float q_scale, const Tile& tile, float* s,
                      RowState& state) const {
    const float q_scale_log2 = q_scale * scale_log2_;
    float max = state.max;
    for (int64_t j = 0; j < keys; ++j) {
      s[j] *= q_scale_log2 * tile.k_scale[static_cast<size_t>(j)];
      max = s[j] > max ? s[j] : max;
    }
    const float alpha = std::exp2(state.max - max);
    for (int64_t j = 0; j < keys; ++j)
      s[j] = round_to(format_, std::exp2(s[j] - max + layout_.p_offset));
    state.max = max;
    return alpha;
  }

  // The same relative to a moving reference, as layout.h says.
  float move_reference(int64_t keys, float q_scale, Tile& tile, float* s, RowState& state) const {
    constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
    const bool linear = layout_.p == sage::PMode::kLinear, first = !state.reference.started;
    const float q_unit = q_scale * codes_per_score_;
    for (size_t g = 0; g < tile.unit.size(); ++g) {
      const float k_scale = tile.scale_of_group[g];
      const float unit =
          linear ? std::fma(q_unit, k_scale, 3.0f) - 3.0f : q_unit * 0.125f * k_scale;
      const float least = linear ? 0x1p-22f : 0x1p-60f;
      tile.unit[g] = unit < least ? least : unit;  // NaN stays
    }
    const auto set_constants = [&] {
      for (size_t g = 0; g < tile.unit.size(); ++g)
        tile.constant[g] = std::fma(-kMagic, tile.unit[g],
                                    linear ? -8 * state.reference.now : -7 - state.reference.now);
    };
    // linear: the code; exp2: x of P = 2^x. The product is exact in double.
    const auto at = [&](int64_t j) {
      const size_t g = tile.group[static_cast<size_t>(j)];
      const double x =
          (double{kMagic} + double{s[j]}) * double{tile.unit[g]} + double{tile.constant[g]};
      return linear ? nearest(x) : double{static_cast<float>(x)};
    };
    set_constants();
    double lead = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < keys; ++j) lead = std::max(lead, at(j));
    const float lead_code = linear ? static_cast<float>(lead) : 8 * (static_cast<float>(lead) + 7);
    float shift = state.reference.move(layout_.reference, lead_code);
    const float alpha = first ? 1.0f : std::exp2(std::clamp(shift, -126.0f, 126.0f));
    if (first) {  // made with the reference from the start
      set_constants();
      shift = 0;
    }
    for (int64_t j = 0; j < keys; ++j)
      s[j] = linear ? value_of_code(at(j) + 8 * double{shift})
                    : round_to(kE4m3Format, std::exp2(static_cast<float>(at(j)) + shift));
    return alpha;
  }

  // P of one tile of one row; alpha: of what was summed before.
  void add_tile(int64_t keys, float alpha, const Tile& tile, const float* p, RowState& state,
                float* o, float* acc) const {
    if (alpha != 1.0f) {
      if (layout_.reference.used) promote(state, o, acc);
      state.sum *= alpha;
      for (int64_t d = 0; d < layout_.head_dim_v; ++d) {
        o[d] *= alpha;
        acc[d] *= alpha;
      }
    }
    if (!layout_.row_sum_promoted) {
      float sum = 0;
      for (int64_t j = 0; j < keys; ++j) sum += p[j];
      state.sum += sum;
    }
    for (int64_t j = 0; j < keys;) {
      const int64_t n = std::min(keys - j, layout_.promote_keys - state.pending);
      add_products(p + j, tile.v.data() + j * layout_.head_dim_v, n, layout_.head_dim_v, acc);
      if (layout_.row_sum_promoted) add_products(p + j, tile.ones.data(), n, 1, &state.sum_acc);
      j += n;
      state.pending += n;
      if (state.pending == layout_.promote_keys) {
        promote(state, o, acc);
        state.pending = 0;
      }
    }
  }

  void add_products(const float* p, const float* v, int64_t keys, int64_t dim, float* acc) const {
    if (layout_.accumulator_bits == 0)
      accumulate_fp32(p, v, keys, dim, acc);
    else
      accumulate_truncated(p, v, keys, dim, layout_.accumulator_bits, acc);
  }

  void promote(RowState& state, float* o, float* acc) const {
    for (int64_t d = 0; d < layout_.head_dim_v; ++d) o[d] += acc[d];
    std::fill_n(acc, layout_.head_dim_v, 0.0f);
    state.sum += state.sum_acc;
    state.sum_acc = 0;
  }

  void finish(const RowChunk& chunk, const PlannedRow& row, const RowState& state, const float* o,
              AttentionRows& out) const {
    const int64_t stats =
        (int64_t{chunk.sequence} * c_.model.num_kv_heads + chunk.kv_head) * layout_.head_dim_v;
    const float* scale = codes_.v_scales.as<float>() + stats;
    const Tensor& added = added_to_output(codes_);
    const float* offset = added.empty() ? nullptr : added.as<float>() + stats;
    double* to = out.o.data() + row.index * c_.model.head_dim_v;
    for (int d = 0; d < c_.model.head_dim_v; ++d)
      to[d] = o[d] * scale[d] / state.sum + (offset ? offset[d] : 0.0f);

    // the exponent of the P that stands for weight 1
    const float unit =
        layout_.reference.used ? state.reference.now + 7 : state.max - layout_.p_offset;
    float lse = (unit + std::log2(state.sum)) * std::numbers::ln2_v<float> - layout_.lse_bias;
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
  const float codes_per_score_;
};

}  // namespace

AttentionRows emulate_attention(const Case& c, const StageOutputs& codes,
                                const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                                const Kernel& kernel, const RowSample& rows) {
  const sage::AttentionLayout& layout = kernel.layout;
  if (layout.p == sage::PMode::kLinear && !layout.reference.used)
    throw Error(ExitCode::kInternal,
                "kernel " + kernel.name + ": linear codes need a moving reference");
  if (layout.tile_k < 1 || layout.promote_keys < 1)
    throw Error(ExitCode::kInternal,
                "kernel " + kernel.name + ": tile_k and promote_keys must be positive");
  if (layout.accumulator_bits < 0 || layout.accumulator_bits > kMaxAdderBits)
    throw Error(ExitCode::kInternal,
                "kernel " + kernel.name + ": accumulator_bits must be in [0, 24]");
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
