// Files that appear whole or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "report/report.h"

namespace sagebench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& why, const std::string& remedy) {
  throw UsageError(path + ": cannot be written: " + why + "; " + remedy);
}

// Where the bytes go: `path` itself, or what it links to, which has to be a file.
fs::path target_of(const std::string& path) {
  std::error_code error;
  fs::path target = path;
  if (fs::is_symlink(fs::symlink_status(target, error))) {
    target = fs::canonical(path, error);
    if (error) fail(path, "it is a broken link", "remove it or name another file");
  }
  const fs::file_status status = fs::status(target, error);
  if (fs::is_directory(status)) fail(path, "it is a directory", "name a file inside it");
  if (fs::exists(status) && !fs::is_regular_file(status))
    fail(path, "it is not a regular file", "name a file");
  return target;
}

// A new file beside the target; removed unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(path),
        target_(target_of(path)),
        name_(target_.string() + ".tmp-" + std::to_string(::getpid())) {
    const mode_t all_may_read_and_write = 0666;  // less the umask
    fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, all_may_read_and_write);
    if (fd_ < 0) {
      const std::string why = std::strerror(errno);
      const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
      fail(path, why, "the directory " + folder.string() + " has to exist and be writable");
    }
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = ::write(fd_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with_errno();
      content.remove_prefix(static_cast<size_t>(written));
    }
  }
  void move_into_place() {
    if (::fsync(fd_) != 0) fail_with_errno();
    if (::close(std::exchange(fd_, -1)) != 0) fail_with_errno();
    if (::rename(name_.c_str(), target_.c_str()) != 0) fail_with_errno();
    renamed_ = true;
  }

 private:
  [[noreturn]] void fail_with_errno() const {
    fail(path_, std::strerror(errno), "free some space or name another file");
  }

  const std::string path_;
  const fs::path target_;
  const std::string name_;
  int fd_ = -1;
  bool renamed_ = false;
};

}  // namespace

void write_file_atomically(const std::string& path, const std::string& content) {
  TemporaryFile file(path);
  file.write(content);
  file.move_into_place();
}

void check_writable(const std::string& path) {
  const TemporaryFile probe(path);
}

}  // namespace sagebench
