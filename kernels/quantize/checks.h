// Argument checks and host arithmetic of the quantisation launchers. Compiles without CUDA.
#pragma once
#include "sage/quantize.h"

namespace sage {

// Channel statistics: whole chunks of a sequence are reduced by one CTA each; what is left at its
// end by the CTA that finishes the sequence. Sequence b owns partials [cu / chunk, + len / chunk):
// these ranges never overlap, and total_tokens / chunk of them are enough.
inline constexpr int kStatsChunkTokens = 128;
inline constexpr int kStatsPerChannel = 3;  // sum, min, max

constexpr bool needs_stats_partials(const ChannelStatsParams& p) {
  return p.smooth == Smooth::kMean || p.scale != nullptr;
}

Status check(const ChannelStatsParams& params);
Status check(const QuantizeInt8Params& params);
Status check(const QuantizeVParams& params);

// 16-byte loads; otherwise the kernels load element by element.
bool loads_in_vectors(const PackedTensor& x);

}  // namespace sage
