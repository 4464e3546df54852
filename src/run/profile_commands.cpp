#include <cctype>
#include <filesystem>

#include "run/executor.h"
#include "run/nvtx.h"

namespace sagebench {
namespace {

// Single-quoted for a POSIX shell unless it is plainly safe.
std::string quoted(const std::string& text) {
  const std::string safe = "_-./=:,@%+";
  bool plain = !text.empty();
  for (const char c : text)
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) || safe.find(c) != safe.npos);
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string file_name_of(const std::string& id) {
  std::string name = id;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return name;
}

std::string this_executable() {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? "sagebench" : path.string();
}

}  // namespace

ProfileCommands profile_commands(const std::string& id, const std::string& config) {
  const std::string run = quoted(this_executable()) + " --config " + quoted(config) + " --only " +
                          quoted(id) + " --profile";
  const std::string file = file_name_of(id);
  ProfileCommands commands;
  commands.ncu = "ncu --clock-control none --check-exit-code no --nvtx --nvtx-include " +
                 quoted(std::string(kNvtxDomain) + "@" + kProfileTarget + "/") +
                 " --set full --import-source yes --force-overwrite -o results/" + file + " " + run;
  commands.nsys =
      "nsys profile --trace=cuda,nvtx --capture-range=cudaProfilerApi --capture-range-end=stop "
      "--force-overwrite=true -o results/" +
      file + " " + run;
  return commands;
}

}  // namespace sagebench
