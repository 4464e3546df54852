// The terminal: aligned columns while the run goes on, the whole story of each failure.
#include <map>

#include "report/text.h"

namespace sagebench {
namespace {

constexpr char kRed[] = "\033[31m", kGreen[] = "\033[32m", kYellow[] = "\033[33m";

std::string coloured(const std::string& text, const char* colour, const ConsoleStyle& style) {
  return style.colour ? colour + text + "\033[0m" : text;
}

std::string left(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

struct Cells {
  std::string id, status, rel_l1, cosine, emulated, latency, speed, shape;
};

std::string line(const Cells& c, const ConsoleStyle& style, const char* colour) {
  std::string out = left(c.id, style.id_width) + "  " +
                    (colour ? coloured(left(c.status, 11), colour, style) : left(c.status, 11)) +
                    right(c.rel_l1, 9) + right(c.cosine, 10) + right(c.emulated, 10) +
                    right(c.latency, 22) + right(c.speed, 12) + "  " + c.shape;
  return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string render_console_header(const Report& report, const ConsoleStyle& style) {
  const Environment& e = report.environment;
  std::string out = "sagebench " + report.tool_version + " " + report.commit + ": " + report.suite +
                    " on " + (e.device_name.empty() ? e.cpu_name : e.device_name) + " (" +
                    e.device + ")\n";
  if (e.device == "cpu") out += std::string(kCpuNote) + "\n";
  return out + line({"case@kernel", "status", "rel L1", "worst cos", "vs emul", "median", "speed",
                     "shape"},
                    style, nullptr);
}

std::string render_console_row(const CaseResult& r, const ConsoleStyle& style) {
  Cells cells{r.id, name_of(r.status), "-", "-", "-", latency_text(r), speed_text(r), r.shape};
  if (r.accuracy && is_measured(r.accuracy->kernel_vs_exact)) {
    cells.rel_l1 = significant(r.accuracy->kernel_vs_exact.all.rel_l1, 3);
    cells.cosine = significant(r.accuracy->kernel_vs_exact.worst_cosine, 6);
  }
  if (r.accuracy && is_measured(r.accuracy->kernel_vs_emulated))
    cells.emulated = significant(r.accuracy->kernel_vs_emulated.all.rel_l1, 2);
  const bool measured = r.status == CaseStatus::kPassed;
  return line(cells, style, is_failure(r) ? kRed : measured ? kGreen : kYellow);
}

std::string render_console_failure(const CaseResult& r, const ConsoleStyle& style) {
  if (!is_failure(r)) {
    std::string notes;
    if (!r.reason.empty()) notes = "  " + std::string(name_of(r.status)) + ": " + r.reason + "\n";
    for (const PropertyCheck& p : r.properties)
      if (p.skipped) notes += "  property " + p.name + " skipped: " + p.detail + "\n";
    return notes;
  }
  std::string out =
      coloured("  " + std::string(name_of(r.status)) + ": ", kRed, style) + r.reason + "\n";
  if (const StageCheck* check = first_failed_check(r))
    out += "    first diverging stage: " + std::string(name_of(check->stage)) + " (" + check->rule +
           ")\n    " + where_text(*check) + "\n";
  for (const PropertyCheck& p : r.properties)
    if (!p.passed)
      out += "    property " + p.name + (p.skipped ? " skipped: " : ": ") + p.detail + "\n";
  return out + "    rerun: " + r.rerun + "\n";
}

std::string render_console_summary(const Report& report, const ConsoleStyle& style) {
  std::map<CaseStatus, int> counts;
  int failures = 0;
  for (const CaseResult& r : report.cases) {
    ++counts[r.status];
    failures += is_failure(r);
  }
  std::string out = std::to_string(report.cases.size()) + " results:";
  const char* separator = " ";
  for (const auto& [status, count] : counts) {
    out += separator + std::to_string(count) + " " + name_of(status);
    separator = ", ";
  }
  out += "; " +
         coloured(std::to_string(failures) + " not as expected", failures ? kRed : kGreen, style);
  if (report.environment.device == "cpu") out += "\n" + std::string(kCpuNote);
  return out + "\n";
}

}  // namespace sagebench
