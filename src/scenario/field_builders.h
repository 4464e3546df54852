// Makes rows of the field table from a member of Case.
#pragma once
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "scenario/fields.h"

namespace sagebench {

template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};

// Getter of a member of Case, or of a member's member.
template <class... Members>
auto at(Members... members) {
  return [=](auto& c) -> auto& {
    return (c.*....*members);
  };
}

// A field bound to the member that `get` returns, of a Case or a const Case. null in a file means
// the default, where `get` is an optional.
template <class Get, class Read>
Field bound(const char* key, FieldOps ops, Get get, Read read) {
  using T = std::decay_t<decltype(get(std::declval<Case&>()))>;
  Field f{key, ops, {}, {}, {}, {}};
  f.read = [get, read](const Value& v, Case& c) {
    if constexpr (is_optional<T>::value) {
      if (v.json().is_null()) return;
    }
    get(c) = static_cast<T>(read(v));
  };
  f.write = [get](const Case& c) -> Json {
    const auto json_of = [](const auto& value) -> Json {
      if constexpr (NamedEnum<std::decay_t<decltype(value)>>)
        return name_of(value);
      else
        return value;
    };
    if constexpr (is_optional<T>::value)
      return get(c) ? json_of(*get(c)) : Json();
    else
      return json_of(get(c));
  };
  return f;
}

template <class Get>
Field integer(const char* key, FieldOps ops, int64_t low, int64_t high, Get get) {
  return bound(key, ops, get, [=](const Value& v) { return v.integer(low, high); });
}
template <class Get>
Field number(const char* key, FieldOps ops, double low, double high, Get get) {
  return bound(key, ops, get, [=](const Value& v) { return v.number(low, high); });
}
template <class Get>
Field boolean(const char* key, FieldOps ops, Get get) {
  return bound(key, ops, get, [](const Value& v) { return v.boolean(); });
}
template <NamedEnum E, class Get>
Field choice(const char* key, FieldOps ops, Get get) {
  Field f = bound(key, ops, get, [](const Value& v) { return v.choice<E>(); });
  f.allowed = canonical_names<E>();
  return f;
}
template <class Get>
Field text(const char* key, FieldOps ops, Get get) {
  return bound(key, ops, get, [](const Value& v) { return v.text(); });
}
// A key with one allowed value: it says what happens anyway.
inline Field constant(const char* key, FieldOps ops, const char* value) {
  const std::vector<std::string> allowed{value};
  return {key,
          ops,
          allowed,
          [=](const Value& v, Case&) { v.one_of(allowed); },
          [=](const Case&) { return Json(value); },
          {}};
}
// `shorthand`: a string instead of the object gives its first field.
inline Field block(const char* key, FieldOps ops, std::vector<Field> fields,
                   bool shorthand = false) {
  return {key,
          ops,
          {},
          [=](const Value& v, Case& c) {
            if (shorthand && v.json().is_string())
              fields.front().read(v, c);
            else
              read_fields(v, fields, c);
          },
          [=](const Case& c) { return write_fields(fields, c); },
          fields};
}

}  // namespace sagebench
