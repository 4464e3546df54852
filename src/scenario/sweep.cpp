#include "scenario/sweep.h"

#include <algorithm>

#include "core/error.h"

namespace sagebench {
namespace {

constexpr size_t kMaxCases = 10000;  // of one scenario

struct Parameter {
  std::string field;  // dotted
  std::string label;  // its last component, or all of it where that is not unique
  std::vector<Value> values;
};

std::string last_component(const std::string& dotted) {
  return canonical_key(dotted.substr(dotted.rfind('.') + 1));
}

// A value as part of an id: no spaces, quotes or brackets for a shell to trip over.
std::string label_of(const Json& value) {
  if (value.is_array() || value.is_object()) {
    std::string text;
    for (const auto& [key, part] : value.items())
      text += (text.empty() ? "" : "_") + (value.is_object() && key != "name" ? key + ":" : "") +
              label_of(part);
    return text;
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  for (char& c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ||
                       c == '+' || c == '/' || c == '_';
    if (!plain) c = '_';
  }
  return text;
}

std::string label_of(const Parameter& p, size_t index) {
  constexpr size_t kLongest = 48;
  const std::string text = label_of(p.values[index].json());
  return p.label + "=" +
         (text.empty() || text.size() > kLongest ? "v" + std::to_string(index + 1) : text);
}

std::vector<Parameter> read_parameters(const Value& sweep, const char* kind) {
  std::vector<Parameter> parameters;
  const auto block = sweep.find(kind);
  if (!block) return parameters;
  for (const auto& [field, list] : block->members()) {
    if (field == "name" || field.starts_with("sweep")) list.fail("'" + field + "' cannot be swept");
    const std::vector<Value> values = list.elements();
    if (values.empty()) list.refuse("at least one value");
    parameters.push_back({field, last_component(field), values});
  }
  return parameters;
}

void set_labels(std::vector<Parameter>& zip, std::vector<Parameter>& cartesian) {
  std::vector<Parameter*> all;
  for (Parameter& p : zip) all.push_back(&p);
  for (Parameter& p : cartesian) all.push_back(&p);
  for (Parameter* p : all)
    for (const Parameter* other : all)
      if (p != other && last_component(p->field) == last_component(other->field))
        p->label = p->field;
}

}  // namespace

std::vector<SweepCase> expand_sweep(const Document& base, const Json& json, const std::string& file,
                                    const std::string& pointer) {
  if (json.is_null()) return {{"", base}};
  Source source{file, {{"", pointer}}};
  const Value sweep(json, source);
  sweep.allow_only({"cartesian", "zip"});
  std::vector<Parameter> zip = read_parameters(sweep, "zip");
  std::vector<Parameter> cartesian = read_parameters(sweep, "cartesian");
  if (zip.empty() && cartesian.empty()) sweep.refuse("at least one field under cartesian or zip");
  for (const Parameter& z : zip)
    for (const Parameter& c : cartesian)
      if (z.field == c.field)
        sweep.find("zip")->fail("field '" + z.field + "' is swept under cartesian as well");
  set_labels(zip, cartesian);
  const size_t rows = zip.empty() ? 1 : zip[0].values.size();
  for (const Parameter& p : zip)
    if (p.values.size() != rows)
      sweep.find("zip")->fail("lists of unlike length: '" + zip[0].field + "' has " +
                              std::to_string(rows) + " values, '" + p.field + "' has " +
                              std::to_string(p.values.size()));
  size_t count = rows;
  for (const Parameter& p : cartesian) {
    count *= p.values.size();
    if (count > kMaxCases) sweep.fail("more than " + std::to_string(kMaxCases) + " cases");
  }
  std::vector<SweepCase> cases;
  for (size_t i = 0; i < count; ++i) {
    SweepCase one{"", base};
    const auto set = [&](const Parameter& p, size_t index) {
      one.suffix += (one.suffix.empty() ? "" : ",") + label_of(p, index);
      set_field(one.document, p.field, p.values[index].json(), p.values[index].pointer());
    };
    size_t rest = i, stride = count / rows;
    for (const Parameter& p : zip) set(p, i / stride);
    rest %= stride;
    for (const Parameter& p : cartesian) {
      stride /= p.values.size();
      set(p, rest / stride);
      rest %= stride;
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace sagebench
