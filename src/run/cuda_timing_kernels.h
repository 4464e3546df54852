// The small kernels that measurement needs.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sagebench {

// Reads every byte of `data` (16-byte aligned, a multiple of 16 bytes) through L2. `sink` receives
// a word that keeps the reads alive.
void launch_read_back(const void* data, size_t bytes, uint32_t* sink, cudaStream_t stream);

// Holds the stream until *release >= ticket (host memory, mapped) or the timeout passes, which
// sets *timed_out.
void launch_blocking(const int* release, int ticket, int* timed_out, uint64_t timeout_ns,
                     cudaStream_t stream);

// Keeps the stream busy for about `ns`.
void launch_delay(uint64_t ns, cudaStream_t stream);

}  // namespace sagebench
