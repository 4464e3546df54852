// A small typed reader: JSON values that know where in the file they were written, so that every
// error names the file, the JSON pointer, the value and what is allowed.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenario/names.h"

namespace sagebench {

using Json = nlohmann::ordered_json;  // keeps the order of sweep parameters

// Strict JSON with comments. Syntax errors name line and column, repeated keys are errors.
Json parse_json_file(const std::string& path, std::string* text = nullptr);

std::string escape_pointer(const std::string& key);  // "a/b" -> "a~1b"

// Where the parts of a JSON document were written. A scenario is merged from several places of its
// file (defaults, the scenario, sweeps) under canonical names; `written` maps its paths back.
struct Source {
  std::string file;
  std::map<std::string, std::string> written;

  std::string pointer(const std::string& path) const;  // of the nearest enclosing known part
  void forget(const std::string& path);                // the path and everything below it
};

class Value {
 public:
  Value(const Json& json, const Source& source, std::string path = "")
      : json_(&json), source_(&source), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& problem) const;
  // "... is not allowed; expected <expected>", naming the value
  [[noreturn]] void refuse(const std::string& expected) const;
  // An error about a part below this value, which need not be written in the file.
  [[noreturn]] void fail_at(const std::string& path, const std::string& problem) const;

  const Json& json() const { return *json_; }
  std::string pointer() const { return source_->pointer(path_); }
  bool from_defaults() const { return pointer().starts_with("/defaults"); }

  int64_t integer(int64_t low, int64_t high) const;
  uint64_t unsigned_integer() const;
  double number(double low, double high) const;
  bool boolean() const;
  std::string text() const;
  // The index of this name; the error suggests the nearest one.
  size_t one_of(const std::vector<std::string>& names) const;
  template <NamedEnum E>
  E choice() const {
    for (const EnumName<E>& row : enum_names(E{}))
      if (json_->is_string() && json_->get_ref<const std::string&>() == row.name) return row.value;
    one_of(canonical_names<E>());  // throws: no row has it
    return E{};
  }

  std::vector<Value> elements() const;                         // of an array
  std::vector<std::pair<std::string, Value>> members() const;  // of an object
  std::optional<Value> find(const std::string& key) const;     // of an object
  // Every member's key must be one of `keys`; `elsewhere` finds a better place for a stray one.
  void allow_only(const std::vector<std::string>& keys,
                  std::string (*elsewhere)(const std::string&) = nullptr) const;

 private:
  const Json* json_;
  const Source* source_;
  std::string path_;
};

std::string joined(const std::vector<std::string>& names);  // "a, b, c"

}  // namespace sagebench
