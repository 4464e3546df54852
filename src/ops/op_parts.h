// The functions behind the rows of ops(), shared among the op files: prefill is the cache write
// followed by attention.
#pragma once
#include <vector>

#include "ops/op.h"

namespace sagebench {

sage::AttentionProblem problem_of(const Case& c);

std::vector<Kernel> attention_kernels_of(const Case& c);
Work attention_work(const Case& c, const Kernel& kernel);

std::vector<Kernel> cache_write_kernels(const Case& c);
Work cache_write_work(const Case& c, const Kernel& kernel);

std::vector<Kernel> prefill_kernels(const Case& c);
Work prefill_work(const Case& c, const Kernel& kernel);

}  // namespace sagebench
