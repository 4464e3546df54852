#include "run/cuda_device.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <thread>

#include "core/hash.h"
#include "run/cuda_check.h"

namespace sagebench {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The form that nvidia-smi prints.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(uuid.bytes[i]) & 0xffu);
    text += hex;
  }
  return text;
}

CudaDevice describe(int ordinal) {
  cudaDeviceProp p{};
  cuda_check(cudaGetDeviceProperties(&p, ordinal), "cudaGetDeviceProperties");
  std::array<char, 32> pci{};
  cuda_check(cudaDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size()), ordinal),
             "cudaDeviceGetPCIBusId");
  CudaDevice device;
  device.ordinal = ordinal;
  device.name = p.name;
  device.uuid = uuid_text(p.uuid);
  device.pci_bus_id = pci.data();
  device.compute_capability = 10 * p.major + p.minor;
  device.sm_count = p.multiProcessorCount;
  device.l2_bytes = p.l2CacheSize;
  device.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  return device;
}

}  // namespace

CudaProbe probe_cuda() {
  CudaProbe probe;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    const bool no_driver = cuda_driver_version().empty();  // which CUDA calls too old a driver
    probe.problem = no_driver
                        ? "no NVIDIA driver"
                        : std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
    cudaGetLastError();  // the failed probe must not show up in a later check
    return probe;
  }
  try {
    for (int i = 0; i < count; ++i) probe.devices.push_back(describe(i));
  } catch (const Error& error) {
    probe.problem = error.what();
    probe.devices.clear();
  }
  if (probe.devices.empty() && probe.problem.empty()) probe.problem = "no CUDA device";
  return probe;
}

std::string cuda_toolkit_version() {
  return version_text(CUDART_VERSION);
}
std::string cuda_runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version_text(version) : "";
}
std::string cuda_driver_version() {
  int version = 0;
  const bool known = cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
  return known ? version_text(version) : "";
}

Environment describe_device(const CudaDevice& device, const Nvml* nvml) {
  Environment e;
  e.device = "cuda:" + std::to_string(device.ordinal);
  e.device_name = device.name;
  e.uuid_hash = hash_hex(device.uuid);  // tells GPUs apart, publishes no id
  e.compute_capability = device.compute_capability;
  e.driver = nvml ? nvml->driver_version() : "";
  if (e.driver.empty()) e.driver = "CUDA " + cuda_driver_version();
  e.runtime = cuda_runtime_version();
  e.toolkit = cuda_toolkit_version();
  for (const CompiledArch& arch : compiled_architectures())
    e.compiled_archs.push_back(arch.compute_capability);
  e.sm_count = device.sm_count;
  e.l2_bytes = device.l2_bytes;
  e.memory_bytes = device.memory_bytes;
  if (nvml) {
    const DeviceState state = nvml->state();
    e.ecc = nvml->ecc();
    e.power_limit_w = nvml->power_limit_w();
    e.sm_clock_mhz = state.sm_clock_mhz;
    e.memory_clock_mhz = state.memory_clock_mhz;
  }
  e.cpu_name = cpu_name();
  e.cpu_threads = static_cast<int>(std::thread::hardware_concurrency());
  return e;
}

}  // namespace sagebench
