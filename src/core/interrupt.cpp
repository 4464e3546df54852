#include "core/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace sagebench {
namespace {

const std::string* said_line = nullptr;

// Calls only what is safe in a signal handler.
void on_signal(int signal) {
  const ssize_t written = ::write(STDERR_FILENO, said_line->data(), said_line->size());
  static_cast<void>(written);  // nothing can be done about it here
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void say_on_interrupt(const std::string& line) {
  if (said_line) return;
  static const std::string kept = line + "\n";
  said_line = &kept;
  for (const int signal : {SIGINT, SIGTERM})
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
}

}  // namespace sagebench
