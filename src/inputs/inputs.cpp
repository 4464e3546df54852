#include "inputs/inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "core/error.h"
#include "inputs/distributions.h"
#include "inputs/fill.h"
#include "inputs/pages.h"
#include "inputs/rope_table.h"
#include "ops/op.h"

namespace sagebench {
namespace {

Tensor cumulative(const std::vector<int64_t>& lengths) {
  Tensor t(DType::kInt32, {static_cast<int64_t>(lengths.size()) + 1});
  int64_t sum = 0;
  auto* out = t.as<int32_t>();
  for (size_t b = 0; b < lengths.size(); ++b) out[b + 1] = static_cast<int32_t>(sum += lengths[b]);
  return t;
}

// Points every view at the tensor of `self` that it meant in `other`.
void rebase(Inputs& self, const Inputs& other) {
  for (auto view : {&Inputs::q, &Inputs::k, &Inputs::v})
    for (auto tensor : {&Inputs::packed, &Inputs::q_split, &Inputs::k_split, &Inputs::v_split})
      if ((self.*view).base == &(other.*tensor)) {
        (self.*view).base = &(self.*tensor);
        break;
      }
}

// Buffers and views; values still zero, or NaN where the case has gaps between or behind rows.
void allocate(const Case& c, Inputs& in) {
  const Model& m = c.model;
  const int64_t gap = c.input.token_padding, extra = padding_rows(c);
  const int64_t q_rows = in.cu_seqlens_q.as<int32_t>()[c.batch.size()];
  const int64_t kv_rows = in.cu_seqlens_kv.as<int32_t>()[c.batch.size()];
  const int64_t q_width = int64_t{m.num_qo_heads} * m.head_dim;
  const int64_t k_width = int64_t{m.num_kv_heads} * m.head_dim;
  const int64_t v_width = int64_t{m.num_kv_heads} * m.head_dim_v;
  const auto buffer = [&](int64_t rows, int64_t stride) {
    Tensor t(c.dtype, {rows + extra, stride});
    if (gap > 0 || extra > 0) fill_nan(t);
    return t;
  };
  const bool packed = c.input.form == InputForm::kPackedQkv && q_rows == kv_rows;
  const int64_t packed_stride = q_width + k_width + v_width + gap;
  if (packed) {
    in.packed = buffer(q_rows, packed_stride);
  } else {
    in.q_split = buffer(q_rows, q_width + gap);
    in.k_split = buffer(kv_rows, k_width + gap);
    in.v_split = buffer(kv_rows, v_width + gap);
  }
  const auto view = [&](const Tensor& split, int64_t offset, int64_t rows, int heads, int dim) {
    const int64_t width = int64_t{heads} * dim;
    return packed ? TensorView{&in.packed, offset, packed_stride, dim, rows, heads, dim}
                  : TensorView{&split, 0, width + gap, dim, rows, heads, dim};
  };
  in.q = view(in.q_split, 0, q_rows, m.num_qo_heads, m.head_dim);
  in.k = view(in.k_split, q_width, kv_rows, m.num_kv_heads, m.head_dim);
  in.v = view(in.v_split, q_width + k_width, kv_rows, m.num_kv_heads, m.head_dim_v);
}

Tensor& buffer_of(Inputs& in, const TensorView& view) {
  return view.base == &in.packed    ? in.packed
         : view.base == &in.q_split ? in.q_split
         : view.base == &in.k_split ? in.k_split
                                    : in.v_split;
}

void make_cache_inputs(const Case& c, Inputs& in) {
  const Batch& batch = c.batch;
  in.kv_len_before = Tensor(DType::kInt32, {batch.size()});
  std::transform(batch.kv_len_before.begin(), batch.kv_len_before.end(),
                 in.kv_len_before.as<int32_t>(), [](int64_t n) { return static_cast<int32_t>(n); });
  int64_t positions = 1;
  for (size_t b = 0; b < batch.qo_len.size(); ++b)
    positions = std::max(positions, batch.kv_len_before[b] + batch.qo_len[b]);
  if (c.rope.style != sage::RopeStyle::kNone) in.cos_sin = make_rope_table(c.rope, positions);
  // a batch changed by a property may need more pages than its scenario did
  const bool placed = !c.cache.page_ids.empty() || !c.cache.slots.empty();
  const int64_t pages = placed
                            ? c.cache.num_pages
                            : std::max(c.cache.num_pages, needed_pages(batch, c.cache.page_size));
  PageMap map = make_page_map(c, pages);
  in.page_table = std::move(map.page_table);
  in.slot_mapping = std::move(map.slot_mapping);
  in.cache_shape =
      c.cache.kv_layout == KvLayout::kHnd
          ? std::vector<int64_t>{pages, c.model.num_kv_heads, c.cache.page_size, c.model.head_dim}
          : std::vector<int64_t>{pages, c.cache.page_size, c.model.num_kv_heads, c.model.head_dim};
}

// Everything but the values of q, k and v.
Inputs make_frame(const Case& c) {
  Inputs in;
  in.cu_seqlens_q = cumulative(c.batch.qo_len);
  in.cu_seqlens_kv = cumulative(c.batch.kv_len);
  allocate(c, in);
  if (op_of(c.op).caches) make_cache_inputs(c, in);
  return in;
}

}  // namespace

Inputs::Inputs(Inputs&& other) noexcept {
  *this = std::move(other);
}

Inputs& Inputs::operator=(Inputs&& other) noexcept {
  if (this == &other) return *this;
  for (auto tensor : {&Inputs::packed, &Inputs::q_split, &Inputs::k_split, &Inputs::v_split,
                      &Inputs::cu_seqlens_q, &Inputs::cu_seqlens_kv, &Inputs::kv_len_before,
                      &Inputs::cos_sin, &Inputs::page_table, &Inputs::slot_mapping})
    this->*tensor = std::move(other.*tensor);
  cache_shape = std::move(other.cache_shape);
  for (auto view : {&Inputs::q, &Inputs::k, &Inputs::v}) this->*view = other.*view;
  rebase(*this, other);
  return *this;
}

Inputs Inputs::clone() const {
  Inputs copy;
  for (auto tensor : {&Inputs::packed, &Inputs::q_split, &Inputs::k_split, &Inputs::v_split,
                      &Inputs::cu_seqlens_q, &Inputs::cu_seqlens_kv, &Inputs::kv_len_before,
                      &Inputs::cos_sin, &Inputs::page_table, &Inputs::slot_mapping})
    copy.*tensor = this->*tensor;
  copy.cache_shape = cache_shape;
  for (auto view : {&Inputs::q, &Inputs::k, &Inputs::v}) copy.*view = this->*view;
  rebase(copy, *this);
  return copy;
}

Tensor read_as(const Case& c, const SafetensorsFile& file, const std::string& name) {
  Tensor raw = file.read(name);
  Tensor out = raw.dtype == c.dtype ? std::move(raw) : Tensor(c.dtype, raw.shape);
  const bool convert = !raw.bytes.empty();
  for (int64_t i = 0; i < out.size(); ++i) {
    if (convert) out.set(i, raw.get(i));
    if (!std::isfinite(out.get(i)))
      throw UsageError(c.input.file + ": tensor '" + name + "', element " + std::to_string(i) +
                       ": not a finite " + std::string(name_of(c.dtype)) + " value");
  }
  return out;
}

Inputs make_inputs(const Case& c, uint64_t seed_offset) {
  if (!c.input.file.empty()) {
    const SafetensorsFile file(c.input.file);
    return make_inputs_from(c, read_as(c, file, c.input.file_q), read_as(c, file, c.input.file_k),
                            read_as(c, file, c.input.file_v));
  }
  Inputs in = make_frame(c);
  const uint64_t seed = c.seed + 0x5851f42d4c957f2du * seed_offset;
  fill_generated(make_plan(c, TensorId::kQ, seed), in.cu_seqlens_q, in.q, buffer_of(in, in.q));
  fill_generated(make_plan(c, TensorId::kK, seed), in.cu_seqlens_kv, in.k, buffer_of(in, in.k));
  fill_generated(make_plan(c, TensorId::kV, seed), in.cu_seqlens_kv, in.v, buffer_of(in, in.v));
  return in;
}

Inputs make_inputs_from(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  Inputs in = make_frame(c);
  fill_copied(q, in.q, buffer_of(in, in.q));
  fill_copied(k, in.k, buffer_of(in, in.k));
  fill_copied(v, in.v, buffer_of(in, in.v));
  return in;
}

}  // namespace sagebench
