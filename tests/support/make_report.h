// A fixed report with one result of every kind, for golden files and round trips.
#pragma once
#include "report/report.h"

namespace sagebench {

inline ErrorReport make_errors(double rel_l1, double cosine) {
  ErrorReport e;
  e.all = {cosine, rel_l1, rel_l1 / 4, 1.001, 0.25};
  e.worst_cosine = cosine - 0.0001;
  e.worst_cosine_at = {1, 3, -1, -1};
  e.worst = {{"sequence_head", {1, 3, -1, -1}, {cosine - 0.0001, rel_l1 * 1.5, 0.02, 0.999, 0.5}}};
  e.lse_max_error = 0.0003;
  return e;
}

inline Latency make_latency(const std::string& stage, double median_us) {
  Latency l;
  l.stage = stage;
  l.method = "events, cold L2 by writing 2x its size";
  l.samples_us = {median_us - 1, median_us, median_us + 2};
  l.median_us = median_us;
  l.ci_low_us = median_us - 0.5;
  l.ci_high_us = median_us + 0.25;
  l.min_us = median_us - 1;
  l.mean_us = median_us + 1.0 / 3;
  l.mad_us = 1;
  return l;
}

inline CaseResult make_result(const std::string& case_id, const std::string& kernel) {
  CaseResult r;
  r.id = case_id + "@" + kernel;
  r.case_id = case_id;
  r.kernel = kernel;
  r.op = "attention";
  r.config = "configs/smoke.json";
  r.scenario_json = R"({"op":"attention","seed":7})";
  r.scenario_hash = "0123456789abcdef";
  r.dtype = "bf16";
  r.shape = "2 seqs, 300 q, 300 kv, 32/8 heads, d128, causal";
  r.settings = "int8 per_thread, smooth_k mean, fp8_e4m3, p exp2";
  r.expected = "ok";
  r.flops = 1.5e9;
  r.bytes = 2.5e6;
  r.seconds = 0.5;
  r.rerun = "sagebench --config configs/smoke.json --only " + r.id;
  return r;
}

inline CaseResult make_passed(const std::string& case_id, const std::string& kernel) {
  CaseResult r = make_result(case_id, kernel);
  r.status = CaseStatus::kPassed;
  r.as_expected = true;
  r.checks = {{Stage::kQkCodes, "codes recomputed", true, 38400, 0, 0, 1, {}, 3.0, 3.0, ""},
              {Stage::kLse, "against emulated", true, 300, 0, 2e-6, 1e-4, {}, 5.5, 5.5, ""}};
  r.accuracy = Accuracy{300,
                        9600,
                        make_errors(0.0371, 0.99931),
                        make_errors(1.25e-5, 1),
                        make_errors(0.037, 0.9993),
                        0.027,
                        0.011,
                        std::nullopt};
  r.properties = {{"hygiene", true, false, ""}, {"graph_replay", true, false, ""}};
  return r;
}

inline CaseResult make_wrong(const std::string& case_id, const std::string& kernel) {
  CaseResult r = make_passed(case_id, kernel);
  r.status = CaseStatus::kWrong;
  r.as_expected = false;
  r.reason = "v_codes: codes recomputed: 1 apart is allowed, 5 found";
  r.checks.insert(r.checks.begin() + 1, {Stage::kVCodes,
                                         "codes recomputed",
                                         false,
                                         38400,
                                         12,
                                         5,
                                         1,
                                         {1, 3, 77, 12},
                                         0.25,
                                         std::nullopt,
                                         "5 codes apart, 1 allowed"});
  r.properties.push_back({"alone_equals_batched", false, false, "sequence 1 differs at token 77"});
  return r;
}

inline Report make_report() {
  Report report;
  report.tool_version = "0.1.0";
  report.commit = "abcdef123456";
  report.config_path = "configs/smoke.json";
  report.config_hash = "fedcba9876543210";
  report.suite = "smoke";
  report.started_at = "2026-01-02T03:04:05Z";
  report.argv = {"sagebench", "--config", "configs/smoke.json"};
  report.environment.device = "cuda:0";
  report.environment.device_name = "NVIDIA H200";
  report.environment.compute_capability = 90;
  report.environment.compiled_archs = {80, 90};
  report.environment.memory_bytes = 150'000'000'000;
  report.environment.ecc = true;
  report.environment.cpu_name = "A \"quoted\" CPU";
  report.environment.cpu_threads = 16;

  CaseResult timed = make_passed("mixed/causal=true", "mma_fp8");
  timed.cold = make_latency("total", 123.4);
  timed.stages = {make_latency("k_stats", 4.5), make_latency("attend", 100.25)};
  timed.tops = 812.25;
  timed.gb_per_s = 20.26;
  timed.state_before.sm_clock_mhz = 1980;
  timed.state_after.throttle_reasons = "power cap";

  CaseResult unsupported = make_result("d256, \"big\" | wide", "mma_fp16");
  unsupported.status = CaseStatus::kUnsupported;
  unsupported.expected = "unsupported";
  unsupported.expected_why = "head_dim over 128";
  unsupported.reason = "head_dim 256 is over 128";
  unsupported.as_expected = true;

  CaseResult nan = make_wrong("nan", "mma_fp8");
  nan.checks[1].worst = std::numeric_limits<double>::infinity();
  nan.accuracy->kernel_vs_exact.all.rel_l1 = std::numeric_limits<double>::quiet_NaN();
  nan.accuracy->kernel_vs_exact.nan_count = 3;
  nan.accuracy->kernel_vs_exact.first_nonfinite = {0, 1, 2, 3};
  nan.accuracy->kernel_vs_emulated = {};

  CaseResult skipped = make_result("1x128k", "mma_fp8");
  skipped.status = CaseStatus::kSkipped;
  skipped.reason = "needs 200.1 GB on the GPU, 139.8 GB are free";

  CaseResult error = make_result("broken", "mma_fp8");
  error.status = CaseStatus::kError;
  error.reason = "cudaErrorLaunchFailure, at attend";

  report.cases = {timed, make_wrong("mixed/causal=false", "mma_fp8"), unsupported, nan, skipped,
                  error};
  return report;
}

}  // namespace sagebench
