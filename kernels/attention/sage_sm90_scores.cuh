// From integer scores to codes of P, and the reference they are relative to. AttentionLayout states
// the same rules for an emulation.
#pragma once
#include <cstdint>

#include "attention/sage_sm90_tiles.h"
#include "device/codes.cuh"
#include "device/reduce.cuh"

namespace sage {

// Scores arrive as integers added to kMagic, the bits of a float, so that they are floats without a
// conversion. Linear codes: the result of the multiply-add is a denormal, whose bits are the
// rounded code. Both: `unit` in codes (eighths of an octave) per score; a scale that is NaN or
// infinite makes every score NaN, and P too (the byte 255 or 127).
template <PMode kMode>
struct Scores;

template <>
struct Scores<PMode::kLinear> {
  static constexpr int32_t kMagic = 0x0DC00000;  // 1.5 * 2^-100: one integer step is 2^-123
  static constexpr float kUnit = 1.0f / (1 << 26);
  // Rounded to 22 fraction bits, so that 1.5 * 2^23 * unit is an integer. At least one step: a
  // masked score must stay below every other.
  static __device__ float unit(float q_unit, float k_scale) {
    return device::nan_max(__fmaf_rn(q_unit, k_scale, 3.0f * kUnit) - 3.0f * kUnit,
                           kUnit / (1 << 22));
  }
  static __device__ float constant(float unit, float reference) {
    return __fmaf_rn(-__int_as_float(kMagic), unit, reference * -__int_as_float(8));
  }
  static __device__ float at(int32_t score, float unit, float constant) {
    return __fmaf_rn(__int_as_float(score), unit, constant);
  }
  static __device__ float code(float x) { return x * 0x1p100f * 0x1p49f; }
  static __device__ float shifted(float x, float octaves) {
    return __fadd_rn(x, octaves * __int_as_float(8));
  }
  static __device__ bool above(int32_t x, int code) { return x > code; }
  static __device__ bool below(int32_t x, int code) { return x < code; }
  static __device__ uint32_t pack(int32_t x0, int32_t x1, int32_t x2, int32_t x3) {
    return device::pack_saturated_u8(x0, x1, x2, x3);
  }
};

template <>
struct Scores<PMode::kExp2> {
  static constexpr int32_t kMagic = 0x4B400000;  // 1.5 * 2^23
  static constexpr float kUnit = 0.125f;
  static __device__ float unit(float q_unit, float k_scale) {
    return device::nan_max(__fmul_rn(q_unit, k_scale), 0x1p-60f);
  }
  static __device__ float constant(float unit, float reference) {
    return __fmaf_rn(-__int_as_float(kMagic), unit, -7.0f - reference);
  }
  static __device__ float at(int32_t score, float unit, float constant) {
    return __fmaf_rn(__int_as_float(score), unit, constant);
  }
  static __device__ float code(float x) { return 8.0f * (x + 7.0f); }
  static __device__ float shifted(float x, float octaves) { return x + octaves; }
  static __device__ bool above(int32_t x, int code) {
    return __int_as_float(x) > 0.125f * code - 7.0f;
  }
  static __device__ bool below(int32_t x, int code) {
    return __int_as_float(x) < 0.125f * code - 7.0f;
  }
  static __device__ float exp2(int32_t x) { return device::exp2_approx_ftz(__int_as_float(x)); }
  static __device__ uint32_t pack(int32_t x0, int32_t x1, int32_t x2, int32_t x3) {
    return device::pack_e4m3x4(exp2(x0), exp2(x1), exp2(x2), exp2(x3));
  }
};
constexpr int32_t kMasked = static_cast<int32_t>(0xFF000000u);  // -2^127
constexpr float kUnseen = -1e15f;                               // code of a row without keys

// One query row's reference R, in octaves: P = 2^(score - R - 7).
struct Reference {
  float now;
  float highest;

  // Lands `lead`, the row's largest code at R = 0, at or just below kReferenceTop.
  __device__ void start(float lead) {
    now = highest = lead > kUnseen ? ceilf((lead - kReferenceTop) * 0.125f) : 0.0f;
  }
  // The same if the row's largest code is out of range. Returns the octaves to add to codes and
  // sums made before.
  __device__ float move(float lead) {
    const float before = now;
    if (lead > kUnseen && (lead > kMaxCode || lead < kReferenceLow)) {
      now = fmaxf(now + ceilf((lead - kReferenceTop) * 0.125f), highest - kReferenceSpan);
      highest = fmaxf(highest, now);
    }
    return before - now;
  }
};
__device__ inline float two_to(float octaves) {
  return exp2f(fminf(fmaxf(octaves, -126.0f), 126.0f));
}

}  // namespace sage
