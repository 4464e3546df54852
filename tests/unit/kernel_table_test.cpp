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

// Valid parameters with every pointer set to an address that is never used.
AttentionParams valid_params(const AttentionKernel& kernel) {
  alignas(256) static char memory[256];
  AttentionParams a;
  a.layout = kernel.layout({}, kernel.defaults);
  a.batch = 2;
  a.num_qo_heads = 4;
  a.num_kv_heads = 2;
  a.head_dim_v = 128;
  a.total_q = a.total_kv = 100;
  a.sm_scale = 0.1f;
  a.cu_seqlens_q = a.cu_seqlens_kv = reinterpret_cast<const int32_t*>(memory);
  a.q_codes = a.k_codes = reinterpret_cast<const int8_t*>(memory);
  a.q_scales = a.k_scales = a.v_scales = reinterpret_cast<const float*>(memory);
  a.v_codes = a.o = memory;
  a.o_token_stride = 512;
  a.o_head_stride = 128;
  return a;
}

TEST_P(SageMma, RefusesBadArguments) {
  using A = AttentionParams;
  struct Row {
    const char* what;
    StatusCode code;
    std::function<void(A&)> change;
  };
  const auto odd = [](auto* pointer, int bytes) {
    return reinterpret_cast<decltype(pointer)>(reinterpret_cast<uintptr_t>(pointer) +
                                               static_cast<uintptr_t>(bytes));
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  const StatusCode misaligned = StatusCode::kMisaligned;
  const StatusCode unsupported = StatusCode::kUnsupported;
  for (const Row& row : std::vector<Row>{
           {"batch", invalid, [](A& a) { a.batch = -1; }},
           {"total_q", invalid, [](A& a) { a.total_q = -1; }},
           {"total_kv", invalid, [](A& a) { a.total_kv = int64_t{1} << 31; }},
           {"heads", invalid, [](A& a) { a.num_qo_heads = 3; }},
           {"no kv heads", invalid, [](A& a) { a.num_kv_heads = 0; }},
           {"head_dim_v", invalid, [](A& a) { a.head_dim_v = 129; }},
           {"head_dim_v 0", invalid, [](A& a) { a.head_dim_v = 0; }},
           {"mask", invalid, [](A& a) { a.mask = static_cast<Mask>(7); }},
           {"sm_scale 0", invalid, [](A& a) { a.sm_scale = 0; }},
           {"sm_scale tiny", invalid, [](A& a) { a.sm_scale = 1e-30f; }},
           {"sm_scale NaN", invalid, [](A& a) { a.sm_scale = NAN; }},
           {"o_dtype", invalid, [](A& a) { a.o_dtype = DType::kFp32; }},
           {"stride", invalid, [](A& a) { a.o_token_stride = -512; }},
           {"stride 0", invalid, [](A& a) { a.o_head_stride = 0; }},
           {"cu_seqlens_q", invalid, [](A& a) { a.cu_seqlens_q = nullptr; }},
           {"cu_seqlens_kv", invalid, [](A& a) { a.cu_seqlens_kv = nullptr; }},
           {"q_codes", invalid, [](A& a) { a.q_codes = nullptr; }},
           {"q_scales", invalid, [](A& a) { a.q_scales = nullptr; }},
           {"k_codes", invalid, [](A& a) { a.k_codes = nullptr; }},
           {"k_scales", invalid, [](A& a) { a.k_scales = nullptr; }},
           {"v_codes", invalid, [](A& a) { a.v_codes = nullptr; }},
           {"v_scales", invalid, [](A& a) { a.v_scales = nullptr; }},
           {"o", invalid, [](A& a) { a.o = nullptr; }},
           {"q_codes + 8", misaligned, [&](A& a) { a.q_codes = odd(a.q_codes, 8); }},
           {"k_codes + 1", misaligned, [&](A& a) { a.k_codes = odd(a.k_codes, 1); }},
           {"k_scales + 2", misaligned, [&](A& a) { a.k_scales = odd(a.k_scales, 2); }},
           {"o + 1", misaligned, [&](A& a) { a.o = odd(static_cast<char*>(a.o), 1); }},
           {"many heads", unsupported, [](A& a) { a.num_qo_heads = 65538; }},
           {"tile_k", unsupported, [](A& a) { a.layout.tile_k = 128; }},
           {"key order", unsupported,
            [](A& a) { std::swap(a.layout.v_key_order[1], a.layout.v_key_order[2]); }},
           {"groups", unsupported, [](A& a) { a.layout.q_groups.block_tokens = 16; }},
           {"head_dim", unsupported, [](A& a) { a.layout.head_dim = 192; }},
           {"pv", unsupported,
            [&](A& a) { a.layout.pv = fp8() ? PvType::kFp16 : PvType::kFp8E4m3; }}}) {
    AttentionParams a = valid_params(kernel_);
    row.change(a);
    const Status status = kernel_.check(a);
    EXPECT_EQ(status.code, row.code) << row.what << ": " << status.reason;
    EXPECT_STRNE(status.reason, "") << row.what;
    if (kernel_.launch != nullptr) {
      EXPECT_EQ(kernel_.launch(a, nullptr).code, row.code) << row.what;
    }
  }
  // Valid ones are refused for no reason but a missing device, by check or by launch.
  const StatusCode code = kernel_.check(valid_params(kernel_)).code;
  EXPECT_TRUE(code == StatusCode::kOk || code == StatusCode::kCudaError);
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
  const SageWorkspace sizes = plan_workspace(p, nullptr);
  EXPECT_EQ(sizes.q_codes, nullptr);
  ASSERT_GT(sizes.bytes, 1000u * 8 * 128);
  std::vector<char> memory(sizes.bytes + 256);
  char* base = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
  const SageWorkspace w = plan_workspace(p, base);
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
  EXPECT_EQ(plan_workspace(p, base).lse_dot, nullptr);
  EXPECT_NE(plan_workspace(p, base).k_offset, nullptr);
  p.settings.smooth_k = Smooth::kNone;
  float lse;
  p.lse = &lse;
  EXPECT_EQ(plan_workspace(p, base).lse_dot, nullptr);
  EXPECT_EQ(plan_workspace(p, base).k_offset, nullptr);
  p.q.head_dim = p.k.head_dim = 256;
  EXPECT_EQ(plan_workspace(p, base).bytes, 0u);
}

TEST_P(SageMma, ComposedRefusesBadArguments) {
  using P = SageAttentionParams;
  alignas(256) static char memory[256];
  const SageAttentionParams valid = attention_params(kernel_);
  const size_t bytes = plan_workspace(valid, nullptr).bytes;
  struct Row {
    const char* what;
    StatusCode code;
    std::function<void(P&)> change;
    size_t workspace_bytes;
    char* workspace = memory;
  };
  for (const Row& row : std::vector<Row>{
           {"kernel", StatusCode::kInvalidArgument, [](P& p) { p.kernel = nullptr; }, bytes},
           {"dtype", StatusCode::kInvalidArgument, [](P& p) { p.v.dtype = DType::kFp16; }, bytes},
           {"dim", StatusCode::kInvalidArgument, [](P& p) { p.k.head_dim = 64; }, bytes},
           {"heads", StatusCode::kInvalidArgument, [](P& p) { p.v.num_heads = 1; }, bytes},
           {"tokens", StatusCode::kInvalidArgument, [](P& p) { p.v.total_tokens = 3; }, bytes},
           {"data", StatusCode::kInvalidArgument, [](P&) {}, bytes},
           {"long head", StatusCode::kUnsupported, [](P& p) { p.q.head_dim = p.k.head_dim = 256; },
            bytes},
           {"linear", StatusCode::kUnsupported, [](P& p) { p.settings.p = PMode::kLinear; }, bytes},
           {"small", StatusCode::kWorkspaceTooSmall, [](P&) {}, bytes - 1},
           {"null", StatusCode::kInvalidArgument, [](P&) {}, bytes, nullptr},
           {"unaligned", StatusCode::kMisaligned, [](P&) {}, bytes, memory + 16}}) {
    SageAttentionParams p = valid;
    row.change(p);
    const Status status = launch_sage_attention(p, row.workspace, row.workspace_bytes, nullptr);
    EXPECT_EQ(status.code, row.code) << row.what << ": " << status.reason;
  }
  RopeKvCacheWriteParams rope;
  rope.batch = valid.batch;
  EXPECT_EQ(launch_prefill(rope, valid, memory, bytes, nullptr).code, StatusCode::kInvalidArgument);
}

#ifndef SAGE_WITH_CUDA
TEST_P(SageMma, SaysThatThereIsNoCuda) {
  SageAttentionParams p = attention_params(kernel_);
  const Status status = launch_attend(p, plan_workspace(p, nullptr), nullptr);
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_STREQ(status.reason, "built without CUDA");
}
#endif

TEST(SageSm90, IsARowWithItsOwnWorkspace) {
  const AttentionKernel* kernel = find_attention_kernel("sage_sm90");
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->runs_on(90));
  for (const int other : {80, 89, 100, 120}) EXPECT_FALSE(kernel->runs_on(other));
  AttentionProblem odd;
  odd.head_dim_v = 100;
  EXPECT_NE(kernel->supports(odd, kernel->defaults), nullptr);

  alignas(256) static char base[1];
  const SageAttentionParams p = attention_params(*kernel);
  EXPECT_EQ(plan_workspace(p, base).bytes, 0u) << "64 channels of V beside 96 of Q";
  SageAttentionParams even = p;
  even.v.head_dim = 96;
  const SageWorkspace w = plan_workspace(even, base);
  AttentionParams a;
  a.batch = p.batch;
  ASSERT_GE(w.attend_bytes, kernel->workspace_bytes(a));
  const char* attend = static_cast<const char*>(w.attend);
  EXPECT_GE(attend, static_cast<const char*>(w.stats) + w.stats_bytes);
  EXPECT_LE(attend + w.attend_bytes, base + w.bytes);

  AttentionParams valid = valid_params(*kernel);
  EXPECT_EQ(kernel->check(valid).code, StatusCode::kWorkspaceTooSmall);
  valid.workspace = base;
  valid.workspace_bytes = kernel->workspace_bytes(valid);
  EXPECT_TRUE(kernel->check(valid).ok());
  valid.o_token_stride = 516;
  EXPECT_EQ(kernel->check(valid).code, StatusCode::kMisaligned);
}

INSTANTIATE_TEST_SUITE_P(Kernels, SageMma, testing::Values("sage_mma_fp8", "sage_mma_fp16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sage
