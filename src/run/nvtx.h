// Named ranges for profilers, in the domain "sagebench". Nothing without CUDA or a profiler.
#pragma once
#include <string>

#ifdef SAGE_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace sagebench {

// What the ncu command line looks for: the last launch of a profiled case.
inline constexpr char kNvtxDomain[] = "sagebench";
inline constexpr char kProfileTarget[] = "profile_target";

// Open from construction to destruction, on one thread, properly nested. The strings are
// registered, because `nsys --capture-range=nvtx` sees no others.
class NvtxRange {
 public:
  explicit NvtxRange([[maybe_unused]] const std::string& name) {
#ifdef SAGE_WITH_CUDA
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain(), name.c_str());
    nvtxDomainRangePushEx(domain(), &event);
#endif
  }
  ~NvtxRange() {
#ifdef SAGE_WITH_CUDA
    nvtxDomainRangePop(domain());
#endif
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
#ifdef SAGE_WITH_CUDA
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t handle = nvtxDomainCreateA(kNvtxDomain);
    return handle;
  }
#endif
};

}  // namespace sagebench
