#include "run/cuda_pipeline.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "inputs/distributions.h"
#include "run/cuda_check.h"
#include "run/cuda_generate.h"

namespace sagebench {
namespace {

struct InputRow {
  const char* name;
  Tensor Inputs::*tensor;
};
constexpr std::array kInputs = {
    InputRow{"qkv", &Inputs::packed},
    InputRow{"q", &Inputs::q_split},
    InputRow{"k", &Inputs::k_split},
    InputRow{"v", &Inputs::v_split},
    InputRow{"cu_seqlens_q", &Inputs::cu_seqlens_q},
    InputRow{"cu_seqlens_kv", &Inputs::cu_seqlens_kv},
    InputRow{"kv_len_before", &Inputs::kv_len_before},
    InputRow{"cos_sin", &Inputs::cos_sin},
    InputRow{"page_table", &Inputs::page_table},
    InputRow{"slot_mapping", &Inputs::slot_mapping},
};

sage::DType operator_dtype(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return sage::DType::kBf16;
    case DType::kFp16:
      return sage::DType::kFp16;
    case DType::kFp32:
      return sage::DType::kFp32;
    default:
      throw Error(ExitCode::kInternal,
                  "the operators have no dtype " + std::string(name_of(dtype)));
  }
}

size_t bytes_of(DType dtype, const std::vector<int64_t>& shape) {
  size_t bytes = size_of(dtype);
  for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
  return bytes;
}

// Strides of a cache of pages: [page][head][slot][dim] or [page][slot][head][dim].
struct CacheStrides {
  int64_t page, head, slot;
};
CacheStrides cache_strides(const std::vector<int64_t>& shape, KvLayout layout) {
  const int64_t page = shape[1] * shape[2] * shape[3], outer = shape[2] * shape[3];
  return layout == KvLayout::kHnd ? CacheStrides{page, outer, shape[3]}
                                  : CacheStrides{page, shape[3], outer};
}

}  // namespace

CudaPipeline::CudaPipeline(const Case& c, const Kernel& kernel, const Inputs& in,
                           DeviceBuffers& buffers)
    : c_(c), kernel_(kernel), in_(in), rotates_(op_of(c.op).caches), attends_(op_of(c.op).attends) {
  for (const InputRow& row : kInputs) {
    const Tensor& tensor = in.*row.tensor;
    if (tensor.empty()) continue;
    inputs_.push_back({row.tensor, buffers.add(row.name, BufferRole::kInput, tensor.bytes.size())});
  }
  const auto require_lengths = [](const Tensor& cu, int64_t tokens, const char* name) {
    require_launched(sage::check_lengths(cu.as<int32_t>(), static_cast<int>(cu.size()) - 1, tokens),
                     name);
  };
  require_lengths(in.cu_seqlens_q, in.q.tokens, "cu_seqlens_q");
  require_lengths(in.cu_seqlens_kv, in.k.tokens, "cu_seqlens_kv");
  const auto output = [&](const char* name, DType dtype, const std::vector<int64_t>& shape) {
    return buffers.add(name, BufferRole::kOutput, bytes_of(dtype, shape));
  };
  const Model& m = c.model;
  if (rotates_) {
    value_cache_shape_ = in.cache_shape;
    value_cache_shape_.back() = m.head_dim_v;
    q_rope_ = output("q_rope", c.dtype, {in.q.tokens, m.num_qo_heads, m.head_dim});
    k_rope_ = output("k_rope", c.dtype, {in.k.tokens, m.num_kv_heads, m.head_dim});
    key_cache_ = output("key_cache", c.dtype, in.cache_shape);
    value_cache_ = output("value_cache", c.dtype, value_cache_shape_);
  }
  if (attends_) {
    o_ = output("o", c.dtype, {in.q.tokens, m.num_qo_heads, m.head_dim_v});
    if (c.return_lse) lse_ = output("lse", DType::kFp32, {m.num_qo_heads, in.q.tokens});
    sage::SageAttentionParams sizes = attention_params();
    float wanted;  // nothing has an address yet, but a null lse would mean "not wanted"
    if (c.return_lse) sizes.lse = &wanted;
    require_launched(sage::plan_workspace(sizes, nullptr, operands_), "plan_workspace");
    workspace_ = buffers.add("workspace", BufferRole::kScratch, operands_.bytes);
  }
}

std::byte* CudaPipeline::input(Tensor Inputs::*tensor) const {
  for (const InputBuffer& i : inputs_)
    if (i.tensor == tensor) return i.buffer->data;
  return nullptr;
}

// Device address of a view's first element: inside the packed qkv, or in its own tensor.
std::byte* CudaPipeline::values(const TensorView& view, Tensor Inputs::*split) const {
  std::byte* base = input(in_.packed.empty() ? split : &Inputs::packed);
  return base ? base + view.offset * static_cast<int64_t>(size_of(c_.dtype)) : nullptr;
}

sage::PackedTensor CudaPipeline::packed(const TensorView& view, Tensor Inputs::*split) const {
  sage::PackedTensor x;
  x.data = values(view, split);
  x.dtype = operator_dtype(c_.dtype);
  x.total_tokens = view.tokens;
  x.num_heads = view.heads;
  x.head_dim = view.dim;
  x.token_stride = view.token_stride;
  x.head_stride = view.head_stride;
  return x;
}

sage::RopeKvCacheWriteParams CudaPipeline::rope_params() const {
  const Model& m = c_.model;
  sage::RopeKvCacheWriteParams p;
  p.dtype = operator_dtype(c_.dtype);
  p.batch = static_cast<int>(c_.batch.size());
  p.num_qo_heads = m.num_qo_heads;
  p.num_kv_heads = m.num_kv_heads;
  p.head_dim = m.head_dim;
  p.head_dim_v = m.head_dim_v;
  p.total_tokens = in_.q.tokens;
  p.q = values(in_.q, &Inputs::q_split);
  p.k = values(in_.k, &Inputs::k_split);
  p.v = values(in_.v, &Inputs::v_split);
  p.q_token_stride = in_.q.token_stride;
  p.q_head_stride = in_.q.head_stride;
  p.k_token_stride = in_.k.token_stride;
  p.k_head_stride = in_.k.head_stride;
  p.v_token_stride = in_.v.token_stride;
  p.v_head_stride = in_.v.head_stride;
  p.cu_seqlens = reinterpret_cast<const int32_t*>(input(&Inputs::cu_seqlens_q));
  p.kv_len_before = reinterpret_cast<const int32_t*>(input(&Inputs::kv_len_before));
  p.style = c_.rope.style;
  p.rotary_dim = c_.rope.rotary_dim;
  if (!in_.cos_sin.empty()) {
    p.cos_sin = input(&Inputs::cos_sin);
    p.cos_sin_dtype = operator_dtype(in_.cos_sin.dtype);
    p.max_position = in_.cos_sin.shape[0];
  }
  p.q_out = q_rope_->data;
  p.k_out = k_rope_->data;
  p.q_out_token_stride = int64_t{m.num_qo_heads} * m.head_dim;
  p.k_out_token_stride = int64_t{m.num_kv_heads} * m.head_dim;
  p.q_out_head_stride = p.k_out_head_stride = m.head_dim;
  p.key_cache = key_cache_->data;
  p.value_cache = value_cache_->data;
  p.num_pages = in_.cache_shape[0];
  p.page_size = c_.cache.page_size;
  const CacheStrides k = cache_strides(in_.cache_shape, c_.cache.kv_layout);
  const CacheStrides v = cache_strides(value_cache_shape_, c_.cache.kv_layout);
  p.k_page_stride = k.page;
  p.k_slot_stride = k.slot;
  p.k_cache_head_stride = k.head;
  p.v_page_stride = v.page;
  p.v_slot_stride = v.slot;
  p.v_cache_head_stride = v.head;
  p.page_table = reinterpret_cast<const int32_t*>(input(&Inputs::page_table));
  if (!in_.page_table.empty())
    p.max_pages_per_sequence = static_cast<int>(in_.page_table.shape.back());
  p.slot_mapping = reinterpret_cast<const int64_t*>(input(&Inputs::slot_mapping));
  return p;
}

sage::SageAttentionParams CudaPipeline::attention_params() const {
  const Model& m = c_.model;
  sage::SageAttentionParams p;
  p.kernel = kernel_.attention;
  p.settings = kernel_.settings;
  p.q = packed(in_.q, &Inputs::q_split);
  p.k = packed(in_.k, &Inputs::k_split);
  p.v = packed(in_.v, &Inputs::v_split);
  if (rotates_) {  // attention reads what the rotation left
    p.q.data = q_rope_->data;
    p.k.data = k_rope_->data;
    p.q.token_stride = int64_t{m.num_qo_heads} * m.head_dim;
    p.k.token_stride = int64_t{m.num_kv_heads} * m.head_dim;
    p.q.head_stride = p.k.head_stride = m.head_dim;
  }
  p.batch = static_cast<int>(c_.batch.size());
  p.cu_seqlens_q = reinterpret_cast<const int32_t*>(input(&Inputs::cu_seqlens_q));
  // After a rotation the keys are those of this call: one array says both lengths.
  p.cu_seqlens_kv = reinterpret_cast<const int32_t*>(
      input(rotates_ ? &Inputs::cu_seqlens_q : &Inputs::cu_seqlens_kv));
  p.mask = c_.mask();
  p.sm_scale = static_cast<float>(c_.sm_scale);
  p.o = o_->data;
  p.o_token_stride = int64_t{m.num_qo_heads} * m.head_dim_v;
  p.o_head_stride = m.head_dim_v;
  if (lse_) p.lse = reinterpret_cast<float*>(lse_->data);
  return p;
}

void CudaPipeline::bind() {
  if (rotates_) {
    rope_ = rope_params();
    stages_.push_back({"rope_write", [this](sage::Stream s) {
                         return sage::launch_rope_kv_cache_write(rope_, s);
                       }});
  }
  if (!attends_) return;
  attention_ = attention_params();
  require_launched(sage::plan_workspace(attention_, workspace_->data, operands_), "plan_workspace");
  using Launcher =
      sage::Status (*)(const sage::SageAttentionParams&, const sage::SageWorkspace&, sage::Stream);
  const auto add = [this](const char* name, Launcher launcher, bool needed) {
    if (needed)
      stages_.push_back(
          {name, [this, launcher](sage::Stream s) { return launcher(attention_, operands_, s); }});
  };
  add("k_stats", sage::launch_k_stats, operands_.k_offset != nullptr);
  add("v_stats", sage::launch_v_stats, operands_.v_offset || operands_.v_scales);
  add("q_codes", sage::launch_q_codes, true);
  add("k_codes", sage::launch_k_codes, true);
  add("v_codes", sage::launch_v_codes, true);
  add("attend", sage::launch_attend, true);
}

sage::Status CudaPipeline::launch(sage::Stream stream) const {
  if (!attends_) return sage::launch_rope_kv_cache_write(rope_, stream);
  if (!rotates_)
    return sage::launch_sage_attention(attention_, workspace_->data, workspace_->bytes, stream);
  return sage::launch_prefill(rope_, attention_, workspace_->data, workspace_->bytes, stream);
}

void CudaPipeline::upload_inputs(const Inputs& in, cudaStream_t stream) const {
  for (const InputBuffer& i : inputs_) upload(*i.buffer, (in.*i.tensor).bytes, stream);
}

void CudaPipeline::generate_values(uint64_t seed, cudaStream_t stream) const {
  const auto generate = [&](TensorId id, const TensorView& view, Tensor Inputs::*split,
                            Tensor Inputs::*cu_seqlens) {
    GenerateTarget target;
    target.data = reinterpret_cast<uint16_t*>(values(view, split));
    target.fp16 = c_.dtype == DType::kFp16;
    target.tokens = view.tokens;
    target.token_stride = view.token_stride;
    target.head_stride = view.head_stride;
    target.cu_seqlens = reinterpret_cast<const int32_t*>(input(cu_seqlens));
    target.batch = static_cast<int>(c_.batch.size());
    launch_generate(make_plan(c_, id, seed), target, stream);
    cuda_check(cudaGetLastError(), "generate_kernel");
  };
  generate(TensorId::kQ, in_.q, &Inputs::q_split, &Inputs::cu_seqlens_q);
  generate(TensorId::kK, in_.k, &Inputs::k_split, &Inputs::cu_seqlens_kv);
  generate(TensorId::kV, in_.v, &Inputs::v_split, &Inputs::cu_seqlens_kv);
}

std::vector<std::string> CudaPipeline::changed_inputs(const Inputs& in, cudaStream_t stream) const {
  std::vector<std::string> lines;
  for (const InputBuffer& i : inputs_) {
    const std::string line = changed_byte(*i.buffer, (in.*i.tensor).bytes, stream);
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::vector<DeviceBuffer*> CudaPipeline::value_buffers() const {
  std::vector<DeviceBuffer*> buffers;
  for (const InputBuffer& i : inputs_)
    if (i.tensor == &Inputs::packed || i.tensor == &Inputs::q_split ||
        i.tensor == &Inputs::k_split || i.tensor == &Inputs::v_split)
      buffers.push_back(i.buffer);
  return buffers;
}

// `at` lies in `holder`; the copy must not leave it.
Tensor CudaPipeline::fetch(const DeviceBuffer& holder, const void* at, DType dtype,
                           std::vector<int64_t> shape, cudaStream_t stream) const {
  Tensor t(dtype, std::move(shape));
  download(t.bytes.data(), t.bytes.size(), holder, static_cast<const std::byte*>(at), stream);
  return t;
}

StageOutputs CudaPipeline::download_outputs(cudaStream_t stream) const {
  StageOutputs out;
  const Model& m = c_.model;
  const auto whole = [&](const DeviceBuffer& b, DType dtype, std::vector<int64_t> shape) {
    return fetch(b, b.data, dtype, std::move(shape), stream);
  };
  if (rotates_) {
    out.q_rope = whole(*q_rope_, c_.dtype, {in_.q.tokens, m.num_qo_heads, m.head_dim});
    out.k_rope = whole(*k_rope_, c_.dtype, {in_.k.tokens, m.num_kv_heads, m.head_dim});
    out.key_cache = whole(*key_cache_, c_.dtype, in_.cache_shape);
    out.value_cache = whole(*value_cache_, c_.dtype, value_cache_shape_);
  }
  if (!attends_) return out;

  const sage::AttentionLayout& l = operands_.layout;
  const int64_t batch = c_.batch.size(), hq = m.num_qo_heads, hkv = m.num_kv_heads;
  const int64_t tokens_q = in_.q.tokens, tokens_kv = in_.k.tokens;
  const auto part = [&](const void* at, DType dtype, std::vector<int64_t> shape) {
    return at ? fetch(*workspace_, at, dtype, std::move(shape), stream) : Tensor();
  };
  out.k_offset = part(operands_.k_offset, DType::kFp32, {batch, hkv, l.head_dim});
  out.v_offset = part(operands_.v_offset, DType::kFp32, {batch, hkv, l.head_dim_v});
  out.v_scales = part(operands_.v_scales, DType::kFp32, {batch, hkv, l.head_dim_v});
  out.o_offset = part(operands_.o_offset, DType::kFp32, {batch, hkv, l.head_dim_v});
  out.lse_dot = part(operands_.lse_dot, DType::kFp32, {hq, tokens_q});
  out.q_codes = part(operands_.q_codes, DType::kInt8, {tokens_q, hq, l.head_dim});
  out.k_codes = part(operands_.k_codes, DType::kInt8, {tokens_kv, hkv, l.head_dim});
  out.q_scales =
      part(operands_.q_scales, DType::kFp32, {hq, sage::scale_rows(l.q_groups, tokens_q, batch)});
  out.k_scales =
      part(operands_.k_scales, DType::kFp32, {hkv, sage::scale_rows(l.k_groups, tokens_kv, batch)});
  const size_t v_bytes = sage::v_codes_bytes(l, tokens_kv, m.num_kv_heads, static_cast<int>(batch));
  const Tensor storage = part(operands_.v_codes, DType::kInt8, {static_cast<int64_t>(v_bytes)});
  out.v_codes = unpack_v_codes(c_, l, in_.cu_seqlens_kv, storage.bytes);
  out.o = whole(*o_, c_.dtype, {tokens_q, hq, m.head_dim_v});
  if (lse_) out.lse = whole(*lse_, DType::kFp32, {hq, tokens_q});
  return out;
}

}  // namespace sagebench
