// attention: q, k, v -> quantise -> varlen attention.
#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "ops/op_parts.h"
#include "sage/sage.h"

namespace sagebench {
namespace {

int64_t total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

template <class T>
void choose(T& setting, const std::optional<T>& choice) {
  if (choice) setting = *choice;
}

}  // namespace

sage::AttentionProblem problem_of(const Case& c) {
  sage::AttentionProblem p;
  p.num_qo_heads = c.model.num_qo_heads;
  p.num_kv_heads = c.model.num_kv_heads;
  p.head_dim = c.model.head_dim;
  p.head_dim_v = c.model.head_dim_v;
  p.dtype = c.dtype == DType::kFp16 ? sage::DType::kFp16 : sage::DType::kBf16;
  p.mask = c.mask();
  p.return_lse = c.return_lse;
  return p;
}

std::vector<Kernel> attention_kernels_of(const Case& c) {
  std::vector<Kernel> kernels;
  const sage::AttentionProblem problem = problem_of(c);
  for (const sage::AttentionKernel& row : sage::attention_kernels()) {
    Kernel k;
    k.name = row.name;
    k.attention = &row;
    k.settings = row.defaults;
    choose(k.settings.qk_granularity, c.sage.qk_granularity);
    choose(k.settings.smooth_k, c.sage.smooth_k);
    choose(k.settings.smooth_v, c.sage.smooth_v);
    choose(k.settings.correct_v, c.sage.correct_v);
    choose(k.settings.v_scale, c.sage.v_scale);
    choose(k.settings.rotate, c.sage.rotate);
    choose(k.settings.pv, c.sage.pv);
    choose(k.settings.p, c.sage.p);
    if (const char* reason = row.supports(problem, k.settings))
      k.unsupported = reason;
    else
      k.layout = row.layout(problem, k.settings);
    kernels.push_back(std::move(k));
  }
  return kernels;
}

Work attention_work(const Case& c, const Kernel& kernel) {
  const Model& m = c.model;
  const int64_t q = total(c.batch.qo_len), kv = total(c.batch.kv_len);
  const auto element = static_cast<double>(size_of(c.dtype));
  double pairs = 0;
  for (size_t b = 0; b < c.batch.qo_len.size(); ++b)
    pairs += static_cast<double>(visible_pairs(c.mask(), c.batch.qo_len[b], c.batch.kv_len[b]));

  Work w;
  w.flops = 2.0 * (m.head_dim + m.head_dim_v) * pairs * m.num_qo_heads;
  const double q_io = static_cast<double>(q) * m.num_qo_heads * (m.head_dim + m.head_dim_v);
  const double kv_in = static_cast<double>(kv) * m.num_kv_heads * (m.head_dim + m.head_dim_v);
  w.bytes = (q_io + kv_in) * element;
  if (c.return_lse) w.bytes += 4.0 * static_cast<double>(q) * m.num_qo_heads;
  w.reference_flops = 2 * w.flops;
  w.device_bytes = static_cast<int64_t>(w.bytes);
  if (kernel.attention && kernel.unsupported.empty()) {
    sage::SageAttentionParams p;
    p.kernel = kernel.attention;
    p.settings = kernel.settings;
    const sage::DType dtype = problem_of(c).dtype;
    p.q = {nullptr, dtype, q, m.num_qo_heads, m.head_dim, 0, 0};
    p.k = {nullptr, dtype, kv, m.num_kv_heads, m.head_dim, 0, 0};
    p.v = {nullptr, dtype, kv, m.num_kv_heads, m.head_dim_v, 0, 0};
    p.batch = static_cast<int>(c.batch.size());
    p.mask = c.mask();
    float wants_lse = 0;
    p.lse = c.return_lse ? &wants_lse : nullptr;  // only asked whether there is one
    sage::SageWorkspace workspace;
    const sage::Status status = sage::plan_workspace(p, nullptr, workspace);
    if (!status.ok()) throw Error(ExitCode::kNoVerdict, kernel.name + ": " + status.reason);
    w.device_bytes += static_cast<int64_t>(workspace.bytes);
  }
  return w;
}

}  // namespace sagebench
