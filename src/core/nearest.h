// The known name closest to what was typed, for error messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sagebench {

// Up to `count` names that resemble `typed`, best first: those that contain it, if it is more than
// one character, then by fewest single-character edits (insert, delete, replace), of at most half
// of the longer name. None for what looks like nothing known.
std::vector<std::string> nearest(std::string_view typed, const std::vector<std::string>& names,
                                 size_t count);

// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names);

}  // namespace sagebench
