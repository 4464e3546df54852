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

void end_last_sequence(FaultContext& f, int64_t keys_less) {
  cu_kv(f)[batch_of(f)] -= static_cast<int32_t>(keys_less);
}

// Every row of the last sequence but its last one sees one key more.
void see_one_key_ahead(FaultContext& f) {
  const int64_t b = batch_of(f) - 1, first = cu_kv(f)[b], keys = length_of(cu_kv(f), b);
  const int64_t queries = length_of(cu_q(f), b), heads = f.c.model.num_qo_heads;
  const int64_t dim = f.c.model.head_dim_v;
  if (!f.c.causal) return;
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

// Query heads 1 and 2 trade places: with two query heads per KV head, h % Hkv for h / group.
void swap_query_heads(FaultContext& f, Tensor& t, int64_t outer, int64_t inner) {
  const int64_t heads = f.c.model.num_qo_heads;
  const auto bytes = inner * static_cast<int64_t>(size_of(t.dtype));
  for (int64_t o = 0; o < outer; ++o) {
    const auto head = t.bytes.begin() + (o * heads + 1) * bytes;
    std::swap_ranges(head, head + bytes, head + bytes);
  }
}
void map_heads_wrongly(FaultContext& f) {
  const int64_t tokens = f.out.q_codes.shape[0];
  swap_query_heads(f, f.out.q_codes, tokens, f.out.q_codes.shape[2]);
  swap_query_heads(f, f.out.q_scales, 1, f.out.q_scales.shape[1]);
  if (!f.out.lse_dot.empty()) swap_query_heads(f, f.out.lse_dot, 1, tokens);
}
void map_heads_back(FaultContext& f) {
  swap_query_heads(f, f.out.o, f.out.o.shape[0], f.out.o.shape[2]);
  if (!f.out.lse.empty()) swap_query_heads(f, f.out.lse, 1, f.out.lse.shape[1]);
}

void zero(Tensor& t) {
  std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0});
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
  const int64_t b = batch_of(f) - 1, queries = length_of(cu_q(f), b), tile = f.kernel.layout.tile_k;
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

// The last row still holds what a call with another softmax scale left there.
void stale_last_row(FaultContext& f) {
  const int64_t b = batch_of(f) - 1, dim = f.c.model.head_dim_v;
  const auto head = static_cast<int32_t>(f.c.model.num_qo_heads - 1);
  f.c.sm_scale *= 4;
  const RowSample last{{{static_cast<int32_t>(b), head, length_of(cu_q(f), b) - 1}}, 1};
  const AttentionRows old =
      emulate_attention(f.c, f.out, f.in.cu_seqlens_q, f.in.cu_seqlens_kv, f.kernel, last);
  for (int64_t d = 0; d < dim; ++d)
    f.out.o.set(f.out.o.size() - dim + d, static_cast<float>(old.o[static_cast<size_t>(d)]));
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
  if (f.out.lse.empty()) return;
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
       [](FaultContext& f) { ++cu_kv(f)[1]; },
       {},
       [](const Case& c) -> const char* {
         return c.batch.size() > 1 && c.batch.kv_len[1] > 0 ? nullptr : "no sequence follows";
       }},
      {"kv_len_minus_one",
       "the last key is never seen",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { end_last_sequence(f, 1); },
       {}},
      {"dropped_tail_tile",
       "the last, partly filled tile is skipped",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         end_last_sequence(f, length_of(cu_kv(f), batch_of(f) - 1) % f.kernel.layout.tile_k);
       },
       {}},
      {"causal_off_by_one", "sees one key ahead", kAttention, kOut, kOut, {}, see_one_key_ahead},
      {"wrong_alignment",
       "top_left for bottom_right",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.c.bottom_right = !f.c.bottom_right; },
       {}},
      {"causal_ignored",
       "sees every key",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.c.causal = false; },
       {}},
      {"gqa_mapping", "query heads 1 and 2 with each other's KV head", kAttention, kOut, kOut,
       map_heads_wrongly, map_heads_back,
       [](const Case& c) -> const char* {
         const int group = c.model.num_qo_heads / c.model.num_kv_heads;
         return c.model.num_qo_heads > 2 && 1 / group != 2 / group
                    ? nullptr
                    : "query heads 1 and 2 share a KV head";
       }},
      {"k_scale_of_neighbour_read",
       "scores with the next group's scale",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         rotate_axis(f.out.k_scales, f.out.k_scales.shape[0], f.out.k_scales.shape[1], 1);
       },
       {}},
      {"per_block_scale_read",
       "scores with the block's first scale",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.kernel.layout.k_groups.pattern = sage::GroupPattern::kAll; },
       {}},
      {"v_scale_missing",
       "codes of V taken for values",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         for (int64_t i = 0; i < f.out.v_scales.size(); ++i) f.out.v_scales.set(i, 1);
       },
       {}},
      {"smooth_v_not_added_back",
       "V's offset is lost",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) {
         zero(f.out.v_offset);
         zero(f.out.o_offset);
       },
       {}},
      {"sm_scale_missing",
       "softmax of the bare scores",
       kAttention,
       kOut,
       kOut,
       [](FaultContext& f) { f.c.sm_scale = 1; },
       {}},
      {"p_unrounded",
       "P keeps more bits than its type has",
       kAttention,
       kOut,
       kOut,
       round_p_like_fp16,
       {}},
      {"rescale_missing",
       "O is not rescaled when the maximum rises",
       kAttention,
       kOut,
       kOut,
       {},
       forget_rescale},
      {"nan_in_o",
       "one element is NaN",
       kAttention,
       kOut,
       kOut,
       {},
       [](FaultContext& f) { f.out.o.set(f.out.o.size() / 2, NAN); }},
      {"stale_row", "a row of the previous call", kAttention, kOut, kOut, {}, stale_last_row},
      {"unwritten_row",
       "a row is never written",
       kAttention,
       kOut,
       kOut,
       {},
       leave_last_row_unwritten},
      {"neighbours_row",
       "rows land one token early",
       kAttention,
       kOut,
       kOut,
       {},
       [](FaultContext& f) {
         rotate_axis(f.out.o, 1, f.out.o.shape[0], f.out.o.shape[1] * f.out.o.shape[2]);
       }},

      {"lse_base_2",
       "LSE in bits",
       kAttention,
       kSum,
       kSum,
       {},
       [](FaultContext& f) { map_lse(f, [](float v) { return v / std::log(2.0f); }); }},
      {"lse_without_smoothing",
       "q . k_offset is not added back",
       kAttention,
       kSum,
       kSum,
       [](FaultContext& f) { f.out.lse_dot = Tensor{}; },
       {}},
      {"lse_transposed",
       "[tokens, heads] for [heads, tokens]",
       kAttention,
       kSum,
       kSum,
       {},
       transpose_lse},
      {"lse_of_no_keys",
       "0 where there is no key",
       kAttention,
       kSum,
       kSum,
       {},
       [](FaultContext& f) { map_lse(f, [](float v) { return std::isinf(v) ? 0.0f : v; }); }},
      {"lse_dot_of_neighbour",
       "q . k_offset of the next head",
       kAttention,
       kSum,
       Stage::kQkCodes,
       {},
       [](FaultContext& f) {
         if (Tensor& dot = f.out.lse_dot; !dot.empty())
           rotate_axis(dot, 1, dot.shape[0], dot.shape[1]);
       }},
  };
}

}  // namespace sagebench
