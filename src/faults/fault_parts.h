// The parts of the table of faults, and what their rows share.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "faults/fault_conditions.h"
#include "faults/faults.h"

namespace sagebench {

std::vector<Fault> rope_faults();
std::vector<Fault> cache_faults();
std::vector<Fault> quantisation_faults();
std::vector<Fault> attention_faults();

inline int64_t batch_of(const FaultContext& f) {
  return f.c.batch.size();
}
inline int32_t* cu_q(FaultContext& f) {
  return f.in.cu_seqlens_q.as<int32_t>();
}
inline int32_t* cu_kv(FaultContext& f) {
  return f.in.cu_seqlens_kv.as<int32_t>();
}

inline void zero(Tensor& t) {
  std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0});
}

// Elements of t as [outer, count, inner]: index `i` of the middle takes what `(i + 1) % count` has.
// Only for tensors that the case has.
inline void rotate_axis(Tensor& t, int64_t outer, int64_t count, int64_t inner) {
  const auto bytes =
      static_cast<std::ptrdiff_t>(inner) * static_cast<std::ptrdiff_t>(size_of(t.dtype));
  for (int64_t o = 0; o < outer; ++o) {
    const auto first = t.bytes.begin() + o * count * bytes;
    std::rotate(first, first + bytes, first + count * bytes);
  }
}

}  // namespace sagebench
