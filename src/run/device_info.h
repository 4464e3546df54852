// What is known of the machine without a CUDA context: the CPU, NVML (found at run time; absent is
// nullopt) and the architectures this executable was compiled for.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/executor.h"

namespace sagebench {

std::string cpu_name();  // "" when unknown

// ---- architectures -----------------------------------------------------------------------------
// One entry of CMAKE_CUDA_ARCHITECTURES: "80", "89-real", "90a-real", "120-virtual".
struct CompiledArch {
  int compute_capability = 0;  // 90
  bool exact = false;          // "90a": runs on 9.0 alone
  bool machine_code = true;    // runs on the same major version, same minor or later
  bool ptx = true;             // compiled when the program starts, for the same version or later
};
std::vector<CompiledArch> parse_architectures(
    const std::string& list);  // separated by ; , or space
bool covers(const std::vector<CompiledArch>& archs, int compute_capability);
const std::vector<CompiledArch>& compiled_architectures();  // of this executable

// ---- NVML --------------------------------------------------------------------------------------
struct GpuIdentity {
  std::string name, uuid;
  std::optional<int> compute_capability;
};

// 0 is "none"; names joined by ", "; bits without a name are kept as hex.
std::string throttle_reason_names(unsigned long long reasons);

class Nvml {
 public:
  static std::unique_ptr<Nvml> open(std::string* why_not);  // nullptr: not usable, and why
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;
  std::vector<GpuIdentity> gpus() const;

  // By PCI bus id, because NVML does not follow CUDA_VISIBLE_DEVICES.
  bool select(const std::string& pci_bus_id);
  // Of the selected GPU; everything is absent before select().
  DeviceState state() const;
  std::optional<double> sm_clock_mhz() const;
  std::optional<double> power_limit_w() const;
  std::optional<bool> ecc() const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
};

}  // namespace sagebench
