// The launchers of a library built without CUDA: arguments are checked as ever, then refused, so
// that a program links and fails the same way on every machine. Size queries need no GPU.
#ifndef SAGE_WITH_CUDA
#include "kv_cache/checks.h"
#include "quantize/checks.h"
#include "status.h"

namespace sage {
namespace {

template <class Params>
Status refuse(const Params& params) {
  const Status status = check(params);
  return status.ok() ? unsupported("built without CUDA") : status;
}

}  // namespace

Status launch_channel_stats(const ChannelStatsParams& params, Stream) {
  return refuse(params);
}
Status launch_quantize_int8(const QuantizeInt8Params& params, Stream) {
  return refuse(params);
}
Status launch_quantize_v(const QuantizeVParams& params, Stream) {
  return refuse(params);
}
Status launch_rope_kv_cache_write(const RopeKvCacheWriteParams& params, Stream) {
  return refuse(params);
}

}  // namespace sage
#endif
