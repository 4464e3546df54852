#include "scenario/expectations.h"

#include <algorithm>

#include "ops/op.h"
#include "properties.h"

namespace sagebench {
namespace {

enum class Reference { kExact, kEmulated };
struct ToleranceRow {
  const char* key;
  std::optional<double> Tolerance::*member;
  Reference against = Reference::kExact;
};
constexpr ToleranceRow kTolerances[] = {
    {"rel_l1", &Tolerance::rel_l1},
    {"cosine", &Tolerance::cosine},
    {"worst_row", &Tolerance::worst_row},
    {"norm_ratio", &Tolerance::norm_ratio},
    {"rel_l1_emulated", &Tolerance::rel_l1_emulated, Reference::kEmulated}};

constexpr double kMost = 1e9;

bool among(const std::vector<std::string>& names, const std::string& key) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

bool measures(const Case& c, Reference against) {
  return op_of(c.op).attends &&
         (against == Reference::kExact ? c.validate.exact : c.validate.emulated);
}

// A bound on what the case does not measure would never be looked at. In the defaults it may be
// meant for other ops: false, then.
bool applies(const Value& bound, const Case& c, const std::string& metric, Reference against,
             const std::vector<std::string>& allowed) {
  if (measures(c, against)) return true;
  const Op& op = op_of(c.op);
  if (bound.from_defaults() && !op.attends) return false;
  const std::string why =
      op.attends ? "'" + metric + "' is against the reference that validate.reference leaves out"
                 : "op " + std::string(op.name) + " has no metric '" + metric +
                       "': it is checked without tolerance";
  bound.fail(why + "; allowed metrics: " + (allowed.empty() ? "none" : joined(allowed)));
}

// Keys of one expectation that is not just a status.
std::vector<std::string> expectation_keys() {
  std::vector<std::string> keys = range_metrics();
  keys.insert(keys.end(), {"status", "why"});
  return keys;
}

// Whether an object's keys are kernels; a key that is nothing known is an error.
bool is_per_kernel(const Value& v, OpKind op) {
  if (!v.json().is_object()) return false;
  std::vector<std::string> own = expectation_keys(), kernels = kernel_names(op);
  kernels.emplace_back("*");
  for (const auto& [key, value] : v.members())
    if (among(kernels, key)) {
      v.allow_only(kernels);
      return true;
    }
  own.insert(own.end(), kernels.begin(), kernels.end());
  v.allow_only(own);
  return false;
}

std::string required_why(const Value& v) {
  const std::optional<Value> why = v.find("why");
  if (!why || why->text().empty())
    v.fail("missing key 'why'; expected a text: a bound of one's own needs its reason");
  return why->text();
}

std::vector<std::string> expectation_words() {
  std::vector<std::string> words = canonical_names<ExpectKind>();
  std::erase(words, "range");  // is an object
  return words;
}

Expectation read_one_expectation(const Value& v, const Case& c) {
  Expectation e;
  if (!v.json().is_object()) {
    if (!v.json().is_string())
      v.refuse("one of: " + joined(expectation_words()) +
               ", or an object of ranges with a why, or of kernels");
    v.one_of(expectation_words());
    e.kind = v.choice<ExpectKind>();
    return e;
  }
  v.allow_only(expectation_keys());
  e.why = required_why(v);
  if (const auto status = v.find("status")) {
    status->one_of(expectation_words());
    e.kind = status->choice<ExpectKind>();
  }
  for (const std::string& metric : range_metrics()) {
    const std::optional<Value> range = v.find(metric);
    if (!range) continue;
    const std::vector<std::string> allowed =
        measures(c, Reference::kExact) ? range_metrics() : std::vector<std::string>{};
    if (!applies(*range, c, metric, Reference::kExact, allowed)) return {};
    const std::vector<Value> ends = range->elements();
    if (ends.size() != 2) range->refuse("[low, high]");
    const double low = ends[0].number(-kMost, kMost), high = ends[1].number(-kMost, kMost);
    if (low > high) range->refuse("[low, high] with low <= high");
    e.ranges[metric] = {low, high};
  }
  if (e.ranges.empty() && !v.find("status"))
    v.fail("expected a status, or a range of: " + joined(range_metrics()));
  if (!e.ranges.empty()) {
    if (v.find("status")) v.fail("status and ranges exclude each other");
    e.kind = ExpectKind::kRange;
  }
  return e;
}

Json write_one_expectation(const Expectation& e) {
  if (e.why.empty()) return name_of(e.kind);
  Json out = Json::object();
  if (e.kind != ExpectKind::kRange) out["status"] = name_of(e.kind);
  for (const std::string& metric : range_metrics())
    if (const auto it = e.ranges.find(metric); it != e.ranges.end())
      out[metric] = {it->second.first, it->second.second};
  out["why"] = e.why;
  return out;
}

}  // namespace

std::vector<std::string> kernel_names(OpKind op) {
  std::vector<std::string> names;
  for (const Kernel& kernel : op_of(op).kernels({})) names.push_back(kernel.name);
  return names;
}

void read_kernels(const Value& v, Case& c) {
  std::vector<std::string> names = kernel_names(c.op);
  names.emplace_back("*");
  c.exec.kernels.clear();
  const auto add = [&](const Value& entry) {
    const std::string& name = names[entry.one_of(names)];
    if (among(c.exec.kernels, name)) entry.fail("'" + name + "' occurs twice");
    c.exec.kernels.push_back(name);
  };
  if (v.json().is_array()) {
    for (const Value& entry : v.elements()) add(entry);
    if (c.exec.kernels.empty()) v.refuse("at least one of: " + joined(names));
  } else {
    add(v);
  }
  if (among(c.exec.kernels, "*")) c.exec.kernels.clear();
}

void read_properties(const Value& v, Case& c) {
  std::vector<std::string> names;
  for (const Property& p : properties()) names.emplace_back(p.name);
  for (const Value& entry : v.elements()) {
    const Property& p = properties()[entry.one_of(names)];
    if (std::find(p.ops.begin(), p.ops.end(), c.op) == p.ops.end())
      entry.fail("property '" + std::string(p.name) + "' does not apply to op " +
                 std::string(name_of(c.op)));
    if (among(c.validate.properties, p.name))
      entry.fail("'" + std::string(p.name) + "' occurs twice");
    c.validate.properties.emplace_back(p.name);
  }
}

void read_tolerance(const Value& v, Case& c) {
  v.allow_only(tolerance_keys());
  Tolerance& t = c.validate.tolerance;
  std::vector<std::string> allowed;
  for (const ToleranceRow& row : kTolerances)
    if (measures(c, row.against)) allowed.emplace_back(row.key);
  for (const ToleranceRow& row : kTolerances)
    if (const auto bound = v.find(row.key);
        bound && applies(*bound, c, row.key, row.against, allowed))
      t.*row.member = bound->number(0, kMost);
  t.why = required_why(v);
}

Json write_tolerance(const Case& c) {
  Json out = Json::object();
  for (const ToleranceRow& row : kTolerances)
    if (c.validate.tolerance.*row.member) out[row.key] = *(c.validate.tolerance.*row.member);
  if (out.empty()) return {};
  out["why"] = c.validate.tolerance.why;
  return out;
}

void read_expectation(const Value& v, Case& c) {
  if (!is_per_kernel(v, c.op)) {
    c.expect = read_one_expectation(v, c);
    return;
  }
  for (const auto& [kernel, value] : v.members())
    (kernel == "*" ? c.expect : c.expect_kernel[kernel]) = read_one_expectation(value, c);
}

Json write_expectation(const Case& c) {
  if (c.expect_kernel.empty()) return write_one_expectation(c.expect);
  Json out = {{"*", write_one_expectation(c.expect)}};
  for (const auto& [kernel, e] : c.expect_kernel) out[kernel] = write_one_expectation(e);
  return out;
}

std::vector<std::string> tolerance_keys() {
  std::vector<std::string> keys;
  for (const ToleranceRow& row : kTolerances) keys.emplace_back(row.key);
  keys.emplace_back("why");
  return keys;
}

std::vector<std::string> range_metrics() {
  return {"rel_l1", "cosine", "norm_ratio", "worst_row"};
}

}  // namespace sagebench
