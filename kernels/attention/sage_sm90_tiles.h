// Tile and pipeline choices of sage_sm90.
#pragma once
#include "sage/layout.h"

namespace sage {

inline constexpr int kTileKeys = 128;   // of one K and V stage
inline constexpr int kQueryBlock = 16;  // query rows of one scale block
inline constexpr int64_t kL2Bytes = 16 << 20;

// Codes of P are e4m3, 126 the largest finite one.
inline constexpr int kMaxCode = 126;
inline constexpr int kReferenceTop = 102;
inline constexpr int kReferenceLow = 46;
inline constexpr int kReferenceSpan = 40;          // octaves
inline constexpr float kLinearSumBias = 0.03989f;  // ln of the mean of (1 + f) / 2^f, f in [0, 1)

template <int kHeadDim_, int kGroups_, int kStages_, int kPromoteHalves_, bool kSharedMaster_,
          bool kOverlap_, PMode kMode_ = PMode::kLinear>
struct Sm90Tile {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kHeadDimV = kHeadDim_;
  static constexpr int kGroups = kGroups_;  // consumer warpgroups
  static constexpr int kRows = 64 * kGroups_;
  static constexpr int kThreads = 128 * (kGroups_ + 1);
  static constexpr int kStages = kStages_;
  static constexpr int kPromoteHalves = kPromoteHalves_;
  static constexpr bool kSharedMaster = kSharedMaster_;  // fp32 copy of O: shared memory, registers
  static constexpr bool kOverlap = kOverlap_;  // softmax of one half while P V of the last runs
  static constexpr PMode kMode = kMode_;
  static constexpr int kConsumerRegisters = kGroups_ == 2 ? 232 : 160;
  static constexpr int kProducerRegisters = kGroups_ == 2 ? 40 : 32;
  static_assert(2 * kStages % kPromoteHalves == 0, "promotion points are fixed in the ring");
};

}  // namespace sage
