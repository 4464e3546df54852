// What a tensor's values are, as plain data and one function: the host computes the real-valued
// constants once (distributions.cpp), any processor evaluates elements. C++17, usable in device
// code; integers only.
#pragma once
#include <cstdint>

#include "inputs/rng.h"

namespace sagebench {

enum class TensorId : uint32_t { kQ = 0, kK = 1, kV = 2 };

// One change to a value x. a, b, c are the step's constants; reals are in fixed point.
enum class Step : int32_t {
  kUniform,          // x = U[a, b)
  kChannelBias,      // x += a N(head, channel)
  kBiasPerSequence,  // x += a N(sequence, head, channel)
  kOneChannel,       // x *= a in one channel of each head
  kTokenOutlier,     // x *= a in one token out of b
  kChannelOffset,    // x += a in one channel of each head
  kAlternatingBias,  // x += a in even channels, -a in odd ones
  kHalves,           // x += a in the first half of the sequence, -a in the second
  kStrongQuery,      // x = a along u, N(0,1) across it
  kStrongKey,        // x = 0 along u; the key at fraction c of the sequence is (a + ln n) b along u
  kScale,            // x *= a
  kConstantChannels,  // x = a in channels 8i, 0 in channels 8i + 4
  kNameCode,          // x spells token, head and channel
};
struct PlanStep {
  Step step = Step::kScale;
  int64_t a = 0, b = 0, c = 0;
};

struct DistributionPlan {
  static constexpr int kMaxSteps = 12;
  uint64_t values = 0;     // stream of the elements
  uint64_t features = 0;   // stream of biases, outlier channels and outlier tokens
  uint64_t direction = 0;  // stream of u, shared by q and k
  int64_t limit = 0;       // |x| never passes it
  int32_t heads = 0, dim = 0;
  int32_t heads_per_group = 1;  // q: query heads that read one KV head; k, v: 1
  int32_t count = 0;
  PlanStep steps[kMaxSteps];
};

struct RowPlace {
  int64_t token = 0;     // packed row
  int64_t sequence = 0;  // that owns it
  int64_t position = 0;  // within the sequence
  int64_t length = 0;    // of the sequence
  int32_t head = 0;
};
// What the elements of one row (token, head) share.
struct Row {
  RowPlace place;
  uint64_t first = 0;  // counter of channel 0
  int64_t along_u =
      0;  // sqrt(dim) times the component of the N(0,1) row along u; strong steps only
};

// u is +-1 / sqrt(dim) in every channel, one u per KV head.
SAGEBENCH_HOST_DEVICE constexpr int64_t direction_sign(const DistributionPlan& plan, int head,
                                                       int channel) {
  const uint64_t group = static_cast<uint64_t>(head / plan.heads_per_group);
  const uint64_t index = group * static_cast<uint64_t>(plan.dim) + static_cast<uint64_t>(channel);
  return random_bits(plan.direction, index) & 1 ? 1 : -1;
}

SAGEBENCH_HOST_DEVICE constexpr Row make_row(const DistributionPlan& plan, const RowPlace& place) {
  Row row{place, 0, 0};
  row.first = (static_cast<uint64_t>(place.token) * static_cast<uint64_t>(plan.heads) +
               static_cast<uint64_t>(place.head)) *
              static_cast<uint64_t>(plan.dim);
  for (int i = 0; i < plan.count; ++i)
    if (plan.steps[i].step == Step::kStrongQuery || plan.steps[i].step == Step::kStrongKey)
      for (int c = 0; c < plan.dim; ++c)
        row.along_u += direction_sign(plan, place.head, c) *
                       normal_fixed(random_bits(plan.values, row.first + static_cast<uint64_t>(c)));
  return row;
}

// Bits of the token in the signs of channels 0..31 of each 64, of the head in those of 32..63, the
// channel in the mantissa, the head again in the exponent: exact in bf16 and fp16.
SAGEBENCH_HOST_DEVICE constexpr int64_t name_code(const RowPlace& at, int channel) {
  const int slot = channel % 64;
  const int64_t word = slot < 32 ? at.token : at.head;
  const int64_t magnitude = int64_t{128 + channel % 128} << (at.head % 8 + kFixedBits - 8);
  return (word >> (slot % 32)) & 1 ? -magnitude : magnitude;
}

SAGEBENCH_HOST_DEVICE constexpr int64_t clamp_fixed(int64_t x, int64_t limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}
SAGEBENCH_HOST_DEVICE constexpr int64_t scale_fixed(int64_t x, int64_t factor) {
  return (x * factor) >> kFixedBits;
}

SAGEBENCH_HOST_DEVICE constexpr int64_t apply_step(const DistributionPlan& plan, const PlanStep& s,
                                                   const Row& row, int channel, int64_t x) {
  const RowPlace& at = row.place;
  const uint64_t head = static_cast<uint64_t>(at.head), dim = static_cast<uint64_t>(plan.dim);
  const uint64_t head_channel = head * dim + static_cast<uint64_t>(channel);
  // one channel per head, and a stream per kind of feature so that they do not coincide
  const uint64_t kind = static_cast<uint64_t>(s.step) << 56;
  switch (s.step) {
    case Step::kUniform:
      return uniform_fixed(random_bits(plan.values, row.first + static_cast<uint64_t>(channel)),
                           s.a, s.b);
    case Step::kChannelBias:
      return x + scale_fixed(normal_fixed(random_bits(plan.features, kind + head_channel)), s.a);
    case Step::kBiasPerSequence: {
      const uint64_t heads = static_cast<uint64_t>(plan.heads);
      const uint64_t index = static_cast<uint64_t>(at.sequence) * heads * dim + head_channel;
      return x + scale_fixed(normal_fixed(random_bits(plan.features, kind + index)), s.a);
    }
    case Step::kOneChannel:
      return static_cast<uint64_t>(channel) ==
                     random_below(random_bits(plan.features, kind + head), dim)
                 ? scale_fixed(x, s.a)
                 : x;
    case Step::kTokenOutlier:
      return random_below(random_bits(plan.features, kind + static_cast<uint64_t>(at.token)),
                          static_cast<uint64_t>(s.b)) == 0
                 ? scale_fixed(x, s.a)
                 : x;
    case Step::kChannelOffset:
      return static_cast<uint64_t>(channel) ==
                     random_below(random_bits(plan.features, kind + head), dim)
                 ? x + s.a
                 : x;
    case Step::kAlternatingBias:
      return channel % 2 ? x - s.a : x + s.a;
    case Step::kHalves:
      return 2 * at.position < at.length ? x + s.a : x - s.a;
    case Step::kStrongQuery:
    case Step::kStrongKey: {
      const int64_t sign = direction_sign(plan, at.head, channel);
      const int64_t across = x - sign * row.along_u / plan.dim;
      if (s.step == Step::kStrongQuery) return across + sign * s.a;
      const int64_t last = at.length - 1;
      const int64_t key = (at.length * s.c) >> kFixedBits;
      if (at.position != (key < last ? key : last)) return across;
      // b has 32 fraction bits
      return sign * (((s.a + ln_fixed(static_cast<uint64_t>(at.length))) * s.b) >> 32);
    }
    case Step::kScale:
      return scale_fixed(x, s.a);
    case Step::kConstantChannels:
      return channel % 8 == 0 ? s.a : channel % 8 == 4 ? 0 : x;
    case Step::kNameCode:
      return name_code(at, channel);
  }
  return x;
}

// Element `channel` of a row, in fixed point.
SAGEBENCH_HOST_DEVICE constexpr int64_t fixed_value(const DistributionPlan& plan, const Row& row,
                                                    int channel) {
  int64_t x = normal_fixed(random_bits(plan.values, row.first + static_cast<uint64_t>(channel)));
  for (int i = 0; i < plan.count; ++i)
    x = clamp_fixed(apply_step(plan, plan.steps[i], row, channel, x), plan.limit);
  return x;
}

}  // namespace sagebench
