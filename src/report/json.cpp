// JSON, schema sagebench.results/1, written and read through fields.h.
//
// Strict: absent is null, never 0; a number that is not finite is null with a sibling
// "<name>_reason" of "nan", "inf" or "-inf".
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "report/fields.h"
#include "report/text.h"

namespace sagebench {
namespace {

using Json = nlohmann::ordered_json;
constexpr char kSchema[] = "sagebench.results/1";

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

// The enums of a report, by the names they have in it.
constexpr Stage kStages[] = {Stage::kRope,   Stage::kCache, Stage::kOffset, Stage::kQkCodes,
                             Stage::kVCodes, Stage::kO,     Stage::kLse};
constexpr CaseStatus kStatuses[] = {
    CaseStatus::kPassed,   CaseStatus::kWrong,   CaseStatus::kUnchecked, CaseStatus::kUnsupported,
    CaseStatus::kRejected, CaseStatus::kSkipped, CaseStatus::kError};
constexpr const auto& values_of(Stage) {
  return kStages;
}
constexpr const auto& values_of(CaseStatus) {
  return kStatuses;
}

// ---- writing -----------------------------------------------------------------------------------

const char* not_finite(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

class Writer {
 public:
  bool has_lse = false;  // of the result being written: lse_max_error is null without one
  Json json = Json::object();

  template <class T>
  void operator()(const char* key, T& value) {
    json[key] = to_json(value);
    if constexpr (std::is_same_v<T, double>) {
      if (!std::isfinite(value)) json[std::string(key) + "_reason"] = not_finite(value);
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      if (value && !std::isfinite(*value)) json[std::string(key) + "_reason"] = not_finite(*value);
    }
  }
  template <class Describe>
  void group(const char* key, Describe describe) {
    Writer inner;
    describe(inner);
    json[key] = std::move(inner.json);
  }
  template <class Describe>
  void group_or_null(const char* key, bool present, Describe describe) {
    if (present)
      group(key, describe);
    else
      json[key] = nullptr;
  }
  void embedded(const char* key, const std::string& text) {
    json[key] = text.empty() ? Json() : Json::parse(text);
  }
  void reserved(const char* key) { json[key] = nullptr; }

 private:
  template <class T>
  Json to_json(T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      return value.empty() ? Json() : Json(value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return Json(value);  // dump() turns what is not finite into null
    } else if constexpr (std::is_enum_v<T>) {
      return name_of(value);
    } else if constexpr (IsOptional<T>::value) {
      return value ? to_json(*value) : Json();
    } else if constexpr (IsVector<T>::value) {
      Json list = Json::array();
      for (auto& element : value) list.push_back(to_json(element));
      return list;
    } else {
      Writer inner;
      inner.has_lse = has_lse;
      fields(inner, value);
      return std::move(inner.json);
    }
  }
};

// ---- reading -----------------------------------------------------------------------------------

class Reader {
 public:
  bool has_lse = false;

  Reader(const Json& json, std::string file, std::string pointer)
      : json_(json), file_(std::move(file)), pointer_(std::move(pointer)) {
    if (!json.is_object()) fail(pointer_, "not an object");
  }

  template <class T>
  void operator()(const char* key, T& value) {
    const Json& json = member(key);
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
      if (const auto reason = json_.find(std::string(key) + "_reason"); reason != json_.end()) {
        value = non_finite(*reason);
        return;
      }
    from_json(json, pointer_ + "/" + key, value);
  }
  template <class Describe>
  void group(const char* key, Describe describe) {
    Reader inner(member(key), file_, pointer_ + "/" + key);
    describe(inner);
  }
  template <class Describe>
  void group_or_null(const char* key, bool, Describe describe) {
    if (!member(key).is_null()) group(key, describe);
  }
  void embedded(const char* key, std::string& text) {
    const Json& json = member(key);
    text = json.is_null() ? "" : json.dump();
  }
  void reserved(const char*) {}

 private:
  [[noreturn]] void fail(const std::string& at, const std::string& why) const {
    throw UsageError(file_ + ": " + at + ": " + why + "; not a results file of schema " + kSchema);
  }
  const Json& member(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(pointer_ + "/" + key, "is missing");
    return *found;
  }
  static double non_finite(const Json& reason) {
    if (reason == "inf") return std::numeric_limits<double>::infinity();
    if (reason == "-inf") return -std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }
  template <class T>
  void from_json(const Json& json, const std::string& at, T& value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string() && !json.is_null()) fail(at, "is not a string or null");
      value = json.is_null() ? "" : json.get<std::string>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) fail(at, "is not true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      if (!json.is_number_integer()) fail(at, "is not an integer");
      value = json.get<T>();
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (!json.is_number()) fail(at, "is not a number");
      value = json.get<T>();
    } else if constexpr (std::is_enum_v<T>) {
      for (const T candidate : values_of(T{}))
        if (json == name_of(candidate)) return void(value = candidate);
      fail(at, "is not a known name: " + json.dump());
    } else if constexpr (IsOptional<T>::value) {
      value.reset();
      if (!json.is_null()) from_json(json, at, value.emplace());
    } else if constexpr (IsVector<T>::value) {
      if (!json.is_array()) fail(at, "is not a list");
      value.clear();
      for (const Json& element : json) {
        const std::string element_at = at + "/" + std::to_string(value.size());
        auto& read = value.emplace_back();
        if constexpr (std::is_same_v<T, std::vector<double>>)
          if (element.is_null()) {
            read = std::numeric_limits<double>::quiet_NaN();
            continue;
          }
        from_json(element, element_at, read);
      }
    } else {
      Reader inner(json, file_, at);
      fields(inner, value);
    }
  }

  const Json& json_;
  const std::string file_, pointer_;
};

}  // namespace

std::string render_json(const Report& report) {
  Report copy = report;  // fields() takes what a reader would fill
  Writer writer;
  writer.json["schema"] = kSchema;
  fields(writer, copy);
  return writer.json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Report read_json_report(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError(path + ": cannot be read; name a results file that exists");
  const auto refuse_depth = [&](int depth, Json::parse_event_t, Json&) {
    constexpr int kDeepest = 64;  // dump() recurses
    if (depth > kDeepest) throw UsageError(path + ": not a results file: nested too deep");
    return true;
  };
  Json json;
  try {
    json = Json::parse(file, refuse_depth);
  } catch (const Json::parse_error& e) {
    throw UsageError(path + ": not a results file: no JSON as of its byte " +
                     std::to_string(e.byte));
  } catch (const Json::out_of_range&) {
    throw UsageError(path + ": not a results file: a number is out of range");
  }
  if (!json.is_object() || json.value("schema", Json()) != kSchema)
    throw UsageError(path + ": /schema: not a results file of schema " + kSchema);
  Report report;
  Reader reader(json, path, "");
  fields(reader, report);
  return report;
}

}  // namespace sagebench
