// prefill: packed qkv -> RoPE -> paged KV-cache write -> quantise -> varlen attention over the
// call's own tokens.
#include <algorithm>

#include "ops/op_parts.h"

namespace sagebench {

std::vector<Kernel> prefill_kernels(const Case& c) {
  std::vector<Kernel> kernels = attention_kernels_of(c);
  const auto& before = c.batch.kv_len_before;
  if (std::any_of(before.begin(), before.end(), [](int64_t n) { return n > 0; }))
    for (Kernel& k : kernels)
      if (k.unsupported.empty())
        k.unsupported =
            "prefill with kv_len_before > 0: attention over cached pages is not available";
  return kernels;
}

Work prefill_work(const Case& c, const Kernel& kernel) {
  const Work write = cache_write_work(c, kernel);
  Work w = attention_work(c, kernel);
  const double q_row = static_cast<double>(c.model.num_qo_heads) * c.model.head_dim_v;
  double tokens = 0;
  for (const int64_t n : c.batch.qo_len) tokens += static_cast<double>(n);
  // At the op's boundary: qkv in, cache and rotated q and k written once, o out.
  w.bytes = write.bytes + tokens * q_row * static_cast<double>(size_of(c.dtype));
  w.flops += write.flops;
  w.reference_flops += write.reference_flops;
  w.device_bytes += write.device_bytes;
  return w;
}

}  // namespace sagebench
