#include "run/cuda_check.h"

#include <cstring>

namespace sagebench {

void cuda_check(cudaError_t status, const char* call, std::source_location at) {
  if (status == cudaSuccess) return;
  const char* file = std::strrchr(at.file_name(), '/');
  throw Error(ExitCode::kInternal, std::string(call) + " failed with " + cudaGetErrorName(status) +
                                       " (" + cudaGetErrorString(status) + ") at " +
                                       (file ? file + 1 : at.file_name()) + ":" +
                                       std::to_string(at.line()));
}

void require_launched(const sage::Status& status, const std::string& what) {
  if (status.ok()) return;
  if (status.code != sage::StatusCode::kCudaError) throw OperatorRefused(what, status);
  throw Error(ExitCode::kInternal, what + ": launch failed: " + status.reason + " (" +
                                       cudaGetErrorName(cudaGetLastError()) + ")");
}

CudaStream::CudaStream(bool default_stream) {
  if (default_stream) return;
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
}
CudaStream::~CudaStream() {
  if (stream_) cudaStreamDestroy(stream_);
}
void CudaStream::synchronize() const {
  cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

CudaEvent::CudaEvent() {
  cuda_check(cudaEventCreate(&event_), "cudaEventCreate");
}
CudaEvent::~CudaEvent() {
  if (event_) cudaEventDestroy(event_);
}

}  // namespace sagebench
