#include <gtest/gtest.h>

#ifndef SAGE_WITH_CUDA
TEST(Executor, NeedsCuda) {
  GTEST_SKIP() << "built without CUDA";
}
#else
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "faults/faults.h"
#include "gpu/gpu_test.h"
#include "ops/op.h"
#include "run/cuda_buffers.h"
#include "run/executor.h"

namespace sagebench {
namespace {

Case small_case(OpKind op) {
  Case c;
  c.op = op;
  c.id = c.scenario = "executor";
  c.dtype = DType::kBf16;
  c.model = {4, 2, 64, 64};
  c.batch.qo_len = c.batch.kv_len = {70, 0, 1, 129};
  c.batch.kv_len_before.assign(4, 0);
  c.causal = true;
  c.sm_scale = 0.125;
  c.return_lse = true;
  c.rope.rotary_dim = 64;
  c.cache.num_pages = 20;
  c.timing = {0.01, 0.05, 0.2, L2::kBoth};
  c.seed = 5;
  return c;
}

// The first kernel that this GPU runs.
Kernel kernel_for(const Case& c, int capability) {
  for (const Kernel& k : op_of(c.op).kernels(c))
    if (k.unsupported.empty() && (!k.attention || k.attention->runs_on(capability))) return k;
  throw std::runtime_error("no kernel for the case");
}

std::vector<std::pair<std::string, const Tensor*> > tensors_of(const StageOutputs& o) {
  return {{"q_rope", &o.q_rope},
          {"k_rope", &o.k_rope},
          {"key_cache", &o.key_cache},
          {"value_cache", &o.value_cache},
          {"k_offset", &o.k_offset},
          {"v_offset", &o.v_offset},
          {"q_codes", &o.q_codes},
          {"k_codes", &o.k_codes},
          {"v_codes", &o.v_codes},
          {"v_scales", &o.v_scales},
          {"lse_dot", &o.lse_dot},
          {"o", &o.o},
          {"lse", &o.lse}};
}
// Caches apart: what lies between the written slots is the poison of the run.
void expect_equal(const StageOutputs& a, const StageOutputs& b, bool with_caches = true) {
  const auto left = tensors_of(a), right = tensors_of(b);
  for (size_t i = 0; i < left.size(); ++i) {
    if (!with_caches && left[i].first.find("cache") != std::string::npos) continue;
    EXPECT_EQ(left[i].second->shape, right[i].second->shape) << left[i].first;
    EXPECT_TRUE(left[i].second->bytes == right[i].second->bytes) << left[i].first;
  }
}

class ExecutorTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) executor_ = make_executor("cuda:0", nullptr);
  }
  RunOutput run(const Case& c, const RunOptions& options) {
    return executor_->run(c, kernel_for(c, device_.compute_capability), make_inputs(c), options);
  }
  std::unique_ptr<Executor> executor_;
};

constexpr OpKind kOps[] = {OpKind::kAttention, OpKind::kKvCacheWrite, OpKind::kPrefill};

TEST_F(ExecutorTest, EnvironmentIsComplete) {
  const Environment& e = executor_->environment();
  EXPECT_EQ(e.device, "cuda:0");
  EXPECT_EQ(e.device_name, device_.name);
  EXPECT_EQ(e.uuid_hash.size(), 16u);
  EXPECT_EQ(device_.uuid.size(), 40u);
  EXPECT_FALSE(e.driver.empty() || e.runtime.empty() || e.toolkit.empty());
  EXPECT_FALSE(e.compiled_archs.empty());
  EXPECT_GT(e.sm_count.value_or(0), 0);
  EXPECT_GT(e.l2_bytes.value_or(0), 0);
  EXPECT_GT(e.memory_bytes.value_or(0), 0);
  EXPECT_GT(e.cpu_threads, 0);
  EXPECT_TRUE(executor_->is_gpu());
}

TEST_F(ExecutorTest, PoisonDoesNotReachTheOutputs) {
  for (const OpKind op : kOps) {
    SCOPED_TRACE(static_cast<int>(op));
    const Case c = small_case(op);
    const RunOutput a = run(c, {.poison_pass = 0}), b = run(c, {.poison_pass = 1});
    EXPECT_EQ(a.poison, poison_byte(0));
    EXPECT_EQ(b.poison, poison_byte(1));
    EXPECT_TRUE(a.hygiene.empty()) << a.hygiene.front();
    EXPECT_TRUE(b.hygiene.empty()) << b.hygiene.front();
    expect_equal(a.outputs, b.outputs, false);
    EXPECT_EQ(a.outputs.o.empty(), op == OpKind::kKvCacheWrite);
    EXPECT_EQ(a.outputs.key_cache.empty(), op == OpKind::kAttention);
    for (int64_t i = 0; i < a.outputs.o.size(); ++i)
      ASSERT_TRUE(std::isfinite(a.outputs.o.get(i))) << i;
  }
}

TEST_F(ExecutorTest, EveryModeGivesTheSameBits) {
  for (const OpKind op : kOps) {
    SCOPED_TRACE(static_cast<int>(op));
    const Case c = small_case(op);
    const RunOutput eager = run(c, {});
    expect_equal(run(c, {.graph = true}).outputs, eager.outputs);
    expect_equal(run(c, {.default_stream = true}).outputs, eager.outputs);
    expect_equal(run(c, {.graph = true, .default_stream = true}).outputs, eager.outputs);
    expect_equal(run(c, {.slow_producer = true}).outputs, eager.outputs);
    Case asked = c;
    asked.exec.graph = true;
    asked.exec.stream = StreamKind::kDefault;
    expect_equal(run(asked, {}).outputs, eager.outputs);
  }
}

TEST_F(ExecutorTest, TimedRunsMeasureEveryStageAndKeepTheirOutputs) {
  for (const OpKind op : kOps) {
    SCOPED_TRACE(static_cast<int>(op));
    const Case c = small_case(op);
    const RunOutput checked = run(c, {}), timed = run(c, {.timed = true});
    EXPECT_EQ(timed.poison, kTimedPoison);
    EXPECT_TRUE(timed.hygiene.empty()) << timed.hygiene.front();
    expect_equal(timed.outputs, checked.outputs, false);
    EXPECT_TRUE(timed.timings_valid);
    ASSERT_TRUE(timed.cold && timed.hot);
    for (const Latency& l : {*timed.cold, *timed.hot}) {
      EXPECT_GE(l.samples_us.size(), 10u);
      EXPECT_GT(l.median_us, 0);
      EXPECT_LE(l.ci_low_us, l.median_us);
      EXPECT_LE(l.median_us, l.ci_high_us);
    }
    EXPECT_NE(timed.cold->method, timed.hot->method);
    const size_t stages = op == OpKind::kKvCacheWrite ? 0 : op == OpKind::kAttention ? 6 : 7;
    EXPECT_EQ(timed.stages.size(), stages);
    for (const Latency& stage : timed.stages) {
      EXPECT_GE(stage.samples_us.size(), 10u) << stage.stage;
      EXPECT_LT(stage.median_us, timed.cold->median_us + 5) << stage.stage;
    }
  }
}

TEST_F(ExecutorTest, AGraphIsTimedAsSuch) {
  Case c = small_case(OpKind::kPrefill);
  c.exec.graph = true;
  const RunOutput timed = run(c, {.timed = true});
  ASSERT_TRUE(timed.cold);
  EXPECT_NE(timed.cold->method.find("graph replay"), std::string::npos) << timed.cold->method;
  expect_equal(timed.outputs, run(c, {}).outputs, false);
}

TEST_F(ExecutorTest, ProfiledTimingsAreInvalid) {
  const Case c = small_case(OpKind::kPrefill);
  const RunOutput profiled = run(c, {.timed = true, .profile = true});
  EXPECT_FALSE(profiled.timings_valid);
  EXPECT_FALSE(profiled.cold || profiled.hot);
  expect_equal(profiled.outputs, run(c, {}).outputs);
}

TEST_F(ExecutorTest, TooLittleMemoryIsSaidBeforeAllocating) {
  size_t before = 0, after = 0, total = 0;
  cuda_check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
  Case c = small_case(OpKind::kAttention);
  c.cache.guard_bytes = device_.memory_bytes;  // one guard band fills the GPU
  for (const bool asked_early : {true, false}) try {
      if (asked_early)
        executor_->require_memory(int64_t{1} << 50);
      else
        run(c, {});
      FAIL() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code, ExitCode::kNoVerdict) << text;
      EXPECT_NE(text.find("needs "), std::string::npos) << text;
      EXPECT_NE(text.find(" free on " + device_.name), std::string::npos) << text;
    }
  cuda_check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
  EXPECT_EQ(before, after);
  executor_->require_memory(1024);
}

TEST_F(ExecutorTest, ARefusalIsNotAnInternalError) {
  Case c = small_case(OpKind::kKvCacheWrite);
  const Inputs in = make_inputs(c);
  c.rope.rotary_dim = 7;
  const Kernel kernel = kernel_for(c, device_.compute_capability);
  for (const bool graph : {false, true}) try {
      executor_->run(c, kernel, in, {.graph = graph});
      FAIL() << "no error";
    } catch (const OperatorRefused& refused) {
      EXPECT_EQ(refused.status.code, sage::StatusCode::kInvalidArgument);
    }
  run(small_case(OpKind::kKvCacheWrite), {});  // and the next case runs
}

TEST_F(ExecutorTest, FaultsAreRefused) {
  const Case c = small_case(OpKind::kAttention);
  EXPECT_THROW(run(c, {.fault = &faults().front()}), Error);
}

// ---- the hygiene checks themselves -------------------------------------------------------------
class BuffersTest : public GpuTest {
 protected:
  void prepare(int64_t guard_bytes) {
    stream_ = std::make_unique<CudaStream>(false);
    buffers_ = std::make_unique<DeviceBuffers>(guard_bytes);
    input_ = buffers_->add("input", BufferRole::kInput, 1001);
    output_ = buffers_->add("output", BufferRole::kOutput, 5000);
    planned_ = buffers_->total_bytes();
    buffers_->allocate();
    host_.assign(1001, std::byte{7});
    upload(*input_, host_, stream_->get());
    buffers_->fill_guards(guard_byte(0), stream_->get());
    buffers_->poison(0xA5, stream_->get());
  }
  void write(std::byte* at) {
    cuda_check(cudaMemsetAsync(at, 0, 1, stream_->get()), "cudaMemsetAsync");
  }
  std::vector<std::string> broken() { return buffers_->broken_guards(stream_->get()); }

  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<DeviceBuffers> buffers_;
  DeviceBuffer *input_ = nullptr, *output_ = nullptr;
  std::vector<std::byte> host_;
  int64_t planned_ = 0;
};

TEST_F(BuffersTest, OneByteOnEitherSideIsNamedAndPlaced) {
  prepare(4096);
  EXPECT_GE(planned_, 1001 + 5000 + 4 * 4096);
  EXPECT_TRUE(broken().empty());
  write(output_->data + 5000 + 17);
  write(input_->data - 3);
  const std::vector<std::string> lines = broken();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("'input': write 3 bytes before its start"), std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("'output': write 17 bytes past its end"), std::string::npos) << lines[1];
}

TEST_F(BuffersTest, TheLastGuardByteCounts) {
  prepare(300);
  write(output_->data + 5000 + 299);
  write(output_->data - 300);
  EXPECT_EQ(broken().size(), 2u);
}

TEST_F(BuffersTest, WritesInsideAreNotBroken) {
  prepare(64);
  write(output_->data);
  write(output_->data + 4999);
  EXPECT_TRUE(broken().empty());
}

TEST_F(BuffersTest, AChangedInputIsPlaced) {
  prepare(64);
  EXPECT_EQ(changed_byte(*input_, host_, stream_->get()), "");
  write(input_->data + 1000);
  EXPECT_EQ(changed_byte(*input_, host_, stream_->get()),
            "buffer 'input': input changed, byte 1000 was 0x07, is 0x00");
}

TEST_F(BuffersTest, PoisonFillsOutputsAlone) {
  prepare(0);
  std::vector<std::byte> bytes(5000);
  download(bytes.data(), bytes.size(), *output_, output_->data, stream_->get());
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xA5}; }));
  EXPECT_EQ(changed_byte(*input_, host_, stream_->get()), "");
}

TEST_F(BuffersTest, WrongSizesAreErrors) {
  prepare(64);
  EXPECT_THROW(upload(*input_, std::vector<std::byte>(1000), stream_->get()), Error);
  std::vector<std::byte> bytes(5001);
  EXPECT_THROW(download(bytes.data(), 5001, *output_, output_->data, stream_->get()), Error);
  EXPECT_THROW(download(bytes.data(), 10, *output_, output_->data - 1, stream_->get()), Error);
}

}  // namespace
}  // namespace sagebench
#endif
