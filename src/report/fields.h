// What is in each struct of a report, once for both directions: an Io either writes the field it is
// given or fills it. Io::operator()(key, field), group(key, describe) for a nested object,
// group_or_null(key, present, describe) for one that may be absent,
// embedded(key, json_text), reserved(key) for a place that is null so far; Io::has_lse says whether
// the result at hand has a log-sum-exp.
#pragma once
#include <optional>
#include <utility>

#include "report/text.h"

namespace sagebench {

// An absent struct inside a present one: null when `present` says so while writing.
template <class Io, class T>
void optional_field(Io& io, const char* key, T& x, bool present) {
  std::optional<T> value;
  if (present) value = x;
  io(key, value);
  x = value.value_or(T{});
}

template <class Io>
void fields(Io& io, Coordinate& x) {
  for (const auto& [key, index] : {std::pair{"sequence", &x.sequence},
                                   {"head", &x.head},
                                   {"token", &x.token},
                                   {"channel", &x.channel}}) {
    std::optional<int64_t> value;
    if (*index >= 0) value = *index;
    io(key, value);
    *index = value.value_or(-1);
  }
}

template <class Io>
void fields(Io& io, StageCheck& x) {
  io("stage", x.stage);
  io("rule", x.rule);
  io("passed", x.passed);
  io("checked", x.checked);
  io("wrong", x.wrong);
  io("worst", x.worst);
  io("limit", x.limit);
  io("at", x.at);
  io("expected", x.expected);
  io("actual", x.actual);
  io("detail", x.detail);
}

template <class Io>
void fields(Io& io, ErrorValues& x) {
  io("cosine", x.cosine);
  io("rel_l1", x.rel_l1);
  io("rmse", x.rmse);
  io("norm_ratio", x.norm_ratio);
  io("max_error_rms", x.max_error_rms);
}

template <class Io>
void fields(Io& io, WorstSlice& x) {
  io("kind", x.kind);
  io("at", x.at);
  io("values", x.values);
}

template <class Io>
void fields(Io& io, ErrorReport& x) {
  io("all", x.all);
  io("worst_cosine", x.worst_cosine);
  io("worst_cosine_at", x.worst_cosine_at);
  io("worst", x.worst);
  io("nan_count", x.nan_count);
  io("inf_count", x.inf_count);
  io("first_nonfinite", x.first_nonfinite);
  optional_field(io, "lse_max_error", x.lse_max_error, io.has_lse);
}

template <class Io>
void fields(Io& io, Accuracy& x) {
  io("rows_checked", x.rows_checked);
  io("rows_total", x.rows_total);
  for (const auto& [key, errors] : {std::pair{"kernel_vs_exact", &x.kernel_vs_exact},
                                    {"kernel_vs_emulated", &x.kernel_vs_emulated},
                                    {"emulated_vs_exact", &x.emulated_vs_exact}})
    optional_field(io, key, *errors, is_measured(*errors));
  io.group("price", [&](Io& price) {
    price("qk", x.price_qk);
    price("p", x.price_p);
    price("v", x.price_v);
  });
}

template <class Io>
void fields(Io& io, PropertyCheck& x) {
  io("name", x.name);
  io("passed", x.passed);
  io("skipped", x.skipped);
  io("detail", x.detail);
}

template <class Io>
void fields(Io& io, Latency& x) {
  io("stage", x.stage);
  io("method", x.method);
  io("median_us", x.median_us);
  io("ci_low_us", x.ci_low_us);
  io("ci_high_us", x.ci_high_us);
  io("min_us", x.min_us);
  io("mean_us", x.mean_us);
  io("mad_us", x.mad_us);
  io("samples_us", x.samples_us);
}

template <class Io>
void fields(Io& io, DeviceState& x) {
  io("sm_clock_mhz", x.sm_clock_mhz);
  io("memory_clock_mhz", x.memory_clock_mhz);
  io("power_w", x.power_w);
  io("temperature_c", x.temperature_c);
  io("throttle_reasons", x.throttle_reasons);
}

template <class Io>
void fields(Io& io, Environment& x) {
  io("device", x.device);
  io("device_name", x.device_name);
  io("uuid_hash", x.uuid_hash);
  io("compute_capability", x.compute_capability);
  io("driver", x.driver);
  io("runtime", x.runtime);
  io("toolkit", x.toolkit);
  io("compiled_archs", x.compiled_archs);
  io("sm_count", x.sm_count);
  io("l2_bytes", x.l2_bytes);
  io("memory_bytes", x.memory_bytes);
  io("ecc", x.ecc);
  io("power_limit_w", x.power_limit_w);
  io("sm_clock_mhz", x.sm_clock_mhz);
  io("memory_clock_mhz", x.memory_clock_mhz);
  io("cpu_name", x.cpu_name);
  io("cpu_threads", x.cpu_threads);
}

template <class Io>
void fields(Io& io, CaseResult& x) {
  for (const StageCheck& check : x.checks) io.has_lse |= check.stage == Stage::kLse;
  io("id", x.id);
  io("case", x.case_id);
  io("kernel", x.kernel);
  io("op", x.op);
  io("config", x.config);
  io.embedded("scenario", x.scenario_json);
  io("scenario_hash", x.scenario_hash);
  io("dtype", x.dtype);
  io("shape", x.shape);
  io("settings", x.settings);
  io("status", x.status);
  io("reason", x.reason);
  io("fault", x.fault);
  io("expected", x.expected);
  io("expected_why", x.expected_why);
  io("as_expected", x.as_expected);
  io("checks", x.checks);
  io("accuracy", x.accuracy);
  io("properties", x.properties);
  io("flops", x.flops);
  io("bytes", x.bytes);
  io.group("latency", [&](Io& latency) {
    latency("cold", x.cold);
    latency("hot", x.hot);
  });
  io("stages", x.stages);
  io("tops", x.tops);
  io("gb_per_s", x.gb_per_s);
  io.group_or_null("ceilings", x.percent_of_ceiling.has_value(), [&](Io& ceilings) {
    ceilings("percent", x.percent_of_ceiling);
    ceilings("binding", x.binding_ceiling);
  });
  io.reserved("blocks");  // paired comparisons
  io.group("device_state", [&](Io& state) {
    state("before", x.state_before);
    state("after", x.state_after);
  });
  io("timings_valid", x.timings_valid);
  io("seconds", x.seconds);
  io("rerun", x.rerun);
}

template <class Io>
void fields(Io& io, Report& x) {
  io.group("tool", [&](Io& tool) {
    tool("version", x.tool_version);
    tool("commit", x.commit);
  });
  io.group("config", [&](Io& config) {
    config("path", x.config_path);
    config("hash", x.config_hash);
    config("suite", x.suite);
  });
  io("argv", x.argv);
  io("started_at", x.started_at);
  io("environment", x.environment);
  io("cases", x.cases);
}

}  // namespace sagebench
