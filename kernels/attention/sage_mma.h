// Portable attention kernels on mma.sync: INT8 Q K^T, and P V in FP8 or FP16.
#pragma once
#include "sage/attention.h"

namespace sage {

inline constexpr int kSageMmaTileQ = 128;
inline constexpr int kSageMmaTileK = 64;

// Why not, or nullptr. settings.pv says which of the two is asked for.
const char* supports_sage_mma(PvType pv, const AttentionProblem& problem,
                              const SageSettings& settings);
// The layout both kernels read, for a supported problem.
AttentionLayout sage_mma_layout(PvType pv, const AttentionProblem& problem,
                                const SageSettings& settings);
// Everything the public headers ask of the parameters, on the host alone.
Status check_sage_mma(PvType pv, const AttentionParams& params);

Status launch_sage_mma_fp8(const AttentionParams& params, Stream stream);
Status launch_sage_mma_fp16(const AttentionParams& params, Stream stream);

}  // namespace sage
