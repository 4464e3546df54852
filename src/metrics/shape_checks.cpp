#include "metrics/stage_checks.h"

namespace sagebench {
namespace {

using Shape = std::vector<int64_t>;

// One tensor that an op must leave.
struct Expected {
  Stage stage;
  const char* name;
  Tensor StageOutputs::*tensor;
  DType dtype;
  Shape shape;
};

std::string text_of(DType dtype, const Shape& shape) {
  std::string s = std::string(name_of(dtype)) + " [";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

Shape value_cache_shape(const Case& c, const Inputs& in) {
  Shape shape = in.cache_shape;
  shape.back() = c.model.head_dim_v;
  return shape;
}

std::vector<Expected> expected_of(const Case& c, const Inputs& in, const Kernel& kernel) {
  const Model& m = c.model;
  const int64_t batch = c.batch.size();
  const int64_t total_q = in.cu_seqlens_q.as<int32_t>()[batch];
  std::vector<Expected> list;
  if (op_of(c.op).caches) {
    list = {{Stage::kRope,
             "q_rope",
             &StageOutputs::q_rope,
             c.dtype,
             {total_q, m.num_qo_heads, m.head_dim}},
            {Stage::kRope,
             "k_rope",
             &StageOutputs::k_rope,
             c.dtype,
             {total_q, m.num_kv_heads, m.head_dim}},
            {Stage::kCache, "key_cache", &StageOutputs::key_cache, c.dtype, in.cache_shape},
            {Stage::kCache, "value_cache", &StageOutputs::value_cache, c.dtype,
             value_cache_shape(c, in)}};
  }
  if (!op_of(c.op).attends) return list;

  const sage::AttentionLayout& layout = kernel.layout;
  const int64_t total_kv = in.cu_seqlens_kv.as<int32_t>()[batch];
  const bool smooth_k = kernel.settings.smooth_k != sage::Smooth::kNone;
  const auto add = [&](Stage stage, const char* name, Tensor StageOutputs::*tensor, DType dtype,
                       Shape shape) {
    list.push_back({stage, name, tensor, dtype, shape});
  };
  if (smooth_k)
    add(Stage::kOffset, "k_offset", &StageOutputs::k_offset, DType::kFp32,
        {batch, m.num_kv_heads, layout.head_dim});
  if (kernel.settings.smooth_v != sage::Smooth::kNone)
    add(Stage::kOffset, "v_offset", &StageOutputs::v_offset, DType::kFp32,
        {batch, m.num_kv_heads, layout.head_dim_v});
  add(Stage::kQkCodes, "q_codes", &StageOutputs::q_codes, DType::kInt8,
      {total_q, m.num_qo_heads, layout.head_dim});
  add(Stage::kQkCodes, "q_scales", &StageOutputs::q_scales, DType::kFp32,
      {m.num_qo_heads, sage::scale_rows(layout.q_groups, total_q, batch)});
  add(Stage::kQkCodes, "k_codes", &StageOutputs::k_codes, DType::kInt8,
      {total_kv, m.num_kv_heads, layout.head_dim});
  add(Stage::kQkCodes, "k_scales", &StageOutputs::k_scales, DType::kFp32,
      {m.num_kv_heads, sage::scale_rows(layout.k_groups, total_kv, batch)});
  add(Stage::kVCodes, "v_codes", &StageOutputs::v_codes,
      layout.pv == sage::PvType::kFp8E4m3 ? DType::kFp8E4m3 : DType::kFp16,
      {total_kv, m.num_kv_heads, layout.head_dim_v});
  if (kernel.settings.correct_v)
    add(Stage::kVCodes, "o_offset", &StageOutputs::o_offset, DType::kFp32,
        {batch, m.num_kv_heads, layout.head_dim_v});
  add(Stage::kVCodes, "v_scales", &StageOutputs::v_scales, DType::kFp32,
      {batch, m.num_kv_heads, layout.head_dim_v});
  add(Stage::kO, "o", &StageOutputs::o, c.dtype, {total_q, m.num_qo_heads, m.head_dim_v});
  if (!c.return_lse) return list;
  if (smooth_k)
    add(Stage::kLse, "lse_dot", &StageOutputs::lse_dot, DType::kFp32, {m.num_qo_heads, total_q});
  add(Stage::kLse, "lse", &StageOutputs::lse, DType::kFp32, {m.num_qo_heads, total_q});
  return list;
}

}  // namespace

bool check_shapes(const Case& c, const Inputs& in, const Kernel& kernel, const StageOutputs& out,
                  std::vector<StageCheck>& checks) {
  bool all = true;
  for (const Expected& e : expected_of(c, in, kernel)) {
    const Tensor& t = out.*e.tensor;
    const size_t bytes = static_cast<size_t>(t.size()) * size_of(t.dtype);
    if (t.dtype == e.dtype && t.shape == e.shape && t.bytes.size() == bytes) continue;
    all = false;
    StageCheck check;
    check.stage = e.stage;
    check.rule = std::string("shape and dtype of ") + e.name;
    check.checked = check.wrong = 1;
    check.detail = "expected " + text_of(e.dtype, e.shape) + ", found " +
                   (t.empty() ? "nothing" : text_of(t.dtype, t.shape));
    checks.push_back(check);
  }
  return all;
}

}  // namespace sagebench
