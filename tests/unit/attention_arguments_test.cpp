// Every attention kernel of the table refuses bad arguments and foreign layouts with a named
// status: no GPU needed.
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "sage/attention.h"
#include "support/bad_arguments.h"

namespace sage {
namespace {

using bad_arguments::address;
using bad_arguments::Change;
using bad_arguments::Pointer;
using bad_arguments::set_member;
using A = AttentionParams;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

// Which kernel a table's plain functions are about: set by the fixture.
const AttentionKernel* subject = nullptr;

A valid_params(const AttentionKernel& kernel) {
  A a;
  a.layout = kernel.layout({}, kernel.defaults);
  a.batch = 2;
  a.num_qo_heads = 4;
  a.num_kv_heads = 2;
  a.head_dim_v = 128;
  a.total_q = a.total_kv = 100;
  a.sm_scale = 0.1f;
  a.cu_seqlens_q = a.cu_seqlens_kv = address<int32_t>();
  a.q_codes = a.k_codes = address<int8_t>();
  a.q_scales = a.k_scales = a.v_scales = address<float>();
  a.v_codes = a.o = address<char>();
  a.o_token_stride = 512;
  a.o_head_stride = 128;
  if (kernel.workspace_bytes != nullptr) {
    a.workspace = address<char>();
    a.workspace_bytes = kernel.workspace_bytes(a);
  }
  return a;
}

class AttentionArguments : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { subject = find_attention_kernel(GetParam()); }
  bool hopper() const { return std::string(GetParam()) == "sage_sm90"; }
  bad_arguments::Subject<A> check() const {
    return {valid_params(*subject), [](const A& a) {
              const Status checked = subject->check(a);
              if (!checked.ok() && subject->launch != nullptr) {
                EXPECT_EQ(subject->launch(a, nullptr).code, checked.code) << checked.reason;
              }
              return checked;
            }};
  }
};

TEST_P(AttentionArguments, EveryPointer) {
  check().move({{"cu_seqlens_q", set_member<A, &A::cu_seqlens_q>, 4, true},
                {"cu_seqlens_kv", set_member<A, &A::cu_seqlens_kv>, 4, true},
                {"q_codes", set_member<A, &A::q_codes>, 16, true},
                {"q_scales", set_member<A, &A::q_scales>, 4, true},
                {"k_codes", set_member<A, &A::k_codes>, 16, true},
                {"k_scales", set_member<A, &A::k_scales>, 4, true},
                {"v_codes", set_member<A, &A::v_codes>, 16, true},
                {"v_scales", set_member<A, &A::v_scales>, 4, true},
                {"v_offset", set_member<A, &A::v_offset>, 4, false},
                {"lse_dot", set_member<A, &A::lse_dot>, 4, false},
                {"lse", set_member<A, &A::lse>, 4, false},
                {"o", set_member<A, &A::o>, hopper() ? size_t{16} : 2, true}});
}

TEST_P(AttentionArguments, EverySizeStrideAndChoice) {
  check().change(
      {{"batch", kInvalid, [](A& a) { a.batch = -1; }},
       {"total_q", kInvalid, [](A& a) { a.total_q = -1; }},
       {"total_q 2^31", kInvalid, [](A& a) { a.total_q = int64_t{1} << 31; }},
       {"total_kv", kInvalid, [](A& a) { a.total_kv = -1; }},
       {"total_kv 2^31", kInvalid, [](A& a) { a.total_kv = int64_t{1} << 31; }},
       {"heads 3", kInvalid, [](A& a) { a.num_qo_heads = 3; }},
       {"heads 0", kInvalid, [](A& a) { a.num_qo_heads = 0; }},
       {"kv heads 0", kInvalid, [](A& a) { a.num_kv_heads = 0; }},
       {"kv heads -2", kInvalid, [](A& a) { a.num_kv_heads = -2; }},
       {"head_dim_v 0", kInvalid, [](A& a) { a.head_dim_v = 0; }},
       {"head_dim_v 129", kInvalid, [](A& a) { a.head_dim_v = 129; }},
       {"head_dim_v of 64 padded to 128", kUnsupported, [](A& a) { a.head_dim_v = 64; }},
       {"mask", kInvalid, [](A& a) { a.mask = static_cast<Mask>(7); }},
       {"sm_scale 0", kInvalid, [](A& a) { a.sm_scale = 0; }},
       {"sm_scale -1", kInvalid, [](A& a) { a.sm_scale = -1; }},
       {"sm_scale tiny", kInvalid, [](A& a) { a.sm_scale = 1e-30f; }},
       {"sm_scale NaN", kInvalid, [](A& a) { a.sm_scale = NAN; }},
       {"sm_scale inf", kInvalid, [](A& a) { a.sm_scale = INFINITY; }},
       {"o_dtype fp32", kInvalid, [](A& a) { a.o_dtype = DType::kFp32; }},
       {"o_dtype fp16", StatusCode::kOk, [](A& a) { a.o_dtype = DType::kFp16; }},
       {"token stride < 0", kInvalid, [](A& a) { a.o_token_stride = -512; }},
       {"head stride < 0", kInvalid, [](A& a) { a.o_head_stride = -128; }},
       {"token stride 0", kInvalid, [](A& a) { a.o_token_stride = 0; }},
       {"head stride 0", kInvalid, [](A& a) { a.o_head_stride = 0; }},
       {"head stride 64", kInvalid, [](A& a) { a.o_head_stride = 64; }},
       {"token stride of 3 heads", kInvalid, [](A& a) { a.o_token_stride = 384; }},
       {"head-major o, short", kInvalid,
        [](A& a) { a.o_token_stride = 128, a.o_head_stride = 12672; }},
       {"head-major o", StatusCode::kOk,
        [](A& a) { a.o_token_stride = 128, a.o_head_stride = 12800; }},
       {"stride past 2^63", kInvalid, [](A& a) { a.o_token_stride = INT64_MAX / 2; }},
       {"no queries, no pointers", StatusCode::kOk,
        [](A& a) { a.total_q = 0, a.cu_seqlens_q = nullptr, a.o = nullptr, a.q_codes = nullptr; }},
       {"no keys, no pointers", StatusCode::kOk,
        [](A& a) {
          a.total_kv = 0, a.k_codes = nullptr, a.k_scales = nullptr, a.v_codes = nullptr;
        }},
       {"no sequences", StatusCode::kOk, [](A& a) { a.batch = 0, a.cu_seqlens_q = nullptr; }}});
}

TEST_P(AttentionArguments, LimitsOfEachKernel) {
  if (hopper()) {
    check().change(
        {{"2^29 keys", kUnsupported, [](A& a) { a.total_kv = (int64_t{1} << 29) + 1; }},
         {"2^29 queries", kUnsupported, [](A& a) { a.total_q = (int64_t{1} << 29) + 1; }},
         {"2^30 items", kUnsupported,
          [](A& a) { a.total_q = 1 << 29, a.num_qo_heads = 1024, a.o_token_stride = 1024 * 128; }},
         {"2^30 tiles of V", kUnsupported,
          [](A& a) {
            a.total_kv = 1 << 29, a.num_qo_heads = a.num_kv_heads = 1024;
            a.o_token_stride = 1024 * 128;
          }},
         {"head_dim_v 100", kUnsupported, [](A& a) { a.head_dim_v = 100; }},
         {"token stride 516", StatusCode::kMisaligned, [](A& a) { a.o_token_stride = 516; }},
         {"head stride 132", StatusCode::kMisaligned,
          [](A& a) { a.o_head_stride = 132, a.o_token_stride = 1024; }},
         {"no workspace", StatusCode::kWorkspaceTooSmall, [](A& a) { a.workspace = nullptr; }},
         {"small", StatusCode::kWorkspaceTooSmall, [](A& a) { --a.workspace_bytes; }},
         {"odd workspace", StatusCode::kMisaligned,
          [](A& a) { a.workspace = address<char>() + 8; }}});
  } else {
    EXPECT_EQ(subject->workspace_bytes, nullptr);
    check().change({{"65538 heads", kUnsupported, [](A& a) { a.num_qo_heads = 65538; }},
                    {"head_dim_v 100", StatusCode::kOk, [](A& a) { a.head_dim_v = 100; }},
                    {"odd strides", StatusCode::kOk,
                     [](A& a) { a.o_head_stride = 129, a.o_token_stride = 517; }}});
  }
}

struct Member {
  const char* name;
  void (*change)(AttentionLayout& l);
};
const Member kMembers[] = {
    {"head_dim", [](AttentionLayout& l) { l.head_dim = 96; }},
    {"head_dim_v", [](AttentionLayout& l) { l.head_dim_v = 192; }},
    {"tile_q", [](AttentionLayout& l) { l.tile_q = 96; }},
    {"tile_k", [](AttentionLayout& l) { l.tile_k *= 2; }},
    {"q_groups", [](AttentionLayout& l) { l.q_groups.block_tokens = 64; }},
    {"q_groups", [](AttentionLayout& l) { l.q_groups.groups_per_block = 4; }},
    {"q_groups", [](AttentionLayout& l) { l.q_groups.pattern = GroupPattern::kPairMod4; }},
    {"k_groups", [](AttentionLayout& l) { l.k_groups.block_tokens = 32; }},
    {"k_groups", [](AttentionLayout& l) { l.k_groups.groups_per_block = 1; }},
    {"k_groups", [](AttentionLayout& l) { l.k_groups.pattern = GroupPattern::kAll; }},
    {"v_tile_keys", [](AttentionLayout& l) { l.v_tile_keys = 32; }},
    {"v_key_order", [](AttentionLayout& l) { std::swap(l.v_key_order[3], l.v_key_order[12]); }},
    {"v_code_max", [](AttentionLayout& l) { l.v_code_max = 240.0f; }},
    {"p_offset", [](AttentionLayout& l) { l.p_offset += 1.0f; }},
    {"reference", [](AttentionLayout& l) { l.reference.used = !l.reference.used; }},
    {"reference", [](AttentionLayout& l) { ++l.reference.max_code; }},
    {"reference", [](AttentionLayout& l) { ++l.reference.top_code; }},
    {"reference", [](AttentionLayout& l) { ++l.reference.low_code; }},
    {"reference", [](AttentionLayout& l) { ++l.reference.span_octaves; }},
    {"promote_keys", [](AttentionLayout& l) { l.promote_keys *= 2; }},
    {"accumulator_bits", [](AttentionLayout& l) { l.accumulator_bits += 1; }},
    {"row_sum_promoted", [](AttentionLayout& l) { l.row_sum_promoted = !l.row_sum_promoted; }},
    {"lse_bias", [](AttentionLayout& l) { l.lse_bias += 0.5f; }},
};

TEST_P(AttentionArguments, EveryMemberOfTheLayoutIsTheKernelsOwn) {
  for (const Member& member : kMembers) {
    A a = valid_params(*subject);
    const AttentionLayout own = a.layout;
    EXPECT_TRUE(own == a.layout);
    member.change(a.layout);
    EXPECT_FALSE(own == a.layout) << member.name;
    const Status status = subject->check(a);
    EXPECT_EQ(status.code, kUnsupported) << member.name << ": " << status.reason;
    EXPECT_NE(std::string(status.reason).find(member.name), std::string::npos)
        << member.name << ": " << status.reason;
  }
  // Another type of P V or of P is another kernel or another setting.
  for (const auto& change : {std::function<void(AttentionLayout&)>([](AttentionLayout& l) {
                               l.pv = l.pv == PvType::kFp16 ? PvType::kFp8E4m3 : PvType::kFp16;
                             }),
                             std::function<void(AttentionLayout&)>([](AttentionLayout& l) {
                               l.p = l.p == PMode::kExp2 ? PMode::kLinear : PMode::kExp2;
                             })}) {
    A a = valid_params(*subject);
    const AttentionLayout own = a.layout;
    change(a.layout);
    EXPECT_FALSE(own == a.layout);
    EXPECT_EQ(subject->check(a).code, kUnsupported);
  }
}

// Every layout a kernel makes is its own, and no other kernel's.
TEST_P(AttentionArguments, LayoutsOfOtherKernelsAreRefused) {
  int accepted = 0;
  for (const AttentionKernel& maker : attention_kernels()) {
    for (const auto& [dim, dim_v] :
         {std::pair{128, 128}, {64, 64}, {64, 128}, {96, 80}, {24, 40}}) {
      for (const Granularity granularity :
           {Granularity::kPerThread, Granularity::kPerWarp, Granularity::kPerBlock}) {
        for (const PMode p : {PMode::kExp2, PMode::kLinear}) {
          AttentionProblem problem;
          problem.head_dim = dim;
          problem.head_dim_v = dim_v;
          SageSettings settings = maker.defaults;
          settings.qk_granularity = granularity;
          settings.p = p;
          if (maker.supports(problem, settings) != nullptr) continue;
          A a = valid_params(*subject);
          a.layout = maker.layout(problem, settings);
          a.head_dim_v = dim_v;
          const bool own = &maker == subject;
          const Status status = subject->check(a);
          EXPECT_EQ(status.code, own ? StatusCode::kOk : kUnsupported)
              << maker.name << " " << dim << " " << dim_v << ": " << status.reason;
          accepted += status.ok();
        }
      }
    }
  }
  EXPECT_GE(accepted, 12);
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionArguments,
                         testing::Values("sage_mma_fp8", "sage_mma_fp16", "sage_sm90"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sage
