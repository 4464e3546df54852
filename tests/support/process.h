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

// A safetensors file of one sequence with one token, one head and two channels, all bf16 values of
// which have these bits.
inline std::string token_file(unsigned bf16) {
  const std::string header = R"({"q":{"dtype":"BF16","shape":[1,1,2],"data_offsets":[0,4]},)"
                             R"("k":{"dtype":"BF16","shape":[1,1,2],"data_offsets":[4,8]},)"
                             R"("v":{"dtype":"BF16","shape":[1,1,2],"data_offsets":[8,12]},)"
                             R"("cu_seqlens":{"dtype":"I32","shape":[2],"data_offsets":[12,20]}})";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size() % 256);
  text[1] = static_cast<char>(header.size() / 256);
  text += header;
  for (int i = 0; i < 6; ++i)
    text += {static_cast<char>(bf16 % 256), static_cast<char>(bf16 / 256)};
  return text + std::string(4, '\0') + '\1' + std::string(3, '\0');
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
