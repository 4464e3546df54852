#include <cstring>

#include "metrics/cache_map.h"
#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

std::string place_of(int64_t slot, int page_size) {
  return "page " + std::to_string(slot / page_size) + ", slot " + std::to_string(slot % page_size);
}

// Bits of one cache against the expected image, slot by slot: tally 0 for slots that the call
// writes, tally 1 for the others. `worst_slot` names the physical place of the first wrong one.
struct CacheTallies {
  Tally written, untouched;
  int64_t wrong_written = kNoSlot, wrong_untouched = kNoSlot;
};
CacheTallies compare(const CacheView& view, const Tensor& actual, const Tensor& expected,
                     const std::vector<int64_t>& owner_of_slot,
                     const std::vector<TokenOwner>& owners) {
  const uint16_t* a = actual.as<uint16_t>();
  const uint16_t* e = expected.as<uint16_t>();
  std::vector<char> wrong(static_cast<size_t>(view.slots));
  auto [written, untouched] = tally_over<2>(view.slots, [&](int64_t slot, auto& tallies) {
    const int64_t token = owner_of_slot[static_cast<size_t>(slot)];
    const bool live = token != kNoSlot;
    const TokenOwner owner = live ? owners[static_cast<size_t>(token)] : TokenOwner{-1, -1};
    Tally& tally = tallies[live ? 0 : 1];
    for (int head = 0; head < view.heads; ++head) {
      const int64_t row = view.index(slot, head, 0);
      const bool same =
          std::memcmp(a + row, e + row, static_cast<size_t>(view.dim) * sizeof *a) == 0;
      if (same) {
        tally.checked += view.dim;
        continue;
      }
      wrong[static_cast<size_t>(slot)] = 1;
      for (int64_t d = 0; d < view.dim; ++d)
        tally.add(a[row + d] == e[row + d] ? 0 : kInfinity, 0, expected.get(row + d),
                  actual.get(row + d), {owner.sequence, head, owner.token, d});
    }
  });
  CacheTallies result{written, untouched, kNoSlot, kNoSlot};
  for (int64_t slot = view.slots - 1; slot >= 0; --slot)
    if (wrong[static_cast<size_t>(slot)])
      (owner_of_slot[static_cast<size_t>(slot)] != kNoSlot ? result.wrong_written
                                                           : result.wrong_untouched) = slot;
  return result;
}

StageCheck finish_at(const std::string& rule, const Tally& tally, int64_t slot, int page_size) {
  StageCheck check = finish(Stage::kCache, rule, tally);
  if (!check.passed) check.detail = place_of(slot, page_size) + ": " + check.detail;
  return check;
}

}  // namespace

void check_cache(const Case& c, const Inputs& in, const StageOutputs& out, unsigned char poison,
                 std::vector<StageCheck>& checks) {
  StageOutputs expected;
  expected.k_rope = out.k_rope;  // the subject's own: a wrong rotation is not the cache's fault
  emulate_cache_write(c, in, poison, expected);

  const CacheView keys(c, out.key_cache), values(c, out.value_cache);
  const std::vector<TokenOwner> owners = token_owners(in.cu_seqlens_q);
  const std::vector<int64_t> slots = token_slots(c, in);
  std::vector<int64_t> owner_of_slot(static_cast<size_t>(keys.slots), kNoSlot);
  for (size_t token = 0; token < slots.size(); ++token)
    if (slots[token] != kNoSlot)
      owner_of_slot[static_cast<size_t>(slots[token])] = static_cast<int64_t>(token);

  const CacheTallies v =
      compare(values, out.value_cache, expected.value_cache, owner_of_slot, owners);
  const CacheTallies k = compare(keys, out.key_cache, expected.key_cache, owner_of_slot, owners);
  const int page = keys.page_size;
  const auto append = [&](const char* rule, const Tally& tally, int64_t slot) {
    if (tally.checked) checks.push_back(finish_at(rule, tally, slot, page));
  };
  append("V slots: bit-identical to v", v.written, v.wrong_written);
  append("K slots: bit-identical to the rotated k", k.written, k.wrong_written);
  append("V bytes not written: still poison", v.untouched, v.wrong_untouched);
  append("K bytes not written: still poison", k.untouched, k.wrong_untouched);
}

}  // namespace sagebench
