#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "ops/fast_rounding.h"
#include "ops/reference.h"

namespace sagebench {
namespace {

// Tokens [first, first + count) of a sequence: the unit of parallel work.
struct TokenBlock {
  int64_t sequence, cu_start, first, count;
};

std::vector<TokenBlock> token_blocks(const Tensor& cu_seqlens, int block_tokens) {
  const int32_t* cu = cu_seqlens.as<int32_t>();
  std::vector<TokenBlock> blocks;
  for (int64_t b = 0; b + 1 < cu_seqlens.size(); ++b)
    for (int64_t t = 0; t < cu[b + 1] - cu[b]; t += block_tokens)
      blocks.push_back({b, cu[b], t, std::min<int64_t>(block_tokens, cu[b + 1] - cu[b] - t)});
  return blocks;
}

int64_t total_tokens(const Tensor& cu_seqlens) {
  return cu_seqlens.as<int32_t>()[cu_seqlens.size() - 1];
}

// [batch, heads, padded_dim]: the mean of all tokens or of evenly spread ones. Padding is 0.
Tensor channel_offsets(const TensorView& x, const Tensor& cu_seqlens, sage::Smooth smooth,
                       int padded_dim) {
  const int64_t batch = cu_seqlens.size() - 1;
  Tensor offsets(DType::kFp32, {batch, x.heads, padded_dim});
  parallel_for(batch * x.heads, [&](int64_t i) {
    const int64_t start = cu_seqlens.as<int32_t>()[i / x.heads];
    const int64_t length = cu_seqlens.as<int32_t>()[i / x.heads + 1] - start;
    const int64_t samples =
        smooth == sage::Smooth::kSampled ? std::min<int64_t>(length, sage::kOffsetSamples) : length;
    std::vector<float> row(static_cast<size_t>(x.dim));
    std::vector<double> sum(row.size());
    for (int64_t s = 0; s < samples; ++s) {
      x.read_row(start + s * length / samples, static_cast<int>(i % x.heads), row.data());
      for (size_t d = 0; d < row.size(); ++d) sum[d] += row[d];
    }
    for (size_t d = 0; samples > 0 && d < row.size(); ++d)
      offsets.as<float>()[i * padded_dim + static_cast<int64_t>(d)] =
          static_cast<float>(sum[d] / static_cast<double>(samples));
  });
  return offsets;
}

// ---- Q and K -----------------------------------------------------------------------------------

void rotate_hadamard(float* x, int n) {
  for (int half = 1; half < n; half *= 2)
    for (int i = 0; i < n; i += 2 * half)
      for (int j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
  const float scale = 1.0f / std::sqrt(static_cast<float>(n));
  for (int i = 0; i < n; ++i) x[i] *= scale;
}

int32_t largest_magnitude(const float* x, int n) {
  int32_t largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return largest;
}

void quantise_int8(const TensorView& x, const Tensor& cu_seqlens, int padded_dim,
                   sage::ScaleGroups groups, sage::Rotate rotate, const Tensor& offset,
                   Tensor& codes, Tensor& scales) {
  const int64_t total = total_tokens(cu_seqlens), batch = cu_seqlens.size() - 1;
  const int64_t scale_rows = sage::scale_rows(groups, total, batch);
  codes = Tensor(DType::kInt8, {total, x.heads, padded_dim});
  scales = Tensor(DType::kFp32, {x.heads, scale_rows});
  const std::vector<TokenBlock> blocks = token_blocks(cu_seqlens, groups.block_tokens);

  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const TokenBlock& block = blocks[static_cast<size_t>(i)];
    std::vector<float> values(static_cast<size_t>(block.count * padded_dim));
    std::vector<int32_t> amax_bits(static_cast<size_t>(groups.groups_per_block));
    for (int h = 0; h < x.heads; ++h) {
      std::fill(values.begin(), values.end(), 0.0f);
      std::fill(amax_bits.begin(), amax_bits.end(), 0);
      const auto group_of = [&](int64_t t) {
        return static_cast<size_t>(sage::group_in_block(groups.pattern, static_cast<int>(t)));
      };
      for (int64_t t = 0; t < block.count; ++t) {
        float* row = values.data() + t * padded_dim;
        x.read_row(block.cu_start + block.first + t, h, row);
        if (!offset.empty()) {
          const float* o = offset.as<float>() + (block.sequence * x.heads + h) * padded_dim;
          for (int d = 0; d < x.dim; ++d) row[d] -= o[d];
        }
        if (rotate == sage::Rotate::kHadamard) rotate_hadamard(row, padded_dim);
        amax_bits[group_of(t)] =
            std::max(amax_bits[group_of(t)], largest_magnitude(row, padded_dim));
      }
      for (int64_t t = 0; t < block.count; ++t) {
        const float amax = std::bit_cast<float>(amax_bits[group_of(t)]);
        const float scale = (amax < 1e-7f ? 1e-7f : amax) / 127.0f;  // NaN stays
        scales.as<float>()[h * scale_rows + sage::scale_row(groups, block.cu_start, block.sequence,
                                                            block.first + t)] = scale;
        const float* row = values.data() + t * padded_dim;
        int8_t* code =
            codes.as<int8_t>() + ((block.cu_start + block.first + t) * x.heads + h) * padded_dim;
        for (int d = 0; d < padded_dim; ++d) code[d] = int8_code(row[d] / scale);
      }
    }
  });
}

// [num_qo_heads, total_q]: what smoothing K takes from the scores of a query.
Tensor lse_dots(const TensorView& q, const Tensor& cu_seqlens, const Tensor& k_offset) {
  const int64_t total = total_tokens(cu_seqlens), padded_dim = k_offset.shape[2];
  const int64_t kv_heads = k_offset.shape[1], group = q.heads / kv_heads;
  Tensor dots(DType::kFp32, {q.heads, total});
  const std::vector<TokenBlock> blocks = token_blocks(cu_seqlens, 128);
  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const TokenBlock& block = blocks[static_cast<size_t>(i)];
    std::vector<float> row(static_cast<size_t>(q.dim));
    for (int64_t t = block.cu_start + block.first; t < block.cu_start + block.first + block.count;
         ++t)
      for (int h = 0; h < q.heads; ++h) {
        const float* offset =
            k_offset.as<float>() + (block.sequence * kv_heads + h / group) * padded_dim;
        q.read_row(t, h, row.data());
        double dot = 0;
        for (size_t d = 0; d < row.size(); ++d) dot += static_cast<double>(row[d]) * offset[d];
        dots.as<float>()[h * total + t] = static_cast<float>(dot);
      }
  });
  return dots;
}

// ---- V -----------------------------------------------------------------------------------------

float v_scale_of(float amax, const sage::AttentionLayout& layout) {
  if (amax == 0) return 1.0f;
  amax = amax < sage::kMinAmaxV ? sage::kMinAmaxV : amax;  // NaN stays
  if (layout.pv == sage::PvType::kFp8E4m3 || !std::isfinite(amax)) return amax / layout.v_code_max;
  int exponent;  // amax = mantissa 2^exponent, mantissa in [0.5, 1)
  const float mantissa = std::frexp(amax, &exponent);
  return std::ldexp(1.0f, mantissa == 0.5f ? exponent - 1 : exponent) / layout.v_code_max;
}

// [batch, heads, padded_dim], padding 1.
Tensor v_scales(const TensorView& v, const Tensor& cu_seqlens, const Tensor& offset,
                sage::VScale per, const sage::AttentionLayout& layout) {
  const int64_t batch = cu_seqlens.size() - 1, padded_dim = layout.head_dim_v;
  Tensor scales(DType::kFp32, {batch, v.heads, padded_dim});
  parallel_for(batch * v.heads, [&](int64_t i) {
    const int32_t* cu = cu_seqlens.as<int32_t>() + i / v.heads;
    std::vector<float> row(static_cast<size_t>(v.dim)), zeros(row.size());
    const float* o = offset.empty() ? zeros.data() : offset.as<float>() + i * padded_dim;
    std::vector<int32_t> amax_bits(row.size());
    for (int64_t t = cu[0]; t < cu[1]; ++t) {
      v.read_row(t, static_cast<int>(i % v.heads), row.data());
      for (size_t d = 0; d < row.size(); ++d)
        amax_bits[d] = std::max(amax_bits[d], magnitude_of(row[d] - o[d]));
    }
    if (per == sage::VScale::kPerHead && !row.empty())
      std::fill(amax_bits.begin(), amax_bits.end(),
                *std::max_element(amax_bits.begin(), amax_bits.end()));
    float* scale = scales.as<float>() + i * padded_dim;
    std::fill_n(scale, padded_dim, 1.0f);
    for (size_t d = 0; d < row.size(); ++d)
      scale[d] = v_scale_of(std::bit_cast<float>(amax_bits[d]), layout);
  });
  return scales;
}

Tensor v_codes(const TensorView& v, const Tensor& cu_seqlens, const Tensor& offset,
               const Tensor& scales, const sage::AttentionLayout& layout) {
  const bool fp8 = layout.pv == sage::PvType::kFp8E4m3;
  const int64_t padded_dim = layout.head_dim_v;
  Tensor codes(fp8 ? DType::kFp8E4m3 : DType::kFp16,
               {total_tokens(cu_seqlens), v.heads, padded_dim});
  const std::vector<TokenBlock> blocks = token_blocks(cu_seqlens, 128);
  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const TokenBlock& block = blocks[static_cast<size_t>(i)];
    std::vector<float> row(static_cast<size_t>(v.dim)), zeros(row.size());
    for (int64_t t = block.cu_start + block.first; t < block.cu_start + block.first + block.count;
         ++t)
      for (int h = 0; h < v.heads; ++h) {
        const int64_t stats = (block.sequence * v.heads + h) * padded_dim;
        const float* o = offset.empty() ? zeros.data() : offset.as<float>() + stats;
        const float* scale = scales.as<float>() + stats;
        const int64_t at = (t * v.heads + h) * padded_dim;
        v.read_row(t, h, row.data());
        for (size_t d = 0; d < row.size(); ++d) row[d] = (row[d] - o[d]) / scale[d];
        if (fp8)
          std::transform(row.begin(), row.end(), codes.as<uint8_t>() + at,
                         [](float x) { return static_cast<uint8_t>(encode(kE4m3Format, x)); });
        else
          std::transform(row.begin(), row.end(), codes.as<uint16_t>() + at,
                         [](float x) { return static_cast<uint16_t>(encode(kFp16Format, x)); });
      }
  });
  return codes;
}

// [batch, heads, padded_dim]: offset + the mean of v - offset - scale * code.
Tensor o_offsets(const TensorView& v, const Tensor& cu_seqlens, const StageOutputs& codes) {
  const int64_t batch = cu_seqlens.size() - 1, padded_dim = codes.v_codes.shape[2];
  Tensor offsets(DType::kFp32, {batch, v.heads, padded_dim});
  parallel_for(batch * v.heads, [&](int64_t i) {
    const int32_t* cu = cu_seqlens.as<int32_t>() + i / v.heads;
    const int64_t stats = i * padded_dim;
    const float* scale = codes.v_scales.as<float>() + stats;
    std::vector<float> row(static_cast<size_t>(v.dim)), removed(row.size());
    std::vector<double> lost(row.size());
    if (!codes.v_offset.empty())
      std::copy_n(codes.v_offset.as<float>() + stats, v.dim, removed.data());
    for (int64_t t = cu[0]; t < cu[1]; ++t) {
      v.read_row(t, static_cast<int>(i % v.heads), row.data());
      const uint8_t* code = codes.v_codes.as<uint8_t>() + (t * v.heads + i % v.heads) * padded_dim;
      for (size_t d = 0; d < row.size(); ++d)
        lost[d] += double{(row[d] - removed[d]) / scale[d]} - double{float_from_e4m3(code[d])};
    }
    for (size_t d = 0; d < row.size(); ++d)
      offsets.as<float>()[stats + static_cast<int64_t>(d)] =
          cu[1] == cu[0] ? removed[d]
                         : static_cast<float>(removed[d] + lost[d] / (cu[1] - cu[0]) * scale[d]);
  });
  return offsets;
}

}  // namespace

void emulate_quantisation(const Case& c, const AttentionOperands& x, const Kernel& kernel,
                          StageOutputs& out) {
  const sage::AttentionLayout& layout = kernel.layout;
  const sage::SageSettings& s = kernel.settings;
  const Tensor &cu_q = *x.cu_seqlens_q, &cu_kv = *x.cu_seqlens_kv;

  out.k_offset = s.smooth_k == sage::Smooth::kNone
                     ? Tensor()
                     : channel_offsets(x.k, cu_kv, s.smooth_k, layout.head_dim);
  out.v_offset = s.smooth_v == sage::Smooth::kNone
                     ? Tensor()
                     : channel_offsets(x.v, cu_kv, s.smooth_v, layout.head_dim_v);
  quantise_int8(x.q, cu_q, layout.head_dim, layout.q_groups, s.rotate, Tensor(), out.q_codes,
                out.q_scales);
  quantise_int8(x.k, cu_kv, layout.head_dim, layout.k_groups, s.rotate, out.k_offset, out.k_codes,
                out.k_scales);
  out.v_scales = v_scales(x.v, cu_kv, out.v_offset, s.v_scale, layout);
  out.v_codes = v_codes(x.v, cu_kv, out.v_offset, out.v_scales, layout);
  out.o_offset = s.correct_v ? o_offsets(x.v, cu_kv, out) : Tensor();
  out.lse_dot =
      c.return_lse && !out.k_offset.empty() ? lse_dots(x.q, cu_q, out.k_offset) : Tensor();
}

}  // namespace sagebench
