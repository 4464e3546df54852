// Faults of the rotation, and of prefill's use of it.
#include <cmath>
#include <cstring>

#include "faults/fault_parts.h"

namespace sagebench {
namespace {

constexpr auto kWrite = OpKind::kKvCacheWrite;

// fn(row of cos | sin, its number) on every position of the table.
template <class Fn>
void each_position(FaultContext& f, const Fn& fn) {
  Tensor& table = f.in.cos_sin;
  const int64_t width = table.shape[1];
  for (int64_t p = 0; p < table.shape[0]; ++p) fn(p * width, width / 2);
}

// Values of the rotated outputs through fn(float) -> float.
template <class Fn>
void map_rotated(FaultContext& f, const Fn& fn) {
  for (Tensor* t : {&f.out.q_rope, &f.out.k_rope})
    for (int64_t i = 0; i < t->size(); ++i) t->set(i, fn(t->get(i)));
}

// The unrotated input in place of `rotated`, for tokens that `wanted` picks.
template <class Fn>
void copy_unrotated(const TensorView& x, Tensor& rotated, const Fn& wanted) {
  for (int64_t t = 0; t < rotated.shape[0]; ++t)
    for (int h = 0; wanted(t) && h < x.heads; ++h)
      for (int d = 0; d < x.dim; ++d) rotated.set((t * x.heads + h) * x.dim + d, x.get(t, h, d));
}

void swap_style(FaultContext& f) {
  f.c.rope.style = f.c.rope.style == sage::RopeStyle::kNeox ? sage::RopeStyle::kInterleaved
                                                            : sage::RopeStyle::kNeox;
}

// Row p of the table takes the angles of position p + 1.
void next_position(FaultContext& f) {
  rotate_axis(f.in.cos_sin, 1, f.in.cos_sin.shape[0], f.in.cos_sin.shape[1]);
}

void forget_kv_len_before(FaultContext& f) {
  std::fill_n(f.in.kv_len_before.as<int32_t>(), batch_of(f), 0);
}

void negate_sin(FaultContext& f) {
  each_position(f, [&](int64_t row, int64_t half) {
    for (int64_t i = half; i < 2 * half; ++i) f.in.cos_sin.set(row + i, -f.in.cos_sin.get(row + i));
  });
}

void swap_sin_cos(FaultContext& f) {
  rotate_axis(f.in.cos_sin, f.in.cos_sin.shape[0], 2, f.in.cos_sin.shape[1] / 2);
}

// Rotates the whole head, with the frequencies that there are again and again.
void rotate_all_channels(FaultContext& f) {
  const Tensor narrow = f.in.cos_sin;
  const int64_t width = narrow.shape[1], dim = f.c.model.head_dim;
  f.c.rope.rotary_dim = f.c.model.head_dim;
  f.in.cos_sin = Tensor(narrow.dtype, {narrow.shape[0], dim});
  for (int64_t p = 0; p < narrow.shape[0]; ++p)
    for (int64_t i = 0; i < dim; ++i) {
      const int64_t part = i / (dim / 2), from = i % (dim / 2) % (width / 2);
      f.in.cos_sin.set(p * dim + i, narrow.get(p * width + part * (width / 2) + from));
    }
}

void round_table(FaultContext& f) {
  for (int64_t i = 0; i < f.in.cos_sin.size(); ++i)
    f.in.cos_sin.set(i, float_from_bf16(bf16_from_float(f.in.cos_sin.get(i))));
}

void skip_last_token(FaultContext& f) {
  const auto last = [&](int64_t token) {
    return std::any_of(cu_q(f) + 1, cu_q(f) + batch_of(f) + 1,
                       [&](int32_t end) { return token == end - 1; });
  };
  copy_unrotated(f.in.q, f.out.q_rope, last);
  copy_unrotated(f.in.k, f.out.k_rope, last);
}

void launder_nan(FaultContext& f) {
  map_rotated(f, [](float v) { return std::isnan(v) ? 0.0f : v; });
}

void saturate_fp16(FaultContext& f) {
  map_rotated(f, [](float v) { return std::isinf(v) ? std::copysign(65504.0f, v) : v; });
}

void unrotated_k(FaultContext& f) {
  copy_unrotated(f.in.k, f.out.k_rope, [](int64_t) { return true; });
}
void unrotated_q(FaultContext& f) {
  copy_unrotated(f.in.q, f.out.q_rope, [](int64_t) { return true; });
}

}  // namespace

std::vector<Fault> rope_faults() {
  constexpr Stage at = Stage::kRope;
  return {
      {"rope_style_swapped",
       "NeoX pairs for interleaved ones",
       kWrite,
       at,
       at,
       swap_style,
       {},
       needs::rotation},
      {"position_off_by_one",
       "angles of the next position",
       kWrite,
       at,
       at,
       next_position,
       {},
       needs::rotation},
      {"kv_len_before_missing",
       "positions start at 0",
       kWrite,
       at,
       at,
       forget_kv_len_before,
       {},
       needs::cached_and_rotated},
      {"sin_sign", "rotates backwards", kWrite, at, at, negate_sin, {}, needs::rotation},
      {"sin_cos_swapped",
       "sin read where cos is",
       kWrite,
       at,
       at,
       swap_sin_cos,
       {},
       needs::rotation},
      {"rotary_dim_ignored",
       "rotates every channel",
       kWrite,
       at,
       at,
       rotate_all_channels,
       {},
       needs::rotation_of_a_part},
      {"table_rounded",
       "fp32 table read as bf16",
       kWrite,
       at,
       at,
       round_table,
       {},
       needs::fp32_table},
      {"last_token_unrotated",
       "a loop ends one token early",
       kWrite,
       at,
       at,
       {},
       skip_last_token,
       needs::rotation},
      {"nan_laundered", "NaN in, 0 out", kWrite, at, at, {}, launder_nan, needs::queries},
      {"fp16_saturated",
       "infinity clamped to 65504",
       kWrite,
       at,
       at,
       {},
       saturate_fp16,
       needs::queries},
      {"attention_reads_unrotated_k",
       "prefill quantises k as it came",
       OpKind::kPrefill,
       Stage::kOffset,
       Stage::kOffset,
       unrotated_k,
       {},
       needs::rotation},
      {"attention_reads_unrotated_q",
       "prefill quantises q as it came",
       OpKind::kPrefill,
       Stage::kQkCodes,
       Stage::kQkCodes,
       unrotated_q,
       {},
       needs::rotation},
  };
}

}  // namespace sagebench
