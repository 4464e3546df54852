// Reads safetensors files: 8 bytes of header length, a JSON header, tensor bytes. A malformed file
// is a UsageError that names the file and what is wrong.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace sagebench {

struct SafetensorsEntry {
  DType dtype = DType::kFp32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes within the data section
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);  // reads and checks the header

  // Throws UsageError naming the tensors the file holds.
  const SafetensorsEntry& entry(const std::string& name) const;
  Tensor read(const std::string& name) const;

 private:
  std::string path_;
  int64_t data_start_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace sagebench
