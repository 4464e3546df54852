// The composed operators refuse bad arguments and contradictions with a named status: no GPU
// needed.
#include <cstdint>
#include <string>
#include <vector>

#include "sage/sage.h"
#include "support/bad_arguments.h"

namespace sage {
namespace {

using bad_arguments::address;
using bad_arguments::kLaunches;
using bad_arguments::set_member;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr int64_t kTokens = 100;

// What launch_sage_attention takes.
struct Attention {
  SageAttentionParams p;
  char* workspace = address<char>();
  size_t bytes = 0;
};

SageAttentionParams attention_params(const AttentionKernel& kernel) {
  SageAttentionParams p;
  p.kernel = &kernel;
  p.settings = kernel.defaults;
  p.q = {address<char>(), DType::kBf16, kTokens, 8, 96, 8 * 96, 96};
  p.k = p.v = {address<char>(), DType::kBf16, kTokens, 2, 96, 2 * 96, 96};
  p.batch = 3;
  p.cu_seqlens_q = p.cu_seqlens_kv = address<int32_t>();
  p.sm_scale = 0.1f;
  p.o = address<char>();
  p.o_token_stride = 8 * 96;
  p.o_head_stride = 96;
  return p;
}

RopeKvCacheWriteParams rope_params() {
  RopeKvCacheWriteParams r;
  r.batch = 3;
  r.num_qo_heads = 8;
  r.num_kv_heads = 2;
  r.head_dim = r.head_dim_v = 96;
  r.total_tokens = kTokens;
  r.q = r.k = r.v = r.q_out = r.k_out = address<char>();
  r.q_token_stride = r.k_token_stride = r.v_token_stride = 12 * 96;  // fused qkv, in place
  r.q_out_token_stride = r.k_out_token_stride = 12 * 96;
  r.q_head_stride = r.k_head_stride = r.v_head_stride = 96;
  r.q_out_head_stride = r.k_out_head_stride = 96;
  r.cu_seqlens = address<int32_t>();
  r.style = RopeStyle::kNone;
  return r;
}

class SageArguments : public testing::TestWithParam<const char*> {
 protected:
  const AttentionKernel& kernel_ = *find_attention_kernel(GetParam());

  SageWorkspace plan(const SageAttentionParams& p) const {
    SageWorkspace w;
    const Status status = plan_workspace(p, nullptr, w);
    EXPECT_TRUE(status.ok()) << status.reason;
    return w;
  }
  bad_arguments::Subject<Attention> attention() const {
    const SageAttentionParams p = attention_params(kernel_);
    return {{p, address<char>(), plan(p).bytes},
            [](const Attention& a) {
              return launch_sage_attention(a.p, a.workspace, a.bytes, nullptr);
            },
            kLaunches};
  }
};

TEST_P(SageArguments, EveryPointer) {
  using A = Attention;
  const size_t o_bytes = kernel_.workspace_bytes == nullptr ? 2 : 16;  // sage_sm90's stores
  attention().move({{"q", [](A& a, char* at) { a.p.q.data = at; }, 2, true},
                    {"k", [](A& a, char* at) { a.p.k.data = at; }, 2, true},
                    {"v", [](A& a, char* at) { a.p.v.data = at; }, 2, true},
                    {"cu_q",
                     [](A& a, char* at) {
                       set_member<SageAttentionParams, &SageAttentionParams::cu_seqlens_q>(a.p, at);
                     },
                     4, true},
                    {"cu_kv",
                     [](A& a, char* at) {
                       set_member<SageAttentionParams, &SageAttentionParams::cu_seqlens_kv>(a.p,
                                                                                            at);
                     },
                     4, true},
                    {"o", [](A& a, char* at) { a.p.o = at; }, o_bytes, true},
                    {"workspace", [](A& a, char* at) { a.workspace = at; }, 256, true}});
}

TEST_P(SageArguments, EverySizeAndChoice) {
  using A = Attention;
  attention().change(
      {{"no kernel", kInvalid, [](A& a) { a.p.kernel = nullptr; }},
       {"dtype of v", kInvalid, [](A& a) { a.p.v.dtype = DType::kFp16; }},
       {"fp32", kUnsupported, [](A& a) { a.p.q.dtype = a.p.k.dtype = a.p.v.dtype = DType::kFp32; }},
       {"head_dim of k", kInvalid, [](A& a) { a.p.k.head_dim = 64; }},
       {"heads of v", kInvalid, [](A& a) { a.p.v.num_heads = 1; }},
       {"kv heads 3", kInvalid, [](A& a) { a.p.k.num_heads = a.p.v.num_heads = 3; }},
       {"kv heads 0", kInvalid, [](A& a) { a.p.k.num_heads = a.p.v.num_heads = 0; }},
       {"heads 65536", kUnsupported, [](A& a) { a.p.q.num_heads = 65536; }},
       {"tokens of v", kInvalid, [](A& a) { a.p.v.total_tokens = 3; }},
       {"tokens < 0", kInvalid, [](A& a) { a.p.q.total_tokens = -1; }},
       {"2^31 tokens", kInvalid,
        [](A& a) { a.p.k.total_tokens = a.p.v.total_tokens = int64_t{1} << 31; }},
       {"batch", kInvalid, [](A& a) { a.p.batch = -1; }},
       {"head_dim 256", kUnsupported, [](A& a) { a.p.q.head_dim = a.p.k.head_dim = 256; }},
       {"stride of q", kInvalid, [](A& a) { a.p.q.token_stride = -1; }},
       {"stride of o", kInvalid, [](A& a) { a.p.o_token_stride = 96; }},
       {"mask", kInvalid, [](A& a) { a.p.mask = static_cast<Mask>(9); }},
       {"sm_scale", kInvalid, [](A& a) { a.p.sm_scale = 0.0f; }},
       {"rotate", kInvalid, [](A& a) { a.p.settings.rotate = static_cast<Rotate>(5); }},
       {"v_scale", kInvalid, [](A& a) { a.p.settings.v_scale = static_cast<VScale>(5); }},
       {"smooth_k", kInvalid, [](A& a) { a.p.settings.smooth_k = static_cast<Smooth>(5); }},
       {"smooth_v", kInvalid, [](A& a) { a.p.settings.smooth_v = static_cast<Smooth>(5); }},
       {"pv", kUnsupported, [](A& a) { a.p.settings.pv = static_cast<PvType>(5); }},
       {"small workspace", StatusCode::kWorkspaceTooSmall, [](A& a) { --a.bytes; }},
       {"no sm_scale, small workspace", StatusCode::kWorkspaceTooSmall,
        [](A& a) { a.p.sm_scale = 0.0f, --a.bytes; }}});
}

TEST_P(SageArguments, PlanSaysWhyNotAndEmptiesTheWorkspace) {
  SageAttentionParams p = attention_params(kernel_);
  SageWorkspace w = plan(p);
  ASSERT_GT(w.bytes, 0u);
  const Status odd = plan_workspace(p, address<char>() + 128, w);
  EXPECT_EQ(odd.code, StatusCode::kMisaligned) << odd.reason;
  EXPECT_EQ(w.bytes, 0u);
  w = plan(p);
  p.k.num_heads = p.v.num_heads = 3;
  const Status status = plan_workspace(p, nullptr, w);
  EXPECT_EQ(status.code, kInvalid);
  EXPECT_NE(std::string(status.reason).find("num_kv_heads"), std::string::npos) << status.reason;
  EXPECT_EQ(w.bytes, 0u);
  EXPECT_TRUE(w.layout == AttentionLayout{});
}

// What launch_prefill takes.
struct Prefill {
  RopeKvCacheWriteParams rope;
  SageAttentionParams attention;
  size_t bytes = 0;
};

Prefill valid_prefill(const AttentionKernel& kernel) {
  Prefill p{rope_params(), attention_params(kernel), 0};
  p.attention.q = p.attention.k = p.attention.v = {};
  p.attention.cu_seqlens_q = p.attention.cu_seqlens_kv = nullptr;
  SageWorkspace w;
  const Status status = plan_prefill_workspace(p.rope, p.attention, nullptr, w);
  EXPECT_TRUE(status.ok()) << status.reason;
  p.bytes = w.bytes;
  return p;
}

TEST_P(SageArguments, PrefillRefusesContradictions) {
  using P = Prefill;
  const bad_arguments::Subject<P> prefill = {
      valid_prefill(kernel_),
      [](const P& p) {
        return launch_prefill(p.rope, p.attention, address<char>(), p.bytes, nullptr);
      },
      kLaunches};
  static const PackedTensor fused_q = {address<char>(), DType::kBf16, kTokens, 8, 96, 12 * 96, 96};
  static const PackedTensor fused_k = {address<char>(), DType::kBf16, kTokens, 2, 96, 12 * 96, 96};
  prefill.change(
      {{"the same said twice", StatusCode::kOk,
        [](P& p) {
          p.attention.q = fused_q, p.attention.k = p.attention.v = fused_k;
          p.attention.cu_seqlens_q = p.attention.cu_seqlens_kv = p.rope.cu_seqlens;
        }},
       {"batch", kInvalid, [](P& p) { p.attention.batch = 2; }},
       {"cu_seqlens_q", kInvalid, [](P& p) { p.attention.cu_seqlens_q = p.rope.cu_seqlens + 4; }},
       {"cu_seqlens_kv", kInvalid, [](P& p) { p.attention.cu_seqlens_kv = p.rope.cu_seqlens + 4; }},
       {"q elsewhere", kInvalid,
        [](P& p) { p.attention.q = fused_q, p.attention.q.data = address<char>() + 64; }},
       {"q without data", kInvalid,
        [](P& p) { p.attention.q = fused_q, p.attention.q.data = nullptr; }},
       {"q, other stride", kInvalid,
        [](P& p) { p.attention.q = fused_q, p.attention.q.token_stride = 768; }},
       {"q, other tokens", kInvalid,
        [](P& p) { p.attention.q = fused_q, p.attention.q.total_tokens = 50; }},
       {"k, other heads", kInvalid,
        [](P& p) { p.attention.k = fused_k, p.attention.k.num_heads = 4; }},
       {"k, other dtype", kInvalid,
        [](P& p) { p.attention.k = fused_k, p.attention.k.dtype = DType::kFp16; }},
       {"v, other head_dim", kInvalid,
        [](P& p) { p.attention.v = fused_k, p.attention.v.head_dim = 64; }},
       {"v, other head stride", kInvalid,
        [](P& p) { p.attention.v = fused_k, p.attention.v.head_stride = 192; }},
       {"no v", kInvalid, [](P& p) { p.rope.v = nullptr; }},
       {"no q_out", kInvalid, [](P& p) { p.rope.q_out = nullptr; }},
       {"no k_out", kInvalid, [](P& p) { p.rope.k_out = nullptr; }},
       {"rope's own", kInvalid, [](P& p) { p.rope.style = static_cast<RopeStyle>(5); }},
       {"no kernel", kInvalid, [](P& p) { p.attention.kernel = nullptr; }},
       {"small workspace", StatusCode::kWorkspaceTooSmall, [](P& p) { --p.bytes; }}});
}

TEST_P(SageArguments, PrefillNeedsTheWorkspaceOfItsAttention) {
  Prefill p = valid_prefill(kernel_);
  EXPECT_EQ(p.bytes, plan(attention_params(kernel_)).bytes);
  SageWorkspace w;
  p.attention.batch = 7;
  EXPECT_EQ(plan_prefill_workspace(p.rope, p.attention, nullptr, w).code, kInvalid);
  EXPECT_EQ(w.bytes, 0u);
}

TEST_P(SageArguments, StagesOneByOne) {
  const SageAttentionParams p = attention_params(kernel_);
  SageWorkspace w;
  ASSERT_TRUE(plan_workspace(p, address<char>(), w).ok());
  for (const auto stage : {launch_k_stats, launch_v_stats, launch_q_codes, launch_k_codes,
                           launch_v_codes, launch_attend}) {
    EXPECT_EQ(stage(p, {}, nullptr).code, stage == launch_attend ? kUnsupported : kInvalid)
        << stage(p, {}, nullptr).reason;
    if (kLaunches) continue;
    EXPECT_STREQ(stage(p, w, nullptr).reason, "built without CUDA");
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SageArguments,
                         testing::Values("sage_mma_fp8", "sage_mma_fp16", "sage_sm90"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CheckLengths, OfAHostCopy) {
  const std::vector<int32_t> cu = {0, 3, 3, 10};
  EXPECT_TRUE(check_lengths(cu.data(), 3, 10).ok());
  EXPECT_TRUE(check_lengths(cu.data(), 3, 12).ok()) << "rows behind are padding";
  EXPECT_TRUE(check_lengths(nullptr, 0, 0).ok());
  const auto reason = [](const Status& status) {
    EXPECT_EQ(status.code, kInvalid);
    return std::string(status.reason);
  };
  EXPECT_EQ(reason(check_lengths(cu.data(), 3, 9)), "cu_seqlens ends above total_tokens");
  const int32_t falling[] = {0, 5, 4}, late[] = {1, 5};
  EXPECT_EQ(reason(check_lengths(falling, 2, 10)), "cu_seqlens falls: a negative length");
  EXPECT_EQ(reason(check_lengths(late, 1, 10)), "cu_seqlens does not start at 0");
  EXPECT_EQ(reason(check_lengths(nullptr, 1, 10)), "cu_seqlens is null");
  EXPECT_EQ(reason(check_lengths(cu.data(), -1, 10)), "batch or total_tokens is negative");
}

}  // namespace
}  // namespace sage
