// The distributions that a scenario may name: one row each.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "inputs/distribution_plan.h"
#include "scenario/case.h"

namespace sagebench {

struct DistributionParam {
  const char* name;
  double fallback, low, high;                         // default and allowed range
  std::vector<std::pair<const char*, double>> words;  // names for values, canonical ones first
};

struct DistributionRow {
  const char* name;
  const char* tensors;  // those it makes sense on: a subset of "qkv"
  std::vector<DistributionParam> params;
  const char* what;
  // The change to a value, or nullptr: none to a live one.
  PlanStep (*step)(const Case& c, const Distribution& d, TensorId tensor);

  bool on(char tensor) const { return std::string(tensors).find(tensor) != std::string::npos; }
};
const std::vector<DistributionRow>& distributions();
const DistributionRow* find_distribution(const std::string& name);

// The value of a parameter, or its default.
double param_of(const Distribution& d, const std::string& name);

// Plan of one tensor of a case; `seed` is the case's seed plus whatever makes the values fresh.
DistributionPlan make_plan(const Case& c, TensorId tensor, uint64_t seed);

// Rows of NaN behind the last live token, in every buffer, when a tensor asks for nan_in_padding.
int64_t padding_rows(const Case& c);

}  // namespace sagebench
