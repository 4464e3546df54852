#include "inputs/distributions.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace sagebench {
namespace {

constexpr double kMaxFactor = 4096.0;  // scale_fixed of limited values stays below 2^63
constexpr double kMaxBias = 10000.0;
constexpr double kQueryAlongU = 4.0;  // component of every query along the strong key's direction

int64_t fixed(double value, int bits = kFixedBits) {
  return std::llround(std::ldexp(value, bits));
}

DistributionParam bias(const char* name, double fallback) {
  return {name, fallback, -kMaxBias, kMaxBias, {}};
}
DistributionParam factor(double fallback) {
  return {"factor", fallback, -kMaxFactor, kMaxFactor, {}};
}

// A step whose only constant is one parameter.
template <Step kStep>
PlanStep with_s(const Case&, const Distribution& d, TensorId) {
  return {kStep, fixed(param_of(d, "s")), 0, 0};
}
template <Step kStep>
PlanStep with_factor(const Case&, const Distribution& d, TensorId) {
  return {kStep, fixed(param_of(d, "factor")), 0, 0};
}

PlanStep uniform(const Case&, const Distribution& d, TensorId) {
  return {Step::kUniform, fixed(param_of(d, "low")), fixed(param_of(d, "high")), 0};
}
PlanStep token_outlier(const Case&, const Distribution& d, TensorId) {
  return {Step::kTokenOutlier, fixed(param_of(d, "factor")),
          static_cast<int64_t>(param_of(d, "every")), 0};
}
PlanStep flat(const Case&, const Distribution&, TensorId) {
  return {Step::kScale, 0, 0, 0};
}
PlanStep constant_channel(const Case&, const Distribution& d, TensorId) {
  return {Step::kConstantChannels, fixed(param_of(d, "value")), 0, 0};
}
PlanStep arange_code(const Case&, const Distribution&, TensorId) {
  return {Step::kNameCode, 0, 0, 0};
}

// c u is the strong key: with the queries' component a along u, its score is ln(weight / (1 -
// weight)) above the logarithm of the others' sum, ln(n) + variance / 2 for normal scores.
PlanStep strong_key(const Case& c, const Distribution& d, TensorId tensor) {
  const double root = std::sqrt(c.model.head_dim);
  if (tensor == TensorId::kQ) return {Step::kStrongQuery, fixed(kQueryAlongU / root), 0, 0};
  const double weight = param_of(d, "weight");
  const double sm_scale = c.sm_scale > 0 ? c.sm_scale : 1.0 / root;
  const double half_variance = sm_scale * sm_scale * c.model.head_dim / 2;  // 1/2 by default
  return {Step::kStrongKey, fixed(std::log(weight / (1 - weight)) + half_variance),
          fixed(1.0 / (sm_scale * kQueryAlongU * root), 32), fixed(param_of(d, "at"))};
}

bool has(const std::vector<Distribution>& list, const char* name) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Distribution& d) { return d.name == name; });
}

}  // namespace

const std::vector<DistributionRow>& distributions() {
  static const DistributionParam at{"at",
                                    0.0,
                                    0.0,
                                    1.0,
                                    {{"start", 0.0},
                                     {"quarter", 0.25},
                                     {"middle", 0.5},
                                     {"end", 1.0},
                                     {"sink", 0.0},
                                     {"needle", 0.5},
                                     {"self", 1.0}}};
  static const std::vector<DistributionRow> rows = {
      {"normal", "qkv", {}, "N(0,1)", nullptr},
      {"uniform", "qkv", {bias("low", -1), bias("high", 1)}, "uniform in [low, high)", uniform},
      {"k_channel_bias",
       "k",
       {bias("s", 2)},
       "adds s N(0,1), one draw per (head, channel)",
       with_s<Step::kChannelBias>},
      {"k_bias_per_sequence",
       "k",
       {bias("s", 2)},
       "adds s N(0,1), one draw per (sequence, head, channel)",
       with_s<Step::kBiasPerSequence>},
      {"one_channel",
       "qkv",
       {factor(20)},
       "one channel of each head times factor",
       with_factor<Step::kOneChannel>},
      {"token_outlier",
       "qkv",
       {factor(20), {"every", 97, 1, 1e6, {}}},
       "one token out of `every`, drawn, times factor",
       token_outlier},
      {"q_outlier",
       "q",
       {bias("s", 20)},
       "adds s to one channel of each head",
       with_s<Step::kChannelOffset>},
      {"v_channel_bias",
       "v",
       {bias("s", 1)},
       "adds s with alternating signs per channel",
       with_s<Step::kAlternatingBias>},
      {"v_halves",
       "v",
       {bias("s", 1)},
       "adds s in the first half of the keys, -s in the second",
       with_s<Step::kHalves>},
      {"strong_key",
       "qk",
       {at, {"weight", 0.5, 0.001, 0.999, {}}},
       "one key per sequence takes about `weight` of the softmax",
       strong_key},
      {"flat", "q", {}, "zero: every visible key weighs the same", flat},
      {"peaked", "q", {factor(8)}, "times factor: few keys weigh", with_factor<Step::kScale>},
      {"constant_channel",
       "qkv",
       {bias("value", 3)},
       "channels 8i hold value, channels 8i + 4 zero",
       constant_channel},
      {"huge", "qkv", {factor(1000)}, "times factor", with_factor<Step::kScale>},
      {"arange_code", "qkv", {}, "every element names its token, head and channel", arange_code},
      {"nan_in_padding", "qkv", {}, "rows behind the last live token hold NaN", nullptr},
  };
  return rows;
}

const DistributionRow* find_distribution(const std::string& name) {
  for (const DistributionRow& row : distributions())
    if (row.name == name) return &row;
  return nullptr;
}

double param_of(const Distribution& d, const std::string& name) {
  if (const auto it = d.params.find(name); it != d.params.end()) return it->second;
  for (const DistributionParam& p : find_distribution(d.name)->params)
    if (p.name == name) return p.fallback;
  throw std::logic_error("distribution " + d.name + " has no parameter " + name);
}

DistributionPlan make_plan(const Case& c, TensorId tensor, uint64_t seed) {
  const Model& m = c.model;
  const bool is_q = tensor == TensorId::kQ;
  const auto use = static_cast<uint64_t>(tensor);
  DistributionPlan plan;
  plan.values = random_stream(seed, use);
  plan.features = random_stream(seed, 16 + use);
  plan.direction = random_stream(seed, 32);
  // generated values stay finite: 65504 is fp16's largest
  plan.limit = fixed(c.dtype == DType::kFp16 ? 65504.0 : 262144.0);
  plan.heads = is_q ? m.num_qo_heads : m.num_kv_heads;
  plan.dim = tensor == TensorId::kV ? m.head_dim_v : m.head_dim;
  plan.heads_per_group = is_q ? m.num_qo_heads / m.num_kv_heads : 1;
  const Input& in = c.input;
  for (const Distribution& d : is_q ? in.q : tensor == TensorId::kK ? in.k : in.v) {
    const DistributionRow* row = find_distribution(d.name);
    if (!row) throw std::logic_error("unknown distribution " + d.name);
    if (!row->step) continue;
    if (plan.count == DistributionPlan::kMaxSteps) throw std::logic_error("too many steps");
    plan.steps[plan.count++] = row->step(c, d, tensor);
  }
  return plan;
}

int64_t padding_rows(const Case& c) {
  constexpr int64_t kRows = 64;
  const bool wanted = has(c.input.q, "nan_in_padding") || has(c.input.k, "nan_in_padding") ||
                      has(c.input.v, "nan_in_padding");
  return wanted ? kRows : 0;
}

}  // namespace sagebench
