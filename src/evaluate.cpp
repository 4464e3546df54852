#include "evaluate.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/memory.h"
#include "faults/faults.h"
#include "inputs/inputs.h"
#include "metrics/cache_map.h"
#include "ops/host_bytes.h"
#include "properties.h"
#include "scenario/names.h"
#include "scenario/scenario.h"

namespace sagebench {
namespace {

int64_t total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::string describe_shape(const Case& c) {
  std::string s =
      std::to_string(c.batch.size()) + " seqs, " + std::to_string(total(c.batch.qo_len)) + " q";
  if (!op_of(c.op).caches) s += ", " + std::to_string(total(c.batch.kv_len)) + " kv";
  s += ", " + std::to_string(c.model.num_qo_heads) + "/" + std::to_string(c.model.num_kv_heads) +
       " heads, d" + std::to_string(c.model.head_dim);
  if (!op_of(c.op).attends)
    return s + ", " + std::string(name_of(c.cache.kv_layout)) + " pages of " +
           std::to_string(c.cache.page_size);
  if (!c.causal) return s + ", full";
  return s + (c.bottom_right ? ", causal" : ", causal top_left");
}

std::string describe_settings(const Kernel& k) {
  if (!k.attention) return "";
  const sage::SageSettings& s = k.settings;
  return "int8 " + std::string(name_of(s.qk_granularity)) + ", smooth_k " +
         std::string(name_of(s.smooth_k)) + ", smooth_v " + std::string(name_of(s.smooth_v)) +
         (s.correct_v ? ", correct_v" : "") + ", rotate " + std::string(name_of(s.rotate)) + ", " +
         std::string(name_of(s.pv)) + " " + std::string(name_of(s.v_scale)) + ", p " +
         std::string(name_of(s.p));
}

// A third of the rows is enough to see that the timed launches computed the same function.
RowSample thin(const RowSample& rows) {
  RowSample few;
  few.total = rows.total;
  for (size_t i = 0; i < rows.rows.size(); i += 3) few.rows.push_back(rows.rows[i]);
  return few;
}

// The first failed check in pipeline order, as one line.
std::string first_failure(const CaseResult& r) {
  for (const StageCheck& check : r.checks)
    if (!check.passed)
      return std::string(name_of(check.stage)) + ": " + check.rule + ": " + check.detail;
  for (const PropertyCheck& p : r.properties)
    if (!p.passed && !p.skipped) return p.name + ": " + p.detail;
  return "";
}

// The accuracy was judged on all rows of the first run; so few rows would only measure their own
// noise.
Validation without_limits(Validation&& v) {
  std::erase_if(v.checks, [](const StageCheck& check) { return check.is_limit; });
  return std::move(v);
}

void append_checks(CaseResult& r, Validation&& v, const std::string& when) {
  for (StageCheck& check : v.checks) {
    if (!when.empty()) check.rule += " (" + when + ")";
    r.checks.push_back(std::move(check));
  }
}

void append_hygiene(CaseResult& r, const RunOutput& run, const std::string& when) {
  PropertyCheck p{"hygiene" + when, run.hygiene.empty(), false, ""};
  for (const std::string& line : run.hygiene) p.detail += (p.detail.empty() ? "" : "; ") + line;
  r.properties.push_back(std::move(p));
}

std::optional<double> metric(const Accuracy& a, const std::string& name) {
  if (name == "rel_l1") return a.kernel_vs_exact.all.rel_l1;
  if (name == "cosine") return a.kernel_vs_exact.all.cosine;
  if (name == "norm_ratio") return a.kernel_vs_exact.all.norm_ratio;
  if (name == "worst_row")
    for (const WorstSlice& w : a.kernel_vs_exact.worst)
      if (w.kind == "row") return w.values.rel_l1;
  return std::nullopt;
}

// "" when every expected range holds, else what does not.
std::string broken_range(const Expectation& expect, const Accuracy& accuracy) {
  for (const auto& [name, range] : expect.ranges) {
    const std::optional<double> value = metric(accuracy, name);
    if (!value || !(*value >= range.first && *value <= range.second))
      return name + " = " + (value ? std::to_string(*value) : "unknown") + ", expected within [" +
             std::to_string(range.first) + ", " + std::to_string(range.second) + "]";
  }
  return "";
}

void judge_against_expectation(CaseResult& r, const Expectation& expect) {
  switch (expect.kind) {
    case ExpectKind::kOk:
      r.as_expected = r.status == CaseStatus::kPassed;
      break;
    case ExpectKind::kUnsupported:
      r.as_expected = r.status == CaseStatus::kUnsupported;
      break;
    case ExpectKind::kReject:
      r.as_expected = r.status == CaseStatus::kRejected;
      break;
    case ExpectKind::kRange:
      if (r.status == CaseStatus::kPassed && !r.accuracy) {
        r.status = CaseStatus::kUnchecked;
        r.reason = "ran, but no row of the output was there to measure the expected ranges on";
      } else if (r.status == CaseStatus::kPassed) {
        if (const std::string broken = broken_range(expect, *r.accuracy); !broken.empty()) {
          r.status = CaseStatus::kWrong;
          r.reason = broken;
        }
      }
      r.as_expected = r.status == CaseStatus::kPassed;
      break;
  }
  if (!r.as_expected && r.reason.empty())
    r.reason = "expected " + r.expected + ", was " + name_of(r.status);
}

// What a case that found nothing wrong could not show.
void qualify(CaseResult& r, ExpectKind expected, bool empty, bool on_gpu) {
  if (expected != ExpectKind::kOk && expected != ExpectKind::kRange) return;
  if (empty)
    r.reason = on_gpu ? "nothing is to be written; guard bands and untouched bytes show that "
                        "nothing was"
                      : "nothing is to be written; guard bands, which would show it, need a GPU";
  else if (values_compared(r) == 0) {
    r.status = CaseStatus::kUnchecked;
    r.reason = "ran, but nothing was compared";
  }
}

CaseResult describe(const Case& c, const Kernel& kernel) {
  CaseResult r;
  r.id = c.id + "@" + kernel.name;
  r.case_id = c.id;
  r.kernel = kernel.name;
  r.op = op_of(c.op).name;
  r.config = c.config_path;
  r.scenario_json = c.canonical_json;
  r.scenario_hash = scenario_hash(c);
  r.dtype = name_of(c.dtype);
  r.shape = describe_shape(c);
  r.settings = describe_settings(kernel);
  const Expectation& expect = c.expectation(kernel.name);
  r.expected = name_of(expect.kind);
  r.expected_why = expect.why;
  r.rerun = "sagebench --config " + c.config_path + " --only '" + r.id + "'";
  const Work work = op_of(c.op).work(c, kernel);
  r.flops = work.flops;
  r.bytes = work.bytes;
  return r;
}

std::string host_shortage(const Case& c, const Kernel& kernel, int64_t rows) {
  const std::optional<int64_t> available = available_memory();
  return "needs about " + size_text(host_bytes(c, kernel, rows)) +
         " of host memory for inputs, outputs and references, " +
         (available ? size_text(*available) + " are" : "too little is") +
         " available; select fewer or smaller cases";
}

void require_host_memory(const Case& c, const Kernel& kernel, int64_t rows) {
  const std::optional<int64_t> available = available_memory();
  if (available && host_bytes(c, kernel, rows) > *available)
    throw Error(ExitCode::kNoVerdict, host_shortage(c, kernel, rows));
}

// Returns whether the op has nothing to write for these inputs.
bool check_once(Executor& executor, const Case& c, const Kernel& kernel,
                const EvaluateOptions& options, const RowSample& rows, CaseResult& r) {
  const Inputs in = make_inputs(c);
  const RunOutput run = executor.run(c, kernel, in, {.rows = &rows, .fault = options.fault});
  append_hygiene(r, run, "");
  if (c.validate.rows != Rows::kOff) {
    Validation v = validate(c, in, kernel, run.outputs, run.poison, rows, true);
    r.accuracy = std::move(v.accuracy);
    append_checks(r, std::move(v), "");
  }
  for (const std::string& name : c.validate.properties)
    r.properties.push_back(find_property(name)->check(executor, c, kernel, in, run.outputs));
  return in.q.tokens == 0 || (!op_of(c.op).attends && caches_nothing(c, in));
}

// Timed with fresh values and the other poison; the outputs of the timed launches are checked too.
void time_and_recheck(Executor& executor, const Case& c, const Kernel& kernel,
                      const RowSample& rows, CaseResult& r) {
  const Inputs fresh = make_inputs(c, 1);
  RunOutput run = executor.run(c, kernel, fresh, {.poison_pass = 1, .rows = &rows, .timed = true});
  append_hygiene(r, run, " after timing");
  if (c.validate.rows != Rows::kOff && executor.is_gpu())
    append_checks(
        r, without_limits(validate(c, fresh, kernel, run.outputs, run.poison, thin(rows), false)),
        "after timing, fresh inputs");
  r.cold = std::move(run.cold);
  r.hot = std::move(run.hot);
  r.stages = std::move(run.stages);
  r.state_before = run.before;
  r.state_after = run.after;
  r.timings_valid = run.timings_valid;
  if (const auto& latency = r.cold ? r.cold : r.hot;
      latency && executor.is_gpu() && latency->median_us > 0) {
    if (op_of(c.op).attends) r.tops = r.flops / latency->median_us * 1e-6;
    r.gb_per_s = r.bytes / latency->median_us * 1e-3;
  }
}

}  // namespace

CaseResult evaluate(Executor& executor, const Case& c, const Kernel& kernel,
                    const EvaluateOptions& options) {
  CaseResult r = describe(c, kernel);
  const auto start = std::chrono::steady_clock::now();
  bool empty = false;
  int64_t kept_rows = 0;  // of the references
  try {
    if (!kernel.unsupported.empty()) {
      r.status = CaseStatus::kUnsupported;
      r.reason = kernel.unsupported;
    } else if (options.fault && !options.fault->can_act(c, kernel)) {
      r.status = CaseStatus::kSkipped;
      r.reason = "no verdict: fault " + options.fault->name + " cannot act in this case";
    } else {
      executor.require_memory(op_of(c.op).work(c, kernel).device_bytes);
      if (c.validate.rows == Rows::kFull) kept_rows = total(c.batch.qo_len) * c.model.num_qo_heads;
      require_host_memory(c, kernel, kept_rows);
      const RowSample rows = sample_rows(c, kernel.layout);
      kept_rows = static_cast<int64_t>(rows.rows.size());
      require_host_memory(c, kernel, kept_rows);
      if (options.profile) {
        const Inputs in = make_inputs(c);
        r.timings_valid =
            executor.run(c, kernel, in, {.rows = &rows, .timed = true, .profile = true})
                .timings_valid;
      } else {
        empty = check_once(executor, c, kernel, options, rows, r);
        if (options.timed) time_and_recheck(executor, c, kernel, rows, r);
      }
      r.reason = first_failure(r);
      r.status = r.reason.empty() ? CaseStatus::kPassed : CaseStatus::kWrong;
      if (r.status == CaseStatus::kPassed)
        qualify(r, c.expectation(kernel.name).kind, empty && c.validate.rows != Rows::kOff,
                executor.is_gpu());
    }
  } catch (const OperatorRefused& e) {
    r.status = CaseStatus::kRejected;
    r.reason = e.what();
  } catch (const Error& e) {
    if (e.code == ExitCode::kUsage) throw;
    r.status = e.code == ExitCode::kNoVerdict ? CaseStatus::kSkipped : CaseStatus::kError;
    r.reason = e.what();
  } catch (const std::bad_alloc&) {
    r.status = CaseStatus::kSkipped;
    r.reason = host_shortage(c, kernel, kept_rows);
  } catch (const std::exception& e) {
    r.status = CaseStatus::kError;
    r.reason = e.what();
  }
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  judge_against_expectation(r, c.expectation(kernel.name));
  return r;
}

}  // namespace sagebench
