// Every property passes on the emulated op and fails on a subject that breaks it.
#include "properties.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "metrics/cache_map.h"
#include "run/cpu_executor.h"
#include "selftest.h"

namespace sagebench {
namespace {

using Break = std::function<void(const Case& c, const Inputs& in, const RunOptions& options,
                                 int run, StageOutputs& out)>;

// The CPU executor, changed: may call itself a GPU, and damages what a run leaves.
class BrokenExecutor : public Executor {
 public:
  explicit BrokenExecutor(Break damage, bool gpu = false) : damage_(std::move(damage)), gpu_(gpu) {}
  const Environment& environment() const override { return cpu_->environment(); }
  bool is_gpu() const override { return gpu_; }
  RunOutput run(const Case& c, const Kernel& kernel, const Inputs& in,
                const RunOptions& options) override {
    RunOutput result = cpu_->run(c, kernel, in, options);
    if (damage_) damage_(c, in, options, runs_++, result.outputs);
    return result;
  }

 private:
  std::unique_ptr<Executor> cpu_ = make_cpu_executor();
  Break damage_;
  bool gpu_;
  int runs_ = 0;
};

const SelftestCase& small_case(const std::string& id) {
  static const std::vector<SelftestCase> cases = selftest_cases();
  for (const SelftestCase& s : cases)
    if (s.c.id == id) return s;
  throw std::logic_error("no case " + id);
}

// The property on a right baseline; the property's own runs are damaged.
PropertyCheck check(const std::string& property, const SelftestCase& s, Break damage,
                    bool gpu = false) {
  RowSample rows = sample_rows(s.c, s.kernel.layout);
  RunOptions options;
  options.rows = &rows;
  const StageOutputs baseline = make_cpu_executor()->run(s.c, s.kernel, s.in, options).outputs;
  BrokenExecutor executor(std::move(damage), gpu);
  return find_property(property)->check(executor, s.c, s.kernel, s.in, baseline);
}

void flip_last_bit_of_o(StageOutputs& out) {
  out.o.as<uint16_t>()[out.o.size() - 1] ^= 1;
}
void flip_k_rope(StageOutputs& out) {
  out.k_rope.as<uint16_t>()[out.k_rope.size() - 1] ^= 1;
}

TEST(Properties, TableIsWhatScenariosAccept) {
  std::set<std::string> names;
  for (const Property& p : properties()) {
    EXPECT_TRUE(names.insert(p.name).second);
    EXPECT_EQ(find_property(p.name), &p);
    EXPECT_FALSE(p.ops.empty());
  }
  EXPECT_EQ(find_property("no_such_property"), nullptr);
  EXPECT_EQ(names.size(), 11u);
}

TEST(Properties, AllHoldOnTheEmulatedOp) {
  for (const char* id :
       {"causal_fp8", "full_rotated_fp16", "paged_neox", "slots_interleaved", "small_prefill"}) {
    const SelftestCase& s = small_case(id);
    for (const Property& p : properties()) {
      if (std::find(p.ops.begin(), p.ops.end(), s.c.op) == p.ops.end()) continue;
      const PropertyCheck result = check(p.name, s, {});
      EXPECT_EQ(result.name, p.name);
      const bool causal_split = std::string(p.name) == "kv_split_lse" && s.c.causal;
      if (p.gpu_only || causal_split) {
        EXPECT_TRUE(result.skipped && !result.passed) << id << ": " << p.name;
        EXPECT_FALSE(result.detail.empty());
      } else {
        EXPECT_TRUE(result.passed && !result.skipped)
            << id << ": " << p.name << ": " << result.detail;
      }
    }
  }
}

TEST(Properties, GpuOnlyOnesAreSkippedOnTheCpu) {
  for (const Property& p : properties()) {
    if (!p.gpu_only) continue;
    EXPECT_TRUE(check(p.name, small_case("causal_fp8"), {}).skipped) << p.name;
    EXPECT_TRUE(check(p.name, small_case("causal_fp8"), {}, true).passed) << p.name;
  }
}

// ---- each can fail -----------------------------------------------------------------------------

TEST(Determinism, SeesOneBit) {
  const auto o = [](auto&, auto&, auto&, int, StageOutputs& out) { flip_last_bit_of_o(out); };
  EXPECT_FALSE(check("determinism", small_case("causal_fp8"), o).passed);
  const auto k = [](auto&, auto&, auto&, int, StageOutputs& out) { flip_k_rope(out); };
  EXPECT_FALSE(check("determinism", small_case("paged_neox"), k).passed);
  const auto lse = [](auto&, auto&, auto&, int, StageOutputs& out) {
    out.lse.set(out.lse.size() - 1, 7);
  };
  EXPECT_FALSE(check("determinism", small_case("causal_fp8"), lse).passed);
}

// A subject whose results depend on how many sequences there are.
TEST(AloneEqualsBatch, SeesTheBatch) {
  const auto damage = [](const Case& c, auto&, auto&, int, StageOutputs& out) {
    if (c.batch.size() == 1 && c.batch.qo_len[0] == 33) flip_last_bit_of_o(out);
  };
  const PropertyCheck result = check("alone_equals_batch", small_case("causal_fp8"), damage);
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.detail.find("sequence 4 of the batch"), std::string::npos) << result.detail;
  const auto rope = [](const Case& c, auto&, auto&, int, StageOutputs& out) {
    if (c.batch.size() == 1) flip_k_rope(out);
  };
  EXPECT_FALSE(check("alone_equals_batch", small_case("paged_neox"), rope).passed);
}

// A subject that gives the first sequence special treatment.
TEST(PermuteSequences, SeesTheOrder) {
  const auto damage = [](const Case& c, auto&, auto&, int, StageOutputs& out) {
    if (c.batch.qo_len[0] != 70) out.o.as<uint16_t>()[0] ^= 1;
  };
  EXPECT_FALSE(check("permute_sequences", small_case("causal_fp8"), damage).passed);
  SelftestCase one;
  one.c = small_case("small_prefill").c;
  one.kernel = small_case("small_prefill").kernel;
  one.c.batch.qo_len = one.c.batch.kv_len = {12};
  one.c.batch.kv_len_before = {0};
  one.in = make_inputs(one.c);
  EXPECT_TRUE(check("permute_sequences", one, {}).skipped);
}

// A subject whose O depends on the shift, and one that forgets it in the LSE.
TEST(KShift, SeesOAndLse) {
  const auto o = [](auto&, auto&, auto&, int run, StageOutputs& out) {
    if (run == 1)
      for (int64_t i = 0; i < out.o.size(); ++i) out.o.set(i, out.o.get(i) * 1.02f);
  };
  const PropertyCheck moved = check("k_shift", small_case("causal_fp8"), o);
  EXPECT_FALSE(moved.passed);
  EXPECT_NE(moved.detail.find("O moved"), std::string::npos) << moved.detail;
  const auto lse = [](auto&, auto&, auto&, int run, StageOutputs& out) {
    if (run == 1)
      for (int64_t i = 0; i < out.lse.size(); ++i) out.lse.set(i, out.lse.get(i) + 0.5f);
  };
  const PropertyCheck forgot = check("k_shift", small_case("causal_fp8"), lse);
  EXPECT_FALSE(forgot.passed);
  EXPECT_NE(forgot.detail.find("LSE at"), std::string::npos) << forgot.detail;
}

TEST(KShift, NeedsSmoothing) {
  SelftestCase s;
  s.c = small_case("full_rotated_fp16").c;
  s.kernel = small_case("full_rotated_fp16").kernel;
  s.in = small_case("full_rotated_fp16").in.clone();
  s.kernel.settings.smooth_k = sage::Smooth::kNone;
  EXPECT_TRUE(check("k_shift", s, {}).skipped);
}

TEST(VPowerOfTwo, SeesOneBit) {
  const auto damage = [](auto&, auto&, auto&, int, StageOutputs& out) { flip_last_bit_of_o(out); };
  for (const char* id : {"causal_fp8", "full_rotated_fp16", "small_prefill"})
    EXPECT_FALSE(check("v_power_of_two", small_case(id), damage).passed) << id;
}

TEST(ConstantV, SeesALostKey) {
  const auto damage = [](auto&, auto&, auto&, int, StageOutputs& out) {
    for (int64_t i = 0; i < out.o.size(); ++i) out.o.set(i, out.o.get(i) * 0.96f);
  };
  const PropertyCheck result = check("constant_v", small_case("causal_fp8"), damage);
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.detail.find("expected"), std::string::npos);
}

// Rows without a key are zero, whatever V is.
TEST(ConstantV, SeesRowsWithoutKeys) {
  const auto damage = [](const Case& c, const Inputs& in, auto&, int, StageOutputs& out) {
    const int64_t token = in.cu_seqlens_q.as<int32_t>()[3];  // sequence 3 has no keys
    out.o.set(token * c.model.num_qo_heads * c.model.head_dim_v, 1);
  };
  EXPECT_FALSE(check("constant_v", small_case("causal_fp8"), damage).passed);
}

TEST(KvSplitLse, SeesAWrongLse) {
  EXPECT_TRUE(check("kv_split_lse", small_case("full_rotated_fp16"), {}).passed);
  const auto base_2 = [](auto&, auto&, auto&, int run, StageOutputs& out) {
    for (int64_t i = 0; run == 1 && i < out.lse.size(); ++i) out.lse.set(i, out.lse.get(i) + 2);
  };
  const PropertyCheck result = check("kv_split_lse", small_case("full_rotated_fp16"), base_2);
  EXPECT_FALSE(result.passed);
  EXPECT_FALSE(result.skipped);
  EXPECT_TRUE(check("kv_split_lse", small_case("causal_fp8"), {}).skipped);
}

// A graph that replays the inputs of its capture; a consumer that does not wait.
TEST(GraphReplay, SeesStaleResults) {
  const auto damage = [](auto&, auto&, const RunOptions& options, int, StageOutputs& out) {
    if (options.graph) flip_last_bit_of_o(out);
  };
  EXPECT_FALSE(check("graph_replay", small_case("causal_fp8"), damage, true).passed);
  EXPECT_TRUE(check("slow_producer", small_case("causal_fp8"), damage, true).passed);
}
TEST(SlowProducer, SeesEarlyReads) {
  const auto damage = [](auto&, auto&, const RunOptions& options, int, StageOutputs& out) {
    if (options.slow_producer) flip_k_rope(out);
  };
  EXPECT_FALSE(check("slow_producer", small_case("paged_neox"), damage, true).passed);
  EXPECT_TRUE(check("graph_replay", small_case("paged_neox"), damage, true).passed);
}

// A subject that writes page 0 wrongly, wherever the tokens of the baseline are.
TEST(PagePermutation, SeesAPhysicalPage) {
  const auto damage = [](const Case& c, const Inputs& in, auto&, int, StageOutputs& out) {
    const int64_t slot = token_slots(c, in).back();
    out.value_cache.as<uint16_t>()[CacheView(c, out.value_cache).index(slot, 1, 0)] ^= 1;
  };
  for (const char* id : {"paged_neox", "slots_interleaved", "small_prefill"})
    EXPECT_FALSE(check("page_permutation", small_case(id), damage).passed) << id;
}

// A subject that forgets kv_len_before: chunks behind the first are rotated from position 0.
TEST(ChunkedEqualsWhole, SeesAForgottenStart) {
  const auto damage = [](const Case& c, auto&, auto&, int run, StageOutputs& out) {
    if (run == 2 && c.batch.kv_len_before[0] > 0) flip_k_rope(out);
  };
  const PropertyCheck result = check("chunked_equals_whole", small_case("paged_neox"), damage);
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.detail.find("call 3 of 3"), std::string::npos) << result.detail;
  const auto cache = [](const Case& c, const Inputs& in, auto&, int, StageOutputs& out) {
    const int64_t slot = token_slots(c, in).front();
    if (slot != kNoSlot)
      out.key_cache.as<uint16_t>()[CacheView(c, out.key_cache).index(slot, 0, 3)] ^= 1;
  };
  EXPECT_FALSE(check("chunked_equals_whole", small_case("slots_interleaved"), cache).passed);
}

TEST(Properties, NothingComputedIsNotAPass) {
  SelftestCase s;
  s.c = small_case("causal_fp8").c;
  s.kernel = small_case("causal_fp8").kernel;
  s.in = small_case("causal_fp8").in.clone();
  s.c.validate.rows = Rows::kOff;
  for (const char* name : {"determinism", "alone_equals_batch", "permute_sequences", "k_shift",
                           "v_power_of_two", "constant_v"})
    EXPECT_TRUE(check(name, s, {}).skipped) << name;
}

}  // namespace
}  // namespace sagebench
