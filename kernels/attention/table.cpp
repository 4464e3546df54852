// The attention kernels. To add one: its file, its header, one row here.
#include <cstring>

#include "attention/sage_mma.h"
#include "sage/attention.h"

namespace sage {
namespace {

SageSettings with_pv(PvType pv) {
  SageSettings s;
  s.pv = pv;
  return s;
}

#ifdef SAGE_WITH_CUDA
constexpr auto kLaunchFp8 = launch_sage_mma_fp8;
constexpr auto kLaunchFp16 = launch_sage_mma_fp16;
#else
constexpr Status (*kLaunchFp8)(const AttentionParams&, Stream) = nullptr;
constexpr Status (*kLaunchFp16)(const AttentionParams&, Stream) = nullptr;
#endif

// The two mma.sync kernels differ in one argument.
template <PvType kPv>
const char* supports_mma(const AttentionProblem& problem, const SageSettings& settings) {
  return supports_sage_mma(kPv, problem, settings);
}
template <PvType kPv>
AttentionLayout layout_mma(const AttentionProblem& problem, const SageSettings& settings) {
  return sage_mma_layout(kPv, problem, settings);
}

constexpr PvType kFp8 = PvType::kFp8E4m3, kFp16 = PvType::kFp16;
const AttentionKernel kTable[] = {
    {"sage_mma_fp8", "sm_89, sm_90, sm_120", with_pv(kFp8), supports_mma<kFp8>,
     [](int cc) { return cc >= 89; }, layout_mma<kFp8>, kLaunchFp8},
    {"sage_mma_fp16", "sm_80 and newer", with_pv(kFp16), supports_mma<kFp16>,
     [](int cc) { return cc >= 80; }, layout_mma<kFp16>, kLaunchFp16},
};

}  // namespace

AttentionKernelList attention_kernels() {
  return {kTable, static_cast<int>(sizeof(kTable) / sizeof(kTable[0]))};
}

const AttentionKernel* find_attention_kernel(const char* name) {
  for (const AttentionKernel& row : kTable)
    if (std::strcmp(row.name, name) == 0) return &row;
  return nullptr;
}

}  // namespace sage
