// The attention kernel table, and the composed operators' host side: no GPU needed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "sage/sage.h"

namespace sage {
namespace {

TEST(KernelTable, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const AttentionKernel& kernel : attention_kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_EQ(find_attention_kernel(kernel.name), &kernel);
    EXPECT_EQ(kernel.supports({}, kernel.defaults), nullptr) << kernel.name;
#ifdef SAGE_WITH_CUDA
    EXPECT_NE(kernel.launch, nullptr) << kernel.name;
#else
    EXPECT_EQ(kernel.launch, nullptr) << kernel.name;
#endif
  }
  EXPECT_TRUE(names.count("sage_mma_fp8") && names.count("sage_mma_fp16"));
  EXPECT_EQ(find_attention_kernel("sage_mma"), nullptr);
}

class SageMma : public testing::TestWithParam<const char*> {
 protected:
  const AttentionKernel& kernel_ = *find_attention_kernel(GetParam());
  bool fp8() const { return kernel_.defaults.pv == PvType::kFp8E4m3; }
};

TEST_P(SageMma, RunsWhereItsInstructionsAre) {
  EXPECT_FALSE(kernel_.runs_on(75));
  EXPECT_EQ(kernel_.runs_on(80), !fp8());
  EXPECT_EQ(kernel_.runs_on(86), !fp8());
  for (const int capability : {89, 90, 120}) EXPECT_TRUE(kernel_.runs_on(capability));
}

TEST_P(SageMma, SaysWhyNot) {
  const auto reason = [&](const std::function<void(AttentionProblem&, SageSettings&)>& change) {
    AttentionProblem problem;
    SageSettings settings = kernel_.defaults;
    change(problem, settings);
    const char* why = kernel_.supports(problem, settings);
    return std::string(why == nullptr ? "" : why);
  };
  using P = AttentionProblem;
  using S = SageSettings;
  EXPECT_NE(reason([](P& p, S&) { p.head_dim = 129; }).find("128"), std::string::npos);
  EXPECT_NE(reason([](P& p, S&) { p.head_dim_v = 256; }).find("128"), std::string::npos);
  EXPECT_NE(reason([](P& p, S&) { p.head_dim = 0; }), "");
  EXPECT_NE(reason([](P& p, S&) { p.num_qo_heads = 3, p.num_kv_heads = 2; }), "");
  EXPECT_NE(reason([](P& p, S&) { p.num_kv_heads = 0; }), "");
  EXPECT_NE(reason([](P& p, S&) { p.num_qo_heads = 65536, p.num_kv_heads = 1; }), "");
  EXPECT_NE(reason([](P& p, S&) { p.dtype = DType::kFp32; }), "");
  EXPECT_NE(reason([](P&, S& s) { s.p = PMode::kLinear; }).find("linear"), std::string::npos);
  EXPECT_NE(reason([&](P&, S& s) { s.pv = fp8() ? PvType::kFp16 : PvType::kFp8E4m3; }), "");
  for (const auto& change : std::vector<std::function<void(P&, S&)>>{
           [](P&p, S&) { p.head_dim = p.head_dim_v = 1; },
           [](P&p, S&) { p.head_dim = 64, p.head_dim_v = 128; },
           [](P&p, S&) { p.mask = Mask::kCausalTopLeft, p.return_lse = true; },
           [](P&p, S&) { p.dtype = DType::kFp16; },
           [](P&, S&s) { s.qk_granularity = Granularity::kPerBlock; },
           [](P&, S&s) { s.smooth_k = s.smooth_v = Smooth::kSampled; },
           [](P&, S&s) { s.rotate = Rotate::kHadamard, s.v_scale = VScale::kPerHead; }}) {
    EXPECT_EQ(reason(change), "");
  }
}

TEST_P(SageMma, LayoutPadsDims) {
  for (const auto& [dim, want] : {std::pair{1, 64}, {64, 64}, {65, 128}, {128, 128}}) {
    AttentionProblem problem;
    problem.head_dim = dim;
    EXPECT_EQ(kernel_.layout(problem, kernel_.defaults).head_dim, want);
    EXPECT_EQ(kernel_.layout(problem, kernel_.defaults).head_dim_v, 128);
  }
}

// The C fragment of m16n8 gives lane t columns 2t, 2t + 1 of each 8; the A fragment of m16n8k32
// takes positions 4t .. 4t + 3 of each 16 from it. So those positions hold the lane's own keys.
TEST(SageMmaFp8, KeyOrderGivesEachLaneItsOwnKeys) {
  const AttentionKernel& kernel = *find_attention_kernel("sage_mma_fp8");
  const AttentionLayout layout = kernel.layout({}, kernel.defaults);
  std::set<int> seen;
  for (int p = 0; p < AttentionLayout::kKeyOrder; ++p) {
    const int key = layout.v_key_order[static_cast<size_t>(p)];
    EXPECT_TRUE(seen.insert(key).second);
    EXPECT_LT(key, AttentionLayout::kKeyOrder);
    EXPECT_EQ(key % 8 / 2, p / 4) << "position " << p;
  }
}

TEST_P(SageMma, PScaleFitsTheOperandType) {
  const AttentionLayout layout = kernel_.layout({}, kernel_.defaults);
  const double largest = std::exp2(static_cast<double>(layout.p_offset));
  EXPECT_NEAR(largest, fp8() ? 448.0 : 32768.0, 1e-3);
  EXPECT_EQ(layout.promote_keys, layout.tile_k);
}

SageWorkspace plan(const SageAttentionParams& p, void* base) {
  SageWorkspace w;
  const Status status = plan_workspace(p, base, w);
  EXPECT_TRUE(status.ok()) << status.reason;
  return w;
}

SageAttentionParams attention_params(const AttentionKernel& kernel) {
  SageAttentionParams p;
  p.kernel = &kernel;
  p.settings = kernel.defaults;
  p.q = {nullptr, DType::kBf16, 1000, 8, 96, 8 * 96, 96};
  p.k = {nullptr, DType::kBf16, 1100, 2, 96, 2 * 96, 96};
  p.v = {nullptr, DType::kBf16, 1100, 2, 64, 2 * 64, 64};
  p.batch = 3;
  p.sm_scale = 0.1f;
  p.o_token_stride = 8 * 64;
  p.o_head_stride = 64;
  return p;
}

TEST_P(SageMma, WorkspaceArraysDoNotOverlap) {
  SageAttentionParams p = attention_params(kernel_);
  float lse;
  p.lse = &lse;
  const SageWorkspace sizes = plan(p, nullptr);
  EXPECT_EQ(sizes.q_codes, nullptr);
  ASSERT_GT(sizes.bytes, 1000u * 8 * 128);
  std::vector<char> memory(sizes.bytes + 256);
  char* base = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
  const SageWorkspace w = plan(p, base);
  EXPECT_EQ(w.bytes, sizes.bytes);
  EXPECT_EQ(w.stats_bytes, sizes.stats_bytes);
  EXPECT_EQ(w.layout.head_dim, 128);
  EXPECT_EQ(w.layout.head_dim_v, 64);
  const std::vector<std::pair<const void*, size_t>> arrays = {
      {w.k_offset, 3 * 2 * 128 * 4},
      {w.v_offset, 3 * 2 * 64 * 4},
      {w.v_scales, 3 * 2 * 64 * 4},
      {w.lse_dot, 8 * 1000 * 4},
      {w.q_codes, 1000 * 8 * 128},
      {w.q_scales, 8 * static_cast<size_t>(scale_rows(w.layout.q_groups, 1000, 3)) * 4},
      {w.k_codes, 1100 * 2 * 128},
      {w.k_scales, 2 * static_cast<size_t>(scale_rows(w.layout.k_groups, 1100, 3)) * 4},
      {w.v_codes, v_codes_bytes(w.layout, 1100, 2, 3)},
      {w.stats, w.stats_bytes}};
  const char* end = base;
  for (const auto& [array, bytes] : arrays) {
    const char* begin = static_cast<const char*>(array);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 256, 0u);
    EXPECT_GE(begin, end);
    end = begin + bytes;
  }
  EXPECT_LE(end, base + w.bytes);
}

TEST_P(SageMma, WorkspaceHasOnlyWhatIsNeeded) {
  SageAttentionParams p = attention_params(kernel_);
  alignas(256) static char base[256];
  EXPECT_EQ(plan(p, base).lse_dot, nullptr);
  EXPECT_NE(plan(p, base).k_offset, nullptr);
  p.settings.smooth_k = Smooth::kNone;
  float lse;
  p.lse = &lse;
  EXPECT_EQ(plan(p, base).lse_dot, nullptr);
  EXPECT_EQ(plan(p, base).k_offset, nullptr);
  p.q.head_dim = p.k.head_dim = 256;
  SageWorkspace w = plan(attention_params(kernel_), base);
  EXPECT_EQ(plan_workspace(p, base, w).code, StatusCode::kUnsupported);
  EXPECT_EQ(w.bytes, 0u) << "what was planned before is gone";
}

TEST(SageSm90, IsARowWithItsOwnWorkspace) {
  const AttentionKernel* kernel = find_attention_kernel("sage_sm90");
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->runs_on(90));
  for (const int other : {80, 89, 100, 120}) EXPECT_FALSE(kernel->runs_on(other));
  AttentionProblem odd;
  odd.head_dim_v = 100;
  EXPECT_NE(kernel->supports(odd, kernel->defaults), nullptr);

  alignas(256) static char base[256];
  const SageAttentionParams p = attention_params(*kernel);
  SageWorkspace none;
  EXPECT_EQ(plan_workspace(p, base, none).code, StatusCode::kUnsupported)
      << "64 channels of V beside 96 of Q";
  SageAttentionParams even = p;
  even.v.head_dim = 96;
  const SageWorkspace w = plan(even, base);
  AttentionParams a;
  a.batch = p.batch;
  ASSERT_GE(w.attend_bytes, kernel->workspace_bytes(a));
  const char* attend = static_cast<const char*>(w.attend);
  EXPECT_GE(attend, static_cast<const char*>(w.stats) + w.stats_bytes);
  EXPECT_LE(attend + w.attend_bytes, base + w.bytes);
}

INSTANTIATE_TEST_SUITE_P(Kernels, SageMma, testing::Values("sage_mma_fp8", "sage_mma_fp16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sage
