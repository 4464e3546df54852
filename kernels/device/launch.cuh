// Launching, and going from run-time choices to template arguments, once per launcher.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "sage/types.h"

namespace sage::device {

// The status is this launch's own: earlier errors of the caller stay where they are.
template <class... Params, class... Arguments>
Status launch(void (*kernel)(Params...), dim3 grid, int threads, size_t shared_bytes, Stream stream,
              const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (error == cudaSuccess) return {};
  return {StatusCode::kCudaError, cudaGetErrorString(error)};
}

// f(T{}) with T the 16-bit type of `dtype`.
template <class F>
Status with_type(DType dtype, F f) {
  return dtype == DType::kBf16 ? f(__nv_bfloat16{}) : f(__half{});
}
// f(std::integral_constant<int, one of kValues>{}); `value` is one of them.
template <int kFirst, int... kRest, class F>
Status with_int(int value, F f) {
  if constexpr (sizeof...(kRest) > 0) {
    if (value != kFirst) return with_int<kRest...>(value, f);
  }
  return f(std::integral_constant<int, kFirst>{});
}
template <class F>
Status with_bool(bool value, F f) {
  return value ? f(std::true_type{}) : f(std::false_type{});
}

}  // namespace sage::device
