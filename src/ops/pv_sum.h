// One row of P V, summed as the tensor cores sum it.
#pragma once
#include <cstdint>

namespace sagebench {

// acc[d] += sum_j p[j] v[j][d], keys in increasing order, each sum in fp32.
void accumulate_fp32(const float* p, const float* v, int64_t keys, int64_t dim, float* acc);

// The same through an adder of `bits` fraction bits, at most kMaxAdderBits: in each step of 32 keys
// the products and the accumulator are aligned to the largest exponent, truncated toward zero and
// added. Products of P and V must be exact in fp32, as those of e4m3 are.
inline constexpr int kMaxAdderBits = 24;
void accumulate_truncated(const float* p, const float* v, int64_t keys, int64_t dim, int bits,
                          float* acc);

}  // namespace sagebench
