#include "scenario/json_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/nearest.h"

namespace sagebench {
namespace {

constexpr size_t kDeepest = 64;  // what reads the values recurses

// The open objects and arrays while parsing: finds repeated keys, which the parser would merge, and
// too many levels.
class OpenParts {
 public:
  explicit OpenParts(const std::string& file) : file_(file) {}

  void event(Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::key) {
      Frame& frame = frames_.back();
      frame.key = parsed.get<std::string>();
      if (!frame.keys.insert(frame.key).second)
        throw UsageError(file_ + ": " + pointer() + ": the key '" + frame.key + "' occurs twice");
      return;
    }
    if (event == Event::object_start || event == Event::array_start) {
      if (frames_.size() == kDeepest)
        throw UsageError(file_ + ": " + pointer() + ": nested deeper than " +
                         std::to_string(kDeepest) + " levels");
      frames_.push_back({{}, "", 0, event == Event::array_start});
      return;
    }
    if (event != Event::value) frames_.pop_back();
    if (!frames_.empty() && frames_.back().is_array) ++frames_.back().next;
  }

  // Of the value being read, or read next.
  std::string pointer() const {
    std::string p;
    for (const Frame& frame : frames_)
      p += "/" + (frame.is_array ? std::to_string(frame.next) : escape_pointer(frame.key));
    return p;
  }

 private:
  struct Frame {
    std::set<std::string> keys;
    std::string key;   // of the member being read
    int64_t next = 0;  // the element being read
    bool is_array = false;
  };

  const std::string& file_;
  std::vector<Frame> frames_;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(path + ": cannot open: " + std::strerror(errno));
  if (std::filesystem::is_directory(path)) throw UsageError(path + ": is a directory");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// "line 3, column 14" of the byte after which reading failed.
std::string place_in(const std::string& text, size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size() + 1) -
                                                              (byte > 0 ? 1 : 0));
  const auto line = 1 + std::count(text.begin(), end, '\n');
  const auto last_break = std::find(std::make_reverse_iterator(end), text.rend(), '\n');
  return "line " + std::to_string(line) + ", column " +
         std::to_string(1 + std::distance(std::make_reverse_iterator(end), last_break));
}

std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// "; did you mean 'x'? allowed: ...", or without the guess.
std::string suggestion(const std::string& typed, const std::vector<std::string>& names) {
  const std::string guess = did_you_mean(typed, names);
  return (guess.empty() ? ";" : guess) + " allowed: " + joined(names);
}

}  // namespace

Json parse_json_file(const std::string& path, std::string* text_out) {
  const std::string text = read_file(path);
  if (text_out) *text_out = text;
  OpenParts open(path);
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    open.event(event, parsed);
    return true;
  };
  try {
    return Json::parse(text, watch, true, true);
  } catch (const Json::parse_error& e) {
    // "[json.exception...] parse error at line 1, column 2: syntax error ...": the place is ours
    const std::string what = e.what();
    const size_t colon = what.find(": ");
    throw UsageError(path + ": " + place_in(text, e.byte) + ": not valid JSON: " +
                     (colon == std::string::npos ? what : what.substr(colon + 2)));
  } catch (const Json::out_of_range&) {
    throw UsageError(path + ": " + open.pointer() +
                     ": a number that is out of range; expected one that a double can hold");
  }
}

std::string escape_pointer(const std::string& key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

std::string Source::pointer(const std::string& path) const {
  std::string known = path;
  for (;;) {
    if (const auto it = written.find(known); it != written.end())
      return it->second + path.substr(known.size());
    if (known.empty()) return path;
    known.erase(known.rfind('/'));
  }
}

void Source::forget(const std::string& path) {
  written.erase(path);
  const std::string below = path + "/";
  auto it = written.lower_bound(below);
  while (it != written.end() && it->first.starts_with(below)) it = written.erase(it);
}

void Value::fail(const std::string& problem) const {
  const std::string at = pointer();
  throw UsageError(source_->file + ": " + (at.empty() ? "/" : at) + ": " + problem);
}

void Value::refuse(const std::string& expected) const {
  fail(shown(*json_) + " is not allowed; expected " + expected);
}

void Value::fail_at(const std::string& path, const std::string& problem) const {
  Value(*json_, *source_, path_ + path).fail(problem);
}

int64_t Value::integer(int64_t low, int64_t high) const {
  const bool fits =
      json_->is_number_integer() &&
      !(json_->is_number_unsigned() && json_->get<uint64_t>() > uint64_t{INT64_MAX}) &&
      json_->get<int64_t>() >= low && json_->get<int64_t>() <= high;
  if (!fits) refuse("an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return json_->get<int64_t>();
}

uint64_t Value::unsigned_integer() const {
  if (!json_->is_number_unsigned()) refuse("an integer from 0 to 2^64 - 1");
  return json_->get<uint64_t>();
}

double Value::number(double low, double high) const {
  if (!json_->is_number() || !(json_->get<double>() >= low && json_->get<double>() <= high))
    refuse("a number from " + Json(low).dump() + " to " + Json(high).dump());
  return json_->get<double>();
}

bool Value::boolean() const {
  if (!json_->is_boolean()) refuse("true or false");
  return json_->get<bool>();
}

std::string Value::text() const {
  if (!json_->is_string()) refuse("a string");
  return json_->get<std::string>();
}

size_t Value::one_of(const std::vector<std::string>& names) const {
  if (!json_->is_string()) refuse("one of: " + joined(names));
  const auto it = std::find(names.begin(), names.end(), json_->get<std::string>());
  if (it == names.end())
    fail("unknown value " + shown(*json_) + suggestion(json_->get<std::string>(), names));
  return static_cast<size_t>(it - names.begin());
}

std::vector<Value> Value::elements() const {
  if (!json_->is_array()) refuse("a list");
  std::vector<Value> values;
  values.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i)
    values.emplace_back((*json_)[i], *source_, path_ + "/" + std::to_string(i));
  return values;
}

std::vector<std::pair<std::string, Value>> Value::members() const {
  if (!json_->is_object()) refuse("an object");
  std::vector<std::pair<std::string, Value>> values;
  for (const auto& [key, value] : json_->items())
    values.emplace_back(key, Value(value, *source_, path_ + "/" + escape_pointer(key)));
  return values;
}

std::optional<Value> Value::find(const std::string& key) const {
  if (!json_->is_object()) refuse("an object");
  const auto it = json_->find(key);
  if (it == json_->end()) return std::nullopt;
  return Value(*it, *source_, path_ + "/" + escape_pointer(key));
}

void Value::allow_only(const std::vector<std::string>& keys,
                       std::string (*elsewhere)(const std::string&)) const {
  for (const auto& [key, value] : members()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string place = elsewhere ? elsewhere(key) : "";
    value.fail("unknown key '" + key + "'" +
               (place.empty() ? suggestion(key, keys)
                              : "; did you mean '" + place + "'? allowed: " + joined(keys)));
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace sagebench
