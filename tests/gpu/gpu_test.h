// Fixture of tests that need a GPU: skipped with the reason where there is none.
#pragma once
#include <gtest/gtest.h>

#include "run/cuda_check.h"
#include "run/cuda_device.h"

namespace sagebench {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaProbe probe = probe_cuda();
    if (probe.devices.empty()) GTEST_SKIP() << "no usable GPU: " << probe.problem;
    device_ = probe.devices.front();
    if (!covers(compiled_architectures(), device_.compute_capability))
      GTEST_SKIP() << device_.name << " is not among the architectures of this build";
    cuda_check(cudaSetDevice(device_.ordinal), "cudaSetDevice");
  }
  CudaDevice device_;
};

}  // namespace sagebench
