#include <gtest/gtest.h>

#ifndef SAGE_WITH_CUDA
TEST(Generate, NeedsCuda) {
  GTEST_SKIP() << "built without CUDA";
}
#else
#include <numeric>

#include "gpu/gpu_test.h"
#include "inputs/distributions.h"
#include "inputs/inputs.h"
#include "run/cuda_buffers.h"
#include "run/cuda_generate.h"

namespace sagebench {
namespace {

Case small_case(DType dtype, InputForm form) {
  Case c;
  c.op = OpKind::kAttention;
  c.id = c.scenario = "generate";
  c.dtype = dtype;
  c.model = {6, 2, 80, 48};
  c.batch.qo_len = c.batch.kv_len = {3, 0, 65, 1, 0, 130};
  c.batch.kv_len_before.assign(6, 0);
  c.sm_scale = 0.1;
  c.input.form = form;
  c.input.token_padding = 8;
  c.seed = 99;
  return c;
}

class GenerateTest : public GpuTest {
 protected:
  // Every live element of the tensor, host against device, and nothing but live elements.
  void expect_same_bits(const Case& c, TensorId id, TensorView Inputs::*view,
                        Tensor Inputs::*cu_seqlens) {
    const Inputs in = make_inputs(c);
    const TensorView& v = in.*view;
    const Tensor& base = *v.base;
    const CudaStream stream(false);
    DeviceBuffers buffers(0);
    DeviceBuffer* values = buffers.add("values", BufferRole::kOutput, base.bytes.size());
    DeviceBuffer* cu = buffers.add("cu", BufferRole::kInput, (in.*cu_seqlens).bytes.size());
    buffers.allocate();
    buffers.poison(0xA5, stream.get());
    upload(*cu, (in.*cu_seqlens).bytes, stream.get());

    GenerateTarget target;
    target.data = reinterpret_cast<uint16_t*>(values->data) + v.offset;
    target.fp16 = c.dtype == DType::kFp16;
    target.tokens = v.tokens;
    target.token_stride = v.token_stride;
    target.head_stride = v.head_stride;
    target.cu_seqlens = reinterpret_cast<const int32_t*>(cu->data);
    target.batch = static_cast<int>(c.batch.size());
    launch_generate(make_plan(c, id, c.seed), target, stream.get());
    cuda_check(cudaGetLastError(), "generate_kernel");
    std::vector<uint16_t> device(static_cast<size_t>(base.size()));
    download(device.data(), values->bytes, *values, values->data, stream.get());

    std::vector<bool> live(device.size(), false);
    int64_t wrong = 0;
    for (int64_t t = 0; t < v.tokens; ++t)
      for (int h = 0; h < v.heads; ++h)
        for (int d = 0; d < v.dim; ++d) {
          const auto at = static_cast<size_t>(v.index(t, h, d));
          live[at] = true;
          if (device[at] != base.as<uint16_t>()[at] && ++wrong == 1)
            ADD_FAILURE() << "token " << t << ", head " << h << ", channel " << d << ": host "
                          << base.as<uint16_t>()[at] << ", device " << device[at];
        }
    EXPECT_EQ(wrong, 0);
    int64_t touched = 0;
    for (size_t i = 0; i < device.size(); ++i) touched += !live[i] && device[i] != 0xA5A5;
    EXPECT_EQ(touched, 0) << "elements outside the view were written";
  }
};

TEST_F(GenerateTest, EveryDistributionHasTheHostsBits) {
  for (const DistributionRow& row : distributions())
    for (const DType dtype : {DType::kBf16, DType::kFp16})
      for (const InputForm form : {InputForm::kPackedQkv, InputForm::kSplit}) {
        SCOPED_TRACE(std::string(row.name) + " " + std::string(name_of(dtype)) +
                     (form == InputForm::kSplit ? " split" : " packed"));
        Case c = small_case(dtype, form);
        const Distribution d{row.name, {}};
        if (row.on('q')) c.input.q = {d};
        if (row.on('k')) c.input.k = {d};
        if (row.on('v')) c.input.v = {d};
        if (row.on('q')) expect_same_bits(c, TensorId::kQ, &Inputs::q, &Inputs::cu_seqlens_q);
        if (row.on('k')) expect_same_bits(c, TensorId::kK, &Inputs::k, &Inputs::cu_seqlens_kv);
        if (row.on('v')) expect_same_bits(c, TensorId::kV, &Inputs::v, &Inputs::cu_seqlens_kv);
      }
}

TEST_F(GenerateTest, ChainsOfDistributionsToo) {
  Case c = small_case(DType::kBf16, InputForm::kPackedQkv);
  c.input.k = {{"k_channel_bias", {}}, {"token_outlier", {}}, {"huge", {}}};
  expect_same_bits(c, TensorId::kK, &Inputs::k, &Inputs::cu_seqlens_kv);
}

TEST_F(GenerateTest, NoTokensIsNoLaunch) {
  Case c = small_case(DType::kFp16, InputForm::kSplit);
  c.batch.qo_len.assign(6, 0);
  c.batch.kv_len.assign(6, 0);
  expect_same_bits(c, TensorId::kQ, &Inputs::q, &Inputs::cu_seqlens_q);
}

}  // namespace
}  // namespace sagebench
#endif
