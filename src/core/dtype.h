// Element types of host tensors, with their encodings. Written for the reference: shares nothing
// with the kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sagebench {

enum class DType { kBf16, kFp16, kFp32, kInt32, kInt64, kInt8, kFp8E4m3 };

size_t size_of(DType dtype);
std::string_view name_of(
    DType dtype);  // "bf16", "fp16", "fp32", "int32", "int64", "int8", "fp8_e4m3"

// Encoders round half to even. 16-bit ones overflow to infinity; e4m3 (OCP E4M3FN: bias 7, largest
// 448, no infinity, NaN 0x7f) saturates finite values and keeps NaN.
uint16_t bf16_from_float(float value);
float float_from_bf16(uint16_t bits);
uint16_t fp16_from_float(float value);
float float_from_fp16(uint16_t bits);
uint8_t e4m3_from_float(float value);
float float_from_e4m3(uint8_t bits);

// Distance between neighbouring values of `dtype` at |value|. Throws for integer types.
double ulp_at(DType dtype, double value);

}  // namespace sagebench
