// Matrix products of one warp: d[16 x 8] += a[16 x k] b[k x 8]. With g = lane / 4, t = lane % 4:
//   d: [0], [1] at row g, columns 2t, 2t + 1; [2], [3] the same at row g + 8
//   a: [0] row g, [1] row g + 8, in the first half of k; [2], [3] the same in the second half
//   b: [0] column g in the first half of k, [1] in the second half
// Each register of a and b holds 4 bytes of consecutive k, from the half's byte 4t on.
#pragma once
#include <cstdint>

namespace sage::device {

// int8, k = 32
__device__ inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// fp16, k = 16
__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two e4m3 bytes as two fp16 values, exact. sm_89 and up
__device__ inline uint32_t unpack_e4m3x2(uint32_t bytes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;\n" : "=r"(halves) : "h"(static_cast<uint16_t>(bytes)));
  return halves;
}

// e4m3, k = 32. sm_89 and up. Hopper has no such instruction on registers: there the compiler makes
// fp16 products of it, each summed from zero and added in fp32. Chained here, they need no
// addition.
__device__ inline void mma_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ == 900
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t b = half == 0 ? b0 : b1;
    const uint32_t wide[4] = {unpack_e4m3x2(a[2 * half]), unpack_e4m3x2(a[2 * half + 1]),
                              unpack_e4m3x2(a[2 * half] >> 16),
                              unpack_e4m3x2(a[2 * half + 1] >> 16)};
    mma_f16(d, wide, unpack_e4m3x2(b), unpack_e4m3x2(b >> 16));
  }
#else
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace sage::device
