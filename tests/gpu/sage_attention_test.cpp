// The composed operators on the GPU, from 16-bit tensors to attention output, against exact
// attention in double precision.
#include "gpu/attention_run.h"
#include "sage/sage.h"

namespace attention_test {
namespace {

constexpr int kQoHeads = 4, kKvHeads = 2, kDim = 128;

struct Tensors {
  std::vector<int32_t> cu_q, cu_kv;
  std::vector<uint16_t> q, k, v;  // bf16 [tokens, heads, kDim]
};

float at(const std::vector<uint16_t>& x, int64_t token, int heads, int head, int channel) {
  return sagebench::float_from_bf16(
      x[static_cast<size_t>((token * heads + head) * kDim + channel)]);
}

// N(0, 1), K with a channel bias of 2, V with one of 1.
Tensors make_tensors(const std::vector<int>& q_lens, const std::vector<int>& kv_lens) {
  Tensors x;
  x.cu_q = prefix_sum(q_lens);
  x.cu_kv = prefix_sum(kv_lens);
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<uint16_t>& to, int64_t tokens, int heads, float bias) {
    for (int64_t i = 0; i < tokens * heads * kDim; ++i) {
      to.push_back(sagebench::bf16_from_float(normal(random) + (i % 2 ? bias : -bias)));
    }
  };
  fill(x.q, x.cu_q.back(), kQoHeads, 0.0f);
  fill(x.k, x.cu_kv.back(), kKvHeads, 2.0f);
  fill(x.v, x.cu_kv.back(), kKvHeads, 1.0f);
  return x;
}

struct DeviceTensors {
  explicit DeviceTensors(const Tensors& x)
      : cu_q(x.cu_q),
        cu_kv(x.cu_kv),
        q(x.q),
        k(x.k),
        v(x.v),
        o(static_cast<int64_t>(x.q.size())),
        lse(int64_t{x.cu_q.back()} * kQoHeads) {}
  DeviceArray<int32_t> cu_q, cu_kv;
  DeviceArray<uint16_t> q, k, v, o;
  DeviceArray<float> lse;
};

sage::SageAttentionParams params_of(const char* kernel, const Tensors& x, const DeviceTensors& d) {
  const auto packed = [](const DeviceArray<uint16_t>& data, int64_t tokens, int heads) {
    return sage::PackedTensor{data.data(), sage::DType::kBf16,    tokens, heads,
                              kDim,        int64_t{heads} * kDim, kDim};
  };
  sage::SageAttentionParams p;
  p.kernel = sage::find_attention_kernel(kernel);
  p.settings = p.kernel->defaults;
  p.q = packed(d.q, x.cu_q.back(), kQoHeads);
  p.k = packed(d.k, x.cu_kv.back(), kKvHeads);
  p.v = packed(d.v, x.cu_kv.back(), kKvHeads);
  p.batch = static_cast<int>(x.cu_q.size()) - 1;
  p.cu_seqlens_q = d.cu_q.data();
  p.cu_seqlens_kv = d.cu_kv.data();
  p.mask = sage::Mask::kCausalBottomRight;
  p.sm_scale = 1.0f / std::sqrt(static_cast<float>(kDim));
  p.o = d.o.data();
  p.o_token_stride = kQoHeads * kDim;
  p.o_head_stride = kDim;
  p.lse = d.lse.data();
  return p;
}

size_t workspace_bytes(const sage::SageAttentionParams& p) {
  sage::SageWorkspace w;
  const sage::Status status = sage::plan_workspace(p, nullptr, w);
  EXPECT_TRUE(status.ok()) << status.reason;
  return w.bytes;
}

// Relative L1 of o per (sequence, head), and lse, against exact causal attention.
void expect_close(const Tensors& x, const DeviceTensors& d, double limit) {
  const std::vector<uint16_t> o = d.o.get(0, static_cast<int64_t>(x.q.size()));
  const std::vector<float> lse = d.lse.get(0, int64_t{x.cu_q.back()} * kQoHeads);
  for (size_t b = 0; b + 1 < x.cu_q.size(); ++b) {
    const int q_len = x.cu_q[b + 1] - x.cu_q[b], kv_len = x.cu_kv[b + 1] - x.cu_kv[b];
    for (int h = 0; h < kQoHeads; ++h) {
      const int kv_head = h / (kQoHeads / kKvHeads);
      double difference = 0, magnitude = 0;
      for (int t = 0; t < q_len; ++t) {
        const int64_t row = x.cu_q[b] + t;
        const int visible = std::clamp(t + 1 + kv_len - q_len, 0, kv_len);
        std::vector<double> s(static_cast<size_t>(visible)), want(kDim, 0.0);
        double max = -INFINITY, sum = 0;
        for (int j = 0; j < visible; ++j) {
          double dot = 0;
          for (int c = 0; c < kDim; ++c) {
            dot += double{at(x.q, row, kQoHeads, h, c)} *
                   at(x.k, x.cu_kv[b] + j, kKvHeads, kv_head, c);
          }
          s[static_cast<size_t>(j)] = dot / std::sqrt(double{kDim});
          max = std::max(max, s[static_cast<size_t>(j)]);
        }
        for (int j = 0; j < visible; ++j) {
          const double w = std::exp(s[static_cast<size_t>(j)] - max);
          sum += w;
          for (int c = 0; c < kDim; ++c) {
            want[static_cast<size_t>(c)] += w * at(x.v, x.cu_kv[b] + j, kKvHeads, kv_head, c);
          }
        }
        for (int c = 0; c < kDim; ++c) {
          const double exact = visible == 0 ? 0.0 : want[static_cast<size_t>(c)] / sum;
          difference += std::abs(at(o, row, kQoHeads, h, c) - exact);
          magnitude += std::abs(exact);
        }
        const float got = lse[static_cast<size_t>(h * x.cu_q.back() + row)];
        if (visible == 0) {
          EXPECT_EQ(got, -INFINITY);
        } else {
          EXPECT_NEAR(got, max + std::log(sum), 0.1) << "head " << h << " row " << row;
        }
      }
      EXPECT_LE(difference, limit * magnitude) << "sequence " << b << " head " << h;
    }
  }
}

class SageAttention : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = gpu_test::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  // The bound of the design is for N(0, 1) V; with a mean of 1 the same error is relative to more.
  double limit() const { return std::string(GetParam()) == "sage_mma_fp8" ? 0.044 : 0.014; }
};

TEST_P(SageAttention, CloseToExactForEverySetting) {
  const Tensors x = make_tensors({300, 1, 0, 129}, {300, 77, 40, 200});
  const DeviceTensors d(x);
  std::vector<sage::SageSettings> all(7, sage::find_attention_kernel(GetParam())->defaults);
  all[1].rotate = sage::Rotate::kHadamard;
  all[2].smooth_k = all[2].smooth_v = sage::Smooth::kSampled;
  all[3].v_scale = sage::VScale::kPerHead;
  all[4].qk_granularity = sage::Granularity::kPerWarp;
  all[5].qk_granularity = sage::Granularity::kPerBlock;
  all[6].smooth_v = sage::Smooth::kNone;
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE("settings " + std::to_string(i));
    sage::SageAttentionParams p = params_of(GetParam(), x, d);
    p.settings = all[i];
    const size_t bytes = workspace_bytes(p);
    const DeviceArray<char> workspace(bytes);
    gpu_test::device_fill(workspace.data(), 0xFF, bytes);  // NaN wherever nothing is written
    const sage::Status status = sage::launch_sage_attention(p, workspace.data(), bytes, nullptr);
    ASSERT_TRUE(status.ok()) << status.reason;
    expect_close(x, d, limit());
  }
}

// Without rotation, prefill is attention on the same tensors.
TEST_P(SageAttention, PrefillWithoutRotationIsAttention) {
  const Tensors x = make_tensors({150, 3}, {150, 3});
  const DeviceTensors d(x);
  sage::SageAttentionParams p = params_of(GetParam(), x, d);
  const size_t bytes = workspace_bytes(p);
  const DeviceArray<char> workspace(bytes);
  ASSERT_TRUE(sage::launch_sage_attention(p, workspace.data(), bytes, nullptr).ok());
  const auto size = static_cast<int64_t>(x.q.size());
  const std::vector<uint16_t> direct = d.o.get(0, size);

  sage::RopeKvCacheWriteParams rope;
  rope.batch = p.batch;
  rope.num_qo_heads = kQoHeads;
  rope.num_kv_heads = kKvHeads;
  rope.head_dim = rope.head_dim_v = kDim;
  rope.total_tokens = x.cu_q.back();
  rope.q = d.q.data();
  rope.k = d.k.data();
  rope.v = d.v.data();
  rope.q_token_stride = rope.q_out_token_stride = kQoHeads * kDim;
  rope.k_token_stride = rope.k_out_token_stride = rope.v_token_stride = kKvHeads * kDim;
  rope.q_head_stride = rope.k_head_stride = rope.v_head_stride = kDim;
  rope.q_out_head_stride = rope.k_out_head_stride = kDim;
  rope.cu_seqlens = d.cu_q.data();
  rope.style = sage::RopeStyle::kNone;
  DeviceArray<uint16_t> q_out(size), k_out(static_cast<int64_t>(x.k.size()));
  rope.q_out = q_out.data();
  rope.k_out = k_out.data();
  p.q = p.k = p.v = {};  // prefill fills these in
  p.cu_seqlens_q = p.cu_seqlens_kv = nullptr;
  gpu_test::device_fill(d.o.data(), 0, d.o.bytes());
  const sage::Status status = sage::launch_prefill(rope, p, workspace.data(), bytes, nullptr);
  ASSERT_TRUE(status.ok()) << status.reason;
  EXPECT_EQ(d.o.get(0, size), direct);
}

TEST_P(SageAttention, RefusesADeviceThatTheKernelIsNotWrittenFor) {
  const Tensors x = make_tensors({3}, {3});
  const DeviceTensors d(x);
  sage::SageAttentionParams p = params_of(GetParam(), x, d);
  sage::AttentionKernel elsewhere = *p.kernel;
  elsewhere.runs_on = [](int) { return false; };
  p.kernel = &elsewhere;
  const size_t bytes = workspace_bytes(p);
  const DeviceArray<char> workspace(bytes);
  EXPECT_EQ(sage::launch_sage_attention(p, workspace.data(), bytes, nullptr).code,
            sage::StatusCode::kUnsupported);
  sage::SageWorkspace w;
  ASSERT_TRUE(sage::plan_workspace(p, workspace.data(), w).ok());
  EXPECT_EQ(sage::launch_attend(p, w, nullptr).code, sage::StatusCode::kUnsupported);
}

INSTANTIATE_TEST_SUITE_P(Kernels, SageAttention, testing::Values("sage_mma_fp8", "sage_mma_fp16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace attention_test
