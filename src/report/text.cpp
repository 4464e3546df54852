#include "report/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace sagebench {

std::string shortest(double value) {
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string significant(double value, int digits) {
  std::array<char, 48> buffer;
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return std::string(buffer.data(), static_cast<size_t>(length));
}

std::string speed_text(const CaseResult& result) {
  if (result.tops) return significant(*result.tops, 4) + " TOPS";
  if (result.gb_per_s) return significant(*result.gb_per_s, 4) + " GB/s";
  return "-";
}

std::string latency_text(const CaseResult& result) {
  const std::optional<Latency>& latency = result.cold ? result.cold : result.hot;
  if (!latency || !result.timings_valid) return "-";
  const auto text = [](double us, int digits) {  // never in the exponent form
    return us < 100
               ? significant(us, digits)
               : significant(us < 1e4 ? us : std::round(us), us < 1e4 ? std::max(digits, 4) : 15);
  };
  const std::string median = text(latency->median_us, 5);
  if (!latency->ci_low_us || !latency->ci_high_us) return median + " us";
  const double half =
      std::max(*latency->ci_high_us - latency->median_us, latency->median_us - *latency->ci_low_us);
  return median + " +-" + text(half, 2) + " us";
}

std::string where_text(const StageCheck& check) {
  const auto value = [](const std::optional<double>& v) {
    return v ? significant(*v, 9) : std::string("a value that is not finite");
  };
  const std::string at = to_string(check.at);
  return (at.empty() ? "" : "at " + at + ": ") + "expected " + value(check.expected) + ", got " +
         value(check.actual) + "; worst " + significant(check.worst, 4) + ", limit " +
         significant(check.limit, 4) + "; " + std::to_string(check.wrong) + " of " +
         std::to_string(check.checked) + " wrong";
}

}  // namespace sagebench
