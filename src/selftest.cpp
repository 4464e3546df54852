#include "selftest.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "metrics.h"
#include "run/cpu_executor.h"

namespace sagebench {
namespace {

Case base_case(const char* name, OpKind op) {
  Case c;
  c.id = c.scenario = name;
  c.op = op;
  c.model = {4, 2, 64, 64};
  c.rope.rotary_dim = c.model.head_dim;
  c.sm_scale = 1.0 / std::sqrt(static_cast<double>(c.model.head_dim));
  c.validate.rows = Rows::kFull;
  c.cache.num_pages = 24;
  c.sage.smooth_k = c.sage.smooth_v = sage::Smooth::kMean;  // so that offsets can go wrong
  c.sage.v_scale = sage::VScale::kPerChannel;
  c.seed = 11;
  return c;
}

// Empty and one-token sequences, a ragged tail, more keys than queries, queries without keys.
Case causal_fp8() {
  Case c = base_case("causal_fp8", OpKind::kAttention);
  c.batch.qo_len = {70, 1, 0, 40, 33};
  c.batch.kv_len = {133, 1, 17, 0, 90};
  c.causal = c.return_lse = true;
  c.sage.pv = sage::PvType::kFp8E4m3;
  c.input.k = {{"normal", {}}, {"k_channel_bias", {}}};
  c.input.v = {{"normal", {}}, {"v_channel_bias", {}}};
  return c;
}

Case full_rotated_fp16() {
  Case c = base_case("full_rotated_fp16", OpKind::kAttention);
  c.model.head_dim = c.model.head_dim_v = 128;
  c.sm_scale = 1.0 / std::sqrt(128.0);
  c.dtype = DType::kFp16;
  c.batch.qo_len = {65, 20};
  c.batch.kv_len = {200, 90};
  c.sage.pv = sage::PvType::kFp16;
  c.sage.rotate = sage::Rotate::kHadamard;
  c.input.k = {{"normal", {}}, {"k_channel_bias", {}}};
  return c;
}

Case paged_neox() {
  Case c = base_case("paged_neox", OpKind::kKvCacheWrite);
  c.dtype = DType::kFp16;
  c.batch.qo_len = {37, 1, 20, 0};
  c.batch.kv_len_before = {5, 0, 30, 0};
  c.rope.rotary_dim = 32;
  return c;
}

Case slots_interleaved() {
  Case c = base_case("slots_interleaved", OpKind::kKvCacheWrite);
  c.batch.qo_len = {19, 30};
  c.batch.kv_len_before = {3, 0};
  c.rope.style = sage::RopeStyle::kInterleaved;
  c.rope.table_dtype = c.dtype;
  c.cache.page_size = 7;
  c.cache.kv_layout = KvLayout::kNhd;
  c.cache.index = CacheIndex::kSlotMapping;
  return c;
}

Case small_prefill() {
  Case c = base_case("small_prefill", OpKind::kPrefill);
  c.batch.qo_len = {50, 9};
  c.causal = true;
  c.sage.pv = sage::PvType::kFp8E4m3;
  return c;
}

// A page and a slot that are skipped, a NaN on its way through, a pair whose rotation overflows.
void add_oddities(const Case& c, Inputs& in) {
  if (!in.page_table.empty()) in.page_table.as<int32_t>()[1] = -1;
  if (!in.slot_mapping.empty()) in.slot_mapping.as<int64_t>()[4] = -1;
  if (c.dtype != DType::kFp16) return;
  const auto set = [&](TensorView& x, int64_t token, int channel, float value) {
    (x.base == &in.packed ? in.packed : in.k_split).set(x.index(token, 0, channel), value);
  };
  set(in.k, 3, 2, std::numeric_limits<float>::quiet_NaN());
  set(in.k, 9, 0, 65504.0f);
  set(in.k, 9, c.rope.rotary_dim / 2, 65504.0f);
}

SelftestCase complete(Case c) {
  if (op_of(c.op).caches) c.batch.kv_len = c.batch.qo_len;
  c.batch.kv_len_before.resize(c.batch.qo_len.size());
  SelftestCase s;
  for (const Kernel& kernel : op_of(c.op).kernels(c))
    if (kernel.unsupported.empty()) {
      s.kernel = kernel;
      break;
    }
  if (s.kernel.name.empty())
    throw Error(ExitCode::kInternal, "selftest: no kernel supports " + c.id);
  s.in = make_inputs(c);
  if (!op_of(c.op).attends) add_oddities(c, s.in);
  s.c = std::move(c);
  return s;
}

// The first failed check in pipeline order, or nullopt; `checks` counts all.
std::optional<StageCheck> first_failure(const SelftestCase& s, const Fault* fault, size_t* checks) {
  const RowSample rows = sample_rows(s.c, s.kernel.layout);
  RunOptions options;
  options.rows = &rows;
  options.fault = fault;
  const RunOutput run = make_cpu_executor()->run(s.c, s.kernel, s.in, options);
  const Validation v =
      validate(s.c, s.in, s.kernel, run.outputs, poison_byte(0), rows, /*itemise_price=*/false);
  if (checks) *checks = v.checks.size();
  for (const StageCheck& check : v.checks)
    if (!check.passed) return check;
  return std::nullopt;
}

std::string describe(const SelftestCase& s, const StageCheck& check) {
  return s.c.id + ": " + check.rule + ": " + check.detail;
}

}  // namespace

std::vector<SelftestCase> selftest_cases() {
  std::vector<SelftestCase> cases;
  for (auto make : {causal_fp8, full_rotated_fp16, paged_neox, slots_interleaved, small_prefill})
    cases.push_back(complete(make()));
  return cases;
}

FaultOutcome try_fault(const Fault& fault, const std::vector<SelftestCase>& cases) {
  FaultOutcome outcome;
  std::string how = "every check passed";
  for (const SelftestCase& s : cases) {
    if (!fault.can_act(s.c, s.kernel)) continue;
    const auto failure = first_failure(s, &fault, nullptr);
    if (!failure) continue;
    how = describe(s, *failure);
    outcome.caught = failure->stage == fault.caught_at;
    if (outcome.caught) continue;
    how = std::string("caught at ") + name_of(failure->stage) + " instead of " +
          name_of(fault.caught_at) + ", " + how;
    break;
  }
  outcome.line = fault.name + " (" + fault.what + "): " + how + ": " +
                 (outcome.caught ? std::string("caught at ") + name_of(fault.caught_at) : "MISSED");
  return outcome;
}

int run_selftest(std::ostream& out) {
  const std::vector<SelftestCase> cases = selftest_cases();
  int wrong = 0, caught = 0;
  for (const SelftestCase& s : cases) {
    size_t checks = 0;
    const auto failure = first_failure(s, nullptr, &checks);
    wrong += failure.has_value();
    out << "no fault, " << s.c.id << " on " << s.kernel.name << ": "
        << (failure ? describe(s, *failure) + ": FAILED"
                    : "passes " + std::to_string(checks) + " checks")
        << '\n';
  }
  for (const Fault& fault : faults()) {
    const FaultOutcome outcome = try_fault(fault, cases);
    (outcome.caught ? caught : wrong) += 1;
    out << outcome.line << '\n';
  }
  out << "selftest: " << caught << " of " << faults().size() << " faults caught, "
      << (wrong == 0 ? "the op without a fault passes" : std::to_string(wrong) + " wrong") << '\n';
  return wrong;
}

}  // namespace sagebench
