#include "attention/sage_mma.cuh"

namespace sage {

Status check_sage_mma_fp16(const AttentionParams& params) {
  return check_sage_mma_on_device<PvFp16>(params);
}

Status launch_sage_mma_fp16(const AttentionParams& params, Stream stream) {
  return launch_sage_mma<PvFp16>(params, stream);
}

}  // namespace sage
