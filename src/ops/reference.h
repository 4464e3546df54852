// The two references of each op, computed from the inputs alone: `exact` (double precision, no
// quantisation) and `emulated` (the kernel's declared quantisation, plain and scalar). Eigen lives
// only in the .cpp files behind this header.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "ops/op.h"
#include "ops/stages.h"
#include "scenario/case.h"

namespace sagebench {

// ---- query rows --------------------------------------------------------------------------------
struct QueryRow {
  int32_t sequence, head;
  int64_t token;  // within the sequence
};
struct RowSample {
  std::vector<QueryRow> rows;  // sorted by (sequence, head, token)
  int64_t total = 0;           // of the case
  bool complete() const { return static_cast<int64_t>(rows.size()) == total; }
};
// auto: all rows when that takes under about a second of one core; else a stratified sample per
// (sequence, head): first, last, tile edges +-1, page edges +-1, seeded random rows, each stratum
// capped so that the whole stays within the time.
RowSample sample_rows(const Case& c, const sage::AttentionLayout& layout);

// Attention on chosen rows. o: [rows, head_dim_v], lse: [rows].
struct AttentionRows {
  std::vector<double> o, lse;
};

// ---- attention ---------------------------------------------------------------------------------
// q, k, v as [tokens, heads, dim]; after RoPE for prefill.
struct AttentionOperands {
  TensorView q, k, v;
  const Tensor* cu_seqlens_q = nullptr;
  const Tensor* cu_seqlens_kv = nullptr;
};

// What to quantise on the way to an otherwise exact result: the itemised price.
enum class Price { kNothing, kQk, kP, kV };
AttentionRows exact_attention(const Case& c, const AttentionOperands& x, const RowSample& rows);
// Exact but for one stage, taken from the emulated codes (kQk, kV) or the emulated rounding of P.
AttentionRows priced_attention(const Case& c, const AttentionOperands& x, const StageOutputs& codes,
                               const Kernel& kernel, const RowSample& rows, Price price);

// Codes, scales and offsets. Fills k_offset .. lse_dot of the result.
void emulate_quantisation(const Case& c, const AttentionOperands& x, const Kernel& kernel,
                          StageOutputs& out);
// O and LSE from codes and scales (anyone's: the emulated ones, or those a kernel produced).
AttentionRows emulate_attention(const Case& c, const StageOutputs& codes,
                                const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                                const Kernel& kernel, const RowSample& rows);

// ---- RoPE and cache ----------------------------------------------------------------------------
struct RopeReference {
  // double-precision rotation on the same table bytes, unrounded
  std::vector<double> q, k;  // [total, heads, D]
};
RopeReference exact_rope(const Case& c, const Inputs& in);
// Rounded once to the dtype: the emulated subject.
void emulate_rope(const Case& c, const Inputs& in, StageOutputs& out);
// Scatter of k (rotated) and v into caches that hold `poison` everywhere else.
void emulate_cache_write(const Case& c, const Inputs& in, unsigned char poison, StageOutputs& out);

}  // namespace sagebench
