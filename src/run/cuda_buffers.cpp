#include "run/cuda_buffers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "run/cuda_check.h"

namespace sagebench {
namespace {

constexpr size_t kAlignment = 256;          // of every buffer, as cudaMalloc gives
constexpr size_t kChunk = size_t{1} << 24;  // bytes compared at a time

constexpr size_t round_up(size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

void copy_to_host(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync to host");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize after a copy to the host");
}

void fill(std::byte* at, unsigned char value, size_t bytes, cudaStream_t stream) {
  if (bytes > 0) cuda_check(cudaMemsetAsync(at, value, bytes, stream), "cudaMemsetAsync");
}

std::string byte_change(size_t at, unsigned was, unsigned is) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "byte %zu was 0x%02x, is 0x%02x", at, was, is);
  return text.data();
}

}  // namespace

DeviceBuffers::DeviceBuffers(int64_t guard_bytes)
    : guard_bytes_(static_cast<size_t>(std::max<int64_t>(guard_bytes, 0))) {}

DeviceBuffers::~DeviceBuffers() {
  for (const Allocation& a : allocations_)
    if (a.base) cudaFree(a.base);
}

DeviceBuffer* DeviceBuffers::add(const std::string& name, BufferRole role, size_t bytes) {
  Allocation a;
  a.buffer = {name, role, bytes, nullptr};
  if (role != BufferRole::kTool) {
    a.front = round_up(guard_bytes_);  // keeps the data aligned
    a.back = guard_bytes_;             // starts right behind the last byte
  }
  allocations_.push_back(a);
  return &allocations_.back().buffer;
}

int64_t DeviceBuffers::total_bytes() const {
  size_t total = 0;
  for (const Allocation& a : allocations_)
    total += round_up(std::max(a.front + a.buffer.bytes + a.back, kAlignment));
  return static_cast<int64_t>(total);
}

void DeviceBuffers::allocate() {
  for (Allocation& a : allocations_) {
    // never empty: an empty tensor still has a pointer that a launcher accepts
    const size_t bytes = round_up(std::max(a.front + a.buffer.bytes + a.back, kAlignment));
    void* base = nullptr;
    const cudaError_t status = cudaMalloc(&base, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw Error(ExitCode::kNoVerdict, "GPU memory ran out at buffer '" + a.buffer.name + "' (" +
                                            std::to_string(bytes) +
                                            " bytes), although enough was free before");
    }
    cuda_check(status, "cudaMalloc");
    a.base = static_cast<std::byte*>(base);
    a.buffer.data = a.base + a.front;
  }
}

void DeviceBuffers::fill_guards(unsigned char value, cudaStream_t stream) {
  guard_value_ = value;
  for (const Allocation& a : allocations_) {
    fill(a.base, value, a.front, stream);
    fill(a.buffer.data + a.buffer.bytes, value, a.back, stream);
  }
}

void DeviceBuffers::poison(unsigned char value, cudaStream_t stream) {
  for (const Allocation& a : allocations_)
    if (a.buffer.role == BufferRole::kOutput || a.buffer.role == BufferRole::kScratch)
      fill(a.buffer.data, value, a.buffer.bytes, stream);
}

std::vector<std::string> DeviceBuffers::broken_guards(cudaStream_t stream) const {
  std::vector<std::string> lines;
  std::vector<unsigned char> band;
  const auto check = [&](const Allocation& a, const std::byte* at, size_t bytes, bool front) {
    band.resize(bytes);
    copy_to_host(band.data(), at, bytes, stream);
    const auto intact = [this](unsigned char b) { return b == guard_value_; };
    // the byte nearest to the buffer says how far a write went astray
    const auto first = std::find_if_not(band.begin(), band.end(), intact);
    if (first == band.end()) return;
    const auto last = std::find_if_not(band.rbegin(), band.rend(), intact);
    const auto index = static_cast<size_t>(front ? band.rend() - last - 1 : first - band.begin());
    const auto changed =
        bytes - static_cast<size_t>(std::count_if(band.begin(), band.end(), intact));
    lines.push_back("buffer '" + a.buffer.name + "': write " +
                    (front ? std::to_string(bytes - index) + " bytes before its start"
                           : std::to_string(index) + " bytes past its end") +
                    " (guard " + byte_change(index, guard_value_, band[index]) + ", " +
                    std::to_string(changed) + " bytes changed)");
  };
  for (const Allocation& a : allocations_) {
    check(a, a.base, a.front, true);
    check(a, a.buffer.data + a.buffer.bytes, a.back, false);
  }
  return lines;
}

void upload(const DeviceBuffer& to, const std::vector<std::byte>& from, cudaStream_t stream) {
  if (from.size() != to.bytes)
    throw Error(ExitCode::kInternal, "buffer '" + to.name + "' holds " + std::to_string(to.bytes) +
                                         " bytes, its input has " + std::to_string(from.size()));
  if (from.empty()) return;
  cuda_check(cudaMemcpyAsync(to.data, from.data(), from.size(), cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync to device");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize after an upload");
}

void download(void* to, size_t bytes, const DeviceBuffer& from, const std::byte* at,
              cudaStream_t stream) {
  if (at < from.data || at + bytes > from.data + from.bytes)
    throw Error(ExitCode::kInternal, "a download of " + std::to_string(bytes) +
                                         " bytes leaves buffer '" + from.name + "' of " +
                                         std::to_string(from.bytes) + " bytes");
  copy_to_host(to, at, bytes, stream);
}

std::string changed_byte(const DeviceBuffer& buffer, const std::vector<std::byte>& host,
                         cudaStream_t stream) {
  std::vector<std::byte> chunk;
  for (size_t at = 0; at < host.size(); at += kChunk) {
    chunk.resize(std::min(kChunk, host.size() - at));
    copy_to_host(chunk.data(), buffer.data + at, chunk.size(), stream);
    if (std::memcmp(chunk.data(), host.data() + at, chunk.size()) == 0) continue;
    const auto [is, was] =
        std::mismatch(chunk.begin(), chunk.end(), host.begin() + static_cast<ptrdiff_t>(at));
    return "buffer '" + buffer.name + "': input changed, " +
           byte_change(at + static_cast<size_t>(is - chunk.begin()),
                       std::to_integer<unsigned>(*was), std::to_integer<unsigned>(*is));
  }
  return "";
}

}  // namespace sagebench
