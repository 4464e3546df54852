#include "run/cuda_timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>

#include "core/stats.h"
#include "run/cuda_timing_kernels.h"

namespace sagebench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatchSeconds =
    0.025;  // of a settling batch: NVML renews its clocks about as often
constexpr size_t kSettledReadings = 4;   // in a row, within
constexpr double kSettledSpread = 0.01;  // of the largest
constexpr size_t kMinSamples = 10;       // more than kSamplesFor95
constexpr uint64_t kBlockTimeoutNs = 1'000'000'000;
constexpr double kEventSlackUs = 2.0;  // resolution of an event pair

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool quiet(const std::vector<double>& samples, double max_noise) {
  const double centre = median(samples);
  const MedianInterval interval = median_interval(samples);
  return centre <= 0 || (interval.high - interval.low) / 2 < max_noise * centre;
}

}  // namespace

size_t CudaTimer::flush_bytes(int64_t l2_bytes) {
  constexpr int64_t kUnit = 16 * 1024;
  return static_cast<size_t>(std::max<int64_t>(2 * l2_bytes / kUnit, 1) * kUnit) + kUnit;
}

CudaTimer::CudaTimer(const CudaStream& stream, const DeviceBuffer& flush, const Nvml* nvml)
    : stream_(stream), flush_(flush), nvml_(nvml) {
  void* host = nullptr;
  cuda_check(cudaHostAlloc(&host, 2 * sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
  host_flags_ = static_cast<int*>(host);
  host_flags_[0] = host_flags_[1] = 0;
  void* device = nullptr;
  cuda_check(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
  device_flags_ = static_cast<int*>(device);
}

CudaTimer::~CudaTimer() {
  // releases a stream that an exception left blocked
  std::atomic_ref(host_flags_[0]).store(ticket_ + 1, std::memory_order_release);
  cudaStreamSynchronize(stream_.get());
  cudaFreeHost(host_flags_);
}

// Written, then read from the start again: what stays in L2 is clean, so that the timed launch pays
// for no write-back but its own.
void CudaTimer::flush() {
  constexpr size_t kSink = 16;  // the last bytes are not read, so that the sink is nobody's input
  const size_t bytes = flush_.bytes - kSink;
  cuda_check(cudaMemsetAsync(flush_.data, 0x3c, bytes, stream_.get()), "cudaMemsetAsync");
  launch_read_back(flush_.data, bytes, reinterpret_cast<uint32_t*>(flush_.data + bytes),
                   stream_.get());
  cuda_check(cudaGetLastError(), "read_back_kernel");
}

double CudaTimer::sample_us(const Launch& launch, L2State l2) {
  if (l2 == L2State::kCold) flush();
  if (blocking_) {
    launch_blocking(&device_flags_[0], ++ticket_, &device_flags_[1], kBlockTimeoutNs,
                    stream_.get());
    cuda_check(cudaGetLastError(), "blocking_kernel");
  } else {
    stream_.synchronize();
  }
  auto released = Clock::now();
  cuda_check(cudaEventRecord(start_.get(), stream_.get()), "cudaEventRecord");
  launch();
  cuda_check(cudaEventRecord(stop_.get(), stream_.get()), "cudaEventRecord");
  if (blocking_) {
    released = Clock::now();
    std::atomic_ref(host_flags_[0]).store(ticket_, std::memory_order_release);
  }
  // the whole device, so that work which went astray to another stream is waited for as well
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize after a timed launch");
  const double device_us = 1e6 * seconds_since(released);
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, start_.get(), stop_.get()), "cudaEventElapsedTime");
  const double event_us = 1e3 * static_cast<double>(ms);
  const bool timed_out = std::atomic_ref(host_flags_[1]).load() != 0;
  if (!timed_out && event_us > device_us + kEventSlackUs)
    throw Error(ExitCode::kInternal, "events report " + std::to_string(event_us) +
                                         " us, the whole device took " + std::to_string(device_us) +
                                         " us");
  return event_us;
}

// Under a profiler or sanitizer that waits for each launch, the host never gets to the release. It
// is found here, once, and said in the method; later on it is an error.
void CudaTimer::try_blocking(const Launch& launch) {
  sample_us(launch, L2State::kCold);
  if (host_flags_[1] == 0) return;
  host_flags_[1] = 0;
  blocking_ = false;
}

void CudaTimer::settle(const Launch& launch, double limit_s) {
  launch();
  stream_.synchronize();  // loads the kernels
  const auto once = Clock::now();
  launch();
  stream_.synchronize();
  const double one_s = std::max(seconds_since(once), 1e-7);
  const int batch = static_cast<int>(std::clamp(kBatchSeconds / one_s, 1.0, 1000.0));

  std::deque<double> readings;
  const auto start = Clock::now();
  bool settled = false;
  while (!settled && seconds_since(start) < limit_s) {
    const auto batch_start = Clock::now();
    int calls = 0;
    do {
      for (int i = 0; i < batch; ++i) launch();
      stream_.synchronize();
      calls += batch;
    } while (seconds_since(batch_start) < kBatchSeconds);
    const double batch_us = 1e6 * seconds_since(batch_start) / calls;
    readings.push_back(nvml_ ? nvml_->sm_clock_mhz().value_or(batch_us) : batch_us);
    if (readings.size() > kSettledReadings) readings.pop_front();
    const auto [low, high] = std::minmax_element(readings.begin(), readings.end());
    settled = readings.size() == kSettledReadings && *high - *low <= kSettledSpread * *high;
  }
  const bool by_clock = nvml_ && nvml_->sm_clock_mhz();
  settled_ = std::string(by_clock ? "SM clock" : "batch times");
  settled_ += settled ? " settled first" : " not settled after the time limit";
  try_blocking(launch);
}

std::string CudaTimer::method(const std::string& how, L2State l2) const {
  std::string text = "CUDA events around " + how + "; ";
  if (l2 == L2State::kCold) {
    char flushed[96];
    std::snprintf(flushed, sizeof flushed,
                  "cold L2: %.0f MiB (2 x L2) written and read back before each sample; ",
                  static_cast<double>(flush_.bytes) / (1 << 20));
    text += flushed;
  } else {
    text += "hot L2: no flush between samples; ";
  }
  text += blocking_ ? "launch latency hidden by a blocking kernel; "
                    : "launch latency not hidden (launches do not return while the stream is "
                      "blocked: a profiler or sanitizer?); ";
  return text + (stream_.get() ? "own stream; " : "default stream; ") + settled_;
}

Latency CudaTimer::measure(const std::string& stage, const std::string& how, const Launch& launch,
                           L2State l2, const SampleBudget& budget) {
  std::vector<double> samples;
  size_t next_check = kMinSamples;
  const auto start = Clock::now();
  for (bool enough = false; !enough;) {
    samples.push_back(sample_us(launch, l2));
    if (blocking_ && std::atomic_ref(host_flags_[1]).load() != 0)
      throw Error(ExitCode::kInternal,
                  stage + ": the blocking kernel timed out: a launch waits for the device");
    const double elapsed = seconds_since(start);
    if (samples.size() < kMinSamples) continue;
    if (elapsed >= budget.max_time_s) break;
    // statistics cost O(n log n): looked at after every tenth more samples
    if (samples.size() < next_check || elapsed < budget.min_time_s) continue;
    next_check = samples.size() + samples.size() / 10;
    enough = quiet(samples, budget.max_noise);
  }
  return make_latency(stage, method(how, l2), std::move(samples));
}

}  // namespace sagebench
