// The checks of each stage, in pipeline order; each appends to `checks`. All read the subject's own
// upstream outputs, so that the first failure names the stage that went wrong.
#pragma once
#include <vector>

#include "metrics.h"

namespace sagebench {

// Tensors that the op must leave, with their dtypes and shapes: only failures are appended.
// Nothing else may be looked at unless this says true.
bool check_shapes(const Case& c, const Inputs& in, const Kernel& kernel, const StageOutputs& out,
                  std::vector<StageCheck>& checks);

void check_rope(const Case& c, const Inputs& in, const StageOutputs& out,
                std::vector<StageCheck>& checks);
void check_cache(const Case& c, const Inputs& in, const StageOutputs& out, unsigned char poison,
                 std::vector<StageCheck>& checks);

// x: the attention's operands as the subject had them (after its own RoPE).
void check_offsets(const AttentionOperands& x, const Kernel& kernel, const StageOutputs& out,
                   std::vector<StageCheck>& checks);
void check_qk_codes(const AttentionOperands& x, const Kernel& kernel, const StageOutputs& out,
                    std::vector<StageCheck>& checks);
void check_v_codes(const AttentionOperands& x, const Kernel& kernel, const StageOutputs& out,
                   std::vector<StageCheck>& checks);
void check_lse_dot(const AttentionOperands& x, const StageOutputs& out,
                   std::vector<StageCheck>& checks);

// Every row of O was written, and is finite where the inputs are: all rows, not just the sample.
void check_o_written(const Case& c, const AttentionOperands& x, const StageOutputs& out,
                     const RowSample& rows, unsigned char poison, std::vector<StageCheck>& checks);
// Against the emulation of the subject's own codes and scales.
void check_o(const Case& c, const Kernel& kernel, const StageOutputs& out, const RowSample& rows,
             const AttentionRows& actual, const AttentionRows& expected,
             std::vector<StageCheck>& checks);
void check_lse(const Case& c, const Kernel& kernel, const StageOutputs& out,
               const Tensor& cu_seqlens_q, const RowSample& rows, const AttentionRows& actual,
               const AttentionRows& expected, std::vector<StageCheck>& checks);
// The case's limits on the result against the exact one.
void check_limits(const Case& c, const RowSample& rows, const AttentionRows& actual,
                  const AttentionRows& exact, const Accuracy& accuracy,
                  std::vector<StageCheck>& checks);

// The operands of a case's attention: q and k after RoPE where the op has it.
AttentionOperands operands_of(const Case& c, const Inputs& in, const StageOutputs& rotated);

}  // namespace sagebench
