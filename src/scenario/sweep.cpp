#include "scenario/sweep.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"

namespace sagebench {
namespace {

constexpr size_t kMaxCases = 10000;  // of one scenario

struct Parameter {
  Value list;                     // as written
  std::string field;              // dotted
  std::vector<std::string> keys;  // the same, canonical
  std::vector<Value> values;
  std::vector<std::string> labels;  // "head_dim=64", one of each value
};

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

std::vector<Parameter> read_parameters(const Value& sweep, const char* kind) {
  std::vector<Parameter> parameters;
  const auto block = sweep.find(kind);
  if (!block) return parameters;
  for (const auto& [field, list] : block->members()) {
    if (field == "name" || field.starts_with("sweep")) list.fail("'" + field + "' cannot be swept");
    const std::vector<std::string> keys = canonical_keys(field);
    if (std::find(keys.begin(), keys.end(), "") != keys.end())
      list.fail("'" + field + "' is not a field: a name is empty; expected block.field");
    const std::vector<Value> values = list.elements();
    if (values.empty()) list.refuse("at least one value");
    parameters.push_back({list, field, keys, values, {}});
  }
  return parameters;
}

// A field and itself under an alias, or a field and the block around it: the later one would
// replace what the id says of the earlier.
void check_apart(const std::vector<Parameter*>& all) {
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Parameter &first = *all[j], &second = *all[i];
      const size_t shared = std::min(first.keys.size(), second.keys.size());
      if (std::equal(first.keys.begin(), first.keys.begin() + static_cast<int64_t>(shared),
                     second.keys.begin()))
        second.list.fail("'" + second.field + "' and '" + first.field + "', swept at " +
                         first.list.pointer() + ", set the same values; sweep one of them");
    }
}

// Labels name the last key of a field, or all of it where that is not unique, and the value, or its
// number where its text is long or stands for several.
void set_labels(const std::vector<Parameter*>& all) {
  constexpr size_t kLongest = 48;
  for (Parameter* p : all) {
    std::string name = p->keys.back();
    for (const Parameter* other : all)
      if (p != other && p->keys.back() == other->keys.back()) name = p->field;
    std::map<std::string, std::set<std::string>> values_of;  // zip repeats values: one text is fine
    for (const Value& value : p->values)
      values_of[label_of(value.json())].insert(value.json().dump());
    for (size_t i = 0; i < p->values.size(); ++i) {
      const std::string text = label_of(p->values[i].json());
      const bool good = !text.empty() && text.size() <= kLongest && values_of[text].size() == 1;
      p->labels.push_back(name + "=" + (good ? text : "v" + std::to_string(i + 1)));
    }
  }
}

}  // namespace

std::vector<SweepCase> expand_sweep(const Document& base, const Json& json, const std::string& file,
                                    const std::string& pointer) {
  if (json.is_null()) return {{"", base, {}}};
  Source source{file, {{"", pointer}}};
  const Value sweep(json, source);
  sweep.allow_only({"cartesian", "zip"});
  std::vector<Parameter> zip = read_parameters(sweep, "zip");
  std::vector<Parameter> cartesian = read_parameters(sweep, "cartesian");
  if (zip.empty() && cartesian.empty()) sweep.refuse("at least one field under cartesian or zip");
  std::vector<Parameter*> all;
  for (Parameter& p : zip) all.push_back(&p);
  for (Parameter& p : cartesian) all.push_back(&p);
  check_apart(all);
  set_labels(all);
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
    SweepCase one{"", base, {}};
    const auto set = [&](const Parameter& p, size_t index) {
      one.suffix += (one.suffix.empty() ? "" : ",") + p.labels[index];
      one.pointers.push_back(p.values[index].pointer());
      set_field(one.document, p.field, p.values[index].json(), one.pointers.back());
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
