// Argument checks and host arithmetic of the RoPE + cache write launcher. Compiles without CUDA.
#pragma once
#include "sage/kv_cache.h"

namespace sage {

Status check(const RopeKvCacheWriteParams& params);

// Elements moved in one access, 8, 4, 2 or 1: the most that pointers, strides and dims allow.
int vector_width(const RopeKvCacheWriteParams& params);

}  // namespace sage
