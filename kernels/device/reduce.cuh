// Reductions in a fixed order: the same bits whatever else is in the batch.
#pragma once

namespace sage::device {

// NaN wins, unlike fmaxf and fminf: a NaN input must show in the result.
__device__ __forceinline__ float nan_max(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float nan_min(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// Over kLanes neighbouring lanes, a power of two; every lane of the warp calls and gets the result.
template <int kLanes>
__device__ __forceinline__ float lanes_max(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) {
    x = nan_max(x, __shfl_xor_sync(~0u, x, lane));
  }
  return x;
}
template <int kLanes>
__device__ __forceinline__ float lanes_sum(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}

}  // namespace sage::device
