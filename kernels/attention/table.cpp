// The attention kernels, one row each.
#include <cstring>
#include <iterator>

#include "attention/sage_mma.h"
#include "attention/sage_sm90.h"

namespace sage {
namespace {

constexpr SageSettings settings_of(PvType pv) {
  SageSettings settings;
  settings.pv = pv;
  settings.correct_v = pv == PvType::kFp8E4m3;
  return settings;
}

template <PvType kPv>
const char* mma_supports(const AttentionProblem& problem, const SageSettings& settings) {
  return sage_mma_supports(kPv, problem, settings);
}
template <PvType kPv>
AttentionLayout mma_layout(const AttentionProblem& problem, const SageSettings& settings) {
  return sage_mma_layout(kPv, problem, settings);
}
template <int kLeast>
bool from_capability(int compute_capability) {
  return compute_capability >= kLeast;
}

template <PvType kPv>
Status mma_check(const AttentionParams& params) {
  return check_sage_mma(kPv, params);
}

#ifdef SAGE_WITH_CUDA
constexpr auto kLaunchFp8 = &launch_sage_mma_fp8, kLaunchFp16 = &launch_sage_mma_fp16;
#else
constexpr decltype(AttentionKernel::launch) kLaunchFp8 = nullptr, kLaunchFp16 = nullptr;
#endif

constexpr AttentionKernel kMmaFp8 = {"sage_mma_fp8",
                                     "sm_89, sm_90, sm_120",
                                     settings_of(PvType::kFp8E4m3),
                                     mma_supports<PvType::kFp8E4m3>,
                                     from_capability<kSageMmaLeastFp8>,
                                     mma_layout<PvType::kFp8E4m3>,
                                     mma_check<PvType::kFp8E4m3>,
                                     kLaunchFp8};
constexpr AttentionKernel kMmaFp16 = {"sage_mma_fp16",
                                      "sm_80 and up",
                                      settings_of(PvType::kFp16),
                                      mma_supports<PvType::kFp16>,
                                      from_capability<kSageMmaLeastFp16>,
                                      mma_layout<PvType::kFp16>,
                                      mma_check<PvType::kFp16>,
                                      kLaunchFp16};

}  // namespace

AttentionKernelList attention_kernels() {
  static const AttentionKernel rows[] = {kMmaFp8, kMmaFp16, sage_sm90_row()};
  return {rows, static_cast<int>(std::size(rows))};
}

const AttentionKernel* find_attention_kernel(const char* name) {
  for (const AttentionKernel& kernel : attention_kernels()) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace sage
