// Properties of how a batch is laid out and launched: the bits do not depend on it.
#include <algorithm>
#include <numeric>

#include "metrics/cache_map.h"
#include "properties/properties_parts.h"

namespace sagebench {
namespace {

constexpr size_t kAloneSequences = 8;

// Why there is nothing to compare; "": there is.
std::string nothing_in(const Baseline& base, const RowSample& rows) {
  if (op_of(base.c.op).attends) return rows.rows.empty() ? "no row was computed" : "";
  return base.in.q.tokens == 0 ? "the batch has no token" : "";
}
std::string nothing_cached_in(const Baseline& base) {
  return caches_nothing(base.c, base.in) ? "no token is written to the cache" : "";
}

// The sequences of `c` in the order of `order`, with their inputs.
Variant run_reordered(const Baseline& base, const std::vector<int64_t>& order,
                      const RowSample& rows) {
  Batch batch;
  std::vector<Tensor> q, k, v;
  const int32_t *cu_q = base.in.cu_seqlens_q.as<int32_t>(),
                *cu_kv = base.in.cu_seqlens_kv.as<int32_t>();
  for (const int64_t b : order) {
    const auto i = static_cast<size_t>(b);
    batch.qo_len.push_back(base.c.batch.qo_len[i]);
    batch.kv_len.push_back(base.c.batch.kv_len[i]);
    batch.kv_len_before.push_back(
        base.c.batch.kv_len_before.empty() ? 0 : base.c.batch.kv_len_before[i]);
    q.push_back(dense(base.in.q, cu_q[b], batch.qo_len.back()));
    k.push_back(dense(base.in.k, cu_kv[b], batch.kv_len.back()));
    v.push_back(dense(base.in.v, cu_kv[b], batch.kv_len.back()));
  }
  Case c = with_batch(base.c, batch);
  Inputs in = make_inputs_from(c, concatenated(q), concatenated(k), concatenated(v));
  return run_variant(base, std::move(c), std::move(in), rows);
}

// Runs the same inputs in another mode of execution and compares bits.
PropertyCheck same_in_mode(const char* name, const Baseline& base, const RunOptions& options) {
  if (!base.executor.is_gpu()) return skipped(name, "needs a GPU");
  const RowSample rows = rows_to_compare(base);
  if (const auto why = nothing_in(base, rows); !why.empty()) return skipped(name, why);
  const Variant again = run_variant(base, base.c, base.in.clone(), rows, options);
  return passed_unless(name, difference({base.c, base.in, base.out}, {again.c, again.in, again.out},
                                        same_sequences(base.c), rows));
}

// Up to kAloneSequences sequences with work: the shortest, the longest, and evenly spread ones.
std::vector<int64_t> sequences_to_try(const Batch& batch) {
  std::vector<int64_t> live;
  for (int64_t b = 0; b < batch.size(); ++b)
    if (batch.qo_len[static_cast<size_t>(b)] > 0) live.push_back(b);
  if (live.size() <= kAloneSequences) return live;
  const auto shorter = [&](int64_t x, int64_t y) {
    return batch.kv_len[static_cast<size_t>(x)] < batch.kv_len[static_cast<size_t>(y)];
  };
  std::vector<int64_t> chosen = {*std::min_element(live.begin(), live.end(), shorter),
                                 *std::max_element(live.begin(), live.end(), shorter)};
  const size_t spread = kAloneSequences - chosen.size();
  for (size_t i = 0; i < spread; ++i) chosen.push_back(live[i * (live.size() - 1) / (spread - 1)]);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace

PropertyCheck check_determinism(Executor& executor, const Case& c, const Kernel& kernel,
                                const Inputs& in, const StageOutputs& baseline) {
  const Baseline base{executor, c, kernel, in, baseline};
  const RowSample rows = rows_to_compare(base);
  if (const auto why = nothing_in(base, rows); !why.empty()) return skipped("determinism", why);
  const Variant again = run_variant(base, c, in.clone(), rows);
  return passed_unless("determinism", difference({c, in, baseline}, {again.c, again.in, again.out},
                                                 same_sequences(c), rows));
}

PropertyCheck check_alone_equals_batch(Executor& executor, const Case& c, const Kernel& kernel,
                                       const Inputs& in, const StageOutputs& baseline) {
  const char* name = "alone_equals_batch";
  const Baseline base{executor, c, kernel, in, baseline};
  const RowSample rows = rows_to_compare(base);
  if (const auto why = nothing_in(base, rows); !why.empty()) return skipped(name, why);
  const std::vector<int64_t> sequences = sequences_to_try(c.batch);
  for (const int64_t b : sequences) {
    const std::vector<SequencePair> pairs = {{b, 0}};
    Case shape = c;
    shape.batch.qo_len = {c.batch.qo_len[static_cast<size_t>(b)]};
    const RowSample own = rows_in_b(rows, pairs, shape);
    const Variant alone = run_reordered(base, {b}, own);
    const std::string found =
        difference({c, in, baseline}, {alone.c, alone.in, alone.out}, pairs, own);
    if (!found.empty())
      return failed(name, "sequence " + std::to_string(b) + " of the batch, alone: " + found);
  }
  return passed(name, std::to_string(sequences.size()) + " of " + std::to_string(c.batch.size()) +
                          " sequences");
}

PropertyCheck check_permute_sequences(Executor& executor, const Case& c, const Kernel& kernel,
                                      const Inputs& in, const StageOutputs& baseline) {
  const char* name = "permute_sequences";
  const Baseline base{executor, c, kernel, in, baseline};
  if (c.batch.size() < 2) return skipped(name, "one sequence has no other order");
  const RowSample rows = rows_to_compare(base);
  if (const auto why = nothing_in(base, rows); !why.empty()) return skipped(name, why);
  std::vector<int64_t> order(static_cast<size_t>(c.batch.size()));
  std::iota(order.rbegin(), order.rend(), 0);
  std::vector<SequencePair> pairs;
  Case shape = c;
  for (size_t i = 0; i < order.size(); ++i) {
    pairs.push_back({order[i], static_cast<int64_t>(i)});
    shape.batch.qo_len[i] = c.batch.qo_len[static_cast<size_t>(order[i])];
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const SequencePair& x, const SequencePair& y) { return x.a < y.a; });
  const RowSample own = rows_in_b(rows, pairs, shape);
  const Variant reversed = run_reordered(base, order, own);
  return passed_unless(
      name, difference({c, in, baseline}, {reversed.c, reversed.in, reversed.out}, pairs, own));
}

PropertyCheck check_graph_replay(Executor& executor, const Case& c, const Kernel& kernel,
                                 const Inputs& in, const StageOutputs& baseline) {
  RunOptions options;
  options.graph = true;
  return same_in_mode("graph_replay", {executor, c, kernel, in, baseline}, options);
}

PropertyCheck check_slow_producer(Executor& executor, const Case& c, const Kernel& kernel,
                                  const Inputs& in, const StageOutputs& baseline) {
  RunOptions options;
  options.slow_producer = true;
  return same_in_mode("slow_producer", {executor, c, kernel, in, baseline}, options);
}

PropertyCheck check_page_permutation(Executor& executor, const Case& c, const Kernel& kernel,
                                     const Inputs& in, const StageOutputs& baseline) {
  const Baseline base{executor, c, kernel, in, baseline};
  if (const auto why = nothing_cached_in(base); !why.empty())
    return skipped("page_permutation", why);
  const RowSample rows = rows_to_compare(base);
  Case changed = with_batch(c, c.batch);
  changed.cache.allocation =
      c.cache.allocation == Allocation::kReverse ? Allocation::kSequential : Allocation::kReverse;
  Inputs moved = make_inputs_from(changed, dense(in.q), dense(in.k), dense(in.v));
  const Variant other = run_variant(base, std::move(changed), std::move(moved), rows);
  return passed_unless(
      "page_permutation",
      difference({c, in, baseline}, {other.c, other.in, other.out}, same_sequences(c), rows));
}

// Each sequence in three calls: one token, up to its middle, the rest.
PropertyCheck check_chunked_equals_whole(Executor& executor, const Case& c, const Kernel& kernel,
                                         const Inputs& in, const StageOutputs& baseline) {
  const Baseline base{executor, c, kernel, in, baseline};
  if (const auto why = nothing_cached_in(base); !why.empty())
    return skipped("chunked_equals_whole", why);
  const int32_t* cu = in.cu_seqlens_q.as<int32_t>();
  for (int chunk = 0; chunk < 3; ++chunk) {
    Batch batch;
    std::vector<SequencePair> pairs;
    std::vector<Tensor> q, k, v;
    for (int64_t b = 0; b < c.batch.size(); ++b) {
      const int64_t length = cu[b + 1] - cu[b], one = std::min<int64_t>(1, length);
      const int64_t cuts[] = {0, one, std::max(one, length / 2), length};
      const int64_t first = cuts[chunk], count = cuts[chunk + 1] - first;
      batch.qo_len.push_back(count);
      batch.kv_len.push_back(count);
      batch.kv_len_before.push_back(in.kv_len_before.as<int32_t>()[b] + first);
      pairs.push_back({b, b, first});
      q.push_back(dense(in.q, cu[b] + first, count));
      k.push_back(dense(in.k, cu[b] + first, count));
      v.push_back(dense(in.v, cu[b] + first, count));
    }
    Case part = with_batch(c, batch);
    Inputs part_in = make_inputs_from(part, concatenated(q), concatenated(k), concatenated(v));
    const Variant run = run_variant(base, std::move(part), std::move(part_in), {});
    const std::string found = difference({c, in, baseline}, {run.c, run.in, run.out}, pairs, {});
    if (!found.empty())
      return failed("chunked_equals_whole",
                    "call " + std::to_string(chunk + 1) + " of 3: " + found);
  }
  return passed("chunked_equals_whole");
}

}  // namespace sagebench
