#include "inputs/fill.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/parallel.h"
#include "inputs/encode.h"

namespace sagebench {
namespace {

constexpr int64_t kTokens = 64;  // per work item

// Calls fn(token) for every token, in parallel.
template <class Fn>
void for_each_token(int64_t tokens, const Fn& fn) {
  parallel_for((tokens + kTokens - 1) / kTokens, [&](int64_t chunk) {
    const int64_t end = std::min(tokens, (chunk + 1) * kTokens);
    for (int64_t token = chunk * kTokens; token < end; ++token) fn(token);
  });
}

template <uint16_t (*kEncode)(float)>
void write_row(const DistributionPlan& plan, const Row& row, uint16_t* out) {
  for (int c = 0; c < plan.dim; ++c) out[c] = kEncode(float_of_fixed(fixed_value(plan, row, c)));
}

}  // namespace

void fill_generated(const DistributionPlan& plan, const Tensor& cu_seqlens, const TensorView& view,
                    Tensor& buffer) {
  const auto* cu = cu_seqlens.as<int32_t>();
  const int64_t batch = cu_seqlens.size() - 1;
  const auto write = buffer.dtype == DType::kFp16 ? write_row<encode_fp16> : write_row<encode_bf16>;
  for_each_token(view.tokens, [&](int64_t token) {
    // the last sequence that starts at or before the token: empty ones before it are passed over
    const int64_t b = std::upper_bound(cu, cu + batch + 1, token) - cu - 1;
    for (int h = 0; h < view.heads; ++h)
      write(plan, make_row(plan, {token, b, token - cu[b], cu[b + 1] - cu[b], h}),
            buffer.as<uint16_t>() + view.index(token, h, 0));
  });
}

void fill_copied(const Tensor& dense, const TensorView& view, Tensor& buffer) {
  const std::vector<int64_t> shape{view.tokens, view.heads, view.dim};
  if (dense.dtype != buffer.dtype || dense.shape != shape)
    throw std::logic_error("inputs from tensors of another dtype or shape than the case's");
  const auto row_bytes = static_cast<size_t>(view.dim) * sizeof(uint16_t);
  for_each_token(view.tokens, [&](int64_t token) {
    for (int h = 0; h < view.heads; ++h)
      std::memcpy(buffer.as<uint16_t>() + view.index(token, h, 0),
                  dense.as<uint16_t>() + (token * view.heads + h) * view.dim, row_bytes);
  });
}

void fill_nan(Tensor& buffer) {
  const uint16_t nan = buffer.dtype == DType::kFp16 ? 0x7e00 : 0x7fc0;
  std::fill_n(buffer.as<uint16_t>(), buffer.size(), nan);
}

}  // namespace sagebench
