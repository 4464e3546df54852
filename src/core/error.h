// Errors for the reader: one line that names the place, the value and what is allowed.
// Thrown anywhere, turned into an exit code only in main.
#pragma once
#include <stdexcept>
#include <string>

namespace sagebench {

// Exit codes of the process. When several causes meet, the first of this order wins:
// wrong result, internal, no GPU, regression, no verdict.
enum class ExitCode {
  kOk = 0,
  kRegression = 1,
  kUsage = 2,  // bad usage, config or schema, before any GPU work
  kWrongResult = 3,
  kNoVerdict = 4,  // nothing matched, nothing supported, too little memory
  kNoGpu = 5,
  kInternal = 6,  // CUDA or internal error
};

// With what would cut a line short or act on a terminal as \x..: messages quote names and files.
std::string printable(const std::string& text);

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message)
      : std::runtime_error(printable(message)), code(code) {}
  const ExitCode code;
};

struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

}  // namespace sagebench
