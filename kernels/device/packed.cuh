// Finding the sequence of a block or row of a packed tensor on the device: no lengths on the host,
// no prefix sums.
#pragma once
#include <cstdint>

namespace sage::device {

// The last i in [0, count) with key(i) <= target, for keys that never fall; 0 if there is none.
// A 32-way search: every lane of the warp calls and gets the result.
template <class Key>
__device__ __forceinline__ int last_at_most(int count, int64_t target, Key key) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int first = 0;
  while (count > 1) {
    const int step = (count - 1) / 32 + 1;
    const int probe = lane * step;
    const bool hit = probe < count && key(first + probe) <= target;
    const int skipped = max(__popc(__ballot_sync(~0u, hit)) - 1, 0) * step;
    first += skipped;
    count = min(step, count - skipped);
  }
  return first;
}

// Tokens of one sequence that one CTA works on.
struct TokenBlock {
  int sequence;
  int64_t row;    // packed row of the first token
  int64_t token;  // its place in the sequence
  int64_t index;  // first_block(sequence) + token / block
  int tokens;     // <= 0: nobody owns this block
};

// Block `index` of first_block() numbering (sage/layout.h; here in 32-bit division).
__device__ __forceinline__ TokenBlock find_block(const int32_t* cu_seqlens, int batch, int block,
                                                 int64_t index) {
  const auto first_block = [&](int b) { return int64_t{cu_seqlens[b] / block} + b; };
  const int b = last_at_most(batch, index, first_block);
  const int64_t token = (index - first_block(b)) * block;
  const int64_t start = cu_seqlens[b];
  const int64_t left = token < 0 ? 0 : cu_seqlens[b + 1] - start - token;
  return {b, start + token, token, index, static_cast<int>(left < block ? left : block)};
}

}  // namespace sage::device
