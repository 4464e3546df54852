// Vocabulary shared by every operator: dtypes, streams and the status a launcher returns.
// C++17, no CUDA header needed: a host without the toolkit can include the whole of include/sage.
#pragma once
#include <cstddef>
#include <cstdint>

struct CUstream_st;  // cudaStream_t is CUstream_st*

namespace sage {

using Stream = CUstream_st*;

enum class DType { kBf16, kFp16, kFp32 };

enum class StatusCode {
  kOk,
  kUnsupported,        // a valid problem this kernel cannot do; reason says what it can
  kInvalidArgument,    // sizes, pointers or strides that no kernel accepts
  kMisaligned,         // a pointer or stride that breaks the documented alignment
  kWorkspaceTooSmall,  // workspace_bytes below the matching workspace query
  kCudaError,          // the launch itself failed
};

// Every launcher checks its arguments before anything is launched: a status other than kOk means
// that no work was enqueued, kCudaError excepted. `reason` has static storage.
//
// No launcher allocates, synchronises or reads device memory on the host, so the contents of device
// arrays are not checked. Packed tensors of `total` rows go with cu_seqlens [batch + 1] that start
// at 0, never fall and end at or below `total` (rows behind the end are padding, neither read for a
// result nor written). Where cu_seqlens say otherwise, quantisers and attention read and write out
// of bounds: check_lengths (sage/sage.h) tells from a host copy.
struct Status {
  StatusCode code = StatusCode::kOk;
  const char* reason = "";
  constexpr bool ok() const { return code == StatusCode::kOk; }
};

}  // namespace sage
