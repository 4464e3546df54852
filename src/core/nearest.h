// The known name closest to what was typed, for error messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sagebench {

// The `count` names nearest to `typed`, best first: fewest single-character edits (insert, delete,
// replace), a name that contains what was typed ahead of the others.
std::vector<std::string> nearest(std::string_view typed, const std::vector<std::string>& names,
                                 size_t count);

}  // namespace sagebench
