// Four codes of P in one register, the first in the lowest byte.
#pragma once
#include <cstdint>

namespace sage::device {

// Integers clamped to [0, 255].
__device__ inline uint32_t pack_saturated_u8(int32_t x0, int32_t x1, int32_t x2, int32_t x3) {
  uint32_t packed;
  asm("{\n.reg .b32 t;\n"
      "cvt.pack.sat.u8.s32.b32 t, %4, %3, 0;\n"
      "cvt.pack.sat.u8.s32.b32 %0, %2, %1, t;\n}\n"
      : "=r"(packed)
      : "r"(x0), "r"(x1), "r"(x2), "r"(x3));
  return packed;
}

// e4m3, round half to even, saturating.
__device__ inline uint32_t pack_e4m3x4(float x0, float x1, float x2, float x3) {
  uint32_t packed;
  asm("{\n.reg .b16 lo, hi;\n"
      "cvt.rn.satfinite.e4m3x2.f32 lo, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3;\n"
      "mov.b32 %0, {lo, hi};\n}\n"
      : "=r"(packed)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return packed;
}

__device__ inline float exp2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace sage::device
