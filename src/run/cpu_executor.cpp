#include "run/cpu_executor.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>

#include "core/parallel.h"
#include "faults/faults.h"
#include "metrics/stage_checks.h"

namespace sagebench {
namespace {

constexpr size_t kMaxSamples = 5;

struct StepInputs {
  const Case& c;
  const Inputs& in;
  const Kernel& kernel;
  const RunOptions& options;
};

RowSample all_rows(Case c, const Kernel& kernel) {
  c.validate.rows = Rows::kFull;
  return sample_rows(c, kernel.layout);
}

Tensor all_nan(DType dtype, std::vector<int64_t> shape) {
  Tensor t(dtype, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, std::numeric_limits<float>::quiet_NaN());
  return t;
}

void rotate(const StepInputs& s, StageOutputs& out) {
  emulate_rope(s.c, s.in, out);
}

void write_cache(const StepInputs& s, StageOutputs& out) {
  emulate_cache_write(s.c, s.in, poison_byte(s.options.poison_pass), out);
}

void quantise(const StepInputs& s, StageOutputs& out) {
  emulate_quantisation(s.c, operands_of(s.c, s.in, out), s.kernel, out);
}

void attend(const StepInputs& s, StageOutputs& out) {
  const Model& m = s.c.model;
  const int32_t* cu = s.in.cu_seqlens_q.as<int32_t>();
  const int64_t tokens = cu[s.in.cu_seqlens_q.size() - 1];
  const RowSample everything = s.options.rows ? RowSample{} : all_rows(s.c, s.kernel);
  const RowSample& rows = s.options.rows ? *s.options.rows : everything;
  const AttentionRows result =
      emulate_attention(s.c, out, s.in.cu_seqlens_q, s.in.cu_seqlens_kv, s.kernel, rows);
  out.o = all_nan(s.c.dtype, {tokens, m.num_qo_heads, m.head_dim_v});
  out.lse = s.c.return_lse ? all_nan(DType::kFp32, {m.num_qo_heads, tokens}) : Tensor{};
  for (size_t r = 0; r < rows.rows.size(); ++r) {
    const QueryRow& row = rows.rows[r];
    const int64_t token = cu[row.sequence] + row.token;
    const int64_t to = (token * m.num_qo_heads + row.head) * m.head_dim_v;
    const double* from = &result.o[r * static_cast<size_t>(m.head_dim_v)];
    for (int d = 0; d < m.head_dim_v; ++d) out.o.set(to + d, static_cast<float>(from[d]));
    if (s.c.return_lse) out.lse.set(row.head * tokens + token, static_cast<float>(result.lse[r]));
  }
}

// The pipeline: a step, the stages it produces (where faults are planted), and what it leaves.
struct Step {
  bool Op::*of;  // the ops that take it
  std::vector<Stage> stages;
  void (*run)(const StepInputs& s, StageOutputs& out);
  std::vector<Tensor StageOutputs::*> leaves;
};
const std::vector<Step>& steps() {
  using S = StageOutputs;
  static const std::vector<Step> table = {
      {&Op::caches, {Stage::kRope}, rotate, {&S::q_rope, &S::k_rope}},
      {&Op::caches, {Stage::kCache}, write_cache, {&S::key_cache, &S::value_cache}},
      {&Op::attends,
       {Stage::kOffset, Stage::kQkCodes, Stage::kVCodes},
       quantise,
       {&S::k_offset, &S::v_offset, &S::q_codes, &S::q_scales, &S::k_codes, &S::k_scales,
        &S::v_codes, &S::v_scales, &S::o_offset, &S::lse_dot}},
      {&Op::attends, {Stage::kO, Stage::kLse}, attend, {&S::o, &S::lse}},
  };
  return table;
}

template <class T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The step on copies that the fault may change; only what the step leaves is kept.
void run_faulty(const Step& step, const StepInputs& s, const Fault& fault, StageOutputs& out) {
  Case c = s.c;
  Inputs in = s.in.clone();
  Kernel kernel = s.kernel;
  StageOutputs copy = out;
  FaultContext context{c, in, kernel, copy};
  if (fault.before) fault.before(context);
  step.run({c, in, kernel, s.options}, copy);
  if (fault.after) fault.after(context);
  for (const auto member : step.leaves) out.*member = std::move(copy.*member);
}

StageOutputs run_pipeline(const StepInputs& s) {
  StageOutputs out;
  for (const Step& step : steps()) {
    if (!(op_of(s.c.op).*step.of)) continue;
    if (s.options.fault && contains(step.stages, s.options.fault->stage))
      run_faulty(step, s, *s.options.fault, out);
    else
      step.run(s, out);
  }
  return out;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0)
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "";
}

class CpuExecutor : public Executor {
 public:
  CpuExecutor() {
    environment_.device = "cpu";
    environment_.cpu_name = environment_.device_name = cpu_name();
    environment_.cpu_threads = num_threads();
  }
  const Environment& environment() const override { return environment_; }
  bool is_gpu() const override { return false; }

  RunOutput run(const Case& c, const Kernel& kernel, const Inputs& in,
                const RunOptions& options) override {
    RunOutput result;
    result.poison = poison_byte(options.poison_pass);
    std::vector<double> samples_us;
    double spent_s = 0;
    do {
      const auto start = std::chrono::steady_clock::now();
      result.outputs = run_pipeline({c, in, kernel, options});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      samples_us.push_back(took.count() * 1e6);
      spent_s += took.count();
    } while (options.timed && !options.profile && samples_us.size() < kMaxSamples &&
             spent_s < c.timing.max_time_s);
    result.timings_valid = !options.profile;
    const bool partial = options.rows && !options.rows->complete() && !options.rows->rows.empty();
    const std::string rows = partial ? ", " + std::to_string(options.rows->rows.size()) + " of " +
                                           std::to_string(options.rows->total) + " rows"
                                     : "";
    if (options.timed)
      result.cold = make_latency(
          "total",
          "wall clock of the emulated op on the CPU" + rows + " (not a performance figure)",
          std::move(samples_us));
    return result;
  }

 private:
  Environment environment_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor() {
  return std::make_unique<CpuExecutor>();
}

}  // namespace sagebench
