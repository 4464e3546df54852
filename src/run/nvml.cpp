// NVML through dlopen: the tool runs where there is no driver. Only the few entry points used are
// declared, with the C types of NVML's stable ABI.
#include <dlfcn.h>

#include <array>

#include "run/device_info.h"

namespace sagebench {
namespace {

constexpr int kSuccess = 0;
constexpr int kClockSm = 1, kClockMemory = 2;  // nvmlClockType_t
constexpr int kSensorGpu = 0;                  // nvmlTemperatureSensors_t
using Device = void*;                          // nvmlDevice_t is a pointer to an opaque struct

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_pci)(const char*, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;        // mW
  int (*power_limit)(Device, unsigned*) = nullptr;  // mW
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;
  int (*ecc)(Device, int*, int*) = nullptr;

  // Missing entry points stay nullptr; their values are then absent.
  template <class Function>
  void find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
  }
  ~Library() {
    if (handle) dlclose(handle);
  }
};

std::unique_ptr<Nvml> Nvml::open(std::string* why_not) {
  auto library = std::make_unique<Library>();
  library->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library->handle) {
    if (why_not) *why_not = "libnvidia-ml.so.1 not found";
    return nullptr;
  }
  Library& l = *library;
  l.find(l.init, "nvmlInit_v2");
  l.find(l.shutdown, "nvmlShutdown");
  l.find(l.error_string, "nvmlErrorString");
  l.find(l.driver_version, "nvmlSystemGetDriverVersion");
  l.find(l.count, "nvmlDeviceGetCount_v2");
  l.find(l.by_index, "nvmlDeviceGetHandleByIndex_v2");
  l.find(l.by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
  l.find(l.name, "nvmlDeviceGetName");
  l.find(l.uuid, "nvmlDeviceGetUUID");
  l.find(l.capability, "nvmlDeviceGetCudaComputeCapability");
  l.find(l.clock, "nvmlDeviceGetClockInfo");
  l.find(l.power, "nvmlDeviceGetPowerUsage");
  l.find(l.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  l.find(l.temperature, "nvmlDeviceGetTemperature");
  l.find(l.throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
  l.find(l.ecc, "nvmlDeviceGetEccMode");
  const int status = l.init && l.shutdown ? l.init() : -1;
  if (status != kSuccess) {
    if (why_not) {
      *why_not = "nvmlInit failed: ";
      *why_not += l.init && l.error_string ? l.error_string(status) : "no such entry point";
    }
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(library)));
}

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() {
  library_->shutdown();
}

std::string Nvml::driver_version() const {
  std::array<char, 81> text{};
  const bool known = library_->driver_version &&
                     library_->driver_version(text.data(), text.size() - 1) == kSuccess;
  return known ? text.data() : "";
}

std::vector<GpuIdentity> Nvml::gpus() const {
  const Library& l = *library_;
  std::vector<GpuIdentity> found;
  unsigned count = 0;
  if (!l.count || !l.by_index || l.count(&count) != kSuccess) return found;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (l.by_index(i, &device) != kSuccess) continue;
    GpuIdentity gpu;
    std::array<char, 97> text{};
    if (l.name && l.name(device, text.data(), text.size() - 1) == kSuccess) gpu.name = text.data();
    text.fill(0);
    if (l.uuid && l.uuid(device, text.data(), text.size() - 1) == kSuccess) gpu.uuid = text.data();
    int major = 0, minor = 0;
    if (l.capability && l.capability(device, &major, &minor) == kSuccess)
      gpu.compute_capability = 10 * major + minor;
    found.push_back(gpu);
  }
  return found;
}

bool Nvml::select(const std::string& pci_bus_id) {
  const bool found = library_->by_pci && library_->by_pci(pci_bus_id.c_str(), &device_) == kSuccess;
  if (!found) device_ = nullptr;
  return found;
}

std::optional<double> Nvml::sm_clock_mhz() const {
  unsigned mhz = 0;
  const bool known =
      device_ && library_->clock && library_->clock(device_, kClockSm, &mhz) == kSuccess;
  return known ? std::optional<double>(mhz) : std::nullopt;
}

std::optional<double> Nvml::power_limit_w() const {
  unsigned mw = 0;
  const bool known =
      device_ && library_->power_limit && library_->power_limit(device_, &mw) == kSuccess;
  return known ? std::optional<double>(mw / 1000.0) : std::nullopt;
}

std::optional<bool> Nvml::ecc() const {
  int current = 0, pending = 0;
  const bool known =
      device_ && library_->ecc && library_->ecc(device_, &current, &pending) == kSuccess;
  return known ? std::optional<bool>(current != 0) : std::nullopt;
}

DeviceState Nvml::state() const {
  const Library& l = *library_;
  DeviceState state;
  if (!device_) return state;
  unsigned value = 0;
  unsigned long long reasons = 0;
  state.sm_clock_mhz = sm_clock_mhz();
  if (l.clock && l.clock(device_, kClockMemory, &value) == kSuccess) state.memory_clock_mhz = value;
  if (l.power && l.power(device_, &value) == kSuccess) state.power_w = value / 1000.0;
  if (l.temperature && l.temperature(device_, kSensorGpu, &value) == kSuccess)
    state.temperature_c = value;
  if (l.throttle && l.throttle(device_, &reasons) == kSuccess)
    state.throttle_reasons = throttle_reason_names(reasons);
  return state;
}

}  // namespace sagebench
