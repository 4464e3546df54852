// From what a file says to one JSON object per case: aliases renamed, defaults underneath, sweep
// values set; a Source remembers where each part was written.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "scenario/json_reader.h"

namespace sagebench {

struct Alias {
  const char* alias;
  const char* key;
};
std::span<const Alias> aliases();
std::string canonical_key(const std::string& key);

struct Document {
  Json json = Json::object();
  Source source;
};

// `json` of `file` at `pointer` with canonical keys.
Document canonical_document(const Json& json, const std::string& file, const std::string& pointer);

// `over` on `base`: objects merge key by key, anything else is replaced, and so is a value that is
// one of several forms (lengths, distributions, expectations, tolerances).
Document merged(Document base, const Document& over);

// "model.headdim" -> model, head_dim.
std::vector<std::string> canonical_keys(const std::string& dotted);

// Sets a dotted field ("model.head_dim") to a value written at `pointer`.
void set_field(Document& document, const std::string& dotted, const Json& value,
               const std::string& pointer);

}  // namespace sagebench
