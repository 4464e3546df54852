// Faults of the offsets and codes.
#include <cmath>

#include "faults/fault_parts.h"

namespace sagebench {
namespace {

constexpr auto kAttention = OpKind::kAttention;

// ---- offsets -----------------------------------------------------------------------------------

// The mean over the whole batch for every sequence.
void global_mean(FaultContext& f) {
  Tensor& t = f.out.k_offset;
  if (t.empty()) return;
  const int64_t batch = batch_of(f), row = t.size() / batch;
  for (int64_t i = 0; i < row; ++i) {
    double sum = 0;
    for (int64_t b = 0; b < batch; ++b)
      sum += static_cast<double>(t.as<float>()[b * row + i]) *
             static_cast<double>(cu_kv(f)[b + 1] - cu_kv(f)[b]);
    for (int64_t b = 0; b < batch; ++b)
      t.as<float>()[b * row + i] = static_cast<float>(sum / cu_kv(f)[batch]);
  }
}

// Divides by the length rounded up to whole tiles.
void padded_mean(FaultContext& f) {
  Tensor& t = f.out.k_offset;
  if (t.empty()) return;
  const int64_t batch = batch_of(f), row = t.size() / batch, tile = f.kernel.layout.tile_k;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = cu_kv(f)[b + 1] - cu_kv(f)[b];
    const int64_t padded = (length + tile - 1) / tile * tile;
    if (length == 0) continue;
    const float ratio = static_cast<float>(length) / static_cast<float>(padded);
    for (int64_t i = b * row; i < (b + 1) * row; ++i) t.as<float>()[i] *= ratio;
  }
}

void next_sequence(FaultContext& f, Tensor StageOutputs::*offset) {
  Tensor& t = f.out.*offset;
  if (!t.empty()) rotate_axis(t, 1, t.shape[0], t.shape[1] * t.shape[2]);
}
void next_head(FaultContext& f, Tensor StageOutputs::*per_head) {
  Tensor& t = f.out.*per_head;
  if (!t.empty()) rotate_axis(t, t.shape[0], t.shape[1], t.shape[2]);
}

// ---- codes of Q and K --------------------------------------------------------------------------

// fn(code, value as the quantiser sees it, scale) on every K code; cases that rotate are left
// alone: the value would not be the input's.
template <class Fn>
void each_k_code(FaultContext& f, const Fn& fn) {
  if (f.kernel.settings.rotate != sage::Rotate::kNone) return;
  const TensorView& k = f.in.k;
  const sage::ScaleGroups& groups = f.kernel.layout.k_groups;
  const int64_t dim = f.out.k_codes.shape[2], scale_rows = f.out.k_scales.shape[1];
  for (int64_t b = 0; b < batch_of(f); ++b)
    for (int64_t t = cu_kv(f)[b]; t < cu_kv(f)[b + 1]; ++t)
      for (int h = 0; h < k.heads; ++h) {
        float& scale =
            f.out.k_scales.as<float>()[h * scale_rows +
                                       sage::scale_row(groups, cu_kv(f)[b], b, t - cu_kv(f)[b])];
        for (int d = 0; d < k.dim; ++d) {
          const float offset =
              f.out.k_offset.empty() ? 0 : f.out.k_offset.get((b * k.heads + h) * dim + d);
          fn(f.out.k_codes.as<int8_t>()[(t * k.heads + h) * dim + d], k.get(t, h, d) - offset,
             scale, t);
        }
      }
}

void truncate_codes(FaultContext& f) {
  each_k_code(f, [](int8_t& code, float x, float scale, int64_t) {
    code = static_cast<int8_t>(x / scale);
  });
}

// Blocks of the packed tensor instead of blocks of the sequence: a scale covers tokens of two.
void straddle_sequences(FaultContext& f) {
  const int64_t block = f.kernel.layout.k_groups.block_tokens;
  std::vector<float> amax(static_cast<size_t>(cu_kv(f)[batch_of(f)] / block + 1));
  const auto of = [&](int64_t token) -> float& { return amax[static_cast<size_t>(token / block)]; };
  each_k_code(f,
              [&](int8_t&, float x, float, int64_t t) { of(t) = std::max(of(t), std::fabs(x)); });
  each_k_code(f, [&](int8_t& code, float x, float& scale, int64_t t) {
    scale = std::max(of(t), 1e-7f) / 127;
    code = static_cast<int8_t>(std::nearbyint(x / scale));
  });
}

void shift_codes(FaultContext& f) {
  for (int64_t i = 0; i < f.out.k_codes.size(); ++i) {
    int8_t& code = f.out.k_codes.as<int8_t>()[i];
    code = static_cast<int8_t>(std::min(code + 1, 127));
  }
}

void saturate_to_minus_128(FaultContext& f) {
  for (int64_t i = 0; i < f.out.q_codes.size(); ++i) {
    int8_t& code = f.out.q_codes.as<int8_t>()[i];
    if (code == -127) code = -128;
  }
}

// The rows behind the last whole block of every sequence keep zeros.
void drop_tail_codes(FaultContext& f) {
  const int64_t block = f.kernel.layout.q_groups.block_tokens;
  const int64_t row = f.out.q_codes.shape[1] * f.out.q_codes.shape[2];
  for (int64_t b = 0; b < batch_of(f); ++b) {
    const int64_t length = cu_q(f)[b + 1] - cu_q(f)[b], whole = length / block * block;
    std::fill_n(f.out.q_codes.as<int8_t>() + (cu_q(f)[b] + whole) * row, (length - whole) * row,
                int8_t{0});
  }
}

// ---- V -----------------------------------------------------------------------------------------

// Every code toward zero; where it was rounded away from it, the next smaller magnitude.
void truncate_v(FaultContext& f) {
  const TensorView& v = f.in.v;
  const int64_t dim = f.out.v_codes.shape[2];
  for (int64_t b = 0; b < batch_of(f); ++b)
    for (int64_t t = cu_kv(f)[b]; t < cu_kv(f)[b + 1]; ++t)
      for (int h = 0; h < v.heads; ++h)
        for (int d = 0; d < v.dim; ++d) {
          const int64_t stats = (b * v.heads + h) * dim + d, at = (t * v.heads + h) * dim + d;
          const float offset = f.out.v_offset.empty() ? 0 : f.out.v_offset.get(stats);
          const float exact = (v.get(t, h, d) - offset) / f.out.v_scales.get(stats);
          if (std::fabs(f.out.v_codes.get(at)) <= std::fabs(exact)) continue;
          if (f.out.v_codes.dtype == DType::kFp8E4m3)
            --f.out.v_codes.as<uint8_t>()[at];  // sign and magnitude
          else
            --f.out.v_codes.as<uint16_t>()[at];
        }
}

// Keys 2i and 2i + 1 of every sequence trade places.
void swap_key_pairs(FaultContext& f) {
  const auto row = static_cast<std::ptrdiff_t>(
      static_cast<size_t>(f.out.v_codes.shape[1] * f.out.v_codes.shape[2]) *
      size_of(f.out.v_codes.dtype));
  for (int64_t b = 0; b < batch_of(f); ++b)
    for (int64_t t = cu_kv(f)[b]; t + 1 < cu_kv(f)[b + 1]; t += 2) {
      const auto first = f.out.v_codes.bytes.begin() + t * row;
      std::swap_ranges(first, first + row, first + row);
    }
}

void garbage_in_last_key(FaultContext& f) {
  const int64_t row = f.out.v_codes.shape[1] * f.out.v_codes.shape[2];
  for (int64_t b = 0; b < batch_of(f); ++b)
    if (cu_kv(f)[b + 1] > cu_kv(f)[b])
      for (int64_t i = 0; i < row; ++i)
        f.out.v_codes.set((cu_kv(f)[b + 1] - 1) * row + i, i % 2 ? 200.0f : -200.0f);
}

}  // namespace

std::vector<Fault> quantisation_faults() {
  constexpr Stage offset = Stage::kOffset, qk = Stage::kQkCodes, v = Stage::kVCodes;
  using S = StageOutputs;
  return {
      {"smoothing_skipped",
       "K's offset is zero",
       kAttention,
       offset,
       offset,
       {},
       [](FaultContext& f) {
         std::fill_n(f.out.k_offset.as<float>(), f.out.k_offset.size(), 0.0f);
       },
       needs::smooth_k},
      {"offset_of_neighbour",
       "K's offset of the next sequence",
       kAttention,
       offset,
       offset,
       {},
       [](FaultContext& f) { next_sequence(f, &S::k_offset); },
       needs::smooth_k_of_many},
      {"global_mean",
       "one mean for the batch",
       kAttention,
       offset,
       offset,
       {},
       global_mean,
       needs::smooth_k_of_many},
      {"mean_over_padding",
       "sum divided by the padded length",
       kAttention,
       offset,
       offset,
       {},
       padded_mean,
       needs::smooth_k},
      {"v_offset_of_neighbour",
       "V's offset of the next head",
       kAttention,
       offset,
       offset,
       {},
       [](FaultContext& f) { next_head(f, &S::v_offset); },
       needs::smooth_v_heads},

      {"code_bias", "K's codes + 1", kAttention, qk, qk, {}, shift_codes, needs::attention},
      {"truncated_codes",
       "truncation for rounding",
       kAttention,
       qk,
       qk,
       {},
       truncate_codes,
       needs::unrotated_codes},
      {"minus_128",
       "saturates at -128",
       kAttention,
       qk,
       qk,
       {},
       saturate_to_minus_128,
       needs::attention},
      {"neighbours_scale",
       "K's scale of the next group",
       kAttention,
       qk,
       qk,
       {},
       [](FaultContext& f) {
         rotate_axis(f.out.k_scales, f.out.k_scales.shape[0], f.out.k_scales.shape[1], 1);
       },
       needs::attention},
      {"per_warp_as_per_thread",
       "one scale per block stored for eight",
       kAttention,
       qk,
       qk,
       [](FaultContext& f) { f.kernel.layout.q_groups.pattern = sage::GroupPattern::kAll; },
       {},
       needs::grouped_q_scales},
      {"group_straddles_sequences",
       "blocks ignore sequence starts",
       kAttention,
       qk,
       qk,
       {},
       straddle_sequences,
       needs::unrotated_codes},
      {"dropped_tail_codes",
       "the last block is not quantised",
       kAttention,
       qk,
       qk,
       {},
       drop_tail_codes,
       needs::attention},
      {"rotation_mixed_up",
       "Hadamard the other way round",
       kAttention,
       qk,
       qk,
       [](FaultContext& f) {
         f.kernel.settings.rotate = f.kernel.settings.rotate == sage::Rotate::kNone
                                        ? sage::Rotate::kHadamard
                                        : sage::Rotate::kNone;
       },
       {},
       needs::attention},

      {"v_scale_of_neighbour",
       "V's scale of the next head",
       kAttention,
       v,
       v,
       {},
       [](FaultContext& f) { next_head(f, &S::v_scales); },
       needs::kv_heads},
      {"v_scale_per_head",
       "one scale for all channels",
       kAttention,
       v,
       v,
       [](FaultContext& f) { f.kernel.settings.v_scale = sage::VScale::kPerHead; },
       {},
       needs::v_scale_per_channel},
      {"v_truncated", "V rounded toward zero", kAttention, v, v, {}, truncate_v, needs::attention},
      {"v_key_order",
       "neighbouring keys swapped",
       kAttention,
       v,
       v,
       {},
       swap_key_pairs,
       needs::two_keys},
      {"correct_v_skipped",
       "what rounding V took is not put back",
       kAttention,
       v,
       v,
       {},
       [](FaultContext& f) {
         const Tensor& removed = f.out.v_offset;
         if (removed.empty())
           std::fill(f.out.o_offset.bytes.begin(), f.out.o_offset.bytes.end(), std::byte{0});
         else
           f.out.o_offset.bytes = removed.bytes;
       },
       needs::correct_v},
      {"correct_v_of_neighbour",
       "what rounding took from the next head's V is put back",
       kAttention,
       v,
       v,
       {},
       [](FaultContext& f) { next_head(f, &S::o_offset); },
       needs::correct_v_heads},
      {"v_tail_garbage",
       "the last key is not V's",
       kAttention,
       v,
       v,
       {},
       garbage_in_last_key,
       needs::attention},
  };
}

}  // namespace sagebench
