// The Hopper attention kernel: wgmma INT8 Q K^T and e4m3 P V, TMA loads.
#pragma once
#include "sage/attention.h"

namespace sage {

AttentionLayout sage_sm90_layout(const AttentionProblem& problem, const SageSettings& settings);
const char* supports_sage_sm90(const AttentionProblem& problem, const SageSettings& settings);
size_t sage_sm90_workspace_bytes(const AttentionParams& params);
Status check_sage_sm90(const AttentionParams& params);
Status launch_sage_sm90(const AttentionParams& params, Stream stream);

}  // namespace sage
