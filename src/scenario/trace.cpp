#include "scenario/trace.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "core/error.h"
#include "core/nearest.h"

namespace sagebench {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\"");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  size_t start = 0;
  for (size_t comma; (comma = line.find(',', start)) != std::string::npos; start = comma + 1)
    cells.push_back(trimmed(line.substr(start, comma - start)));
  cells.push_back(trimmed(line.substr(start)));
  return cells;
}

}  // namespace

std::vector<int64_t> read_trace_column(const std::string& path, const std::string& column) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) throw UsageError(path + ": empty or unreadable trace");
  if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // a UTF-8 byte order mark
  const std::vector<std::string> columns = cells_of(line);
  const auto it = std::find(columns.begin(), columns.end(), column);
  if (it == columns.end()) {
    std::string names;
    for (const std::string& name : columns) names += (names.empty() ? "" : ", ") + name;
    const std::string guess = did_you_mean(column, columns);
    throw UsageError(path + ": line 1: no column '" + column + "'" + (guess.empty() ? ";" : guess) +
                     " the columns are: " + names);
  }
  const auto index = static_cast<size_t>(it - columns.begin());
  std::vector<int64_t> values;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    if (trimmed(line).empty()) continue;
    const std::vector<std::string> cells = cells_of(line);
    const std::string cell = index < cells.size() ? cells[index] : "";
    int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || value < 0 || value > INT32_MAX)
      throw UsageError(path + ": line " + std::to_string(number) + ": column '" + column + "': '" +
                       cell + "' is not a length; expected a whole number from 0 to 2147483647");
    values.push_back(value);
  }
  return values;
}

}  // namespace sagebench
