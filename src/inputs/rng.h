// Counter-based random values in fixed point: the same bits on every processor for (seed, tensor,
// index). Integer arithmetic only, up to the last conversion; C++17, usable in device code.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define SAGEBENCH_HOST_DEVICE __host__ __device__
#else
#define SAGEBENCH_HOST_DEVICE
#endif

namespace sagebench {

// Values are integers in units of 2^-16.
constexpr int kFixedBits = 16;
constexpr int64_t kFixedOne = int64_t{1} << kFixedBits;

// A bijection of 64-bit words in which every input bit changes each output bit with probability
// near 1/2: two multiply-xorshift rounds.
SAGEBENCH_HOST_DEVICE constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Stream of a tensor (or of any other use of random numbers) under a seed.
SAGEBENCH_HOST_DEVICE constexpr uint64_t random_stream(uint64_t seed, uint64_t use) {
  return mix64(mix64(seed + 0x632be59bd9b4e019u) + 0xd1342543de82ef95u * (use + 1));
}
// Word `index` of a stream.
SAGEBENCH_HOST_DEVICE constexpr uint64_t random_bits(uint64_t stream, uint64_t index) {
  return mix64(stream + 0x9e3779b97f4a7c15u * (index + 1));
}
// Uniform in [0, n), n <= 2^32.
SAGEBENCH_HOST_DEVICE constexpr uint64_t random_below(uint64_t bits, uint64_t n) {
  return ((bits >> 32) * n) >> 32;
}

SAGEBENCH_HOST_DEVICE constexpr int64_t count_ones(uint32_t x) {
  x -= (x >> 1) & 0x55555555u;
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (x * 0x01010101u) >> 24;
}

// N(0,1), nearly: 32 coin flips and two uniforms that fill the gaps between their sums. Mean 0 and
// variance 1 by construction, kurtosis 2.94, |value| <= 5.95.
SAGEBENCH_HOST_DEVICE constexpr int64_t normal_fixed(uint64_t bits) {
  constexpr int64_t kMean = 17 * kFixedOne - 1;  // twice 32 / 2, plus two means of (2^16 - 1) / 2
  constexpr int64_t kInverseDeviation = 366925;  // 2^20 / sqrt(32 / 4 + 2 / 12)
  const int64_t sum = count_ones(static_cast<uint32_t>(bits)) * kFixedOne +
                      static_cast<int64_t>((bits >> 32) & 0xffffu) +
                      static_cast<int64_t>(bits >> 48);
  return ((sum - kMean) * kInverseDeviation + (int64_t{1} << 19)) >> 20;
}

// Uniform in [low, high), both in fixed point, at most 2^31 apart.
SAGEBENCH_HOST_DEVICE constexpr int64_t uniform_fixed(uint64_t bits, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random_below(bits, static_cast<uint64_t>(high - low)));
}

// Natural logarithm of n >= 1 in fixed point, within 2^-15.
SAGEBENCH_HOST_DEVICE constexpr int64_t ln_fixed(uint64_t n) {
  int64_t exponent = 0;
  while ((n >> exponent) > 1) ++exponent;
  // mantissa in [1, 2) with 31 fraction bits; each squaring yields one more bit of the logarithm
  uint64_t mantissa = exponent <= 31 ? n << (31 - exponent) : n >> (exponent - 31);
  int64_t log2 = exponent;
  for (int bit = 0; bit < kFixedBits; ++bit) {
    mantissa = (mantissa * mantissa) >> 31;
    const bool carry = mantissa >> 32;
    log2 = 2 * log2 + carry;
    if (carry) mantissa >>= 1;
  }
  constexpr int64_t kLn2 = 2977044472;  // 2^32 ln 2
  return static_cast<int64_t>((log2 * kLn2) >> 32);
}

}  // namespace sagebench
