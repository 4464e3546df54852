// Runs a case on a device: the only door to the GPU. Two executors: cuda, and cpu (the emulated op
// as the subject, so that every other stage of the tool works without a GPU).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "inputs/inputs.h"
#include "ops/op.h"
#include "ops/reference.h"
#include "ops/stages.h"
#include "sage/types.h"
#include "scenario/case.h"

namespace sagebench {

// A launcher said no: nothing ran. Distinct from a CUDA error, so that a case that expects to be
// refused can be judged. kUnsupported counts as no verdict, every other refusal as internal.
struct OperatorRefused : Error {
  OperatorRefused(const std::string& where, sage::Status status);
  const sage::Status status;
};

// What is known of the machine; absent is empty or nullopt, never 0. Filled without a CUDA context
// where that is possible.
struct Environment {
  std::string device;       // "cpu" or "cuda:0"
  std::string device_name;  // "NVIDIA H200"
  std::string uuid_hash;
  std::optional<int> compute_capability;  // 90
  std::string driver, runtime, toolkit;
  std::vector<int> compiled_archs;  // {80, 89, 90}
  std::optional<int> sm_count;
  std::optional<int64_t> l2_bytes, memory_bytes;
  std::optional<bool> ecc;
  std::optional<double> power_limit_w, sm_clock_mhz, memory_clock_mhz;
  std::string cpu_name;
  int cpu_threads = 0;
};

// A planted fault of `selftest`: changes what a stage reads or what it leaves (ops/faults.cpp).
struct Fault;

struct RunOptions {
  int poison_pass = 0;              // inputs/inputs.h: poison_byte
  const RowSample* rows = nullptr;  // CPU: which rows to compute; nullptr: all
  const Fault* fault = nullptr;     // CPU only
  bool timed = false;
  bool profile = false;  // warmed, a few launches, inside cudaProfilerStart/Stop
  // execution modes that a property may ask for; `graph` and `default_stream` start from the case's
  // exec
  bool graph = false;  // capture, replay once with other inputs, then with these
  bool default_stream = false;
  bool slow_producer = false;  // inputs arrive late on the same non-default stream
};

// Statistics of one timed thing; all samples kept, in order.
struct Latency {
  std::string stage;   // "total", "rope_write", "k_stats", ...
  std::string method;  // "events, cold L2 by ...", echoed in the report
  std::vector<double> samples_us;
  double median_us = 0;
  std::optional<double> ci_low_us, ci_high_us;  // 95 % of the median; one sample has no interval
  double min_us = 0, mean_us = 0, mad_us = 0;
};

// Statistics filled from the samples; `samples_us` must not be empty.
Latency make_latency(std::string stage, std::string method, std::vector<double> samples_us);

struct DeviceState {  // around the timed region; absent is nullopt
  std::optional<double> sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
  std::string throttle_reasons;
};

// Every byte of outputs, caches and workspace before timed launches: NaN in every float format.
inline constexpr unsigned char kTimedPoison = 0xFF;

struct RunOutput {
  StageOutputs outputs;
  unsigned char poison = poison_byte(0);  // what outputs and caches held before: see validate()
  std::vector<std::string> hygiene;       // broken guard bands, changed inputs: empty when clean
  std::optional<Latency> cold, hot;       // whole op
  std::vector<Latency> stages;            // one per stage, cold
  DeviceState before, after;
  bool timings_valid = true;  // false under --profile
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const Environment& environment() const = 0;
  virtual bool is_gpu() const = 0;
  // Throws Error(kNoVerdict) with the numbers when the device has less free memory than this: to be
  // asked before a case's inputs are generated. The host has no such limit.
  virtual void require_memory(int64_t bytes) const { (void)bytes; }
  // Throws Error(kNoVerdict) when the device has too little memory, with the numbers, before
  // allocating; Error(kInternal) on a CUDA error.
  virtual RunOutput run(const Case& c, const Kernel& kernel, const Inputs& in,
                        const RunOptions& options) = 0;
};

// device: "auto", "cpu", "cuda" or "cuda:N". Throws Error(kNoGpu) when a GPU was asked for and
// there is none. auto falls back to the CPU and `note` says why.
std::unique_ptr<Executor> make_executor(const std::string& device, std::string* note);

// For `doctor`: lines of (what, state, what to do); never throws.
struct DoctorLine {
  std::string what, state, remedy;
  bool ok = true;
};
std::vector<DoctorLine> doctor();

// The command lines that profile one case with this executable, as printed under --profile.
struct ProfileCommands {
  std::string ncu, nsys;
};
ProfileCommands profile_commands(const std::string& id, const std::string& config);

}  // namespace sagebench
