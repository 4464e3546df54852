// Channel offsets of K and V, and q . k_offset of the LSE: sums that kernels accumulate in fp32.
#include <algorithm>

#include "metrics/cache_map.h"
#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

struct Mean {
  std::vector<double> value, magnitude;
  int64_t count = 0;
};

Mean mean_of(const TensorView& x, int64_t first, int64_t length, int head, sage::Smooth smooth) {
  const auto dim = static_cast<size_t>(x.dim);
  Mean mean{std::vector<double>(dim), std::vector<double>(dim), length};
  if (smooth == sage::Smooth::kSampled)
    mean.count = std::min<int64_t>(length, sage::kOffsetSamples);
  std::vector<float> row(dim);
  for (int64_t i = 0; i < mean.count; ++i) {
    x.read_row(first + i * length / mean.count, head, row.data());
    for (size_t d = 0; d < dim; ++d) {
      mean.value[d] += row[d];
      mean.magnitude[d] += std::fabs(row[d]);
    }
  }
  for (size_t d = 0; d < dim; ++d) {
    mean.value[d] /= static_cast<double>(mean.count);
    mean.magnitude[d] /= static_cast<double>(mean.count);
  }
  return mean;
}

void check_offset(const TensorView& x, const int32_t* cu, const Tensor& offset, sage::Smooth smooth,
                  const std::string& name, std::vector<StageCheck>& checks) {
  if (offset.empty()) return;
  const int64_t batch = offset.shape[0], padded = offset.shape[2];
  const float* actual = offset.as<float>();
  auto [tally] = tally_over<1>(batch * x.heads, [&](int64_t i, auto& tallies) {
    const int64_t b = i / x.heads;
    const auto head = static_cast<int>(i % x.heads);
    const int64_t length = cu[b + 1] - cu[b];
    if (length == 0) return;  // nobody reads the offset of an empty sequence
    const bool removed = smooth != sage::Smooth::kNone;
    const Mean mean = removed ? mean_of(x, cu[b], length, head, smooth) : Mean{};
    for (int64_t d = 0; d < padded; ++d) {
      const bool live = removed && d < x.dim;
      const double expected = live ? mean.value[static_cast<size_t>(d)] : 0;
      const double found = actual[i * padded + d];
      tallies[0].add(
          error_of_sum(expected, found),
          live && std::isfinite(expected)
              ? mean_limit(static_cast<double>(mean.count), mean.magnitude[static_cast<size_t>(d)])
              : 0,
          expected, found, {b, head, -1, d});
    }
  });
  const char* what = smooth == sage::Smooth::kNone   ? ": zero, nothing is removed"
                     : smooth == sage::Smooth::kMean ? ": mean of the sequence's tokens"
                                                     : ": mean of the sampled tokens";
  if (tally.checked) checks.push_back(finish(Stage::kOffset, name + what, tally));
}

}  // namespace

void check_offsets(const AttentionOperands& x, const Kernel& kernel, const StageOutputs& out,
                   std::vector<StageCheck>& checks) {
  const int32_t* cu = x.cu_seqlens_kv->as<int32_t>();
  check_offset(x.k, cu, out.k_offset, kernel.settings.smooth_k, "k_offset", checks);
  check_offset(x.v, cu, out.v_offset, kernel.settings.smooth_v, "v_offset", checks);
}

void check_lse_dot(const AttentionOperands& x, const StageOutputs& out,
                   std::vector<StageCheck>& checks) {
  if (out.lse_dot.empty() || out.k_offset.empty()) return;
  const std::vector<TokenOwner> owners = token_owners(*x.cu_seqlens_q);
  const auto tokens = static_cast<int64_t>(owners.size());
  const int64_t padded = out.k_offset.shape[2], kv_heads = out.k_offset.shape[1];
  const int32_t* cu_kv = x.cu_seqlens_kv->as<int32_t>();
  auto [tally] = tally_over<1>(tokens, [&](int64_t token, auto& tallies) {
    const TokenOwner owner = owners[static_cast<size_t>(token)];
    if (cu_kv[owner.sequence + 1] == cu_kv[owner.sequence]) return;  // no keys: not read
    std::vector<float> q(static_cast<size_t>(x.q.dim));
    for (int head = 0; head < x.q.heads; ++head) {
      x.q.read_row(token, head, q.data());
      const int64_t kv_head = head / (x.q.heads / kv_heads);
      const float* offset =
          out.k_offset.as<float>() + (owner.sequence * kv_heads + kv_head) * padded;
      double dot = 0, magnitude = 0;
      for (size_t d = 0; d < q.size(); ++d) {
        const double term = static_cast<double>(q[d]) * offset[d];
        dot += term;
        magnitude += std::fabs(term);
      }
      const double actual = out.lse_dot.as<float>()[head * tokens + token];
      // any order of an fp32 dot product of head_dim terms
      const double limit = kFp32Unit * (x.q.dim + 2) * magnitude;
      tallies[0].add(error_of_sum(dot, actual), std::isfinite(limit) ? limit : 0, dot, actual,
                     {owner.sequence, head, owner.token, -1});
    }
  });
  if (tally.checked)
    checks.push_back(finish(Stage::kLse, "q . k_offset, from the subject's own offset", tally));
}

}  // namespace sagebench
