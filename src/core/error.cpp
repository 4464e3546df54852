#include "core/error.h"

#include <cstdio>

namespace sagebench {

std::string printable(const std::string& text) {
  constexpr char kDelete = 0x7f;
  std::string out;
  for (const char c : text) {
    const bool control = (c >= 0 && c < ' ') || c == kDelete;
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
    out += control ? escaped : std::string(1, c);
  }
  return out;
}

}  // namespace sagebench
