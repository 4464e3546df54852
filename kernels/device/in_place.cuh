// Arithmetic that stays where it is written.
#pragma once

namespace sage::device {

// The compiler would move these below the products that overwrite their operands, and then copy all
// accumulators: volatile statements on the same registers stay where they are.
__device__ inline void clear_in_place(float& x) {
  asm volatile("mov.f32 %0, 0f00000000;\n" : "=f"(x));
}
__device__ inline void add_in_place(float& x, float y) {
  asm volatile("add.f32 %0, %0, %1;\n" : "+f"(x) : "f"(y));
}
__device__ inline void scale_in_place(float& x, float y) {
  asm volatile("mul.f32 %0, %0, %1;\n" : "+f"(x) : "f"(y));
}
// x = (x + y * take) * factor
__device__ inline void take_in_place(float& x, float y, float take, float factor) {
  asm volatile("fma.rn.f32 %0, %1, %2, %0;\nmul.f32 %0, %0, %3;\n"
               : "+f"(x)
               : "f"(y), "f"(take), "f"(factor));
}

}  // namespace sage::device
