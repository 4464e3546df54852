// The CUDA runtime's view of the GPUs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/device_info.h"
#include "run/executor.h"

namespace sagebench {

struct CudaDevice {
  int ordinal = 0;
  std::string name, uuid, pci_bus_id;
  int compute_capability = 0;
  int sm_count = 0;
  int64_t l2_bytes = 0, memory_bytes = 0;
};
struct CudaProbe {
  std::vector<CudaDevice> devices;
  std::string problem;  // why there are none
};
CudaProbe probe_cuda();  // never throws

std::string cuda_toolkit_version();  // this executable was built with: "13.0"
std::string cuda_runtime_version();  // linked
std::string cuda_driver_version();   // newest CUDA the driver can run; "" without a driver

Environment describe_device(const CudaDevice& device, const Nvml* nvml);

}  // namespace sagebench
