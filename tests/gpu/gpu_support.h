// What the kernel tests share: device memory between guard bands, and packed inputs that are NaN
// wherever a kernel has no business reading. Independent of src/ but for the dtype encodings.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "sage/quantize.h"
#ifdef SAGE_WITH_CUDA
#include <cuda_runtime.h>
#endif

namespace gpu_test {

inline constexpr unsigned char kPoison = 0xA5;
inline constexpr size_t kGuardBytes = 512;

#ifdef SAGE_WITH_CUDA
inline void cuda_check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
inline std::string why_no_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count > 0 ? "" : "no GPU";
}
inline void synchronize() {
  cuda_check(cudaDeviceSynchronize());
}
inline void* device_alloc(size_t bytes) {
  void* pointer = nullptr;
  cuda_check(cudaMalloc(&pointer, bytes));
  return pointer;
}
inline void device_free(void* pointer) {
  cudaFree(pointer);
}
inline void device_fill(void* pointer, unsigned char value, size_t bytes) {
  cuda_check(cudaMemset(pointer, value, bytes));
}
inline void device_copy(void* to, const void* from, size_t bytes) {
  cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}
inline size_t device_free_bytes() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total));
  return free;
}
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}
#else
inline std::string why_no_gpu() {
  return "built without CUDA";
}
[[noreturn]] inline void refuse() {
  throw std::logic_error("built without CUDA");
}
inline void synchronize() {
  refuse();
}
inline void* device_alloc(size_t) {
  refuse();
}
inline void device_free(void*) {}
inline void device_fill(void*, unsigned char, size_t) {
  refuse();
}
inline void device_copy(void*, const void*, size_t) {
  refuse();
}
inline size_t device_free_bytes() {
  return 0;
}
inline int compute_capability() {
  refuse();
}
#endif

// Tests that launch: skipped, with the reason, where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

// `count` elements on the device, between guard bands that download() checks.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    base_ = static_cast<std::byte*>(device_alloc(bytes() + 2 * kGuardBytes));
    device_fill(base_, kPoison, bytes() + 2 * kGuardBytes);
  }
  explicit DeviceArray(std::span<const T> host) : DeviceArray(host.size()) {
    device_copy(data(), host.data(), bytes());
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(std::span<const T>(host)) {}
  ~DeviceArray() { device_free(base_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return reinterpret_cast<T*>(base_ + kGuardBytes); }
  size_t bytes() const { return count_ * sizeof(T); }
  void put(int64_t at, const T* host, int64_t count) const {
    device_copy(data() + at, host, static_cast<size_t>(count) * sizeof(T));
  }
  std::vector<T> get(int64_t at, int64_t count) const {
    synchronize();
    std::vector<T> host(static_cast<size_t>(count));
    device_copy(host.data(), data() + at, host.size() * sizeof(T));
    return host;
  }
  std::vector<T> download() const {
    synchronize();
    std::vector<std::byte> all(bytes() + 2 * kGuardBytes);
    device_copy(all.data(), base_, all.size());
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (all[i] != std::byte{kPoison} || all[all.size() - 1 - i] != std::byte{kPoison}) {
        ADD_FAILURE() << "guard band written";
        break;
      }
    }
    std::vector<T> host(count_);
    if (count_ > 0) std::memcpy(host.data(), all.data() + kGuardBytes, bytes());
    return host;
  }

 private:
  size_t count_;
  std::byte* base_ = nullptr;
};

template <class T>
T poison_of() {
  T value;
  std::memset(&value, kPoison, sizeof value);
  return value;
}
template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

inline uint16_t encode(sage::DType dtype, float x) {
  return dtype == sage::DType::kBf16 ? sagebench::bf16_from_float(x)
                                     : sagebench::fp16_from_float(x);
}
inline float decode(sage::DType dtype, uint16_t bits) {
  return dtype == sage::DType::kBf16 ? sagebench::float_from_bf16(bits)
                                     : sagebench::float_from_fp16(bits);
}
inline constexpr uint16_t kNanBits = 0x7fff;  // in bf16 and fp16

inline std::vector<int32_t> cumulative(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> sums{0};
  for (const int32_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}
inline const std::vector<int32_t>& odd_lengths() {
  static const std::vector<int32_t> lengths{0, 1, 7, 63, 64, 65, 0, 127, 128, 129, 700, 0};
  return lengths;
}

// A packed tensor inside a wider buffer, NaN around it. `lead` elements stand before the first
// channel of a token and `trail` behind the last, as q and v do for k in a fused qkv.
struct PackedInput {
  sage::PackedTensor view;  // data is an offset until on_device()
  int64_t lead = 0;
  std::vector<uint16_t> bits;

  PackedInput(sage::DType dtype, int64_t rows, int64_t live_rows, int heads, int dim,
              int64_t lead_elements, int64_t trail, unsigned seed)
      : lead(lead_elements) {
    view.dtype = dtype;
    view.total_tokens = rows;
    view.num_heads = heads;
    view.head_dim = dim;
    view.token_stride = lead + int64_t{heads} * dim + trail;
    view.head_stride = dim;
    bits.assign(static_cast<size_t>(rows * view.token_stride), kNanBits);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t t = 0; t < live_rows; ++t) {
      for (int h = 0; h < heads; ++h) {
        for (int c = 0; c < dim; ++c) {
          // a bias per channel, so that offsets matter
          at(t, h, c) = encode(dtype, normal(generator) + static_cast<float>((h + c) % 5 - 2));
        }
      }
    }
  }
  uint16_t& at(int64_t token, int head, int channel) {
    return bits[static_cast<size_t>(token * view.token_stride + lead + head * view.head_stride +
                                    channel)];
  }
  float value(int64_t token, int head, int channel) {
    return decode(view.dtype, at(token, head, channel));
  }
  sage::PackedTensor on_device(const DeviceArray<uint16_t>& array) const {
    sage::PackedTensor x = view;
    x.data = array.data() + lead;
    return x;
  }
};

}  // namespace gpu_test
