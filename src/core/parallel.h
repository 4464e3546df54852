// Work sharing over the machine's cores.
#pragma once
#include <cstdint>
#include <functional>

namespace sagebench {

// Calls fn(i) for every i in [0, count), in any order, on all cores; the first exception is
// rethrown here after all threads have stopped.
void parallel_for(int64_t count, const std::function<void(int64_t)>& fn);
int num_threads();

}  // namespace sagebench
