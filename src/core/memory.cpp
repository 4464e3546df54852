#include "core/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

namespace sagebench {
namespace {

// The number behind `key` in a file of lines "key number", in `unit` bytes; "" finds the first.
std::optional<int64_t> number_in(const char* path, const std::string& key, int64_t unit) {
  std::ifstream file(path);
  std::string word;
  while (!key.empty() && file >> word && word != key) continue;
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value * unit;
}

// Pages that the kernel would drop count as free.
std::optional<int64_t> left_in_group() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max", "", 1);  // "max": none
  const auto used = number_in("/sys/fs/cgroup/memory.current", "", 1);
  const auto cached = number_in("/sys/fs/cgroup/memory.stat", "inactive_file", 1);
  if (!limit || !used) return std::nullopt;
  return *limit - *used + cached.value_or(0);
}

std::optional<int64_t> left_in_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto used = number_in("/proc/self/statm", "", sysconf(_SC_PAGESIZE));
  return static_cast<int64_t>(limit.rlim_cur) - used.value_or(0);
}

}  // namespace

std::optional<int64_t> available_memory() {
  constexpr int64_t kKibi = 1024;
  std::optional<int64_t> least;
  for (const std::optional<int64_t>& left : {number_in("/proc/meminfo", "MemAvailable:", kKibi),
                                             left_in_group(), left_in_address_space()})
    if (left && (!least || *left < *least)) least = std::max<int64_t>(*left, 0);
  return least;
}

std::string size_text(int64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

}  // namespace sagebench
