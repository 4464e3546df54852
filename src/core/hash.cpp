#include "core/hash.h"

#include <cstdint>
#include <fstream>
#include <sstream>

namespace sagebench {

std::string hash_hex(std::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string hex(16, '0');
  constexpr std::string_view digits = "0123456789abcdef";
  for (size_t i = 0; i < 16; ++i) hex[15 - i] = digits[(h >> (4 * i)) & 15];
  return hex;
}

std::string hash_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "";
  std::ostringstream content;
  content << in.rdbuf();
  return hash_hex(content.view());
}

}  // namespace sagebench
