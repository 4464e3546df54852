// Error metrics and stage checks: numbers about outputs, each with the coordinate of its worst
// place. Judges single cases against their own limits; policy over cases is verdict.h's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "ops/op.h"
#include "ops/reference.h"
#include "ops/stages.h"
#include "scenario/case.h"

namespace sagebench {

struct Coordinate {  // -1: does not apply
  int64_t sequence = -1, head = -1, token = -1, channel = -1;
};
std::string to_string(const Coordinate& at);  // "sequence 1, head 3, token 77, channel 12"

// One stage against its rule. Shapes, then NaN/Inf positions, then !(error <= limit).
struct StageCheck {
  Stage stage;
  std::string rule;  // what was compared, e.g. "codes recomputed from the kernel's scales"
  bool passed = false;
  int64_t checked = 0, wrong = 0;
  double worst = 0, limit = 0;             // in the rule's own unit
  Coordinate at;                           // of the worst element
  std::optional<double> expected, actual;  // there; nullopt where not finite
  std::string detail;                      // one line for the reader when it failed
  bool is_limit = false;  // on the price of the algorithm, against exact; not a rule on the kernel
};

struct ErrorValues {
  double cosine = 1, rel_l1 = 0, rmse = 0, norm_ratio = 1, max_error_rms = 0;
};
struct WorstSlice {
  std::string
      kind;  // "sequence", "head", "sequence_head", "tail_tile", "last_token", "v_channel", "row"
  Coordinate at;
  ErrorValues values;  // of the slice with the largest rel_l1
};
struct ErrorReport {
  ErrorValues all;
  double worst_cosine = 1;  // over (sequence, head)
  Coordinate worst_cosine_at;
  std::vector<WorstSlice> worst;
  int64_t nan_count = 0, inf_count = 0;
  Coordinate first_nonfinite;
  double lse_max_error = 0;  // absolute; 0 when there is no LSE
};

struct Accuracy {
  int64_t rows_checked = 0, rows_total = 0;
  ErrorReport kernel_vs_exact, kernel_vs_emulated, emulated_vs_exact;
  std::optional<double> price_qk, price_p, price_v;  // rel_l1 of exact but for that stage
};

// A property or a hygiene rule: passed or why not.
struct PropertyCheck {
  std::string name;
  bool passed = false;
  bool skipped = false;  // with the reason in detail; never counts as passed
  std::string detail;
};

// tile_q: rows of a kernel's query tile, for the slice "tail_tile".
ErrorReport measure_error(const Case& c, const RowSample& rows, const AttentionRows& actual,
                          const AttentionRows& reference, int tile_q = 128);

// The rows of a subject's O and LSE that `rows` names.
AttentionRows gather_rows(const Case& c, const Tensor& cu_seqlens_q, const StageOutputs& out,
                          const RowSample& rows);

struct Validation {
  std::vector<StageCheck> checks;  // pipeline order
  std::optional<Accuracy> accuracy;
};
// All stage checks of an op, and the accuracy of its attention, from the subject's outputs.
// poison: the byte that filled the caches and outputs before the run.
Validation validate(const Case& c, const Inputs& in, const Kernel& kernel,
                    const StageOutputs& subject, unsigned char poison, const RowSample& rows,
                    bool itemise_price);

}  // namespace sagebench
