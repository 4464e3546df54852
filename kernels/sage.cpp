// The stages composed. Of CUDA only the question which device is current.
#include "sage/sage.h"

#ifdef SAGE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <tuple>

#include "kv_cache/checks.h"
#include "quantize/checks.h"
#include "status.h"

namespace sage {
namespace {

constexpr size_t kAlignment = 256;

AttentionProblem problem_of(const SageAttentionParams& p) {
  return {p.q.num_heads, p.k.num_heads, p.q.head_dim,    p.v.head_dim,
          p.q.dtype,     p.mask,        p.lse != nullptr};
}

// Consecutive arrays of one allocation. With no base, only the end is known.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  void take(T*& array, int64_t count) {
    take_bytes(array, static_cast<size_t>(count) * sizeof(T));
  }
  template <class T>
  void take_bytes(T*& array, size_t bytes) {
    array = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + end_);
    end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  size_t end() const { return end_; }

 private:
  char* base_;
  size_t end_ = 0;
};

ChannelStatsParams k_stats_params(const SageAttentionParams& p, const SageWorkspace& w) {
  ChannelStatsParams s;
  s.x = p.k;
  s.cu_seqlens = p.cu_seqlens_kv;
  s.batch = p.batch;
  s.padded_head_dim = w.layout.head_dim;
  s.smooth = p.settings.smooth_k;
  s.offset = w.k_offset;
  s.workspace = w.stats;
  s.workspace_bytes = w.stats_bytes;
  return s;
}

ChannelStatsParams v_stats_params(const SageAttentionParams& p, const SageWorkspace& w,
                                  float* scales) {
  ChannelStatsParams s;
  s.x = p.v;
  s.cu_seqlens = p.cu_seqlens_kv;
  s.batch = p.batch;
  s.padded_head_dim = w.layout.head_dim_v;
  s.smooth = p.settings.smooth_v;
  s.offset = w.v_offset;
  s.scale = scales;
  s.pv = w.layout.pv;
  s.v_scale = p.settings.v_scale;
  s.v_code_max = w.layout.v_code_max;
  s.workspace = w.stats;
  s.workspace_bytes = w.stats_bytes;
  return s;
}

QuantizeInt8Params codes_params(const SageAttentionParams& p, const SageWorkspace& w,
                                const PackedTensor& x, const int32_t* cu_seqlens,
                                const ScaleGroups& groups, int8_t* codes, float* scales) {
  QuantizeInt8Params s;
  s.x = x;
  s.cu_seqlens = cu_seqlens;
  s.batch = p.batch;
  s.padded_head_dim = w.layout.head_dim;
  s.groups = groups;
  s.rotate = p.settings.rotate;
  s.codes = codes;
  s.scales = scales;
  return s;
}

QuantizeInt8Params q_codes_params(const SageAttentionParams& p, const SageWorkspace& w) {
  QuantizeInt8Params s =
      codes_params(p, w, p.q, p.cu_seqlens_q, w.layout.q_groups, w.q_codes, w.q_scales);
  if (w.lse_dot != nullptr) {
    s.dot_offset = w.k_offset;
    s.dot_num_heads = p.k.num_heads;
    s.dot = w.lse_dot;
  }
  return s;
}

QuantizeInt8Params k_codes_params(const SageAttentionParams& p, const SageWorkspace& w) {
  QuantizeInt8Params s =
      codes_params(p, w, p.k, p.cu_seqlens_kv, w.layout.k_groups, w.k_codes, w.k_scales);
  s.offset = w.k_offset;
  return s;
}

QuantizeVParams v_codes_params(const SageAttentionParams& p, const SageWorkspace& w) {
  QuantizeVParams s;
  s.v = p.v;
  s.cu_seqlens = p.cu_seqlens_kv;
  s.batch = p.batch;
  s.layout = w.layout;
  s.offset = w.v_offset;
  s.scale = w.v_scales;
  s.codes = w.v_codes;
  s.o_offset = w.o_offset;
  s.workspace = w.v_sums;
  s.workspace_bytes = w.v_sums_bytes;
  return s;
}

AttentionParams attend_params(const SageAttentionParams& p, const SageWorkspace& w) {
  AttentionParams a;
  a.layout = w.layout;
  a.batch = p.batch;
  a.num_qo_heads = p.q.num_heads;
  a.num_kv_heads = p.k.num_heads;
  a.head_dim_v = p.v.head_dim;
  a.total_q = p.q.total_tokens;
  a.total_kv = p.k.total_tokens;
  a.cu_seqlens_q = p.cu_seqlens_q;
  a.cu_seqlens_kv = p.cu_seqlens_kv;
  a.mask = p.mask;
  a.sm_scale = p.sm_scale;
  a.q_codes = w.q_codes;
  a.q_scales = w.q_scales;
  a.k_codes = w.k_codes;
  a.k_scales = w.k_scales;
  a.v_codes = w.v_codes;
  a.v_scales = w.v_scales;
  a.v_offset = p.settings.correct_v ? w.o_offset : w.v_offset;
  a.lse_dot = w.lse_dot;
  a.o = p.o;
  a.o_dtype = p.q.dtype;
  a.o_token_stride = p.o_token_stride;
  a.o_head_stride = p.o_head_stride;
  a.lse = p.lse;
  a.workspace = w.attend;
  a.workspace_bytes = w.attend_bytes;
  return a;
}

// What makes the three tensors one problem; the stages' own checks see one tensor each.
Status check_problem(const SageAttentionParams& p) {
  if (p.kernel == nullptr) return invalid("kernel is null");
  if (p.q.dtype != p.k.dtype || p.q.dtype != p.v.dtype)
    return invalid("q, k and v differ in dtype");
  if (p.q.head_dim != p.k.head_dim) return invalid("q and k differ in head_dim");
  if (p.k.num_heads != p.v.num_heads) return invalid("k and v differ in num_heads");
  if (p.k.total_tokens != p.v.total_tokens) return invalid("k and v differ in total_tokens");
  if (p.batch < 0) return invalid("batch is negative");
  if (p.q.total_tokens < 0 || p.q.total_tokens > kMaxRows || p.k.total_tokens < 0 ||
      p.k.total_tokens > kMaxRows) {
    return invalid("total_tokens must be in [0, 2^31)");
  }
  if (p.k.num_heads < 1 || p.q.num_heads < 1 || p.q.num_heads % p.k.num_heads != 0) {
    return invalid("num_kv_heads must divide num_qo_heads");
  }
  if (p.q.num_heads > kMaxGridY) return unsupported("num_qo_heads is at most 65535");
  const char* reason = p.kernel->supports(problem_of(p), p.settings);
  return reason == nullptr ? Status{} : unsupported(reason);
}

// Every stage's arguments, so that nothing is launched when a later stage would refuse.
Status check_stages(const SageAttentionParams& p, const SageWorkspace& w) {
  Status s = w.k_offset == nullptr ? Status{} : check(k_stats_params(p, w));
  if (s.ok()) s = check(v_stats_params(p, w, w.v_scales));
  if (s.ok()) s = check(q_codes_params(p, w));
  if (s.ok()) s = check(k_codes_params(p, w));
  if (s.ok()) s = check(v_codes_params(p, w));
  if (s.ok()) s = p.kernel->check(attend_params(p, w));
  return s;
}

// Can this build, on the device that is current, run the kernel?
Status check_device(const AttentionKernel& kernel) {
  if (kernel.launch == nullptr) return unsupported("built without CUDA");
#ifdef SAGE_WITH_CUDA
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  }
  if (error != cudaSuccess) return {StatusCode::kCudaError, cudaGetErrorString(error)};
  if (!kernel.runs_on(10 * major + minor)) {
    return unsupported("the kernel is not written for the current device");
  }
#endif
  return {};
}

Status check_all(const SageAttentionParams& p, void* workspace, size_t workspace_bytes,
                 SageWorkspace& w) {
  if (const Status s = plan_workspace(p, workspace, w); !s.ok()) return s;
  if (workspace_bytes < w.bytes) {
    return {StatusCode::kWorkspaceTooSmall, "workspace_bytes below plan_workspace's"};
  }
  if (w.bytes > 0 && workspace == nullptr) return invalid("workspace is null");
  if (const Status s = check_stages(p, w); !s.ok()) return s;
  return check_device(*p.kernel);
}

Status launch_stages(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  for (const auto stage : {launch_k_stats, launch_v_stats, launch_q_codes, launch_k_codes,
                           launch_v_codes, launch_attend}) {
    if (const Status s = stage(p, w, stream); !s.ok()) return s;
  }
  return {};
}

// What the caller left empty becomes what the rotation leaves; anything else has to be just that.
bool adopt(PackedTensor& given, const PackedTensor& made) {
  const auto members = [](const PackedTensor& x) {
    return std::tie(x.data, x.dtype, x.total_tokens, x.num_heads, x.head_dim, x.token_stride,
                    x.head_stride);
  };
  if (members(given) == members(PackedTensor{})) given = made;
  return members(given) == members(made);
}
bool adopt(const int32_t*& given, const int32_t* made) {
  if (given == nullptr) given = made;
  return given == made;
}

// The attention of a prefill: `attention` with what launch_prefill fills in.
Status after_rope(const RopeKvCacheWriteParams& r, const SageAttentionParams& attention,
                  SageAttentionParams& p) {
  p = attention;
  if (p.batch != r.batch) return invalid("rope and attention differ in batch");
  if (!adopt(p.cu_seqlens_q, r.cu_seqlens) || !adopt(p.cu_seqlens_kv, r.cu_seqlens)) {
    return invalid("attention's cu_seqlens are neither null nor rope.cu_seqlens");
  }
  if (!adopt(p.q, {r.q_out, r.dtype, r.total_tokens, r.num_qo_heads, r.head_dim,
                   r.q_out_token_stride, r.q_out_head_stride})) {
    return invalid("attention.q is neither empty nor rope.q_out");
  }
  if (!adopt(p.k, {r.k_out, r.dtype, r.total_tokens, r.num_kv_heads, r.head_dim,
                   r.k_out_token_stride, r.k_out_head_stride})) {
    return invalid("attention.k is neither empty nor rope.k_out");
  }
  if (!adopt(p.v, {r.v, r.dtype, r.total_tokens, r.num_kv_heads, r.head_dim_v, r.v_token_stride,
                   r.v_head_stride})) {
    return invalid("attention.v is neither empty nor rope.v");
  }
  return {};
}

}  // namespace

Status plan_workspace(const SageAttentionParams& p, void* base, SageWorkspace& w) {
  w = {};
  if (const Status s = check_problem(p); !s.ok()) return s;
  if (!is_aligned(base, kAlignment)) return misaligned("workspace must be aligned to 256 bytes");
  w.layout = p.kernel->layout(problem_of(p), p.settings);
  const int64_t batch = p.batch, kv_heads = p.k.num_heads, q_heads = p.q.num_heads;
  const int64_t total_q = p.q.total_tokens, total_kv = p.k.total_tokens;
  const bool smooth_k = p.settings.smooth_k != Smooth::kNone;

  Carver carver(base);
  if (smooth_k) carver.take(w.k_offset, batch * kv_heads * w.layout.head_dim);
  carver.take(w.v_offset, batch * kv_heads * w.layout.head_dim_v);
  carver.take(w.v_scales, batch * kv_heads * w.layout.head_dim_v);
  if (p.settings.correct_v) carver.take(w.o_offset, batch * kv_heads * w.layout.head_dim_v);
  if (smooth_k && p.lse != nullptr) carver.take(w.lse_dot, q_heads * total_q);
  carver.take(w.q_codes, total_q * q_heads * w.layout.head_dim);
  carver.take(w.q_scales, q_heads * scale_rows(w.layout.q_groups, total_q, batch));
  carver.take(w.k_codes, total_kv * kv_heads * w.layout.head_dim);
  carver.take(w.k_scales, kv_heads * scale_rows(w.layout.k_groups, total_kv, batch));
  carver.take_bytes(w.v_codes, v_codes_bytes(w.layout, total_kv, p.k.num_heads, p.batch));

  // Scales are wanted whatever their address, which a size query does not have yet.
  float wanted = 0.0f;
  w.stats_bytes = channel_stats_workspace_bytes(v_stats_params(p, w, &wanted));
  if (smooth_k) {
    w.stats_bytes = std::max(w.stats_bytes, channel_stats_workspace_bytes(k_stats_params(p, w)));
  }
  carver.take_bytes(w.stats, w.stats_bytes);
  if (p.settings.correct_v) {
    w.v_sums_bytes = quantize_v_workspace_bytes(v_codes_params(p, w));
    carver.take_bytes(w.v_sums, w.v_sums_bytes);
  }
  if (p.kernel->workspace_bytes != nullptr) {
    w.attend_bytes = p.kernel->workspace_bytes(attend_params(p, w));
    carver.take_bytes(w.attend, w.attend_bytes);
  }
  w.bytes = carver.end();
  return {};
}

Status plan_prefill_workspace(const RopeKvCacheWriteParams& rope,
                              const SageAttentionParams& attention, void* base, SageWorkspace& w) {
  w = {};
  SageAttentionParams p;
  if (const Status s = after_rope(rope, attention, p); !s.ok()) return s;
  return plan_workspace(p, base, w);
}

Status check_lengths(const int32_t* cu_seqlens, int batch, int64_t total_tokens) {
  if (batch < 0 || total_tokens < 0) return invalid("batch or total_tokens is negative");
  if (cu_seqlens == nullptr) return batch == 0 ? Status{} : invalid("cu_seqlens is null");
  if (cu_seqlens[0] != 0) return invalid("cu_seqlens does not start at 0");
  for (int b = 0; b < batch; ++b) {
    if (cu_seqlens[b + 1] < cu_seqlens[b]) return invalid("cu_seqlens falls: a negative length");
  }
  if (cu_seqlens[batch] > total_tokens) return invalid("cu_seqlens ends above total_tokens");
  return {};
}

Status launch_k_stats(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  if (p.settings.smooth_k == Smooth::kNone) return {};
  return launch_channel_stats(k_stats_params(p, w), stream);
}
Status launch_v_stats(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  return launch_channel_stats(v_stats_params(p, w, w.v_scales), stream);
}
Status launch_q_codes(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  return launch_quantize_int8(q_codes_params(p, w), stream);
}
Status launch_k_codes(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  return launch_quantize_int8(k_codes_params(p, w), stream);
}
Status launch_v_codes(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  return launch_quantize_v(v_codes_params(p, w), stream);
}
Status launch_attend(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  if (const Status s = check_problem(p); !s.ok()) return s;
  const AttentionParams attend = attend_params(p, w);
  if (const Status s = p.kernel->check(attend); !s.ok()) return s;
  if (const Status s = check_device(*p.kernel); !s.ok()) return s;
  return p.kernel->launch(attend, stream);
}

Status launch_sage_attention(const SageAttentionParams& p, void* workspace, size_t workspace_bytes,
                             Stream stream) {
  SageWorkspace w;
  if (const Status s = check_all(p, workspace, workspace_bytes, w); !s.ok()) return s;
  return launch_stages(p, w, stream);
}

Status launch_prefill(const RopeKvCacheWriteParams& rope, const SageAttentionParams& attention,
                      void* workspace, size_t workspace_bytes, Stream stream) {
  if (const Status s = check(rope); !s.ok()) return s;
  if (rope.q_out == nullptr || rope.k_out == nullptr) return invalid("q_out and k_out must be set");
  SageAttentionParams p;
  SageWorkspace w;
  if (const Status s = after_rope(rope, attention, p); !s.ok()) return s;
  if (const Status s = check_all(p, workspace, workspace_bytes, w); !s.ok()) return s;
  if (const Status s = launch_rope_kv_cache_write(rope, stream); !s.ok()) return s;
  return launch_stages(p, w, stream);
}

}  // namespace sage
