// INT8 codes and scales of Q and K, recomputed from the subject's own offsets and scales.
#include <algorithm>

#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

constexpr double kScaleSlack = 0x1p-20;     // relative: amax / 127 in fp32
constexpr double kCancel = 0x1p-22;         // of |x| + |offset|: fp32 up to the rounding
constexpr double kHalf = 0.5 * (1 + 1e-5);  // of a code: x * (1 / scale) in fp32 near a tie
constexpr double kAmaxFloor = 1e-7;         // of the contract: no division by zero
// Codes that differ from the recomputed ones sit at ties, and ties fall either way: the mean signed
// difference stays near 0. Few codes have few ties, hence the second term.
constexpr double kMeanDifference = 0.02;

// Half to even, saturated. Adding 1.5 * 2^52 leaves no fraction bits; std::nearbyint is a call.
double nearest_code(double x) {
  constexpr double kMagic = 0x1.8p52;
  return (std::clamp(x, -127.0, 127.0) + kMagic) - kMagic;
}

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
      slack[d] = kCancel * (std::fabs(r) + std::fabs(o));
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

// The largest |value| of a scale group: as it is, and between what fp32 may make of it. In lanes,
// because a maximum in order is a chain that cannot be vectorised.
struct GroupMax {
  static constexpr int kLanes = 4;
  double amax[kLanes] = {}, low[kLanes] = {}, high[kLanes] = {};
  bool used = false, finite = true;

  void add(const double* value, const double* slack, int dim) {  // dim is 64 or 128
    int bad = 0;
    for (int d = 0; d < dim; d += kLanes)
      for (int i = 0; i < kLanes; ++i) {
        const double size = std::fabs(value[d + i]), play = slack[d + i];
        bad |= !(size < kInfinity);  // NaN too
        amax[i] = size > amax[i] ? size : amax[i];
        low[i] = size - play > low[i] ? size - play : low[i];
        high[i] = size + play > high[i] ? size + play : high[i];
      }
    finite &= bad == 0;
    used = true;
  }
  static double of(const double (&lanes)[kLanes]) {
    return *std::max_element(lanes, lanes + kLanes);
  }
};

// One row of codes against value / scale. Returns the sum of the codes' signed differences from the
// recomputed ones. Elements are looked at one by one only where the row holds a new worst one.
int check_row(const double* value, const double* slack, double scale, const int8_t* code, int dim,
              Coordinate at, Tally& apart, Tally& distance) {
  const double inverse = 1 / scale;
  const double seen_apart = std::min(apart.ratio, 1.0), seen = std::min(distance.ratio, 1.0);
  int look = 0, sum = 0;
  for (int d = 0; d < dim; ++d) {
    const double exact = value[d] * inverse, difference = code[d] - nearest_code(exact);
    look |= !(std::fabs(exact - code[d]) <= seen * (kHalf + slack[d] * inverse));
    look |= !(std::fabs(difference) <= seen_apart);
    sum += static_cast<int>(difference);
  }
  if (!look) {
    apart.checked += dim;
    distance.checked += dim;
    return sum;
  }
  for (int d = 0; d < dim; ++d) {
    const double exact = value[d] * inverse, nearest = nearest_code(exact);
    at.channel = d;
    apart.add(std::fabs(code[d] - nearest), 1, nearest, code[d], at);
    distance.add(std::fabs(exact - code[d]), kHalf + slack[d] * inverse, exact, code[d], at);
  }
  return sum;
}

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
        maxima[static_cast<size_t>(sage::group_in_block(groups.pattern, r))].add(value, slack, dim);
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
          const double expected =
              group.finite ? std::max(GroupMax::of(group.amax), kAmaxFloor) / 127 : NAN;
          const double error = group.finite           ? error_between(expected, scale)
                               : std::isfinite(scale) ? kInfinity
                                                      : 0;
          const double play = (GroupMax::of(group.high) - GroupMax::of(group.low)) / 127;
          out[kScale].add(error, group.finite ? kScaleSlack * expected + play : 0, expected, scale,
                          {block.sequence, head, token, -1});
        }
        if (!group.finite) continue;
        if (!(scale > 0 && scale < kInfinity)) continue;  // already counted as a wrong scale
        const auto row = static_cast<size_t>(r * dim);
        const int8_t* code =
            codes.as<int8_t>() + ((cu[block.sequence] + token) * x.heads + head) * dim;
        difference.difference +=
            check_row(&rows.value[row], &rows.slack[row], scale, code, dim,
                      {block.sequence, head, token, -1}, out[kApart], out[kDistance]);
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
