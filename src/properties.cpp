#include "properties.h"

#include <algorithm>

#include "properties/properties_parts.h"

namespace sagebench {

const std::vector<Property>& properties() {
  constexpr auto kAttention = OpKind::kAttention, kWrite = OpKind::kKvCacheWrite,
                 kPrefill = OpKind::kPrefill;
  static const std::vector<Property> table = {
      {"determinism",
       "two runs give the same bits",
       {kAttention, kWrite, kPrefill},
       false,
       check_determinism},
      {"alone_equals_batch",
       "a sequence alone gives the bits it has in the batch",
       {kAttention, kWrite, kPrefill},
       false,
       check_alone_equals_batch},
      {"permute_sequences",
       "sequences in reverse order give the same bits, permuted",
       {kAttention, kWrite, kPrefill},
       false,
       check_permute_sequences},
      {"k_shift",
       "K plus a constant vector leaves O, and moves LSE by sm_scale q . vector",
       {kAttention},
       false,
       check_k_shift},
      {"v_power_of_two",
       "V times 2^n gives O times 2^n, to the bit",
       {kAttention, kPrefill},
       false,
       check_v_power_of_two},
      {"constant_v",
       "V constant per channel gives that constant",
       {kAttention, kPrefill},
       false,
       check_constant_v},
      {"kv_split_lse",
       "halves of the keys, merged by LSE, give the whole",
       {kAttention},
       false,
       check_kv_split_lse},
      {"graph_replay",
       "a graph captured once and replayed on new inputs gives the eager bits",
       {kAttention, kWrite, kPrefill},
       true,
       check_graph_replay},
      {"slow_producer",
       "inputs that arrive late on the stream are waited for",
       {kAttention, kWrite, kPrefill},
       true,
       check_slow_producer},
      {"page_permutation",
       "other pages, same cached tokens and outputs",
       {kWrite, kPrefill},
       false,
       check_page_permutation},
      {"chunked_equals_whole",
       "one call caches what calls on chunks do",
       {kWrite},
       false,
       check_chunked_equals_whole},
  };
  return table;
}

const Property* find_property(const std::string& name) {
  for (const Property& property : properties())
    if (name == property.name) return &property;
  return nullptr;
}

}  // namespace sagebench
