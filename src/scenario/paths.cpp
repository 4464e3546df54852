#include "scenario/paths.h"

#include <filesystem>
#include <vector>

namespace sagebench {

namespace fs = std::filesystem;
namespace {

// Where a name may lie: beside the config, in the working directory, above the config.
std::vector<std::string> places(const std::string& config_path, const std::string& name) {
  if (name.find('\0') != std::string::npos) return {};  // the system would read up to it
  std::error_code ignored;
  const fs::path file(name), folder = fs::absolute(config_path, ignored).parent_path();
  std::vector<std::string> all{(fs::path(config_path).parent_path() / file).string(),
                               file.string()};
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path())
    all.push_back((at.parent_path() / file).string());
  return all;
}

}  // namespace

std::optional<std::string> find_beside(const std::string& config_path, const std::string& name) {
  std::error_code ignored;
  for (const std::string& place : places(config_path, name))
    if (fs::is_regular_file(place, ignored)) return place;
  return std::nullopt;
}

std::string not_found(const std::string& config_path, const std::string& name) {
  std::error_code ignored;
  for (const std::string& place : places(config_path, name))
    if (fs::exists(place, ignored))
      return "'" + place + "' is " +
             (fs::is_directory(place, ignored) ? "a directory" : "not a regular file") +
             "; name a file";
  return "no file '" + name +
         "' beside the config, in the working directory or in the config's parent directories";
}

}  // namespace sagebench
