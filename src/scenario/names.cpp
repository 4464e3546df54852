#include "scenario/names.h"

#include "ops/op.h"

namespace sagebench {
namespace {

// C-style arrays: std::array would need each length repeated.
constexpr EnumName<DType> kDTypes[] = {{DType::kBf16, "bf16"},
                                       {DType::kFp16, "fp16"},
                                       {DType::kBf16, "bfloat16"},
                                       {DType::kFp16, "float16"},
                                       {DType::kFp16, "half"}};
constexpr EnumName<sage::Granularity> kGranularities[] = {
    {sage::Granularity::kPerThread, "per_thread"},
    {sage::Granularity::kPerWarp, "per_warp"},
    {sage::Granularity::kPerBlock, "per_block"}};
constexpr EnumName<sage::Smooth> kSmooths[] = {{sage::Smooth::kMean, "mean"},
                                               {sage::Smooth::kSampled, "sampled"},
                                               {sage::Smooth::kNone, "none"},
                                               {sage::Smooth::kMean, "per_sequence"}};
constexpr EnumName<sage::Rotate> kRotates[] = {{sage::Rotate::kNone, "none"},
                                               {sage::Rotate::kHadamard, "hadamard"}};
constexpr EnumName<sage::PvType> kPvTypes[] = {{sage::PvType::kFp8E4m3, "fp8_e4m3"},
                                               {sage::PvType::kFp16, "fp16"},
                                               {sage::PvType::kFp8E4m3, "fp8"},
                                               {sage::PvType::kFp8E4m3, "e4m3"},
                                               {sage::PvType::kFp16, "float16"}};
constexpr EnumName<sage::PMode> kPModes[] = {{sage::PMode::kExp2, "exp2"},
                                             {sage::PMode::kLinear, "linear"}};
constexpr EnumName<sage::VScale> kVScales[] = {{sage::VScale::kPerChannel, "per_channel"},
                                               {sage::VScale::kPerHead, "per_head"}};
constexpr EnumName<sage::RopeStyle> kRopeStyles[] = {{sage::RopeStyle::kNeox, "neox"},
                                                     {sage::RopeStyle::kInterleaved, "interleaved"},
                                                     {sage::RopeStyle::kNone, "none"},
                                                     {sage::RopeStyle::kInterleaved, "gptj"}};
constexpr EnumName<RopeScaling> kScalings[] = {{RopeScaling::kNone, "none"},
                                               {RopeScaling::kLinear, "linear"},
                                               {RopeScaling::kLlama3, "llama3"},
                                               {RopeScaling::kYarn, "yarn"}};
constexpr EnumName<KvLayout> kKvLayouts[] = {{KvLayout::kHnd, "HND"},
                                             {KvLayout::kNhd, "NHD"},
                                             {KvLayout::kHnd, "hnd"},
                                             {KvLayout::kNhd, "nhd"}};
constexpr EnumName<CacheIndex> kIndexes[] = {{CacheIndex::kPageTable, "page_table"},
                                             {CacheIndex::kSlotMapping, "slot_mapping"},
                                             {CacheIndex::kPageTable, "block_table"},
                                             {CacheIndex::kPageTable, "block_tables"}};
constexpr EnumName<Allocation> kAllocations[] = {{Allocation::kShuffled, "shuffled"},
                                                 {Allocation::kSequential, "sequential"},
                                                 {Allocation::kReverse, "reverse"}};
constexpr EnumName<InputForm> kForms[] = {{InputForm::kPackedQkv, "packed_qkv"},
                                          {InputForm::kSplit, "split"}};
constexpr EnumName<StreamKind> kStreams[] = {{StreamKind::kOwn, "own"},
                                             {StreamKind::kDefault, "default"}};
constexpr EnumName<Rows> kRows[] = {
    {Rows::kAuto, "auto"}, {Rows::kFull, "full"}, {Rows::kSampled, "sampled"}, {Rows::kOff, "off"}};
constexpr EnumName<L2> kL2s[] = {{L2::kCold, "cold"}, {L2::kHot, "hot"}, {L2::kBoth, "both"}};
constexpr EnumName<ExpectKind> kExpectations[] = {{ExpectKind::kOk, "ok"},
                                                  {ExpectKind::kUnsupported, "unsupported"},
                                                  {ExpectKind::kReject, "reject"},
                                                  {ExpectKind::kRange, "range"}};

}  // namespace

std::span<const EnumName<OpKind>> enum_names(OpKind) {
  static const auto names = [] {
    std::vector<EnumName<OpKind>> rows;
    for (const Op& op : ops()) rows.push_back({op.kind, op.name});
    return rows;
  }();
  return names;
}
std::span<const EnumName<DType>> enum_names(DType) {
  return kDTypes;
}
std::span<const EnumName<sage::Granularity>> enum_names(sage::Granularity) {
  return kGranularities;
}
std::span<const EnumName<sage::Smooth>> enum_names(sage::Smooth) {
  return kSmooths;
}
std::span<const EnumName<sage::Rotate>> enum_names(sage::Rotate) {
  return kRotates;
}
std::span<const EnumName<sage::PvType>> enum_names(sage::PvType) {
  return kPvTypes;
}
std::span<const EnumName<sage::PMode>> enum_names(sage::PMode) {
  return kPModes;
}
std::span<const EnumName<sage::VScale>> enum_names(sage::VScale) {
  return kVScales;
}
std::span<const EnumName<sage::RopeStyle>> enum_names(sage::RopeStyle) {
  return kRopeStyles;
}
std::span<const EnumName<RopeScaling>> enum_names(RopeScaling) {
  return kScalings;
}
std::span<const EnumName<KvLayout>> enum_names(KvLayout) {
  return kKvLayouts;
}
std::span<const EnumName<CacheIndex>> enum_names(CacheIndex) {
  return kIndexes;
}
std::span<const EnumName<Allocation>> enum_names(Allocation) {
  return kAllocations;
}
std::span<const EnumName<InputForm>> enum_names(InputForm) {
  return kForms;
}
std::span<const EnumName<StreamKind>> enum_names(StreamKind) {
  return kStreams;
}
std::span<const EnumName<Rows>> enum_names(Rows) {
  return kRows;
}
std::span<const EnumName<L2>> enum_names(L2) {
  return kL2s;
}
std::span<const EnumName<ExpectKind>> enum_names(ExpectKind) {
  return kExpectations;
}

}  // namespace sagebench
