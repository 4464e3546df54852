// The Hopper attention kernel: wgmma INT8 Q K^T and e4m3 P V, TMA loads.
#pragma once
#include "sage/attention.h"

namespace sage {

const char* supports_sage_sm90(const AttentionProblem& problem, const SageSettings& settings);
AttentionLayout sage_sm90_layout(const AttentionProblem& problem, const SageSettings& settings);
size_t sage_sm90_workspace_bytes(const AttentionParams& params);
// Everything the public headers ask of the parameters, on the host alone.
Status check_sage_sm90(const AttentionParams& params);
Status launch_sage_sm90(const AttentionParams& params, Stream stream);

// The row of the table of kernels. Defaults: exp2, because linear codes, 1.3 times as fast, miss
// two bounds by 3 % (N(0, 1) with K bias 2 at 64k keys: relative L1 0.0454 of 0.044; real
// activations: a worst row of 0.0909 of 0.0885). No V offset, because promotion every 256 keys
// keeps V bias 10 within 0.3 % at any length without it, while an offset moves 16-bit inputs off
// e4m3's symmetric grid (relative L1 0.064 instead of 0.043 at 128k keys of N(0, 1)).
AttentionKernel sage_sm90_row();

}  // namespace sage
