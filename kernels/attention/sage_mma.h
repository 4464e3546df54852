// Portable attention kernels on mma.sync: INT8 Q K^T, and P V in FP8 or FP16. Host side: what they
// support, the layout they read, the arguments they accept. Compiles without CUDA.
#pragma once
#include "sage/attention.h"

namespace sage {

inline constexpr int kSageMmaTileQ = 128;
inline constexpr int kSageMmaTileK = 64;
inline constexpr int kSageMmaWarpRows = 32;  // query rows of one warp
// The row maximum's P: the largest e4m3, and the largest power of two in fp16.
inline constexpr float kSageMmaPOffsetFp8 = 8.807354922f;  // log2(448)
inline constexpr float kSageMmaPOffsetFp16 = 15.0f;

// The least compute capability: FP8 conversions, or asynchronous copies.
inline constexpr int kSageMmaLeastFp8 = 89;
inline constexpr int kSageMmaLeastFp16 = 80;

const char* sage_mma_supports(PvType pv, const AttentionProblem& problem,
                              const SageSettings& settings);
AttentionLayout sage_mma_layout(PvType pv, const AttentionProblem& problem,
                                const SageSettings& settings);
Status check_sage_mma(PvType pv, const AttentionParams& params);
Status launch_sage_mma_fp8(const AttentionParams& params, Stream stream);
Status launch_sage_mma_fp16(const AttentionParams& params, Stream stream);

}  // namespace sage
