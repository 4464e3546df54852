// INT8 codes and scales of Q and K, recomputed from the subject's own offsets and scales.
#include <algorithm>

#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

constexpr double kScaleSlack = 0x1p-20;     // relative: amax / 127 in fp32
constexpr double kCancel = 0x1p-22;         // of |x| + |offset|: the subtraction in fp32
constexpr double kFp32Unit = 0x1p-24;       // one rounding
constexpr double kHalf = 0.5 * (1 + 1e-5);  // of a code: x * (1 / scale) in fp32 near a tie
constexpr double kAmaxFloor = 1e-7;         // of the contract: no division by zero
// Codes that differ from the recomputed ones sit at ties, and ties fall either way: the mean signed
// difference stays near 0. Few codes have few ties, hence the second term.
constexpr double kMeanDifference = 0.02;

struct Block {
  int64_t sequence, first, count;  // tokens within the sequence
};
std::vector<Block> blocks_of(const Tensor& cu_seqlens, int block_tokens) {
  std::vector<Block> blocks;
  const int32_t* cu = cu_seqlens.as<int32_t>();
  for (int64_t b = 0; b + 1 < cu_seqlens.size(); ++b)
    for (int64_t t = 0; t < cu[b + 1] - cu[b]; t += block_tokens)
      blocks.push_back({b, t, std::min<int64_t>(block_tokens, cu[b + 1] - cu[b] - t)});
  return blocks;
}

// Orthonormal Hadamard transform of n values, n a power of two, in natural (Sylvester) order.
void hadamard(double* x, int n) {
  for (int h = 1; h < n; h *= 2)
    for (int i = 0; i < n; i += 2 * h)
      for (int j = i; j < i + h; ++j) {
        const double a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
  const double norm = 1 / std::sqrt(static_cast<double>(n));
  for (int i = 0; i < n; ++i) x[i] *= norm;
}

// What the quantiser sees of one row, and how far fp32 may put it off.
struct Rows {
  std::vector<double> value, slack;  // [tokens, dim]
};

struct Quantiser {
  const TensorView& x;
  const Tensor& offset;  // empty: nothing removed
  sage::Rotate rotate;
  int dim;  // padded

  void read(int64_t sequence, int64_t token, int head, double* value, double* slack) const {
    thread_local std::vector<float> row;
    row.resize(static_cast<size_t>(x.dim));
    x.read_row(token, head, row.data());
    const float* c =
        offset.empty() ? nullptr : offset.as<float>() + (sequence * x.heads + head) * dim;
    for (int d = 0; d < x.dim; ++d) {
      const double r = row[static_cast<size_t>(d)], o = c ? c[d] : 0;
      value[d] = r - o;
      slack[d] = c ? kCancel * (std::fabs(r) + std::fabs(o)) : 0;
    }
    std::fill(value + x.dim, value + dim, 0.0);
    std::fill(slack + x.dim, slack + dim, 0.0);
    if (rotate == sage::Rotate::kHadamard) turn(value, slack);
  }

  // Every output adds all inputs / sqrt(n): so do their errors, and log2(n) butterflies and the
  // final product round sums of at most sum |x| / sqrt(n).
  void turn(double* value, double* slack) const {
    double magnitude = 0, incoming = 0;
    for (int d = 0; d < dim; ++d) {
      magnitude += std::fabs(value[d]);
      incoming += slack[d];
    }
    const double roundings = std::log2(static_cast<double>(dim)) + 1;
    const double each =
        (incoming + kFp32Unit * roundings * magnitude) / std::sqrt(static_cast<double>(dim));
    std::fill(slack, slack + dim, each);
    hadamard(value, dim);
  }
};

enum { kScale, kApart, kDistance, kRules };
struct Signed {
  int64_t difference = 0, count = 0;
};

// The largest |value| of a scale group: as it is, and between what fp32 may make of it.
struct GroupMax {
  double amax = 0, low = 0, high = 0;
  bool used = false, finite = true;
  void add(double value, double slack) {
    const double size = std::fabs(value);
    finite &= size < kInfinity;  // false for NaN too
    amax = std::max(amax, size);
    low = std::max(low, size - slack);
    high = std::max(high, size + slack);
    used = true;
  }
};

void check_codes(const TensorView& x, const Tensor& cu_seqlens, const Tensor& offset,
                 const sage::ScaleGroups& groups, sage::Rotate rotate, const Tensor& codes,
                 const Tensor& scales, const std::string& name, std::vector<StageCheck>& checks) {
  const auto dim = static_cast<int>(codes.shape[2]);
  const Quantiser quantiser{x, offset, rotate, dim};
  const std::vector<Block> blocks = blocks_of(cu_seqlens, groups.block_tokens);
  const int32_t* cu = cu_seqlens.as<int32_t>();
  const int64_t scale_rows = scales.shape[1];
  std::vector<Signed> differences(blocks.size());

  auto tallies = tally_over<kRules>(static_cast<int64_t>(blocks.size()), [&](int64_t i, auto& out) {
    const Block& block = blocks[static_cast<size_t>(i)];
    Signed& difference = differences[static_cast<size_t>(i)];
    thread_local Rows rows;
    rows.value.resize(static_cast<size_t>(groups.block_tokens * dim));
    rows.slack.resize(rows.value.size());
    std::vector<GroupMax> maxima(static_cast<size_t>(groups.groups_per_block));
    for (int head = 0; head < x.heads; ++head) {
      std::fill(maxima.begin(), maxima.end(), GroupMax{});
      for (int r = 0; r < block.count; ++r) {
        double* value = &rows.value[static_cast<size_t>(r * dim)];
        double* slack = &rows.slack[static_cast<size_t>(r * dim)];
        quantiser.read(block.sequence, cu[block.sequence] + block.first + r, head, value, slack);
        GroupMax& group = maxima[static_cast<size_t>(sage::group_in_block(groups.pattern, r))];
        for (int d = 0; d < dim; ++d) group.add(value[d], slack[d]);
      }
      for (int r = 0; r < block.count; ++r) {
        const int64_t token = block.first + r;
        const size_t g = static_cast<size_t>(sage::group_in_block(groups.pattern, r));
        const double scale =
            scales.as<float>()[head * scale_rows +
                               sage::scale_row(groups, cu[block.sequence], block.sequence, token)];
        GroupMax& group = maxima[g];
        if (group.used) {
          group.used = false;  // once per group
          // a NaN or an infinity has no code: it must live on in the scale
          const double expected = group.finite ? std::max(group.amax, kAmaxFloor) / 127 : NAN;
          const double error = group.finite           ? error_between(expected, scale)
                               : std::isfinite(scale) ? kInfinity
                                                      : 0;
          const double play =
              group.finite ? kScaleSlack * expected + (group.high - group.low) / 127 : 0;
          out[kScale].add(error, play, expected, scale, {block.sequence, head, token, -1});
        }
        if (!group.finite) continue;
        if (!(scale > 0 && scale < kInfinity)) continue;  // already counted as a wrong scale
        const double* value = &rows.value[static_cast<size_t>(r * dim)];
        const double* slack = &rows.slack[static_cast<size_t>(r * dim)];
        const int8_t* code =
            codes.as<int8_t>() + ((cu[block.sequence] + token) * x.heads + head) * dim;
        const double inverse = 1 / scale;
        int64_t sum = 0;
        for (int d = 0; d < dim; ++d) {
          const double exact = value[d] * inverse;
          const double nearest = std::clamp(std::nearbyint(exact), -127.0, 127.0);
          const double apart = code[d] - nearest;
          const Coordinate at{block.sequence, head, token, d};
          out[kApart].add(std::fabs(apart), 1, nearest, code[d], at);
          out[kDistance].add(std::fabs(exact - code[d]), kHalf + slack[d] * inverse, exact, code[d],
                             at);
          sum += static_cast<int64_t>(apart);
        }
        difference.difference += sum;
        difference.count += dim;
      }
    }
  });
  Signed all;
  for (const Signed& s : differences) {
    all.difference += s.difference;
    all.count += s.count;
  }
  const auto append = [&](const char* rule, const Tally& tally) {
    if (tally.checked) checks.push_back(finish(Stage::kQkCodes, name + rule, tally));
  };
  append(" scales: max |x - offset| of the group / 127", tallies[kScale]);
  append(" codes, recomputed: at most 1 apart", tallies[kApart]);
  append(" codes: |x / scale - code| within half a code", tallies[kDistance]);
  if (all.count == 0) return;
  const auto count = static_cast<double>(all.count);
  Tally mean;
  mean.add(std::fabs(static_cast<double>(all.difference)) / count,
           kMeanDifference + 1 / std::sqrt(count), 0, static_cast<double>(all.difference) / count,
           {});
  append(" codes, recomputed: mean signed difference near 0", mean);
}

}  // namespace

void check_qk_codes(const AttentionOperands& x, const Kernel& kernel, const StageOutputs& out,
                    std::vector<StageCheck>& checks) {
  const sage::AttentionLayout& layout = kernel.layout;
  check_codes(x.q, *x.cu_seqlens_q, Tensor{}, layout.q_groups, kernel.settings.rotate, out.q_codes,
              out.q_scales, "q", checks);
  check_codes(x.k, *x.cu_seqlens_kv, out.k_offset, layout.k_groups, kernel.settings.rotate,
              out.k_codes, out.k_scales, "k", checks);
}

}  // namespace sagebench
