// Bulk copies from global to shared memory (TMA, sm_90) and the mbarriers they complete on.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace sage::device {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}
// Makes initialised barriers and written tiles visible to the copy engine and the tensor cores.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n" ::
                   : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void barrier_arrive_expect(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Returns once the phase of this parity has completed.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra WAIT;\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies one box of a rank-3 tensor; coordinates innermost first. Outside the tensor reads as 0.
__device__ inline void tma_load_3d(void* destination, const CUtensorMap& map, uint64_t* barrier,
                                   int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ inline void tma_prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

// Copies one float without waiting, or writes 0 if !valid (then nothing is read).
__device__ inline void copy_float_async(float* destination, const float* source, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(destination)),
               "l"(source), "r"(valid ? 4 : 0)
               : "memory");
}
// This thread arrives on the barrier when its copies so far have landed.
__device__ inline void barrier_arrive_after_copies(uint64_t* barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(shared_address(barrier))
      : "memory");
}

// Programmatic dependent launch: the next kernel may start now; the memory of the kernels before it
// is complete.
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
__device__ inline void wait_for_prerequisites() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

}  // namespace sage::device
