// One launch on operands of attention_case.h, what it wrote, and what it should not have written.
#pragma once
#include "gpu/attention_case.h"
#include "gpu/gpu_support.h"

namespace attention_test {

using gpu_test::DeviceArray;

struct Output {
  sage::Status status;
  std::vector<uint16_t> bits;  // of o, packed [total_q, num_qo_heads, head_dim_v]
  std::vector<float> o, lse;
  int64_t bytes_changed_outside = 0;  // between rows; guard bands are DeviceArray's
};

inline sage::AttentionParams shape_params(const Problem& p, const Operands& x) {
  sage::AttentionParams a;
  a.layout = x.layout;
  a.batch = p.batch();
  a.num_qo_heads = p.num_qo_heads;
  a.num_kv_heads = p.num_kv_heads;
  a.head_dim_v = p.head_dim_v;
  a.total_q = x.total_q();
  a.total_kv = x.total_kv();
  a.mask = p.mask;
  a.sm_scale = p.sm_scale();
  a.o_dtype = p.dtype;
  return a;
}

inline Output run(const Problem& p, const Operands& x) {
  const DeviceArray<int32_t> cu_q(x.cu_q), cu_kv(x.cu_kv);
  const DeviceArray<int8_t> q_codes(x.q_codes), k_codes(x.k_codes);
  const DeviceArray<float> q_scales(x.q_scales), k_scales(x.k_scales), v_scales(x.v_scales);
  const DeviceArray<float> v_offset(x.v_offset), lse_dot(x.lse_dot);
  const DeviceArray<unsigned char> v_codes(x.v_codes);

  const int64_t heads = p.num_qo_heads, dim = p.head_dim_v, total = x.total_q();
  const int64_t token_stride = p.o_head_major ? dim : heads * dim + p.o_row_padding;
  const int64_t head_stride = p.o_head_major ? total * dim : dim;
  const DeviceArray<uint16_t> o(static_cast<size_t>(total * (heads * dim + p.o_row_padding)));
  const DeviceArray<float> lse(static_cast<size_t>(total * heads));

  sage::AttentionParams a = shape_params(p, x);
  a.cu_seqlens_q = cu_q.data();
  a.cu_seqlens_kv = cu_kv.data();
  a.q_codes = q_codes.data();
  a.q_scales = q_scales.data();
  a.k_codes = k_codes.data();
  a.k_scales = k_scales.data();
  a.v_codes = v_codes.data();
  a.v_scales = v_scales.data();
  a.v_offset = p.v_offset ? v_offset.data() : nullptr;
  a.lse_dot = p.lse_dot ? lse_dot.data() : nullptr;
  a.o = o.data();
  a.o_token_stride = token_stride;
  a.o_head_stride = head_stride;
  a.lse = p.lse ? lse.data() : nullptr;

  if (p.row().workspace_bytes != nullptr) a.workspace_bytes = p.row().workspace_bytes(a);
  const DeviceArray<char> workspace(a.workspace_bytes);
  a.workspace = workspace.data();

  Output y;
  y.status = p.row().launch(a, nullptr);
  if (!y.status.ok()) return y;

  // Move what belongs to the output out of the buffers; the rest must be as it was.
  std::vector<uint16_t> o_host = o.download();
  const auto poison = gpu_test::poison_of<uint16_t>();
  for (int64_t t = 0; t < total; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t c = 0; c < dim; ++c) {
        uint16_t& bits = o_host[static_cast<size_t>(t * token_stride + h * head_stride + c)];
        y.bits.push_back(bits);
        y.o.push_back(gpu_test::decode(p.dtype, bits));
        bits = poison;
      }
  for (const uint16_t bits : o_host) y.bytes_changed_outside += bits != poison ? 2 : 0;
  std::vector<float> lse_host = lse.download();
  if (p.lse) {
    y.lse = std::move(lse_host);
  } else {
    for (const float value : lse_host) {
      const bool kept = gpu_test::same_bits(value, gpu_test::poison_of<float>());
      y.bytes_changed_outside += kept ? 0 : 4;
    }
  }
  return y;
}

// The one sequence of x behind two others, one of `far` query tokens and no keys, one of `far` keys
// and no queries. Returns its o, packed.
inline std::vector<uint16_t> run_far(const Problem& p, const Operands& x, int64_t far) {
  const sage::AttentionLayout& l = x.layout;
  sage::AttentionParams a = shape_params(p, x);
  const int64_t near_q = a.total_q, near_kv = a.total_kv, heads = p.num_qo_heads;
  a.batch = 3;
  a.total_q += far;
  a.total_kv += far;
  const auto far32 = static_cast<int32_t>(far);
  const DeviceArray<int32_t> cu_q(std::vector<int32_t>{0, far32, far32, x.cu_q[1] + far32});
  const DeviceArray<int32_t> cu_kv(std::vector<int32_t>{0, 0, far32, x.cu_kv[1] + far32});
  a.cu_seqlens_q = cu_q.data();
  a.cu_seqlens_kv = cu_kv.data();

  DeviceArray<int8_t> q_codes(a.total_q * heads * l.head_dim);
  DeviceArray<int8_t> k_codes(a.total_kv * heads * l.head_dim);
  q_codes.put(far * heads * l.head_dim, x.q_codes.data(), near_q * heads * l.head_dim);
  k_codes.put(far * heads * l.head_dim, x.k_codes.data(), near_kv * heads * l.head_dim);
  const auto put_scales = [&](sage::ScaleGroups g, int64_t near, const std::vector<float>& scales,
                              DeviceArray<float>& to) {
    const int64_t rows = sage::scale_rows(g, near, 1),
                  far_rows = sage::scale_rows(g, near + far, 3);
    for (int64_t h = 0; h < heads; ++h) {
      to.put(h * far_rows + sage::scale_row(g, far, 2, 0), &scales[static_cast<size_t>(h * rows)],
             rows);
    }
  };
  DeviceArray<float> q_scales(heads * sage::scale_rows(l.q_groups, a.total_q, 3));
  DeviceArray<float> k_scales(heads * sage::scale_rows(l.k_groups, a.total_kv, 3));
  put_scales(l.q_groups, near_q, x.q_scales, q_scales);
  put_scales(l.k_groups, near_kv, x.k_scales, k_scales);

  const bool fp8 = l.pv == sage::PvType::kFp8E4m3;
  const int64_t row_bytes = heads * l.head_dim_v * (fp8 ? l.v_tile_keys : 2);
  const int64_t v_rows = fp8 ? sage::block_count(a.total_kv, 3, l.v_tile_keys) : a.total_kv;
  const int64_t v_first = fp8 ? sage::first_block(far, 2, l.v_tile_keys) : far;
  DeviceArray<unsigned char> v_codes(v_rows * row_bytes);
  v_codes.put(v_first * row_bytes, x.v_codes.data(), static_cast<int64_t>(x.v_codes.size()));
  const int64_t channels = heads * l.head_dim_v;
  DeviceArray<float> v_scales(3 * channels), v_offset(3 * channels);
  gpu_test::device_fill(v_scales.data(), 0, v_scales.bytes());
  gpu_test::device_fill(v_offset.data(), 0, v_offset.bytes());
  v_scales.put(2 * channels, x.v_scales.data(), channels);
  v_offset.put(2 * channels, x.v_offset.data(), channels);

  const int64_t o_row = heads * p.head_dim_v;
  DeviceArray<uint16_t> o(a.total_q * o_row);
  a.q_codes = q_codes.data();
  a.q_scales = q_scales.data();
  a.k_codes = k_codes.data();
  a.k_scales = k_scales.data();
  a.v_codes = v_codes.data();
  a.v_scales = v_scales.data();
  a.v_offset = v_offset.data();
  a.o = o.data();
  a.o_token_stride = o_row;
  a.o_head_stride = p.head_dim_v;
  const sage::Status status = p.row().launch(a, nullptr);
  if (!status.ok()) throw std::runtime_error(status.reason);
  return o.get(far * o_row, near_q * o_row);
}

}  // namespace attention_test
