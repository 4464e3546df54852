// How much memory this process may still take, and sizes for people.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sagebench {

// The least of what the machine, the control group and the address space limit leave; nullopt where
// none of them is known.
std::optional<int64_t> available_memory();

std::string size_text(int64_t bytes);  // "1.50 GiB"

}  // namespace sagebench
