// Every CUDA runtime call goes through cuda_check: no status is dropped.
#pragma once
#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

#include "run/executor.h"

namespace sagebench {

// Throws Error(kInternal) with the call, its place and the error's name.
void cuda_check(cudaError_t status, const char* call,
                std::source_location at = std::source_location::current());

// Throws OperatorRefused, or Error(kInternal) for kCudaError.
void require_launched(const sage::Status& status, const std::string& what);

// RAII: destroyed without a check, because the context may already be lost.
class CudaStream {
 public:
  explicit CudaStream(bool default_stream);  // own streams do not wait for the default stream
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace sagebench
