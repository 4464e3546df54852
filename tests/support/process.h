// Runs the tool as a user would: a process, its exit code, what it printed.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace sagebench {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string shell_quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A folder of the test's own, gone with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sagebench_test_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no scratch folder");
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      out.push_back(entry.path().filename().string());
    return out;
  }

 private:
  std::filesystem::path path_;
};

struct ProcessResult {
  int code = -1;  // exit code, or minus the signal
  std::string out, err;
};

// From the source folder, so that relative paths are those of the README.
inline ProcessResult run_process(const std::vector<std::string>& words) {
  const ScratchFolder scratch;
  std::string command = "cd " + shell_quoted(SAGEBENCH_SOURCE_DIR) + " && exec";
  for (const std::string& word : words) command += " " + shell_quoted(word);
  command +=
      " </dev/null >" + shell_quoted(scratch / "out") + " 2>" + shell_quoted(scratch / "err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(scratch / "out"),
          read_file(scratch / "err")};
}

inline ProcessResult run_tool(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SAGEBENCH_EXECUTABLE);
  return run_process(arguments);
}

inline bool has_gpu() {
  return std::filesystem::exists("/dev/nvidiactl");
}

}  // namespace sagebench
