#include "inputs/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace sagebench {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;  // bytes, the format's own limit

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr std::array kDTypes = {DTypeName{"BF16", DType::kBf16}, DTypeName{"F16", DType::kFp16},
                                DTypeName{"F32", DType::kFp32}, DTypeName{"I32", DType::kInt32},
                                DTypeName{"I64", DType::kInt64}};

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw UsageError(path + ": not a valid safetensors file: " + problem);
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name, const Json& j) {
  const auto bad = [&](const std::string& problem) {
    fail(path, "tensor '" + name + "': " + problem);
  };
  const auto member = [&](const char* key, bool (Json::*is)() const noexcept, const char* what) {
    const auto found = j.find(key);
    if (found == j.end()) bad(std::string("has no ") + key);
    if (!((*found).*is)()) bad(std::string(key) + " is not " + what);
    return *found;
  };
  if (!j.is_object()) bad("is not an object of dtype, shape and data_offsets");
  SafetensorsEntry e;
  const auto dtype = member("dtype", &Json::is_string, "a name").get<std::string>();
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(),
                                [&](const DTypeName& d) { return dtype == d.name; });
  if (row == kDTypes.end())
    bad("dtype " + dtype + " is not read here; allowed: BF16, F16, F32, I32, I64");
  e.dtype = row->dtype;
  auto bytes = static_cast<int64_t>(size_of(e.dtype));
  for (const Json& extent : member("shape", &Json::is_array, "a list of sizes")) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > (uint64_t{1} << 48))
      bad("shape entry " + extent.dump() + " is not a size");
    e.shape.push_back(extent.get<int64_t>());
    if (__builtin_mul_overflow(bytes, e.shape.back(), &bytes)) bad("shape is too large");
  }
  const Json offsets = member("data_offsets", &Json::is_array, "a pair of byte offsets");
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    bad("data_offsets is not a pair of byte offsets");
  e.begin = offsets[0].get<int64_t>();
  e.end = offsets[1].get<int64_t>();
  if (e.begin < 0 || e.end < e.begin) bad("data_offsets run backwards");
  if (e.end - e.begin != bytes)
    bad("shape and dtype need " + std::to_string(bytes) + " bytes, data_offsets span " +
        std::to_string(e.end - e.begin));
  return e;
}

// Tensor names to what is said of them; everything but __metadata__.
Json parse_header(const std::string& path, const std::string& header) {
  std::set<std::string> seen;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    constexpr int kDeepest = 8;  // dump() recurses
    if (depth > kDeepest) fail(path, "the header nests deeper than 8 levels");
    if (event == Json::parse_event_t::key && depth == 1 &&
        !seen.insert(parsed.get<std::string>()).second)
      fail(path, "tensor '" + parsed.get<std::string>() + "' occurs twice in the header");
    return true;
  };
  Json json;
  try {
    json = Json::parse(header, watch);
  } catch (const Json::parse_error& e) {
    fail(path, "the header is not JSON, as of its byte " + std::to_string(e.byte));
  } catch (const Json::out_of_range&) {
    fail(path, "a number in the header is out of range");
  }
  if (!json.is_object()) fail(path, "the header is not a JSON object");
  if (const auto metadata = json.find("__metadata__"); metadata != json.end()) {
    if (!metadata->is_object()) fail(path, "__metadata__ is not an object");
    json.erase(metadata);
  }
  return json;
}

// The tensors must cover the data section exactly: no overlap, no hole, nothing behind.
void check_coverage(const std::string& path, const std::map<std::string, SafetensorsEntry>& entries,
                    int64_t data_bytes) {
  std::vector<std::pair<const SafetensorsEntry*, std::string>> order;
  for (const auto& [name, e] : entries) order.emplace_back(&e, name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  int64_t covered = 0;
  for (const auto& [e, name] : order) {
    if (e->end > data_bytes)
      fail(path, "tensor '" + name + "' ends at byte " + std::to_string(e->end) +
                     " of the data, the file holds " + std::to_string(data_bytes));
    if (e->begin < covered) fail(path, "tensor '" + name + "' overlaps another one");
    if (e->begin > covered)
      fail(path, std::to_string(e->begin - covered) + " unused bytes before tensor '" + name + "'");
    covered = e->end;
  }
  if (covered != data_bytes)
    fail(path, std::to_string(data_bytes - covered) + " trailing bytes behind the last tensor");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw UsageError(path + ": is a directory; name a safetensors file");
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (!in || error) throw UsageError(path + ": cannot read the file");
  std::array<unsigned char, 8> raw{};
  if (!in.read(reinterpret_cast<char*>(raw.data()), 8))
    fail(path, "shorter than the 8 bytes of its header length");
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(raw[i]) << (8 * i);
  if (length > static_cast<uint64_t>(std::min(kMaxHeader, size - 8)))
    fail(path, "header length " + std::to_string(length) + " does not fit a file of " +
                   std::to_string(size) + " bytes");
  std::string header(length, '\0');
  if (!in.read(header.data(), static_cast<std::streamsize>(length))) fail(path, "truncated header");
  data_start_ = 8 + static_cast<int64_t>(length);
  const Json json = parse_header(path, header);
  for (const auto& [name, value] : json.items()) entries_[name] = parse_entry(path, name, value);
  check_coverage(path, entries_, size - data_start_);
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it != entries_.end()) return it->second;
  std::string names;
  for (const auto& [known, e] : entries_) names += (names.empty() ? "" : ", ") + known;
  throw UsageError(path_ + ": no tensor '" + name + "'; the file holds: " + names);
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const SafetensorsEntry& e = entry(name);
  Tensor t(e.dtype, e.shape.empty() ? std::vector<int64_t>{1} : e.shape);
  std::ifstream in(path_, std::ios::binary);
  in.seekg(data_start_ + e.begin);
  if (!in.read(reinterpret_cast<char*>(t.bytes.data()),
               static_cast<std::streamsize>(t.bytes.size())))
    throw UsageError(path_ + ": cannot read tensor '" + name + "'");
  return t;
}

}  // namespace sagebench
