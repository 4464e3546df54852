// A dense row-major host tensor: plain bytes with a dtype and a shape. Empty = absent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace sagebench {

struct Tensor {
  DType dtype = DType::kFp32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> shape);  // zero-filled

  bool empty() const { return shape.empty(); }
  int64_t size() const;                  // elements
  float get(int64_t index) const;        // element as float; int64 and int32 may round
  void set(int64_t index, float value);  // encodes with the dtype's rounding
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

// A tensor [tokens, heads, dim] inside a larger one (a packed qkv, say). Strides in elements.
struct TensorView {
  const Tensor* base = nullptr;
  int64_t offset = 0, token_stride = 0, head_stride = 0;
  int64_t tokens = 0;
  int heads = 0, dim = 0;

  int64_t index(int64_t token, int head, int channel) const {
    return offset + token * token_stride + head * head_stride + channel;
  }
  float get(int64_t token, int head, int channel) const {
    return base->get(index(token, head, channel));
  }
  // Row (token, head) as floats into out[dim]: the fast path of every reference.
  void read_row(int64_t token, int head, float* out) const;
};

}  // namespace sagebench
