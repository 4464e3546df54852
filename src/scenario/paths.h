// Files that a scenario file names.
#pragma once
#include <optional>
#include <string>

namespace sagebench {

// Beside the config, then from the working directory, then from the config's parent directories.
std::optional<std::string> find_beside(const std::string& config_path, const std::string& name);
std::string not_found(const std::string& config_path,
                      const std::string& name);  // the error, naming the places

}  // namespace sagebench
