#include "scenario/paths.h"

#include <filesystem>

namespace sagebench {

namespace fs = std::filesystem;

std::optional<std::string> find_beside(const std::string& config_path, const std::string& name) {
  std::error_code ignored;
  const fs::path file(name), folder = fs::absolute(config_path, ignored).parent_path();
  const auto found = [&](const fs::path& path) { return fs::is_regular_file(path, ignored); };
  const fs::path beside = fs::path(config_path).parent_path() / file;
  if (found(beside)) return beside.string();
  if (found(file)) return file.string();
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path())
    if (found(at.parent_path() / file)) return (at.parent_path() / file).string();
  return std::nullopt;
}

std::string not_found(const std::string& name) {
  return "no file '" + name +
         "' beside the config, in the working directory or in the config's parent directories";
}

}  // namespace sagebench
