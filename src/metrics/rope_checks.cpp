
#include "metrics/cache_map.h"
#include "metrics/spacing.h"
#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

// fp32 arithmetic: three roundings of 2^-24 relative to |x| + |y|, and the cast to the dtype.
constexpr double kFp32Slack = 0x1p-22;

// Largest finite values: beyond them the reference is judged after rounding, to infinity.
double largest_finite(DType dtype) {
  return dtype == DType::kFp16 ? 65504.0 : static_cast<double>(float_from_bf16(0x7f7f));
}

double rounded(DType dtype, double value) {
  const auto f = static_cast<float>(value);
  return dtype == DType::kFp16 ? float_from_fp16(fp16_from_float(f))
                               : float_from_bf16(bf16_from_float(f));
}

int64_t partner(sage::RopeStyle style, int64_t channel, int rotary_dim) {
  if (style == sage::RopeStyle::kInterleaved) return channel ^ 1;
  return channel < rotary_dim / 2 ? channel + rotary_dim / 2 : channel - rotary_dim / 2;
}

struct RopeRule {
  Spacing spacing;
  double largest;
  DType dtype;
  bool fp32_table;
  double table_unit;  // rounding unit of a table in the input dtype

  explicit RopeRule(const Case& c)
      : spacing(c.dtype),
        largest(largest_finite(c.dtype)),
        dtype(c.dtype),
        fp32_table(c.rope.table_dtype == DType::kFp32),
        table_unit(c.dtype == DType::kFp16 ? 0x1p-11 : 0x1p-8) {}

  double limit(double expected, double x, double y) const {
    const double size = std::fabs(x) + std::fabs(y);
    return fp32_table ? std::max(spacing.at(expected), kFp32Slack * size) : 3 * table_unit * size;
  }
};

void check_rotation(const Case& c, const TensorView& x, const Tensor& rotated,
                    const std::vector<double>& exact, const std::vector<TokenOwner>& owners,
                    const std::string& name, std::vector<StageCheck>& checks) {
  const int rotary_dim = c.rope.style == sage::RopeStyle::kNone ? 0 : c.rope.rotary_dim;
  const RopeRule rule(c);
  const auto tokens = static_cast<int64_t>(owners.size());
  auto [turned, copied] = tally_over<2>(tokens * x.heads, [&](int64_t i, auto& tallies) {
    const int64_t token = i / x.heads;
    const auto head = static_cast<int>(i % x.heads);
    const TokenOwner& owner = owners[static_cast<size_t>(token)];
    const int64_t row = i * x.dim;
    std::vector<float> in(static_cast<size_t>(x.dim));
    x.read_row(token, head, in.data());
    for (int64_t d = 0; d < rotary_dim; ++d) {
      const double mine = in[static_cast<size_t>(d)],
                   other = in[static_cast<size_t>(partner(c.rope.style, d, rotary_dim))];
      const double actual = rotated.get(row + d);
      double expected = exact[static_cast<size_t>(row + d)];
      if (!(std::fabs(expected) < rule.largest)) expected = rounded(rule.dtype, expected);
      const double limit = std::isfinite(expected) ? rule.limit(expected, mine, other) : 0;
      tallies[0].add(error_between(expected, actual), limit, expected, actual,
                     {owner.sequence, head, owner.token, d});
    }
    const uint16_t* source = x.base->as<uint16_t>() + x.index(token, head, 0);
    const uint16_t* result = rotated.as<uint16_t>() + row;
    for (int64_t d = rotary_dim; d < x.dim; ++d)
      tallies[1].add(source[d] == result[d] ? 0 : kInfinity, 0, in[static_cast<size_t>(d)],
                     rotated.get(row + d), {owner.sequence, head, owner.token, d});
  });
  if (turned.checked)
    checks.push_back(
        finish(Stage::kRope,
               name + (rule.fp32_table ? " rotated: max(1 ulp, 2^-22 (|x| + |y|))"
                                       : " rotated, table in the input dtype: 3 u (|x| + |y|)"),
               turned));
  if (copied.checked)
    checks.push_back(
        finish(Stage::kRope, name + " channels without rotation: bit-identical", copied));
}

}  // namespace

void check_rope(const Case& c, const Inputs& in, const StageOutputs& out,
                std::vector<StageCheck>& checks) {
  const RopeReference exact = exact_rope(c, in);
  const std::vector<TokenOwner> owners = token_owners(in.cu_seqlens_q);
  if (!out.q_rope.empty()) check_rotation(c, in.q, out.q_rope, exact.q, owners, "q", checks);
  if (!out.k_rope.empty()) check_rotation(c, in.k, out.k_rope, exact.k, owners, "k", checks);
}

}  // namespace sagebench
