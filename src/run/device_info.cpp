#include "run/device_info.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <fstream>

namespace sagebench {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::vector<CompiledArch> parse_architectures(const std::string& list) {
  std::vector<CompiledArch> archs;
  size_t at = 0;
  while (at < list.size()) {
    const size_t end = std::min(list.find_first_of(";, ", at), list.size());
    const std::string entry = list.substr(at, end - at);
    at = end + 1;
    if (entry.empty() || !std::isdigit(static_cast<unsigned char>(entry[0]))) continue;
    size_t digits = 0;
    CompiledArch arch;
    arch.compute_capability = std::stoi(entry, &digits);
    arch.exact = digits < entry.size() && entry[digits] == 'a';
    if (entry.find("-real") != std::string::npos) arch.ptx = false;
    if (entry.find("-virtual") != std::string::npos) arch.machine_code = false;
    archs.push_back(arch);
  }
  return archs;
}

bool covers(const std::vector<CompiledArch>& archs, int compute_capability) {
  for (const CompiledArch& arch : archs) {
    const int built = arch.compute_capability;
    if (built == compute_capability) return true;
    if (arch.exact || built > compute_capability) continue;
    if (arch.ptx || (arch.machine_code && built / 10 == compute_capability / 10)) return true;
  }
  return false;
}

const std::vector<CompiledArch>& compiled_architectures() {
  static const std::vector<CompiledArch> archs = parse_architectures(SAGEBENCH_ARCHITECTURES);
  return archs;
}

std::string throttle_reason_names(unsigned long long reasons) {
  struct Row {
    unsigned long long bit;
    const char* name;
  };
  static constexpr std::array kRows = {
      Row{0x001, "gpu_idle"},
      Row{0x002, "applications_clocks_setting"},
      Row{0x004, "sw_power_cap"},
      Row{0x008, "hw_slowdown"},
      Row{0x010, "sync_boost"},
      Row{0x020, "sw_thermal_slowdown"},
      Row{0x040, "hw_thermal_slowdown"},
      Row{0x080, "hw_power_brake_slowdown"},
      Row{0x100, "display_clock_setting"},
  };
  if (reasons == 0) return "none";
  std::string text;
  const auto append = [&text](const std::string& name) {
    text += (text.empty() ? "" : ", ") + name;
  };
  for (const Row& row : kRows) {
    if (reasons & row.bit) append(row.name);
    reasons &= ~row.bit;
  }
  if (reasons != 0) {
    char hex[24];
    std::snprintf(hex, sizeof hex, "0x%llx", reasons);
    append(hex);
  }
  return text;
}

}  // namespace sagebench
