#include "run/executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/stats.h"
#include "run/cpu_executor.h"
#ifdef SAGE_WITH_CUDA
#include "run/cuda_executor.h"
#include "run/device_info.h"
#endif

namespace sagebench {
namespace {

const char* name_of(sage::StatusCode code) {
  switch (code) {
    case sage::StatusCode::kOk:
      return "ok";
    case sage::StatusCode::kUnsupported:
      return "unsupported";
    case sage::StatusCode::kInvalidArgument:
      return "invalid argument";
    case sage::StatusCode::kMisaligned:
      return "misaligned";
    case sage::StatusCode::kWorkspaceTooSmall:
      return "workspace too small";
    case sage::StatusCode::kCudaError:
      return "CUDA error";
  }
  return "unknown status";
}

// "cuda" is GPU 0, "cuda:N" GPU N.
int ordinal_of(const std::string& device) {
  if (device == "cuda" || device == "auto") return 0;
  const std::string number = device.rfind("cuda:", 0) == 0 ? device.substr(5) : "";
  const bool digits = !number.empty() && number.size() < 5 &&
                      number.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) throw UsageError("--device: '" + device + "' is not one of auto, cpu, cuda, cuda:N");
  return std::stoi(number);
}

// nullptr, and why: no usable GPU of that number.
std::unique_ptr<Executor> try_cuda([[maybe_unused]] int ordinal, std::string* why) {
#ifdef SAGE_WITH_CUDA
  const CudaProbe probe = probe_cuda();
  if (probe.devices.empty()) {
    *why = "no usable GPU: " + probe.problem;
    return nullptr;
  }
  if (static_cast<size_t>(ordinal) >= probe.devices.size()) {
    *why = "no GPU " + std::to_string(ordinal) +
           ": the last one is cuda:" + std::to_string(probe.devices.size() - 1);
    return nullptr;
  }
  const CudaDevice& device = probe.devices[static_cast<size_t>(ordinal)];
  const auto& archs = compiled_architectures();
  if (!archs.empty() && !covers(archs, device.compute_capability)) {
    *why = device.name + " has compute capability " +
           std::to_string(device.compute_capability / 10) + "." +
           std::to_string(device.compute_capability % 10) + ", this build has code for " +
           SAGEBENCH_ARCHITECTURES;
    return nullptr;
  }
  return make_cuda_executor(device);
#else
  *why = "built without CUDA";
  return nullptr;
#endif
}

}  // namespace

OperatorRefused::OperatorRefused(const std::string& where, sage::Status refusal)
    : Error(refusal.code == sage::StatusCode::kUnsupported ? ExitCode::kNoVerdict
                                                           : ExitCode::kInternal,
            where + ": refused: " + name_of(refusal.code) + ": " + refusal.reason),
      status(refusal) {}

Latency make_latency(std::string stage, std::string method, std::vector<double> samples_us) {
  Latency latency;
  latency.stage = std::move(stage);
  latency.method = std::move(method);
  latency.samples_us = std::move(samples_us);
  const std::vector<double>& samples = latency.samples_us;
  latency.median_us = median(samples);
  if (samples.size() > 1) {
    const MedianInterval interval = median_interval(samples);
    latency.ci_low_us = interval.low;
    latency.ci_high_us = interval.high;
  }
  latency.min_us = *std::min_element(samples.begin(), samples.end());
  latency.mean_us =
      std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  latency.mad_us = median_absolute_deviation(samples);
  return latency;
}

std::unique_ptr<Executor> make_executor(const std::string& device, std::string* note) {
  if (device == "cpu") return make_cpu_executor();
  std::string why;
  if (auto executor = try_cuda(ordinal_of(device), &why)) return executor;
  if (device != "auto")
    throw Error(ExitCode::kNoGpu, "--device " + device + ": " + why +
                                      "; run `sagebench doctor`, or use --device cpu");
  if (note) *note = why + "; the emulated op runs on the CPU instead";
  return make_cpu_executor();
}

}  // namespace sagebench
