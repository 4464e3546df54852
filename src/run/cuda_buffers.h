// Device memory of one case: each buffer its own allocation between two guard bands, so that a
// write past either end is found, named and placed.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace sagebench {

enum class BufferRole {
  kInput,    // must not change
  kOutput,   // poisoned before a run
  kScratch,  // workspace of the op, poisoned as well: an uninitialised read shows
  kTool      // the tool's own (L2 flush, staging): no guards, no poison
};

struct DeviceBuffer {
  std::string name;
  BufferRole role = BufferRole::kTool;
  size_t bytes = 0;
  std::byte* data = nullptr;  // 256-byte aligned; set by allocate()
};

class DeviceBuffers {
 public:
  explicit DeviceBuffers(int64_t guard_bytes);
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // Planning: nothing is allocated yet. The pointer stays valid.
  DeviceBuffer* add(const std::string& name, BufferRole role, size_t bytes);
  int64_t total_bytes() const;  // guards included

  void allocate();

  void fill_guards(unsigned char value, cudaStream_t stream);
  void poison(unsigned char value, cudaStream_t stream);  // outputs and scratch
  // One line per guard band with a changed byte. Waits for the stream.
  std::vector<std::string> broken_guards(cudaStream_t stream) const;

 private:
  struct Allocation {
    DeviceBuffer buffer;
    std::byte* base = nullptr;
    size_t front = 0, back = 0;  // guard bytes
  };
  size_t guard_bytes_;
  unsigned char guard_value_ = 0;
  std::deque<Allocation> allocations_;  // stable addresses
};

// The bytes of guard bands: NaN to a reader, and different between the two poison passes.
constexpr unsigned char guard_byte(int poison_pass) {
  return poison_pass == 0 ? 0xFF : 0x7F;
}

// Copies and waits for the stream. Error(kInternal) when an upload's size differs from the
// buffer's, or when [at, at + bytes) leaves the buffer that is downloaded from.
void upload(const DeviceBuffer& to, const std::vector<std::byte>& from, cudaStream_t stream);
void download(void* to, size_t bytes, const DeviceBuffer& from, const std::byte* at,
              cudaStream_t stream);

// "" or a line that names the first byte in which the buffer differs from the host's copy.
std::string changed_byte(const DeviceBuffer& buffer, const std::vector<std::byte>& host,
                         cudaStream_t stream);

}  // namespace sagebench
