#include "attention/sage_mma.cuh"

namespace sage {

Status launch_sage_mma_fp8(const AttentionParams& params, Stream stream) {
  return launch_sage_mma<PvFp8>(params, stream);
}

}  // namespace sage
