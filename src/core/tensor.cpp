#include "core/tensor.h"

#include <bit>
#include <cmath>
#include <stdexcept>

namespace sagebench {

Tensor::Tensor(DType dtype, std::vector<int64_t> shape) : dtype(dtype), shape(std::move(shape)) {
  bytes.resize(static_cast<size_t>(size()) * size_of(dtype));
}

int64_t Tensor::size() const {
  if (shape.empty()) return 0;
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

float Tensor::get(int64_t i) const {
  switch (dtype) {
    case DType::kBf16:
      return float_from_bf16(as<uint16_t>()[i]);
    case DType::kFp16:
      return float_from_fp16(as<uint16_t>()[i]);
    case DType::kFp32:
      return as<float>()[i];
    case DType::kInt32:
      return static_cast<float>(as<int32_t>()[i]);
    case DType::kInt64:
      return static_cast<float>(as<int64_t>()[i]);
    case DType::kInt8:
      return static_cast<float>(as<int8_t>()[i]);
    case DType::kFp8E4m3:
      return float_from_e4m3(as<uint8_t>()[i]);
  }
  throw std::logic_error("dtype without a decoder");
}

void Tensor::set(int64_t i, float value) {
  switch (dtype) {
    case DType::kBf16:
      as<uint16_t>()[i] = bf16_from_float(value);
      return;
    case DType::kFp16:
      as<uint16_t>()[i] = fp16_from_float(value);
      return;
    case DType::kFp32:
      as<float>()[i] = value;
      return;
    case DType::kInt32:
      as<int32_t>()[i] = static_cast<int32_t>(std::nearbyint(value));
      return;
    case DType::kInt64:
      as<int64_t>()[i] = static_cast<int64_t>(std::nearbyint(value));
      return;
    case DType::kInt8:
      as<int8_t>()[i] = static_cast<int8_t>(std::nearbyint(value));
      return;
    case DType::kFp8E4m3:
      as<uint8_t>()[i] = e4m3_from_float(value);
      return;
  }
  throw std::logic_error("dtype without an encoder");
}

void TensorView::read_row(int64_t token, int head, float* out) const {
  const int64_t start = index(token, head, 0);
  if (base->dtype == DType::kBf16) {
    const uint16_t* x = base->as<uint16_t>() + start;
    for (int i = 0; i < dim; ++i) out[i] = std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
    return;
  }
  if (base->dtype == DType::kFp16) {
    const uint16_t* x = base->as<uint16_t>() + start;
    for (int i = 0; i < dim; ++i) out[i] = float_from_fp16(x[i]);
    return;
  }
  for (int i = 0; i < dim; ++i) out[i] = base->get(start + i);
}

}  // namespace sagebench
