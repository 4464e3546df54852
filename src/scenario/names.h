// The names of every choice in a scenario file: one table per enum, for reading, printing and the
// schema. The first row of a value is its canonical name, later rows are aliases.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/case.h"

namespace sagebench {

template <class E>
struct EnumName {
  E value;
  std::string_view name;
};

// The table of E: one overload per enum, chosen by the type of the unused argument.
std::span<const EnumName<OpKind>> enum_names(OpKind);
std::span<const EnumName<DType>> enum_names(DType);  // of inputs and outputs: bf16, fp16
std::span<const EnumName<sage::Granularity>> enum_names(sage::Granularity);
std::span<const EnumName<sage::Smooth>> enum_names(sage::Smooth);
std::span<const EnumName<sage::Rotate>> enum_names(sage::Rotate);
std::span<const EnumName<sage::PvType>> enum_names(sage::PvType);
std::span<const EnumName<sage::PMode>> enum_names(sage::PMode);
std::span<const EnumName<sage::VScale>> enum_names(sage::VScale);
std::span<const EnumName<sage::RopeStyle>> enum_names(sage::RopeStyle);
std::span<const EnumName<RopeScaling>> enum_names(RopeScaling);
std::span<const EnumName<KvLayout>> enum_names(KvLayout);
std::span<const EnumName<CacheIndex>> enum_names(CacheIndex);
std::span<const EnumName<Allocation>> enum_names(Allocation);
std::span<const EnumName<InputForm>> enum_names(InputForm);
std::span<const EnumName<StreamKind>> enum_names(StreamKind);
std::span<const EnumName<Rows>> enum_names(Rows);
std::span<const EnumName<L2>> enum_names(L2);
std::span<const EnumName<ExpectKind>> enum_names(ExpectKind);

template <class E>
concept NamedEnum = requires(E e) {
  enum_names(e);
};

template <NamedEnum E>
std::string_view name_of(E value) {
  for (const EnumName<E>& row : enum_names(value))
    if (row.value == value) return row.name;
  return "?";
}

// Canonical names, in table order.
template <NamedEnum E>
std::vector<std::string> canonical_names() {
  std::vector<std::string> names;
  for (const EnumName<E>& row : enum_names(E{}))
    if (name_of(row.value) == row.name) names.emplace_back(row.name);
  return names;
}

}  // namespace sagebench
