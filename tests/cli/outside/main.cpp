// Links the installed operator library, lists its kernels and sizes a problem: no GPU needed.
#include <sage/sage.h>

#include <cstdio>

int main() {
  sage::SageAttentionParams params;
  params.batch = 1;
  params.q = {nullptr, sage::DType::kBf16, 1024, 8, 128, 1024, 128};
  params.k = params.v = {nullptr, sage::DType::kBf16, 1024, 2, 128, 256, 128};
  for (const sage::AttentionKernel& kernel : sage::attention_kernels()) {
    params.kernel = &kernel;
    params.settings = kernel.defaults;
    sage::SageWorkspace workspace;
    if (!sage::plan_workspace(params, nullptr, workspace).ok()) return 1;
    std::printf("%s: %zu bytes\n", kernel.name, workspace.bytes);
  }
  const sage::Status status = sage::launch_rope_kv_cache_write({}, nullptr);
  std::printf("empty write: %s\n", status.reason);
  return status.code == sage::StatusCode::kInvalidArgument && params.kernel != nullptr ? 0 : 1;
}
