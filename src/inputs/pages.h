// Where the tokens of a case go in the paged cache.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "scenario/case.h"

namespace sagebench {

// Pages of each sequence: enough for its cached and its new tokens.
std::vector<int64_t> pages_per_sequence(const Batch& batch, int page_size);
int64_t needed_pages(const Batch& batch, int page_size);

// Page ids in order of use, needed_pages of them: cache.page_ids, else as cache.allocation says.
std::vector<int64_t> page_order(const Case& c, int64_t num_pages);

struct PageMap {        // the one that cache.index names; the other is empty
  Tensor page_table;    // int32 [batch, max pages of a sequence], unused entries -1
  Tensor slot_mapping;  // int64 [total new tokens], -1 = skip
};
PageMap make_page_map(const Case& c, int64_t num_pages);

}  // namespace sagebench
