#include "metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sagebench {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kDim = 4;

// Two sequences of 5 and 2 queries, two heads.
Case small_case() {
  Case c;
  c.model = {2, 1, kDim, kDim};
  c.batch.qo_len = {5, 2};
  c.batch.kv_len = {5, 2};
  return c;
}

RowSample all_rows(const Case& c) {
  RowSample rows;
  for (int32_t b = 0; b < c.batch.size(); ++b)
    for (int32_t h = 0; h < c.model.num_qo_heads; ++h)
      for (int64_t t = 0; t < c.batch.qo_len[static_cast<size_t>(b)]; ++t)
        rows.rows.push_back({b, h, t});
  rows.total = static_cast<int64_t>(rows.rows.size());
  return rows;
}

struct Fixture {
  Case c = small_case();
  RowSample rows = all_rows(c);
  AttentionRows reference, actual;
  Fixture() {
    for (size_t i = 0; i < rows.rows.size() * kDim; ++i) reference.o.push_back(i % 2 ? -1.0 : 1.0);
    reference.lse.assign(rows.rows.size(), 2.0);
    actual = reference;
  }
  double& at(int sequence, int head, int64_t token, int channel) {
    for (size_t r = 0; r < rows.rows.size(); ++r)
      if (rows.rows[r].sequence == sequence && rows.rows[r].head == head &&
          rows.rows[r].token == token)
        return actual.o[r * kDim + static_cast<size_t>(channel)];
    throw std::logic_error("no such row");
  }
  ErrorReport measure(int tile_q = 4) const {
    return measure_error(c, rows, actual, reference, tile_q);
  }
  WorstSlice worst(const std::string& kind) const {
    for (const WorstSlice& w : measure().worst)
      if (w.kind == kind) return w;
    throw std::logic_error("no slice " + kind);
  }
};

TEST(MeasureError, EqualIsPerfect) {
  const ErrorReport report = Fixture().measure();
  EXPECT_EQ(report.all.cosine, 1);
  EXPECT_EQ(report.all.rel_l1, 0);
  EXPECT_EQ(report.all.rmse, 0);
  EXPECT_EQ(report.all.norm_ratio, 1);
  EXPECT_EQ(report.all.max_error_rms, 0);
  EXPECT_EQ(report.worst_cosine, 1);
  EXPECT_EQ(report.lse_max_error, 0);
  EXPECT_EQ(report.nan_count + report.inf_count, 0);
}

TEST(MeasureError, ValuesOfOneWrongElement) {
  Fixture f;
  f.at(0, 0, 0, 0) += 0.5;
  const ErrorReport report = f.measure();
  const double n = 14 * kDim;
  EXPECT_DOUBLE_EQ(report.all.rel_l1, 0.5 / n);
  EXPECT_DOUBLE_EQ(report.all.rmse, 0.5 / std::sqrt(n));
  EXPECT_DOUBLE_EQ(report.all.norm_ratio, 1 + 0.5 / n);
  EXPECT_DOUBLE_EQ(report.all.max_error_rms, 0.5);
  EXPECT_LT(report.worst_cosine, report.all.cosine);
  EXPECT_EQ(to_string(report.worst_cosine_at), "sequence 0, head 0");
}

// Cosine does not see that the output shrank; the norm ratio does.
TEST(MeasureError, NormRatioSeesScale) {
  Fixture f;
  for (double& x : f.actual.o) x *= 0.8;
  const ErrorReport report = f.measure();
  EXPECT_NEAR(report.all.cosine, 1, 1e-12);
  EXPECT_NEAR(report.all.norm_ratio, 0.8, 1e-12);
  EXPECT_NEAR(report.all.rel_l1, 0.2, 1e-12);
}

// A short broken sequence is not hidden by a long right one.
TEST(MeasureError, WorstSlicesNameTheirPlace) {
  Fixture f;
  f.at(1, 1, 1, 2) += 3;
  EXPECT_EQ(f.worst("sequence").at.sequence, 1);
  EXPECT_DOUBLE_EQ(f.worst("sequence").values.rel_l1, 3.0 / 16);
  EXPECT_EQ(f.worst("head").at.head, 1);
  EXPECT_EQ(to_string(f.worst("sequence_head").at), "sequence 1, head 1");
  EXPECT_EQ(to_string(f.worst("last_token").at), "sequence 1, token 1");
  EXPECT_EQ(to_string(f.worst("row").at), "sequence 1, head 1, token 1");
  EXPECT_DOUBLE_EQ(f.worst("row").values.rel_l1, 3.0 / kDim);
  EXPECT_EQ(to_string(f.worst("v_channel").at), "head 1, channel 2");
}

// With tiles of 4 rows: the tail of 5 queries is token 4, that of 2 queries is both.
TEST(MeasureError, TailTileIsTheLastPartOfATile) {
  Fixture f;
  f.at(0, 0, 3, 0) += 1;
  EXPECT_EQ(f.worst("tail_tile").values.rel_l1, 0);
  f.at(0, 0, 4, 0) += 1;
  EXPECT_EQ(to_string(f.worst("tail_tile").at), "sequence 0, token 4");
  EXPECT_DOUBLE_EQ(f.worst("tail_tile").values.rel_l1, 1.0 / (2 * kDim));
  f.c.batch.qo_len = {4, 2};  // whole tiles have no tail
  f.rows = all_rows(f.c);
  for (const WorstSlice& w : measure_error(f.c, f.rows, f.actual, f.reference, 2).worst)
    EXPECT_NE(w.kind, "tail_tile");
}

TEST(MeasureError, NanIsInfinitelyWrong) {
  for (const double bad : {std::nan(""), kInf}) {
    Fixture f;
    f.at(1, 0, 0, 3) = bad;
    const ErrorReport report = f.measure();
    EXPECT_EQ(report.all.rel_l1, kInf);
    EXPECT_EQ(report.all.cosine, -1);
    EXPECT_EQ(report.worst_cosine, -1);
    EXPECT_EQ(report.all.norm_ratio, kInf);
    EXPECT_EQ(report.nan_count, std::isnan(bad) ? 1 : 0);
    EXPECT_EQ(report.inf_count, std::isnan(bad) ? 0 : 1);
    EXPECT_EQ(to_string(report.first_nonfinite), "sequence 1, head 0, token 0, channel 3");
  }
  Fixture f;  // in the reference just as well
  f.reference.o[0] = std::nan("");
  EXPECT_EQ(f.measure().all.rel_l1, kInf);
}

TEST(MeasureError, ZeroReference) {
  Fixture f;
  for (double& x : f.reference.o) x = 0;
  f.actual = f.reference;
  EXPECT_EQ(f.measure().all.rel_l1, 0);
  EXPECT_EQ(f.measure().all.cosine, 1);
  f.at(0, 0, 0, 0) = 1e-30;
  EXPECT_EQ(f.measure().all.rel_l1, kInf);
  EXPECT_EQ(f.measure().all.norm_ratio, kInf);
  EXPECT_EQ(f.measure().all.max_error_rms, kInf);
  EXPECT_EQ(f.measure().all.cosine, 0);
}

TEST(MeasureError, ZeroOutput) {
  Fixture f;
  for (double& x : f.actual.o) x = 0;
  EXPECT_DOUBLE_EQ(f.measure().all.rel_l1, 1);
  EXPECT_EQ(f.measure().all.cosine, 0);
  EXPECT_EQ(f.measure().all.norm_ratio, 0);
}

TEST(MeasureError, LseCountsMissingInfinities) {
  Fixture f;
  f.reference.lse[3] = f.actual.lse[3] = -kInf;
  EXPECT_EQ(f.measure().lse_max_error, 0);
  f.actual.lse[2] += 0.25;
  EXPECT_DOUBLE_EQ(f.measure().lse_max_error, 0.25);
  f.actual.lse[3] = 0;
  EXPECT_EQ(f.measure().lse_max_error, kInf);
}

TEST(MeasureError, NothingToMeasure) {
  const Case c = small_case();
  const ErrorReport report = measure_error(c, {}, {}, {});
  EXPECT_EQ(report.all.rel_l1, 0);
  EXPECT_TRUE(report.worst.empty());
}

TEST(GatherRows, PicksTokensOfTheirSequence) {
  const Case c = small_case();
  Tensor cu(DType::kInt32, {3});
  cu.as<int32_t>()[1] = 5;
  cu.as<int32_t>()[2] = 7;
  StageOutputs out;
  out.o = Tensor(DType::kFp32, {7, 2, kDim});
  out.lse = Tensor(DType::kFp32, {2, 7});
  for (int64_t i = 0; i < out.o.size(); ++i) out.o.set(i, static_cast<float>(i));
  for (int64_t i = 0; i < out.lse.size(); ++i) out.lse.set(i, static_cast<float>(i));
  const AttentionRows rows = gather_rows(c, cu, out, {{{1, 1, 1}}, 14});
  ASSERT_EQ(rows.o.size(), size_t{kDim});
  EXPECT_EQ(rows.o[2], (6 * 2 + 1) * kDim + 2);
  ASSERT_EQ(rows.lse.size(), 1u);
  EXPECT_EQ(rows.lse[0], 7 + 6);
}

}  // namespace
}  // namespace sagebench
