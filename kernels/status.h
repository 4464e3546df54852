// Host side of every launcher: statuses and the alignment test. Compiles without CUDA.
#pragma once
#include <cstdint>

#include "sage/types.h"

namespace sage {

constexpr Status invalid(const char* reason) {
  return {StatusCode::kInvalidArgument, reason};
}
constexpr Status misaligned(const char* reason) {
  return {StatusCode::kMisaligned, reason};
}
constexpr Status unsupported(const char* reason) {
  return {StatusCode::kUnsupported, reason};
}

inline bool is_aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

inline constexpr int64_t kMaxRows = INT32_MAX;   // cu_seqlens are int32
inline constexpr int64_t kMaxGridX = INT32_MAX;  // CTAs along x
inline constexpr int kMaxGridY = 65535;          // CTAs along y: heads

}  // namespace sage
