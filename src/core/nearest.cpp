#include "core/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sagebench {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's prefix to every prefix of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest(std::string_view typed, const std::vector<std::string>& names,
                                 size_t count) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const bool inside = typed.size() > 1 && name.find(typed) != std::string::npos;
    const size_t distance = inside ? 0 : edit_distance(typed, name);
    if (distance <= std::max(typed.size(), name.size()) / 2) ranked.emplace_back(distance, name);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (size_t i = 0; i < std::min(count, ranked.size()); ++i) best.push_back(ranked[i].second);
  return best;
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names) {
  const std::vector<std::string> best = nearest(typed, names, 1);
  return best.empty() ? "" : "; did you mean '" + best[0] + "'?";
}

}  // namespace sagebench
