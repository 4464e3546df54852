// How long a launch takes: settled clocks, a known L2 state, hidden launch latency, and as many
// samples as the confidence interval of the median asks for.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "run/cuda_buffers.h"
#include "run/cuda_check.h"
#include "run/device_info.h"

namespace sagebench {

// Enqueues one call on the timed stream; throws when it cannot.
using Launch = std::function<void()>;

enum class L2State { kCold, kHot };

// Sampling ends when the half width of the median's 95 % interval is below max_noise x median and
// min_time_s has passed, or when max_time_s has passed. Seconds of wall time.
struct SampleBudget {
  double min_time_s = 0, max_time_s = 0, max_noise = 0;
};

class CudaTimer {
 public:
  // The flush buffer must hold flush_bytes(l2); `nvml` may be nullptr.
  CudaTimer(const CudaStream& stream, const DeviceBuffer& flush, const Nvml* nvml);
  ~CudaTimer();
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  static size_t flush_bytes(int64_t l2_bytes);

  // Runs the launch until the SM clock (NVML), or without NVML the time of a batch, has settled.
  void settle(const Launch& launch, double limit_s);

  // Call settle() first: nothing may be loaded lazily behind the blocking kernel.
  Latency measure(const std::string& stage, const std::string& how, const Launch& launch,
                  L2State l2, const SampleBudget& budget);

 private:
  double sample_us(const Launch& launch, L2State l2);
  void flush();
  void try_blocking(const Launch& launch);
  std::string method(const std::string& how, L2State l2) const;

  const CudaStream& stream_;
  const DeviceBuffer& flush_;
  const Nvml* nvml_;
  CudaEvent start_, stop_;
  int* host_flags_ = nullptr;    // mapped: [0] release, [1] timed out
  int* device_flags_ = nullptr;  // the same memory
  int ticket_ = 0;
  bool blocking_ = true;
  std::string settled_;  // part of the method text
};

}  // namespace sagebench
