#include "properties.h"

#include "properties/properties_parts.h"

namespace sagebench {
namespace {

template <class Fits>
std::vector<OpKind> ops_that(const Fits& fit) {
  std::vector<OpKind> kinds;
  for (const Op& op : ops())
    if (fit(op)) kinds.push_back(op.kind);
  return kinds;
}

}  // namespace

const std::vector<Property>& properties() {
  static const auto all = ops_that([](const Op&) { return true; });
  static const auto attend = ops_that([](const Op& op) { return op.attends; });
  static const auto cache = ops_that([](const Op& op) { return op.caches; });
  static const auto only_attend = ops_that([](const Op& op) { return op.attends && !op.caches; });
  static const auto only_cache = ops_that([](const Op& op) { return op.caches && !op.attends; });
  static const std::vector<Property> table = {
      {"determinism", "two runs give the same bits", all, false, check_determinism},
      {"alone_equals_batch", "a sequence alone gives the bits it has in the batch", all, false,
       check_alone_equals_batch},
      {"permute_sequences", "sequences in reverse order give the same bits, permuted", all, false,
       check_permute_sequences},
      {"k_shift", "K plus a constant vector leaves O, and moves LSE by sm_scale q . vector",
       only_attend, false, check_k_shift},
      {"v_power_of_two", "V times 2^n gives O times 2^n, to the bit", attend, false,
       check_v_power_of_two},
      {"constant_v", "V constant per channel gives that constant", attend, false, check_constant_v},
      {"kv_split_lse", "halves of the keys, merged by LSE, give the whole", only_attend, false,
       check_kv_split_lse},
      {"graph_replay", "a graph captured once and replayed on new inputs gives the eager bits", all,
       true, check_graph_replay},
      {"slow_producer", "inputs that arrive late on the stream are waited for", all, true,
       check_slow_producer},
      {"page_permutation", "other pages, same cached tokens and outputs", cache, false,
       check_page_permutation},
      {"chunked_equals_whole", "one call caches what calls on chunks do", only_cache, false,
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
