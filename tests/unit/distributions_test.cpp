// What each distribution promises, measured on the tensors it makes.
#include "inputs/distributions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "inputs/inputs.h"

namespace sagebench {
namespace {

constexpr int kDim = 64;

Case case_of(std::vector<int64_t> lengths, DType dtype = DType::kBf16) {
  Case c;
  c.model = {4, 2, kDim, kDim};
  c.dtype = dtype;
  c.batch.qo_len = c.batch.kv_len = std::move(lengths);
  c.batch.kv_len_before.assign(c.batch.qo_len.size(), 0);
  c.sm_scale = 1.0 / std::sqrt(kDim);
  c.seed = 21;
  return c;
}

struct Moments {
  double mean = 0, deviation = 0;
};
// Over the tokens [first, last) of one channel.
Moments channel(const TensorView& x, int head, int channel, int64_t first, int64_t last) {
  double sum = 0, square = 0;
  for (int64_t t = first; t < last; ++t) {
    const double value = x.get(t, head, channel);
    sum += value;
    square += value * value;
  }
  const auto n = static_cast<double>(last - first);
  return {sum / n, std::sqrt(square / n - sum / n * sum / n)};
}
Moments channel(const TensorView& x, int head, int c) {
  return channel(x, head, c, 0, x.tokens);
}

TEST(Distributions, NormalOnEveryTensor) {
  const Case c = case_of({4000});
  const Inputs in = make_inputs(c);
  for (const TensorView* x : {&in.q, &in.k, &in.v})
    for (int h = 0; h < x->heads; ++h)
      for (int d = 0; d < kDim; d += 13) {
        const Moments m = channel(*x, h, d);
        EXPECT_NEAR(m.mean, 0, 0.07);
        EXPECT_NEAR(m.deviation, 1, 0.05);
      }
  EXPECT_NE(in.q.get(0, 0, 0), in.k.get(0, 0, 0));
  EXPECT_NE(in.k.get(0, 0, 0), in.v.get(0, 0, 0));
}

TEST(Distributions, SeedAndOffsetGiveFreshValuesOfTheSameKind) {
  const Case c = case_of({50});
  const Inputs a = make_inputs(c), b = make_inputs(c), fresh = make_inputs(c, 1);
  EXPECT_EQ(a.packed.bytes, b.packed.bytes);
  int same = 0;
  for (int64_t i = 0; i < a.packed.size(); ++i) same += a.packed.get(i) == fresh.packed.get(i);
  EXPECT_LT(same, a.packed.size() / 50);
}

TEST(Distributions, ChannelBiases) {
  Case c = case_of({1500, 1500});
  c.input.k = {{"k_channel_bias", {{"s", 3}}}};
  c.input.v = {{"v_channel_bias", {{"s", 10}}}};
  const Inputs in = make_inputs(c);
  double square = 0;
  for (int h = 0; h < 2; ++h)
    for (int d = 0; d < kDim; ++d) {
      const Moments first = channel(in.k, h, d, 0, 1500), second = channel(in.k, h, d, 1500, 3000);
      EXPECT_NEAR(first.mean, second.mean, 0.2);
      EXPECT_NEAR(first.deviation, 1, 0.1);
      square += first.mean * first.mean;
      EXPECT_NEAR(channel(in.v, h, d).mean, d % 2 ? -10 : 10, 0.1);
    }
  EXPECT_NEAR(std::sqrt(square / (2 * kDim)), 3, 0.6);

  c.input.k = {{"k_bias_per_sequence", {{"s", 3}}}};
  const Inputs per_sequence = make_inputs(c);
  int differ = 0;
  for (int d = 0; d < kDim; ++d)
    differ += std::fabs(channel(per_sequence.k, 0, d, 0, 1500).mean -
                        channel(per_sequence.k, 0, d, 1500, 3000).mean) > 1;
  EXPECT_GT(differ, kDim / 2);
}

TEST(Distributions, Outliers) {
  Case c = case_of({3000});
  c.input.q = {{"q_outlier", {{"s", 60}}}};
  c.input.k = {{"one_channel", {{"factor", 30}}}};
  c.input.v = {{"token_outlier", {{"factor", 50}, {"every", 100}}}};
  const Inputs in = make_inputs(c);
  for (int h = 0; h < 4; ++h) {
    int large = 0;
    for (int d = 0; d < kDim; ++d) large += channel(in.q, h, d).mean > 50;
    EXPECT_EQ(large, 1) << "query head " << h;
  }
  for (int h = 0; h < 2; ++h) {
    int wide = 0;
    for (int d = 0; d < kDim; ++d) wide += channel(in.k, h, d).deviation > 20;
    EXPECT_EQ(wide, 1) << "KV head " << h;
  }
  int outliers = 0;
  for (int64_t t = 0; t < 3000; ++t) {
    double square = 0;
    for (int d = 0; d < kDim; ++d) square += in.v.get(t, 0, d) * in.v.get(t, 0, d);
    outliers += square > 100 * kDim;
  }
  EXPECT_NEAR(outliers, 30, 20);
}

TEST(Distributions, HalvesFollowEachSequence) {
  Case c = case_of({2001, 0, 1000});
  c.input.v = {{"v_halves", {{"s", 5}}}};
  const Inputs in = make_inputs(c);
  EXPECT_NEAR(channel(in.v, 0, 0, 0, 1001).mean, 5, 0.2);
  EXPECT_NEAR(channel(in.v, 1, 9, 1001, 2001).mean, -5, 0.2);
  EXPECT_NEAR(channel(in.v, 0, 9, 2001, 2501).mean, 5, 0.3);
  EXPECT_NEAR(channel(in.v, 0, 9, 2501, 3001).mean, -5, 0.3);
}

// Weight of key `key` in the softmax of a query, averaged over some queries.
double weight_of(const Case& c, const Inputs& in, int64_t begin, int64_t length, int64_t key) {
  double sum = 0;
  int count = 0;
  for (int64_t q = begin; q < begin + length; q += length / 16 + 1)
    for (int h = 0; h < in.q.heads; ++h, ++count) {
      double all = 0, one = 0;
      for (int64_t k = 0; k < length; ++k) {
        double dot = 0;
        for (int d = 0; d < in.q.dim; ++d)
          dot += static_cast<double>(in.q.get(q, h, d)) *
                 in.k.get(begin + k, h / (in.q.heads / in.k.heads), d);
        const double e = std::exp(dot * c.sm_scale);
        all += e;
        if (k == key) one = e;
      }
      sum += one / all;
    }
  return sum / count;
}

TEST(Distributions, StrongKeyTakesTheWeightAskedFor) {
  const std::pair<double, int64_t> places[] = {{0, 0}, {0.25, 512}, {0.5, 1024}, {1, 2047}};
  for (const auto& [at, key] : places) {
    Case c = case_of({300, 2048});
    c.model.head_dim = 128;
    c.sm_scale = 1 / std::sqrt(128.0);
    c.input.q = c.input.k = {{"strong_key", {{"at", at}, {"weight", 0.5}}}};
    EXPECT_NEAR(weight_of(c, make_inputs(c), 300, 2048, key), 0.5, 0.04) << "at " << at;
  }
  Case c = case_of({2048});
  c.sm_scale = 0.3;
  c.input.q = c.input.k = {{"strong_key", {{"at", 0}, {"weight", 0.9}}}};
  EXPECT_GT(weight_of(c, make_inputs(c), 0, 2048, 0), 0.6);
}

TEST(Distributions, StrongKeyKeepsTheRestNormal) {
  Case c = case_of({4000});
  c.input.q = c.input.k = {{"strong_key", {}}};
  const Inputs in = make_inputs(c);
  for (int d = 0; d < kDim; d += 7) {
    EXPECT_NEAR(std::fabs(channel(in.q, 1, d).mean), 4 / std::sqrt(kDim), 0.08);
    EXPECT_NEAR(channel(in.k, 1, d, 1, 4000).mean, 0, 0.08);
    EXPECT_NEAR(channel(in.k, 1, d, 1, 4000).deviation, 1, 0.05);
  }
  // key 0 points along u: every channel of the same magnitude, and queries share its signs
  for (int d = 1; d < kDim; ++d)
    EXPECT_EQ(std::fabs(in.k.get(0, 1, d)), std::fabs(in.k.get(0, 1, 0)));
  for (int d = 0; d < kDim; ++d)
    EXPECT_EQ(channel(in.q, 3, d).mean > 0, in.k.get(0, 1, d) > 0) << d;
}

TEST(Distributions, FlatPeakedHugeConstantUniform) {
  Case c = case_of({500});
  c.input.q = {{"flat", {}}};
  c.input.k = {{"constant_channel", {{"value", 2.5}}}};
  c.input.v = {{"huge", {{"factor", 1000}}}};
  const Inputs in = make_inputs(c);
  for (int64_t t = 0; t < 500; t += 7) {
    EXPECT_EQ(in.q.get(t, 2, 5), 0.0f);
    EXPECT_EQ(in.k.get(t, 1, 16), 2.5f);
    EXPECT_EQ(in.k.get(t, 1, 4), 0.0f);
  }
  EXPECT_GT(channel(in.k, 0, 1).deviation, 0.9);
  EXPECT_NEAR(channel(in.v, 0, 1).deviation, 1000, 80);

  c.input.q = {{"peaked", {{"factor", 8}}}};
  c.input.k = {{"uniform", {{"low", -1}, {"high", 3}}}};
  const Inputs more = make_inputs(c);
  EXPECT_NEAR(channel(more.q, 0, 1).deviation, 8, 0.8);
  EXPECT_NEAR(channel(more.k, 0, 1).mean, 1, 0.2);
  EXPECT_NEAR(channel(more.k, 0, 1).deviation, 4 / std::sqrt(12.0), 0.1);
}

TEST(Distributions, StepsApplyInOrder) {
  Case c = case_of({2000});
  c.input.v = {{"v_channel_bias", {{"s", 1}}}, {"huge", {{"factor", 10}}}};
  EXPECT_NEAR(channel(make_inputs(c).v, 0, 0).mean, 10, 0.8);
  c.input.v = {{"huge", {{"factor", 10}}}, {"v_channel_bias", {{"s", 1}}}};
  EXPECT_NEAR(channel(make_inputs(c).v, 0, 0).mean, 1, 0.8);
}

// No two rows (token, head) of a tensor are alike, and no two channels within one.
TEST(Distributions, NameCodesAreDistinctAndExact) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    Case c = case_of({700}, dtype);
    c.model = {9, 9, 128, 128};
    c.input.k = {{"arange_code", {}}};
    const Inputs in = make_inputs(c);
    std::set<std::vector<float>> rows;
    std::vector<float> row(128);
    for (int64_t t = 0; t < 700; ++t)
      for (int h = 0; h < 9; ++h) {
        in.k.read_row(t, h, row.data());
        EXPECT_TRUE(rows.insert(row).second) << "token " << t << ", head " << h;
        std::set<float> magnitudes;
        for (const float x : row) magnitudes.insert(std::fabs(x));
        EXPECT_EQ(magnitudes.size(), 128u);
      }
    const float expected = static_cast<float>(name_code({0, 0, 0, 0, 3}, 77)) / kFixedOne;
    EXPECT_EQ(in.k.get(0, 3, 77), expected);
  }
}

TEST(Distributions, ValuesStayFiniteInFp16) {
  Case c = case_of({300}, DType::kFp16);
  c.input.v = {{"huge", {{"factor", 4096}}},
               {"one_channel", {{"factor", 4096}}},
               {"token_outlier", {{"factor", -4096}, {"every", 2}}}};
  const Inputs in = make_inputs(c);
  double largest = 0;
  for (int64_t t = 0; t < 300; ++t)
    for (int d = 0; d < kDim; ++d)
      largest = std::max(largest, std::fabs(static_cast<double>(in.v.get(t, 0, d))));
  EXPECT_EQ(largest, 65504);
}

TEST(Distributions, TableIsComplete) {
  std::set<std::string> names;
  for (const DistributionRow& row : distributions()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(std::string(row.tensors).empty());
    for (const DistributionParam& p : row.params) {
      EXPECT_LE(p.low, p.fallback) << row.name << " " << p.name;
      EXPECT_LE(p.fallback, p.high) << row.name << " " << p.name;
    }
    // every row changes what it makes, but for those that say otherwise
    Case c = case_of({100});
    const Distribution d{row.name, {}};
    if (row.on('q')) c.input.q = {d};
    if (row.on('k')) c.input.k = {d};
    if (row.on('v')) c.input.v = {d};
    const Inputs plain = make_inputs(case_of({100})), changed = make_inputs(c);
    int64_t differ = 0;
    for (int64_t i = 0; i < plain.packed.size(); ++i)
      differ += plain.packed.get(i) != changed.packed.get(i);
    EXPECT_EQ(differ > 0, row.step != nullptr) << row.name;
  }
  EXPECT_THROW(param_of({"huge", {}}, "nonsense"), std::logic_error);
}

}  // namespace
}  // namespace sagebench
