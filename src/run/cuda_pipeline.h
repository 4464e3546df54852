// Binds a case's device buffers to the operators of include/sage: what is launched, stage by stage
// and as a whole, and where each stage's output lies.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ops/op.h"
#include "run/cuda_buffers.h"
#include "run/executor.h"
#include "sage/sage.h"

namespace sagebench {

struct StageLaunch {
  std::string
      name;  // "rope_write", "k_stats", "v_stats", "q_codes", "k_codes", "v_codes", "attend"
  std::function<sage::Status(sage::Stream)> launch;
};

class CudaPipeline {
 public:
  // Adds the case's buffers to the plan; `in` gives sizes, and must outlive the pipeline.
  CudaPipeline(const Case& c, const Kernel& kernel, const Inputs& in, DeviceBuffers& buffers);
  CudaPipeline(const CudaPipeline&) = delete;  // the stages point inside
  CudaPipeline& operator=(const CudaPipeline&) = delete;

  void bind();  // once the buffers are allocated

  void upload_inputs(const Inputs& in, cudaStream_t stream) const;
  // Fresh values of the case's distributions, made on the device; the index tensors stay.
  void generate_values(uint64_t seed, cudaStream_t stream) const;
  // One line per input buffer that no longer holds `in`.
  std::vector<std::string> changed_inputs(const Inputs& in, cudaStream_t stream) const;
  // The buffers that hold q, k and v, for producers that run on the stream.
  std::vector<DeviceBuffer*> value_buffers() const;

  sage::Status launch(sage::Stream stream) const;                     // the whole op
  const std::vector<StageLaunch>& stages() const { return stages_; }  // in order; same work

  // Everything the op left, in token order.
  StageOutputs download_outputs(cudaStream_t stream) const;

 private:
  struct InputBuffer {
    Tensor Inputs::*tensor;
    DeviceBuffer* buffer;
  };
  std::byte* input(Tensor Inputs::*tensor) const;
  std::byte* values(const TensorView& view, Tensor Inputs::*split) const;
  sage::PackedTensor packed(const TensorView& view, Tensor Inputs::*split) const;
  sage::RopeKvCacheWriteParams rope_params() const;
  sage::SageAttentionParams attention_params() const;
  Tensor fetch(const DeviceBuffer& holder, const void* at, DType dtype, std::vector<int64_t> shape,
               cudaStream_t stream) const;

  const Case& c_;
  const Kernel& kernel_;
  const Inputs& in_;
  bool rotates_, attends_;
  std::vector<InputBuffer> inputs_;
  std::vector<int64_t> value_cache_shape_;
  DeviceBuffer *q_rope_ = nullptr, *k_rope_ = nullptr;
  DeviceBuffer *key_cache_ = nullptr, *value_cache_ = nullptr;
  DeviceBuffer *workspace_ = nullptr, *o_ = nullptr, *lse_ = nullptr;
  // bound:
  sage::RopeKvCacheWriteParams rope_;
  sage::SageAttentionParams attention_;
  sage::SageWorkspace operands_;
  std::vector<StageLaunch> stages_;
};

}  // namespace sagebench
