// 64-bit FNV-1a as 16 hex digits: names files and scenarios in reports; not for security.
#pragma once
#include <string>
#include <string_view>

namespace sagebench {

std::string hash_hex(std::string_view bytes);
std::string hash_of_file(const std::string& path);  // "" where it cannot be read

}  // namespace sagebench
