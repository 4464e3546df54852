#include "run/cpu_executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel.h"
#include "selftest.h"

namespace sagebench {
namespace {

const SelftestCase& small_case(const std::string& id) {
  static const std::vector<SelftestCase> cases = selftest_cases();
  for (const SelftestCase& s : cases)
    if (s.c.id == id) return s;
  throw std::logic_error("no case " + id);
}

RunOutput run(const SelftestCase& s, const RunOptions& options = {}) {
  return make_cpu_executor()->run(s.c, s.kernel, s.in, options);
}

TEST(CpuExecutor, SaysWhatItIs) {
  const auto executor = make_cpu_executor();
  EXPECT_FALSE(executor->is_gpu());
  EXPECT_EQ(executor->environment().device, "cpu");
  EXPECT_EQ(executor->environment().cpu_threads, num_threads());
  EXPECT_FALSE(executor->environment().compute_capability.has_value());
}

TEST(CpuExecutor, EachOpLeavesItsStages) {
  const StageOutputs write = run(small_case("paged_neox")).outputs;
  EXPECT_FALSE(write.q_rope.empty() || write.k_rope.empty() || write.key_cache.empty());
  EXPECT_TRUE(write.q_codes.empty() && write.o.empty());

  const StageOutputs attention = run(small_case("causal_fp8")).outputs;
  EXPECT_TRUE(attention.q_rope.empty() && attention.key_cache.empty());
  EXPECT_FALSE(attention.k_offset.empty() || attention.q_codes.empty() || attention.o.empty());
  EXPECT_FALSE(attention.lse.empty() || attention.lse_dot.empty());

  const StageOutputs prefill = run(small_case("small_prefill")).outputs;
  EXPECT_FALSE(prefill.k_rope.empty() || prefill.value_cache.empty() || prefill.o.empty());
  EXPECT_TRUE(prefill.lse.empty());
}

TEST(CpuExecutor, ComputesOnlyTheRowsAsked) {
  const SelftestCase& s = small_case("causal_fp8");
  const StageOutputs all = run(s).outputs;
  const RowSample one{{{4, 2, 7}}, 576};
  RunOptions options;
  options.rows = &one;
  const StageOutputs some = run(s, options).outputs;
  const int64_t row = ((70 + 1 + 40 + 7) * 4 + 2), dim = s.c.model.head_dim_v;
  for (int64_t i = 0; i < some.o.size(); ++i)
    if (i / dim == row)
      EXPECT_EQ(some.o.get(i), all.o.get(i));
    else
      EXPECT_TRUE(std::isnan(some.o.get(i)));
  int64_t written = 0;
  for (int64_t i = 0; i < some.lse.size(); ++i) written += !std::isnan(some.lse.get(i));
  EXPECT_EQ(written, 1);
}

TEST(CpuExecutor, PoisonOfThePassFillsTheCache) {
  for (const int pass : {0, 1}) {
    RunOptions options;
    options.poison_pass = pass;
    const RunOutput result = run(small_case("paged_neox"), options);
    EXPECT_EQ(result.poison, poison_byte(pass));
    const auto& bytes = result.outputs.key_cache.bytes;
    EXPECT_GT(std::count(bytes.begin(), bytes.end(), std::byte{poison_byte(pass)}),
              static_cast<int64_t>(bytes.size()) / 2);
  }
}

TEST(CpuExecutor, TimesTheWallClockAndSaysSo) {
  SelftestCase s;
  const SelftestCase& original = small_case("small_prefill");
  s.c = original.c;
  s.kernel = original.kernel;
  s.in = original.in.clone();
  EXPECT_FALSE(run(s).cold.has_value());
  RunOptions options;
  options.timed = true;
  s.c.timing.max_time_s = 1e9;
  const RunOutput several = run(s, options);
  ASSERT_TRUE(several.cold.has_value());
  EXPECT_EQ(several.cold->samples_us.size(), 5u);
  EXPECT_GT(several.cold->median_us, 0);
  EXPECT_LE(several.cold->min_us, several.cold->median_us);
  EXPECT_NE(several.cold->method.find("not a performance figure"), std::string::npos);
  s.c.timing.max_time_s = 0;  // the run itself is a sample
  EXPECT_EQ(run(s, options).cold->samples_us.size(), 1u);

  const RowSample some{{{0, 0, 0}}, 236};
  options.rows = &some;
  EXPECT_NE(run(s, options).cold->method.find("1 of 236 rows"), std::string::npos);

  options.profile = true;
  EXPECT_FALSE(run(s, options).timings_valid);
}

// A fault changes what its own step leaves, and nothing else but by way of it.
TEST(CpuExecutor, FaultStaysInItsStep) {
  const SelftestCase& s = small_case("causal_fp8");
  const StageOutputs right = run(s).outputs;
  RunOptions options;
  options.fault = find_fault("k_scale_of_neighbour_read");
  ASSERT_NE(options.fault, nullptr);
  const StageOutputs wrong = run(s, options).outputs;
  EXPECT_EQ(wrong.k_scales.bytes, right.k_scales.bytes);
  EXPECT_EQ(wrong.q_codes.bytes, right.q_codes.bytes);
  EXPECT_NE(wrong.o.bytes, right.o.bytes);
  EXPECT_EQ(run(s).outputs.o.bytes, right.o.bytes);  // the inputs are what they were
}

}  // namespace
}  // namespace sagebench
