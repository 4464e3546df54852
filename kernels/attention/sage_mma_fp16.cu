#include "attention/sage_mma.cuh"

namespace sage {

Status launch_sage_mma_fp16(const AttentionParams& params, Stream stream) {
  return launch_sage_mma<PvFp16>(params, stream);
}

}  // namespace sage
