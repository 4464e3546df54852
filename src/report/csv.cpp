// CSV (RFC 4180): one line per result, one row of the table below per column; absent is empty.
#include <iterator>
#include <string>

#include "report/text.h"

namespace sagebench {
namespace {

std::string text(const std::optional<double>& value) {
  return value ? shortest(*value) : "";
}

const Latency* cold_of(const CaseResult& r) {
  return r.cold ? &*r.cold : nullptr;
}
const Latency* hot_of(const CaseResult& r) {
  return r.hot ? &*r.hot : nullptr;
}

std::string of(const Latency* latency, double Latency::*field) {
  return latency ? shortest(latency->*field) : "";
}

std::string of(const Latency* latency, std::optional<double> Latency::*field) {
  return latency ? text(latency->*field) : "";
}

std::string of(const CaseResult& r, ErrorReport Accuracy::*comparison, double ErrorValues::*field) {
  if (!r.accuracy || !is_measured(*r.accuracy.*comparison)) return "";
  return shortest((*r.accuracy.*comparison).all.*field);
}

std::string worst_cosine(const CaseResult& r) {
  if (!r.accuracy || !is_measured(r.accuracy->kernel_vs_exact)) return "";
  return shortest(r.accuracy->kernel_vs_exact.worst_cosine);
}

struct Column {
  const char* name;
  std::string (*value)(const CaseResult& r);
};
using R = const CaseResult&;
constexpr Column kColumns[] = {
    {"id", [](R r) { return r.id; }},
    {"case", [](R r) { return r.case_id; }},
    {"kernel", [](R r) { return r.kernel; }},
    {"op", [](R r) { return r.op; }},
    {"dtype", [](R r) { return r.dtype; }},
    {"shape", [](R r) { return r.shape; }},
    {"settings", [](R r) { return r.settings; }},
    {"status", [](R r) { return std::string(name_of(r.status)); }},
    {"expected", [](R r) { return r.expected; }},
    {"as_expected", [](R r) { return std::string(r.as_expected ? "true" : "false"); }},
    {"reason", [](R r) { return r.reason; }},
    {"rel_l1", [](R r) { return of(r, &Accuracy::kernel_vs_exact, &ErrorValues::rel_l1); }},
    {"cosine", [](R r) { return of(r, &Accuracy::kernel_vs_exact, &ErrorValues::cosine); }},
    {"worst_cosine", worst_cosine},
    {"rmse", [](R r) { return of(r, &Accuracy::kernel_vs_exact, &ErrorValues::rmse); }},
    {"norm_ratio", [](R r) { return of(r, &Accuracy::kernel_vs_exact, &ErrorValues::norm_ratio); }},
    {"max_error_rms",
     [](R r) { return of(r, &Accuracy::kernel_vs_exact, &ErrorValues::max_error_rms); }},
    {"rel_l1_vs_emulated",
     [](R r) { return of(r, &Accuracy::kernel_vs_emulated, &ErrorValues::rel_l1); }},
    {"rel_l1_emulated_vs_exact",
     [](R r) { return of(r, &Accuracy::emulated_vs_exact, &ErrorValues::rel_l1); }},
    {"price_qk", [](R r) { return r.accuracy ? text(r.accuracy->price_qk) : ""; }},
    {"price_p", [](R r) { return r.accuracy ? text(r.accuracy->price_p) : ""; }},
    {"price_v", [](R r) { return r.accuracy ? text(r.accuracy->price_v) : ""; }},
    {"rows_checked",
     [](R r) { return r.accuracy ? std::to_string(r.accuracy->rows_checked) : ""; }},
    {"rows_total", [](R r) { return r.accuracy ? std::to_string(r.accuracy->rows_total) : ""; }},
    {"cold_median_us", [](R r) { return of(cold_of(r), &Latency::median_us); }},
    {"cold_ci_low_us", [](R r) { return of(cold_of(r), &Latency::ci_low_us); }},
    {"cold_ci_high_us", [](R r) { return of(cold_of(r), &Latency::ci_high_us); }},
    {"cold_min_us", [](R r) { return of(cold_of(r), &Latency::min_us); }},
    {"cold_samples", [](R r) { return r.cold ? std::to_string(r.cold->samples_us.size()) : ""; }},
    {"hot_median_us", [](R r) { return of(hot_of(r), &Latency::median_us); }},
    {"hot_ci_low_us", [](R r) { return of(hot_of(r), &Latency::ci_low_us); }},
    {"hot_ci_high_us", [](R r) { return of(hot_of(r), &Latency::ci_high_us); }},
    {"hot_min_us", [](R r) { return of(hot_of(r), &Latency::min_us); }},
    {"hot_samples", [](R r) { return r.hot ? std::to_string(r.hot->samples_us.size()) : ""; }},
    {"timings_valid", [](R r) { return std::string(r.timings_valid ? "true" : "false"); }},
    {"flops", [](R r) { return shortest(r.flops); }},
    {"bytes", [](R r) { return shortest(r.bytes); }},
    {"tops", [](R r) { return text(r.tops); }},
    {"gb_per_s", [](R r) { return text(r.gb_per_s); }},
    {"sm_clock_before_mhz", [](R r) { return text(r.state_before.sm_clock_mhz); }},
    {"sm_clock_after_mhz", [](R r) { return text(r.state_after.sm_clock_mhz); }},
    {"first_failed_stage",
     [](R r) {
       const StageCheck* check = first_failed_check(r);
       return std::string(check ? name_of(check->stage) : "");
     }},
    {"scenario_hash", [](R r) { return r.scenario_hash; }},
    {"rerun", [](R r) { return r.rerun; }},
};

void append_quoted(std::string& out, const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) {
    out += field;
    return;
  }
  out += '"';
  for (const char c : field) out.append(c == '"' ? 2 : 1, c);
  out += '"';
}

template <class FieldOf>
void append_record(std::string& out, FieldOf field_of) {
  for (size_t i = 0; i < std::size(kColumns); ++i) {
    if (i > 0) out += ',';
    append_quoted(out, field_of(kColumns[i]));
  }
  out += '\n';
}

}  // namespace

std::string render_csv(const Report& report) {
  std::string out;
  append_record(out, [](const Column& column) { return column.name; });
  for (const CaseResult& r : report.cases)
    append_record(out, [&](const Column& column) { return column.value(r); });
  return out;
}

}  // namespace sagebench
