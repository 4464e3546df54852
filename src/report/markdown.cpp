// Markdown: a table that reads well in a pull-request comment, failures below it.
#include "report/text.h"

namespace sagebench {
namespace {

std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out.empty() ? "-" : out;
}

std::string row(const CaseResult& r) {
  std::string exact = "-", cosine = "-", emulated = "-";
  if (r.accuracy && is_measured(r.accuracy->kernel_vs_exact)) {
    exact = significant(r.accuracy->kernel_vs_exact.all.rel_l1, 3);
    cosine = significant(r.accuracy->kernel_vs_exact.worst_cosine, 6);
  }
  if (r.accuracy && is_measured(r.accuracy->kernel_vs_emulated))
    emulated = significant(r.accuracy->kernel_vs_emulated.all.rel_l1, 2);
  const std::string status =
      is_failure(r) ? "**" + std::string(name_of(r.status)) + "**" : name_of(r.status);
  return "| " + cell(r.case_id) + " | " + cell(r.kernel) + " | " + cell(r.shape) + " | " + status +
         " | " + exact + " | " + cosine + " | " + emulated + " | " + cell(latency_text(r)) + " | " +
         cell(speed_text(r)) + " |\n";
}

std::string failure(const CaseResult& r) {
  std::string out = "\n### " + r.id + ": " + name_of(r.status) + "\n\n";
  if (!r.reason.empty()) out += "- " + r.reason + "\n";
  if (const StageCheck* check = first_failed_check(r))
    out += "- first diverging stage: **" + std::string(name_of(check->stage)) + "** (" +
           check->rule + "), " + where_text(*check) + "\n";
  for (const PropertyCheck& p : r.properties)
    if (!p.passed && !p.skipped) out += "- property " + p.name + ": " + p.detail + "\n";
  return out + "\n```\n" + r.rerun + "\n```\n";
}

}  // namespace

std::string render_markdown(const Report& report) {
  const Environment& e = report.environment;
  std::string out = "# sagebench: " + report.suite + "\n\n";
  out += (e.device_name.empty() ? e.cpu_name : e.device_name) + " (" + e.device + "), sagebench " +
         report.tool_version + " " + report.commit + ", " + report.config_path + ", " +
         report.started_at + "\n\n";
  if (e.device == "cpu") out += std::string(kCpuNote) + ".\n\n";
  out +=
      "| case | kernel | shape | status | rel. L1 | worst cosine | vs emulated | median | speed |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (const CaseResult& r : report.cases) out += row(r);
  for (const CaseResult& r : report.cases)
    if (is_failure(r)) out += failure(r);
  return out;
}

}  // namespace sagebench
