// The executor that runs cases on a GPU.
#pragma once
#include <memory>

#include "run/cuda_device.h"
#include "run/executor.h"

namespace sagebench {

std::unique_ptr<Executor> make_cuda_executor(const CudaDevice& device);

}  // namespace sagebench
