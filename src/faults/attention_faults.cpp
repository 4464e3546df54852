// Faults of the attention itself. Codes, scales and offsets stay right.
#include <cmath>
#include <limits>

#include "faults/fault_parts.h"
#include "ops/reference.h"

namespace sagebench {
namespace {

constexpr auto kAttention = OpKind::kAttention;
constexpr Stage kOut = Stage::kO, kSum = Stage::kLse;

int64_t length_of(const int32_t* cu, int64_t b) {
  return cu[b + 1] - cu[b];
}

// ---- keys seen ---------------------------------------------------------------------------------

// Ends the last sequence that attends early; behind it nobody reads a key.
void end_last_sequence(FaultContext& f, int64_t keys_less) {
  for (int64_t b = last_attending(f.c); b < batch_of(f); ++b)
    cu_kv(f)[b + 1] -= static_cast<int32_t>(keys_less);
}

// Every row of the last sequence but its last one sees one key more.
void see_one_key_ahead(FaultContext& f) {
  const int64_t b = last_attending(f.c), first = cu_kv(f)[b], keys = length_of(cu_kv(f), b);
  const int64_t queries = length_of(cu_q(f), b), heads = f.c.model.num_qo_heads;
  const int64_t dim = f.c.model.head_dim_v;
  const sage::Mask mask = f.c.mask();
  f.c.causal = false;
  for (int32_t h = 0; h < heads; ++h)
    for (int64_t t = 0; t + 1 < queries; ++t) {
      const int64_t seen = std::min(keys, visible_keys(mask, queries, keys, t) + 1);
      cu_kv(f)[b + 1] = static_cast<int32_t>(first + seen);
      const RowSample one{{{static_cast<int32_t>(b), h, t}}, 1};
      const AttentionRows row =
          emulate_attention(f.c, f.out, f.in.cu_seqlens_q, f.in.cu_seqlens_kv, f.kernel, one);
      for (int64_t d = 0; d < dim; ++d)
        f.out.o.set(((cu_q(f)[b] + t) * heads + h) * dim + d,
                    static_cast<float>(row.o[static_cast<size_t>(d)]));
    }
}

// ---- operands read -----------------------------------------------------------------------------

// One KV head per query head in t, whose axis of KV heads is `axis`: query head h gets h % Hkv.
void deal_heads(const Model& m, Tensor& t, size_t axis) {
  if (t.empty()) return;
  const Tensor from = t;
  std::vector<int64_t> shape = from.shape;
  shape[axis] = m.num_qo_heads;
  t = Tensor(from.dtype, shape);
  auto bytes = static_cast<int64_t>(size_of(t.dtype));
  for (size_t i = axis + 1; i < shape.size(); ++i) bytes *= shape[i];
  const int64_t outer = axis == 0 ? 1 : shape[0];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t h = 0; h < m.num_qo_heads; ++h)
      std::copy_n(from.bytes.begin() + (o * m.num_kv_heads + h % m.num_kv_heads) * bytes, bytes,
                  t.bytes.begin() + (o * m.num_qo_heads + h) * bytes);
}
void map_heads_wrongly(FaultContext& f) {
  StageOutputs& out = f.out;
  deal_heads(f.c.model, out.k_scales, 0);
  for (Tensor* t : {&out.k_codes, &out.v_codes, &out.v_scales, &out.v_offset, &out.o_offset})
    deal_heads(f.c.model, *t, 1);
  f.c.model.num_kv_heads = f.c.model.num_qo_heads;
}

void round_p_like_fp16(FaultContext& f) {
  Tensor wide(DType::kFp16, f.out.v_codes.shape);
  for (int64_t i = 0; i < wide.size(); ++i) wide.set(i, f.out.v_codes.get(i));
  f.out.v_codes = std::move(wide);
  f.kernel.layout.pv = sage::PvType::kFp16;
}

// ---- running sums ------------------------------------------------------------------------------

// Scores of one row against the keys that it sees, base 2.
std::vector<double> scores_of(FaultContext& f, const QueryRow& r, int64_t keys) {
  const int64_t dim = f.kernel.layout.head_dim, kv_heads = f.c.model.num_kv_heads;
  const int64_t kv_head = r.head / (f.c.model.num_qo_heads / kv_heads);
  const int64_t first = cu_kv(f)[r.sequence], token = cu_q(f)[r.sequence] + r.token;
  const int8_t* q = f.out.q_codes.as<int8_t>() + (token * f.c.model.num_qo_heads + r.head) * dim;
  const double q_scale = f.out.q_scales.get(
      r.head * f.out.q_scales.shape[1] +
      sage::scale_row(f.kernel.layout.q_groups, cu_q(f)[r.sequence], r.sequence, r.token));
  std::vector<double> scores;
  for (int64_t j = 0; j < keys; ++j) {
    const int8_t* k = f.out.k_codes.as<int8_t>() + ((first + j) * kv_heads + kv_head) * dim;
    int64_t dot = 0;
    for (int64_t d = 0; d < dim; ++d) dot += q[d] * k[d];
    const double k_scale =
        f.out.k_scales.get(kv_head * f.out.k_scales.shape[1] +
                           sage::scale_row(f.kernel.layout.k_groups, first, r.sequence, j));
    scores.push_back(static_cast<double>(dot) * q_scale * k_scale * f.c.sm_scale / std::log(2.0));
  }
  return scores;
}

// When the maximum rises between two tiles, the denominator is rescaled and O is not.
void forget_rescale(FaultContext& f) {
  const int64_t heads = f.c.model.num_qo_heads, dim = f.c.model.head_dim_v;
  const int64_t tile = f.kernel.layout.tile_k, b = last_attending(f.c, tile);
  const int64_t queries = length_of(cu_q(f), b);
  const int64_t kv_heads = f.c.model.num_kv_heads, padded = f.kernel.layout.head_dim_v;
  for (int32_t h = 0; h < heads; ++h)
    for (int64_t t = 0; t < queries; ++t) {
      const int64_t keys = visible_keys(f.c.mask(), queries, length_of(cu_kv(f), b), t);
      const std::vector<double> s = scores_of(f, {static_cast<int32_t>(b), h, t}, keys);
      std::vector<double> acc(static_cast<size_t>(dim));
      const int64_t kv_head = h / (heads / kv_heads);
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j0 = 0; j0 < keys; j0 += tile) {
        const int64_t end = std::min(keys, j0 + tile);
        const double old = max;
        max = std::max(max, *std::max_element(s.begin() + j0, s.begin() + end));
        sum *= std::exp2(old - max);
        for (int64_t j = j0; j < end; ++j) {
          const double p = std::exp2(s[static_cast<size_t>(j)] - max);
          sum += p;
          const int64_t row = ((cu_kv(f)[b] + j) * kv_heads + kv_head) * padded;
          for (int64_t d = 0; d < dim; ++d)
            acc[static_cast<size_t>(d)] += p * f.out.v_codes.get(row + d);
        }
      }
      for (int64_t d = 0; keys > 0 && d < dim; ++d) {
        const int64_t stats = (b * kv_heads + kv_head) * padded + d;
        const Tensor& added = added_to_output(f.out);
        const double offset = added.empty() ? 0 : added.get(stats);
        const double o = acc[static_cast<size_t>(d)] / sum * f.out.v_scales.get(stats) + offset;
        f.out.o.set(((cu_q(f)[b] + t) * heads + h) * dim + d, static_cast<float>(o));
      }
    }
}

// ---- results -----------------------------------------------------------------------------------

int64_t row_bytes(const Tensor& o) {
  return o.shape[2] * static_cast<int64_t>(size_of(o.dtype));
}

// The last row of a sequence still holds what a call with another softmax scale left there.
void stale_last_row(FaultContext& f) {
  const int64_t b = last_attending(f.c, 1), dim = f.c.model.head_dim_v;
  const auto head = static_cast<int32_t>(f.c.model.num_qo_heads - 1);
  f.c.sm_scale *= 4;
  const RowSample last{{{static_cast<int32_t>(b), head, length_of(cu_q(f), b) - 1}}, 1};
  const AttentionRows old =
      emulate_attention(f.c, f.out, f.in.cu_seqlens_q, f.in.cu_seqlens_kv, f.kernel, last);
  for (int64_t d = 0; d < dim; ++d)
    f.out.o.set((int64_t{cu_q(f)[b + 1]} * f.c.model.num_qo_heads - 1) * dim + d,
                static_cast<float>(old.o[static_cast<size_t>(d)]));
}

void leave_last_row_unwritten(FaultContext& f) {
  std::fill(f.out.o.bytes.end() - row_bytes(f.out.o), f.out.o.bytes.end(),
            std::byte{poison_byte(0)});
}

// Elements of the LSE through fn(float) -> float.
template <class Fn>
void map_lse(FaultContext& f, const Fn& fn) {
  for (int64_t i = 0; i < f.out.lse.size(); ++i) f.out.lse.set(i, fn(f.out.lse.get(i)));
}

void transpose_lse(FaultContext& f) {
  const Tensor lse = f.out.lse;
  const int64_t heads = lse.shape[0], tokens = lse.shape[1];
  for (int64_t i = 0; i < lse.size(); ++i)
    f.out.lse.set(i, lse.get(i % heads * tokens + i / heads));
}

}  // namespace

std::vector<Fault> attention_faults() {
  return {
      {"kv_len_plus_one",
       "sees a key of the next sequence",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { ++cu_kv(f)[first_with_neighbour(f.c) + 1]; },
       {},
       needs::neighbours_keys},
      {"kv_len_minus_one",
       "the last key is never seen",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { end_last_sequence(f, 1); },
       {},
       needs::attention},
      {"dropped_tail_tile",
       "the last, partly filled tile is skipped",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         end_last_sequence(f, length_of(cu_kv(f), last_attending(f.c)) % f.kernel.layout.tile_k);
       },
       {},
       needs::tail_tile},
      {"causal_off_by_one",
       "sees one key ahead",
       kAttention,
       kOut,
       kOut,
       {},
       see_one_key_ahead,
       needs::causal},
      {"wrong_alignment",
       "top_left for bottom_right",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.c.bottom_right = !f.c.bottom_right; },
       {},
       needs::causal_unlike_lengths},
      {"causal_ignored",
       "sees every key",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.c.causal = false; },
       {},
       needs::causal},
      {"gqa_mapping",
       "KV head h % Hkv",
       kAttention,
       kOut,
       kOut,
       map_heads_wrongly,
       {},
       needs::grouped_heads},
      {"k_scale_of_neighbour_read",
       "scores with the next group's scale",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         rotate_axis(f.out.k_scales, f.out.k_scales.shape[0], f.out.k_scales.shape[1], 1);
       },
       {},
       needs::attention},
      {"per_block_scale_read",
       "scores with the block's first scale",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.kernel.layout.k_groups.pattern = sage::GroupPattern::kAll; },
       {},
       needs::grouped_k_scales},
      {"v_scale_missing",
       "codes of V taken for values",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         for (int64_t i = 0; i < f.out.v_scales.size(); ++i) f.out.v_scales.set(i, 1);
       },
       {},
       needs::attention},
      {"smooth_v_not_added_back",
       "V's offset is lost",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         zero(f.out.v_offset);
         zero(f.out.o_offset);
       },
       {},
       needs::smooth_v},
      {"sm_scale_missing",
       "softmax of the bare scores",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.c.sm_scale = 1; },
       {},
       needs::sm_scale},
      {"p_unrounded",
       "P keeps more bits than its type has",
       kAttention,
       kOut,
       kOut,
       round_p_like_fp16,
       {},
       needs::fp8_p},
      {"rescale_missing",
       "O is not rescaled when the maximum rises",
       kAttention,
       kOut,
       kOut,
       {},
       forget_rescale,
       needs::two_tiles},
      {"nan_in_o",
       "one element is NaN",
       kAttention,
       kOut,
       kOut,
       {},
       [](FaultContext& f) { f.out.o.set(f.out.o.size() / 2, NAN); },
       needs::queries},
      {"stale_row",
       "a row of the previous call",
       kAttention,
       kOut,
       kOut,
       {},
       stale_last_row,
       needs::two_keys},
      {"unwritten_row",
       "a row is never written",
       kAttention,
       kOut,
       kOut,
       {},
       leave_last_row_unwritten,
       needs::queries},
      {"neighbours_row",
       "rows land one token early",
       kAttention,
       kOut,
       kOut,
       {},
       [](FaultContext& f) {
         rotate_axis(f.out.o, 1, f.out.o.shape[0], f.out.o.shape[1] * f.out.o.shape[2]);
       },
       needs::two_tokens},

      {"lse_base_2",
       "LSE in bits",
       kAttention,
       kSum,
       kSum,
       {},
       [](FaultContext& f) { map_lse(f, [](float v) { return v / std::log(2.0f); }); },
       needs::lse},
      {"lse_without_smoothing",
       "q . k_offset is not added back",
       kAttention,
       kSum,
       kSum,
       [](FaultContext& f) { f.out.lse_dot = Tensor{}; },
       {},
       needs::lse_smoothed},
      {"lse_transposed",
       "[tokens, heads] for [heads, tokens]",
       kAttention,
       kSum,
       kSum,
       {},
       transpose_lse,
       needs::lse_of_many},
      {"lse_of_no_keys",
       "0 where there is no key",
       kAttention,
       kSum,
       kSum,
       {},
       [](FaultContext& f) { map_lse(f, [](float v) { return std::isinf(v) ? 0.0f : v; }); },
       needs::lse_of_no_keys},
      {"lse_dot_of_neighbour",
       "q . k_offset of the next head",
       kAttention,
       kSum,
       Stage::kQkCodes,
       {},
       [](FaultContext& f) {
         if (Tensor& dot = f.out.lse_dot; !dot.empty())
           rotate_axis(dot, 1, dot.shape[0], dot.shape[1]);
       },
       needs::lse_smoothed_heads},
  };
}

}  // namespace sagebench
