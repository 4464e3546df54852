// Composition: the stages of include/sage/sage.h on one workspace. No CUDA calls of its own.
#include "sage/sage.h"

#include "status.h"

namespace sage {
namespace {

constexpr size_t kAlignment = 256;  // of every operand in the workspace

// Hands out consecutive aligned pieces of a buffer, or only counts them when base is nullptr.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(int64_t count, size_t element_bytes) {
    char* piece = base_ ? base_ + used_ : nullptr;
    const size_t bytes = static_cast<size_t>(count) * element_bytes;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

AttentionProblem problem_of(const SageAttentionParams& p) {
  return {p.q.num_heads, p.k.num_heads, p.q.head_dim,    p.v.head_dim,
          p.q.dtype,     p.mask,        p.lse != nullptr};
}

// What `smooth_k` takes out of the logits comes back in the LSE.
bool needs_lse_dot(const SageAttentionParams& p) {
  return p.lse != nullptr && p.settings.smooth_k != Smooth::kNone;
}

ChannelStatsParams k_stats(const SageAttentionParams& p, const SageWorkspace& w) {
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

ChannelStatsParams v_stats(const SageAttentionParams& p, const SageWorkspace& w) {
  ChannelStatsParams s = k_stats(p, w);
  s.x = p.v;
  s.padded_head_dim = w.layout.head_dim_v;
  s.smooth = p.settings.smooth_v;
  s.offset = w.v_offset;
  s.scale = w.v_scales;
  s.pv = w.layout.pv;
  s.v_scale = p.settings.v_scale;
  s.v_code_max = w.layout.v_code_max;
  return s;
}

QuantizeInt8Params int8_params(const SageAttentionParams& p, const SageWorkspace& w) {
  QuantizeInt8Params c;
  c.batch = p.batch;
  c.padded_head_dim = w.layout.head_dim;
  c.rotate = p.settings.rotate;
  return c;
}

// Checks what only the composition can see; the launchers check their own.
Status check(const SageAttentionParams& p) {
  if (p.kernel == nullptr) return invalid("kernel: a row of attention_kernels() is needed");
  if (p.kernel->launch == nullptr) return unsupported("the library was built without CUDA");
  if (p.q.dtype != p.k.dtype || p.q.dtype != p.v.dtype)
    return invalid("q, k and v must share a dtype");
  if (p.k.num_heads <= 0 || p.q.num_heads <= 0 || p.q.num_heads % p.k.num_heads != 0)
    return invalid("num_kv_heads must divide num_qo_heads");
  if (p.k.num_heads != p.v.num_heads) return invalid("k and v must have the same number of heads");
  if (p.k.total_tokens != p.v.total_tokens)
    return invalid("k and v must have the same number of tokens");
  if (p.q.head_dim != p.k.head_dim) return invalid("q and k must have the same head_dim");
  if (p.batch < 0) return invalid("batch must not be negative");
  if (const char* reason = p.kernel->supports(problem_of(p), p.settings))
    return unsupported(reason);
  return {};
}

}  // namespace

SageWorkspace plan_workspace(const SageAttentionParams& p, void* base) {
  SageWorkspace w;
  w.layout = p.kernel->layout(problem_of(p), p.settings);
  const int64_t batch = p.batch, q_heads = p.q.num_heads, kv_heads = p.k.num_heads;
  const int64_t q = p.q.total_tokens, kv = p.k.total_tokens;
  const int d = w.layout.head_dim, dv = w.layout.head_dim_v;
  Arena arena(base);
  w.k_offset = arena.take<float>(batch * kv_heads * d, sizeof(float));
  w.v_offset = arena.take<float>(batch * kv_heads * dv, sizeof(float));
  w.v_scales = arena.take<float>(batch * kv_heads * dv, sizeof(float));
  if (needs_lse_dot(p)) w.lse_dot = arena.take<float>(q_heads * q, sizeof(float));
  w.q_codes = arena.take<int8_t>(q * q_heads * d, 1);
  w.q_scales = arena.take<float>(q_heads * scale_rows(w.layout.q_groups, q, batch), sizeof(float));
  w.k_codes = arena.take<int8_t>(kv * kv_heads * d, 1);
  w.k_scales =
      arena.take<float>(kv_heads * scale_rows(w.layout.k_groups, kv, batch), sizeof(float));
  w.v_codes = arena.take<void>(
      static_cast<int64_t>(v_codes_bytes(w.layout, kv, p.k.num_heads, p.batch)), 1);
  const size_t k_bytes = channel_stats_workspace_bytes(k_stats(p, w));
  const size_t v_bytes = channel_stats_workspace_bytes(v_stats(p, w));
  w.stats_bytes = k_bytes > v_bytes ? k_bytes : v_bytes;
  w.stats = arena.take<void>(static_cast<int64_t>(w.stats_bytes), 1);
  w.bytes = arena.used();
  return w;
}

Status launch_k_stats(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  return launch_channel_stats(k_stats(p, w), stream);
}

Status launch_v_stats(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  return launch_channel_stats(v_stats(p, w), stream);
}

Status launch_q_codes(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  QuantizeInt8Params c = int8_params(p, w);
  c.x = p.q;
  c.cu_seqlens = p.cu_seqlens_q;
  c.groups = w.layout.q_groups;
  c.codes = w.q_codes;
  c.scales = w.q_scales;
  if (w.lse_dot != nullptr) {
    c.dot_offset = w.k_offset;
    c.dot_num_heads = p.k.num_heads;
    c.dot = w.lse_dot;
  }
  return launch_quantize_int8(c, stream);
}

Status launch_k_codes(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  QuantizeInt8Params c = int8_params(p, w);
  c.x = p.k;
  c.cu_seqlens = p.cu_seqlens_kv;
  c.groups = w.layout.k_groups;
  if (p.settings.smooth_k != Smooth::kNone) c.offset = w.k_offset;
  c.codes = w.k_codes;
  c.scales = w.k_scales;
  return launch_quantize_int8(c, stream);
}

Status launch_v_codes(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
  QuantizeVParams c;
  c.v = p.v;
  c.cu_seqlens = p.cu_seqlens_kv;
  c.batch = p.batch;
  c.layout = w.layout;
  c.offset = w.v_offset;
  c.scale = w.v_scales;
  c.codes = w.v_codes;
  return launch_quantize_v(c, stream);
}

Status launch_attend(const SageAttentionParams& p, const SageWorkspace& w, Stream stream) {
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
  if (p.settings.smooth_v != Smooth::kNone) a.v_offset = w.v_offset;
  a.lse_dot = w.lse_dot;
  a.o = p.o;
  a.o_dtype = p.q.dtype;
  a.o_token_stride = p.o_token_stride;
  a.o_head_stride = p.o_head_stride;
  a.lse = p.lse;
  return p.kernel->launch(a, stream);
}

Status launch_sage_attention(const SageAttentionParams& p, void* workspace, size_t workspace_bytes,
                             Stream stream) {
  if (const Status s = check(p); !s.ok()) return s;
  const SageWorkspace w = plan_workspace(p, workspace);
  if (workspace_bytes < w.bytes)
    return {StatusCode::kWorkspaceTooSmall, "workspace_bytes is below plan_workspace(...).bytes"};
  if (workspace == nullptr && w.bytes > 0) return invalid("workspace is null");
  if (!is_aligned(workspace, kAlignment))
    return misaligned("workspace must be aligned to 256 bytes");
  using Launch = Status (*)(const SageAttentionParams&, const SageWorkspace&, Stream);
  constexpr Launch kStages[] = {launch_k_stats, launch_v_stats, launch_q_codes,
                                launch_k_codes, launch_v_codes, launch_attend};
  for (const Launch launch : kStages)
    if (const Status s = launch(p, w, stream); !s.ok()) return s;
  return {};
}

Status launch_prefill(const RopeKvCacheWriteParams& rope, const SageAttentionParams& attention,
                      void* workspace, size_t workspace_bytes, Stream stream) {
  if (rope.q_out == nullptr || rope.k_out == nullptr)
    return invalid("prefill needs rope.q_out and rope.k_out: they are what attention reads");
  const sage::DType dtype = attention.q.dtype;
  if (rope.dtype != dtype) return invalid("rope and attention must share a dtype");
  if (const Status s = check(attention); !s.ok()) return s;
  SageAttentionParams a = attention;
  a.q = {rope.q_out,
         dtype,
         rope.total_tokens,
         rope.num_qo_heads,
         rope.head_dim,
         rope.q_out_token_stride,
         rope.q_out_head_stride};
  a.k = {rope.k_out,
         dtype,
         rope.total_tokens,
         rope.num_kv_heads,
         rope.head_dim,
         rope.k_out_token_stride,
         rope.k_out_head_stride};
  if (workspace_bytes < plan_workspace(a, nullptr).bytes)
    return {StatusCode::kWorkspaceTooSmall, "workspace_bytes is below plan_workspace(...).bytes"};
  if (const Status s = launch_rope_kv_cache_write(rope, stream); !s.ok()) return s;
  return launch_sage_attention(a, workspace, workspace_bytes, stream);
}

}  // namespace sage
