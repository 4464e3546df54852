// What to say when the user stops a run.
#pragma once
#include <string>

namespace sagebench {

// From now on SIGINT and SIGTERM, unless they are ignored, write `line` to standard error and then
// end the process as they would have. Only the first call counts.
void say_on_interrupt(const std::string& line);

}  // namespace sagebench
