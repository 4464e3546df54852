#include "ops/stages.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/parallel.h"

namespace sagebench {

const char* name_of(Stage stage) {
  constexpr std::array kNames = {"rope", "cache", "offset", "qk_codes", "v_codes", "o", "lse"};
  return kNames.at(static_cast<size_t>(stage));
}

Tensor unpack_v_codes(const Case& c, const sage::AttentionLayout& layout,
                      const Tensor& cu_seqlens_kv, const std::vector<std::byte>& storage) {
  const int64_t batch = cu_seqlens_kv.size() - 1;
  const int32_t* cu = cu_seqlens_kv.as<int32_t>();
  const int64_t heads = c.model.num_kv_heads, dim = layout.head_dim_v, tile = layout.v_tile_keys;
  const bool fp8 = layout.pv == sage::PvType::kFp8E4m3;
  Tensor codes(fp8 ? DType::kFp8E4m3 : DType::kFp16, {cu[batch], heads, dim});

  const size_t needed =
      fp8 ? static_cast<size_t>(sage::block_count(cu[batch], batch, layout.v_tile_keys) * heads *
                                dim * tile)
          : codes.bytes.size();
  if (storage.size() < needed)
    throw Error(ExitCode::kInternal, "V codes: " + std::to_string(storage.size()) +
                                         " bytes in storage, the layout needs " +
                                         std::to_string(needed));
  if (!fp8) {
    if (needed > 0) std::memcpy(codes.bytes.data(), storage.data(), needed);
    return codes;
  }

  // position in a tile of each key of a run of kKeyOrder
  std::array<int64_t, sage::AttentionLayout::kKeyOrder> position{};
  for (size_t p = 0; p < position.size(); ++p)
    position.at(layout.v_key_order[p]) = static_cast<int64_t>(p);

  parallel_for(batch * heads, [&](int64_t i) {
    const int64_t b = i / heads, h = i % heads;
    const int64_t first_tile = sage::first_block(cu[b], b, layout.v_tile_keys);
    for (int64_t t = 0; t < cu[b + 1] - cu[b]; ++t) {
      const int64_t key = t % tile, run = key % sage::AttentionLayout::kKeyOrder;
      const std::byte* from = storage.data() + ((first_tile + t / tile) * heads + h) * dim * tile +
                              key - run + position[static_cast<size_t>(run)];
      std::byte* to = codes.bytes.data() + ((cu[b] + t) * heads + h) * dim;
      for (int64_t d = 0; d < dim; ++d) to[d] = from[d * tile];
    }
  });
  return codes;
}

}  // namespace sagebench
