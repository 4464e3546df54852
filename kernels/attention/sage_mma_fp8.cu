#include "attention/sage_mma.cuh"

namespace sage {

Status check_sage_mma_fp8(const AttentionParams& params) {
  return check_sage_mma_on_device<PvFp8>(params);
}

Status launch_sage_mma_fp8(const AttentionParams& params, Stream stream) {
  return launch_sage_mma<PvFp8>(params, stream);
}

}  // namespace sage
