#include "run/cuda_executor.h"

#include <cuda_profiler_api.h>

#include <array>
#include <cstdio>
#include <optional>

#include "run/cuda_check.h"
#include "run/cuda_pipeline.h"
#include "run/cuda_timing.h"
#include "run/cuda_timing_kernels.h"
#include "run/nvtx.h"

namespace sagebench {
namespace {

constexpr uint64_t kOtherInputs = 1;         // seed offset of a graph's first replay
constexpr uint64_t kProducerNs = 5'000'000;  // how late a slow producer's inputs are
constexpr int kProfileWarmUps = 3;

std::string gibibytes(int64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB",
                static_cast<double>(bytes) / (int64_t{1} << 30));
  return text.data();
}

// A captured call of the op, which must have run before: kernels are loaded on first use, and
// loading cannot be captured.
class Graph {
 public:
  explicit Graph(const CudaPipeline& op) {
    const CudaStream stream(false);  // the default stream cannot be captured
    cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    const sage::Status status = op.launch(stream.get());
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream.get(), &graph);
    cudaError_t made = cudaErrorInvalidValue;
    if (graph) {
      made = cudaGraphInstantiate(&executable_, graph, 0);
      cudaGraphDestroy(graph);
    }
    require_launched(status, "graph capture");
    cuda_check(ended, "cudaStreamEndCapture");
    cuda_check(made, "cudaGraphInstantiate");
  }
  ~Graph() {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const {
    cuda_check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// One case on the device: its buffers, its stream, and the ways to run it.
class CaseRun {
 public:
  CaseRun(const Case& c, const Kernel& kernel, const Inputs& in, const RunOptions& options,
          const Environment& environment, const Nvml* nvml)
      : c_(c),
        in_(in),
        options_(options),
        nvml_(nvml),
        what_(c.id + "@" + kernel.name),
        graph_wanted_(options.graph || c.exec.graph),
        stream_((options.default_stream || c.exec.stream == StreamKind::kDefault) &&
                !options.slow_producer),
        buffers_(c.cache.guard_bytes),
        op_(c, kernel, in, buffers_) {
    if (options.timed && !options.profile)
      flush_ = buffers_.add("L2 flush", BufferRole::kTool,
                            CudaTimer::flush_bytes(environment.l2_bytes.value_or(0)));
    if (options.slow_producer)
      for (const DeviceBuffer* values : op_.value_buffers())
        late_.push_back(buffers_.add(values->name + ", late", BufferRole::kTool, values->bytes));
  }

  int64_t device_bytes() const { return buffers_.total_bytes(); }

  void prepare() {
    buffers_.allocate();
    op_.bind();
    buffers_.fill_guards(guard_byte(options_.poison_pass), stream_.get());
    op_.upload_inputs(in_, stream_.get());
    if (!graph_wanted_) return;
    buffers_.poison(poison_byte(options_.poison_pass), stream_.get());
    launch();
    stream_.synchronize();
    graph_.emplace(op_);
  }

  // Poisoned, launched once, everything read back.
  RunOutput checked() {
    RunOutput result;
    result.poison = poison_byte(options_.poison_pass);
    if (graph_wanted_) replay_other_inputs(result.poison);
    buffers_.poison(result.poison, stream_.get());
    if (options_.slow_producer) produce_late();
    launch();
    finish(result);
    return result;
  }

  RunOutput timed() {
    RunOutput result;
    result.poison = kTimedPoison;
    CudaTimer timer(stream_, *flush_, nvml_);
    const Launch whole = [this] { launch(); };
    const std::string how = graph_wanted_ ? "one graph replay" : "one call";
    const Timing& t = c_.timing;
    const SampleBudget budget{t.min_time_s, t.max_time_s, t.max_noise};
    timer.settle(whole, t.max_time_s);
    buffers_.poison(result.poison, stream_.get());  // what is checked comes from timed launches
    if (nvml_) result.before = nvml_->state();
    if (t.l2 != L2::kHot) result.cold = timer.measure("total", how, whole, L2State::kCold, budget);
    if (t.l2 != L2::kCold) result.hot = timer.measure("total", how, whole, L2State::kHot, budget);
    if (nvml_) result.after = nvml_->state();
    finish(result);
    if (op_.stages().size() > 1) time_stages(timer, budget, result);
    return result;
  }

  // Warmed, then each stage and the whole op once inside the profiler's range. No flush, no
  // blocking kernel: a profiler serialises launches.
  RunOutput profiled() {
    RunOutput result;
    result.timings_valid = false;
    result.poison = poison_byte(options_.poison_pass);
    buffers_.poison(result.poison, stream_.get());
    for (int i = 0; i < kProfileWarmUps; ++i) launch();
    stream_.synchronize();
    cuda_check(cudaProfilerStart(), "cudaProfilerStart");
    for (const StageLaunch& stage : op_.stages()) {
      const NvtxRange range(stage.name);
      launch_stage(stage);
      stream_.synchronize();
    }
    {
      const NvtxRange range(kProfileTarget);
      launch();
      stream_.synchronize();
    }
    cuda_check(cudaProfilerStop(), "cudaProfilerStop");
    finish(result);
    return result;
  }

 private:
  void launch() const {
    if (graph_)
      graph_->launch(stream_.get());
    else
      require_launched(op_.launch(stream_.get()), what_);
  }
  void launch_stage(const StageLaunch& stage) const {
    require_launched(stage.launch(stream_.get()), what_ + ", stage " + stage.name);
  }

  // A graph that remembers anything of its first inputs gives itself away in the second replay.
  void replay_other_inputs(unsigned char poison) {
    buffers_.poison(poison, stream_.get());
    op_.generate_values(c_.seed + kOtherInputs, stream_.get());
    graph_->launch(stream_.get());
    op_.upload_inputs(in_, stream_.get());
  }

  // The inputs are NaN until a delay has passed on the stream; nobody waits in between.
  void produce_late() {
    const std::vector<DeviceBuffer*> values = op_.value_buffers();
    for (size_t i = 0; i < values.size(); ++i) {
      cuda_check(cudaMemcpyAsync(late_[i]->data, values[i]->data, values[i]->bytes,
                                 cudaMemcpyDeviceToDevice, stream_.get()),
                 "cudaMemcpyAsync on the device");
      cuda_check(cudaMemsetAsync(values[i]->data, kTimedPoison, values[i]->bytes, stream_.get()),
                 "cudaMemsetAsync");
    }
    stream_.synchronize();
    launch_delay(kProducerNs, stream_.get());
    cuda_check(cudaGetLastError(), "delay_kernel");
    for (size_t i = 0; i < values.size(); ++i)
      cuda_check(cudaMemcpyAsync(values[i]->data, late_[i]->data, values[i]->bytes,
                                 cudaMemcpyDeviceToDevice, stream_.get()),
                 "cudaMemcpyAsync on the device");
  }

  void time_stages(CudaTimer& timer, const SampleBudget& whole, RunOutput& result) {
    // a part of the whole's time each, so that seven stages cost less than twice the op
    const SampleBudget budget{whole.min_time_s / 4, whole.max_time_s / 4, 2 * whole.max_noise};
    for (const StageLaunch& stage : op_.stages()) {
      const Launch one = [&] { launch_stage(stage); };
      result.stages.push_back(timer.measure(stage.name, "one stage", one, L2State::kCold, budget));
    }
  }

  void finish(RunOutput& result) {
    cuda_check(cudaStreamSynchronize(stream_.get()), ("running " + what_).c_str());
    result.hygiene = buffers_.broken_guards(stream_.get());
    for (std::string& line : op_.changed_inputs(in_, stream_.get()))
      result.hygiene.push_back(std::move(line));
    result.outputs = op_.download_outputs(stream_.get());
  }

  const Case& c_;
  const Inputs& in_;
  const RunOptions& options_;
  const Nvml* nvml_;
  const std::string what_;
  const bool graph_wanted_;
  const CudaStream stream_;
  DeviceBuffers buffers_;
  CudaPipeline op_;
  std::optional<Graph> graph_;
  DeviceBuffer* flush_ = nullptr;
  std::vector<DeviceBuffer*> late_;
};

class CudaExecutor : public Executor {
 public:
  explicit CudaExecutor(const CudaDevice& device)
      : ordinal_(device.ordinal), nvml_(Nvml::open(nullptr)) {
    if (nvml_ && !nvml_->select(device.pci_bus_id)) nvml_.reset();
    environment_ = describe_device(device, nvml_.get());
  }

  const Environment& environment() const override { return environment_; }
  bool is_gpu() const override { return true; }

  void require_memory(int64_t bytes) const override {
    cuda_check(cudaSetDevice(ordinal_), "cudaSetDevice");
    size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (bytes > static_cast<int64_t>(free))
      throw Error(ExitCode::kNoVerdict, "needs " + gibibytes(bytes) + ", " +
                                            gibibytes(static_cast<int64_t>(free)) + " free on " +
                                            environment_.device_name +
                                            "; shorten the batch or choose another --device");
  }

  RunOutput run(const Case& c, const Kernel& kernel, const Inputs& in,
                const RunOptions& options) override {
    if (options.fault)
      throw Error(ExitCode::kInternal, "faults are planted in the CPU subject only");
    if (options.timed && options.slow_producer)
      throw Error(ExitCode::kInternal, "a run behind a slow producer is not timed");
    const int capability = environment_.compute_capability.value_or(0);
    if (kernel.attention && !kernel.attention->runs_on(capability))
      throw Error(ExitCode::kNoVerdict,
                  "kernel " + kernel.name + " is written for compute " +
                      kernel.attention->architectures + ", " + environment_.device_name + " has " +
                      std::to_string(capability / 10) + "." + std::to_string(capability % 10));
    cuda_check(cudaSetDevice(ordinal_), "cudaSetDevice");
    const NvtxRange scenario(c.scenario), one_case(c.id + "@" + kernel.name);
    CaseRun run(c, kernel, in, options, environment_, nvml_.get());
    require_memory(run.device_bytes());
    run.prepare();
    return options.profile ? run.profiled() : options.timed ? run.timed() : run.checked();
  }

 private:
  int ordinal_;
  std::unique_ptr<Nvml> nvml_;
  Environment environment_;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(const CudaDevice& device) {
  return std::make_unique<CudaExecutor>(device);
}

}  // namespace sagebench
