// What properties share: running a changed case, and comparing two runs token by token.
#pragma once
#include <string>
#include <vector>

#include "properties.h"

namespace sagebench {

// The arguments of a property, in the order of Property::check.
struct Baseline {
  Executor& executor;
  const Case& c;
  const Kernel& kernel;
  const Inputs& in;
  const StageOutputs& out;
};

PropertyCheck passed(const char* name, std::string detail = "");
PropertyCheck failed(const char* name, std::string detail);
PropertyCheck skipped(const char* name, std::string reason);
PropertyCheck passed_unless(const char* name, const std::string& difference,
                            std::string detail = "");

// The rows of O to compare bit by bit: all on a GPU; on the CPU, where a row costs time, up to 512
// of the sample that the baseline has.
RowSample rows_to_compare(const Baseline& base);
// The rows of O to measure errors on: never more than the sample, they are held as doubles.
RowSample rows_to_measure(const Baseline& base);

// A case with other inputs or lengths, and what the subject makes of it.
struct Variant {
  Case c;
  Inputs in;
  StageOutputs out;
};
// A batch of other lengths with its own pages: explicit pages and slots belong to the old one.
Case with_batch(const Case& c, const Batch& batch);
Variant run_variant(const Baseline& base, Case c, Inputs in, const RowSample& rows,
                    RunOptions options = {});

// Rows [first, first + count) of x as a dense tensor [count, heads, dim], bit for bit.
Tensor dense(const TensorView& x, int64_t first, int64_t count);
Tensor dense(const TensorView& x);
// Dense tensors one after the other.
Tensor concatenated(const std::vector<Tensor>& parts);

// Token t of sequence `b` is token t + shift of sequence `a`.
struct SequencePair {
  int64_t a, b;
  int64_t shift = 0;
};
struct Side {
  const Case& c;
  const Inputs& in;
  const StageOutputs& out;
};
// The rows of `a` that exist in `b`, in b's coordinates.
RowSample rows_in_b(const RowSample& rows_of_a, const std::vector<SequencePair>& pairs,
                    const Case& b);
// First difference in bits of what both sides have: rotated q and k, cached tokens, O and LSE on
// `rows_of_b`. "": none.
std::string difference(const Side& a, const Side& b, const std::vector<SequencePair>& pairs,
                       const RowSample& rows_of_b);
std::vector<SequencePair> same_sequences(const Case& c);

PropertyCheck check_determinism(Executor& executor, const Case& c, const Kernel& kernel,
                                const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_alone_equals_batch(Executor& executor, const Case& c, const Kernel& kernel,
                                       const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_permute_sequences(Executor& executor, const Case& c, const Kernel& kernel,
                                      const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_graph_replay(Executor& executor, const Case& c, const Kernel& kernel,
                                 const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_slow_producer(Executor& executor, const Case& c, const Kernel& kernel,
                                  const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_page_permutation(Executor& executor, const Case& c, const Kernel& kernel,
                                     const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_chunked_equals_whole(Executor& executor, const Case& c, const Kernel& kernel,
                                         const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_k_shift(Executor& executor, const Case& c, const Kernel& kernel,
                            const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_v_power_of_two(Executor& executor, const Case& c, const Kernel& kernel,
                                   const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_constant_v(Executor& executor, const Case& c, const Kernel& kernel,
                               const Inputs& in, const StageOutputs& baseline);
PropertyCheck check_kv_split_lse(Executor& executor, const Case& c, const Kernel& kernel,
                                 const Inputs& in, const StageOutputs& baseline);

}  // namespace sagebench
