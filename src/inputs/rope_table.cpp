#include "inputs/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/parallel.h"

namespace sagebench {
namespace {

using std::numbers::pi;

// Llama 3: long wavelengths are stretched by `factor`, short ones kept, those between blended by
// how often they turn within the original context.
double llama3(const Rope& rope, double frequency) {
  const double turns = rope.original_max_position * frequency / (2 * pi);
  const double kept = std::clamp(
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
  return frequency * (kept + (1 - kept) / rope.factor);
}

// The pair (as a real number) that turns `turns` times within the original context.
double pair_that_turns(const Rope& rope, double turns) {
  return rope.rotary_dim * std::log(rope.original_max_position / (turns * 2 * pi)) /
         (2 * std::log(rope.theta));
}

// YaRN (arXiv 2309.00071): pairs that turn more than beta_fast times are kept, fewer than beta_slow
// times stretched, a ramp over whole pairs between.
double yarn(const Rope& rope, double frequency, int pair) {
  const double low = std::max(std::floor(pair_that_turns(rope, rope.beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(pair_that_turns(rope, rope.beta_slow)), rope.rotary_dim - 1.0);
  const double stretched = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
  return frequency * ((1 - stretched) + stretched / rope.factor);
}

}  // namespace

std::vector<double> rope_frequencies(const Rope& rope) {
  std::vector<double> frequencies(static_cast<size_t>(rope.rotary_dim / 2));
  for (int i = 0; i < rope.rotary_dim / 2; ++i) {
    double f = std::pow(rope.theta, -2.0 * i / rope.rotary_dim);
    if (rope.scaling == RopeScaling::kLinear) f /= rope.factor;
    if (rope.scaling == RopeScaling::kLlama3) f = llama3(rope, f);
    if (rope.scaling == RopeScaling::kYarn) f = yarn(rope, f, i);
    frequencies[static_cast<size_t>(i)] = f;
  }
  return frequencies;
}

double rope_attention_factor(const Rope& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1.0;
  if (rope.attention_factor > 0) return rope.attention_factor;
  return rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0;
}

Tensor make_rope_table(const Rope& rope, int64_t max_position) {
  Tensor table(rope.table_dtype, {max_position, rope.rotary_dim});
  const std::vector<double> frequencies = rope_frequencies(rope);
  const double factor = rope_attention_factor(rope);
  const auto half = static_cast<int64_t>(frequencies.size());
  constexpr int64_t kRows = 256;  // per work item
  parallel_for((max_position + kRows - 1) / kRows, [&](int64_t chunk) {
    const int64_t end = std::min(max_position, (chunk + 1) * kRows);
    for (int64_t position = chunk * kRows; position < end; ++position)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)];
        const int64_t at = position * 2 * half + i;
        table.set(at, static_cast<float>(std::cos(angle) * factor));
        table.set(at + half, static_cast<float>(std::sin(angle) * factor));
      }
  });
  return table;
}

}  // namespace sagebench
