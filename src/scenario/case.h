// One case: a scenario after defaults, lengths and sweeps are expanded. Plain data; names and
// defaults are those of the scenario format (configs/schema/scenario.schema.json).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "sage/attention.h"
#include "sage/kv_cache.h"
#include "sage/layout.h"

namespace sagebench {

enum class OpKind { kAttention, kKvCacheWrite, kPrefill };

struct Model {
  int num_qo_heads = 32;
  int num_kv_heads = 8;
  int head_dim = 128;
  int head_dim_v = 128;
};

// Lengths per sequence. attention: qo_len queries over kv_len keys. kv_cache_write and prefill:
// qo_len new tokens behind kv_len_before cached ones (kv_len = qo_len).
struct Batch {
  std::vector<int64_t> qo_len;
  std::vector<int64_t> kv_len;
  std::vector<int64_t> kv_len_before;  // zeros unless given
  std::string source;                  // how the lengths were made, for the report

  int64_t size() const { return static_cast<int64_t>(qo_len.size()); }
};

// Settings left out take the kernel's documented default.
struct SageChoice {
  std::optional<sage::Granularity> qk_granularity;
  std::optional<sage::Smooth> smooth_k;
  std::optional<sage::Smooth> smooth_v;
  std::optional<bool> correct_v;
  std::optional<sage::VScale> v_scale;
  std::optional<sage::Rotate> rotate;
  std::optional<sage::PvType> pv;
  std::optional<sage::PMode> p;
};

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };
struct Rope {
  sage::RopeStyle style = sage::RopeStyle::kNeox;
  int rotary_dim = 0;  // resolved: head_dim unless given
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                       // linear, llama3, yarn
  double low_freq_factor = 1.0;              // llama3
  double high_freq_factor = 4.0;             // llama3
  double original_max_position = 8192.0;     // llama3, yarn
  double beta_fast = 32.0, beta_slow = 1.0;  // yarn
  double attention_factor = 0.0;             // yarn; 0: 0.1 ln(factor) + 1
  DType table_dtype = DType::kFp32;          // fp32 or the case's dtype
};

enum class KvLayout { kHnd, kNhd };
enum class CacheIndex { kPageTable, kSlotMapping };
enum class Allocation { kShuffled, kSequential, kReverse };
struct Cache {
  int page_size = 16;
  int64_t num_pages = 0;  // resolved: what the batch needs + 2 unless given
  KvLayout kv_layout = KvLayout::kHnd;
  CacheIndex index = CacheIndex::kPageTable;
  Allocation allocation = Allocation::kShuffled;
  std::vector<int64_t> page_ids;  // explicit pages in order of use, instead of `allocation`
  std::vector<int64_t> slots;     // explicit slot mapping, -1 = skip; instead of `allocation`
  int64_t guard_bytes = 4096;     // before and after every device buffer of the case
};

// One named distribution with its parameters; the table in inputs/distributions.cpp says which.
struct Distribution {
  std::string name = "normal";
  std::map<std::string, double> params;
};

enum class InputForm { kPackedQkv, kSplit };
struct Input {
  InputForm form = InputForm::kPackedQkv;
  std::vector<Distribution> q, k,
      v;                      // applied in order to N(0,1), e.g. k_channel_bias then token_outlier
  int64_t token_padding = 0;  // extra elements between token rows (strides: padded)
  std::string file;           // safetensors, resolved path; empty: generated
  std::string file_name;      // the same as written in the scenario
  std::string file_q = "q", file_k = "k", file_v = "v";
};

enum class StreamKind { kOwn, kDefault };
struct Exec {
  StreamKind stream = StreamKind::kOwn;
  bool graph = false;
  std::vector<std::string> kernels;  // empty: all
};

enum class Rows { kAuto, kFull, kSampled, kOff };
struct Tolerance {
  std::optional<double> rel_l1;      // against exact, per (sequence, head)
  std::optional<double> cosine;      // against exact, per (sequence, head)
  std::optional<double> worst_row;   // against exact, relative L1 of one (token, head)
  std::optional<double> norm_ratio;  // allowed |norm ratio - 1| against exact, whole case
  std::optional<double> rel_l1_emulated;
  std::string why;
};
struct Validate {
  Rows rows = Rows::kAuto;
  bool exact = true, emulated = true;  // which references
  Tolerance tolerance;
  std::vector<std::string> properties;
};

enum class L2 { kCold, kHot, kBoth };
struct Timing {
  double min_time_s = 0.1;
  double max_noise = 0.005;  // relative half width of the median's confidence interval
  double max_time_s = 2.0;
  L2 l2 = L2::kCold;
};

enum class ExpectKind { kOk, kUnsupported, kReject, kRange };
struct Expectation {
  ExpectKind kind = ExpectKind::kOk;
  // kRange: metric name -> [lo, hi], over the whole case: rel_l1, cosine, norm_ratio, worst_row
  std::map<std::string, std::pair<double, double>> ranges;
  std::string why;
};

struct Case {
  std::string id;        // unique, readable, what --only accepts
  std::string scenario;  // its scenario's name
  OpKind op = OpKind::kAttention;
  Model model;
  Batch batch;
  DType dtype = DType::kBf16;
  bool causal = false;
  bool bottom_right = true;
  double sm_scale = 0.0;  // resolved
  bool return_lse = false;
  SageChoice sage;
  Rope rope;
  Cache cache;
  Input input;
  Exec exec;
  Validate validate;
  Timing timing;
  Expectation expect;  // of every kernel not named below
  std::map<std::string, Expectation> expect_kernel;
  uint64_t seed = 0;
  std::string config_path;              // for the rerun command
  std::vector<std::string> files_read;  // trace and activations, resolved paths
  std::string canonical_json;  // the expanded scenario, one line, for the report and its hash
  std::string pointer;         // JSON pointer of the scenario in its file, for later errors

  sage::Mask mask() const {
    return !causal        ? sage::Mask::kFull
           : bottom_right ? sage::Mask::kCausalBottomRight
                          : sage::Mask::kCausalTopLeft;
  }
  const Expectation& expectation(const std::string& kernel) const {
    const auto it = expect_kernel.find(kernel);
    return it == expect_kernel.end() ? expect : it->second;
  }
};

}  // namespace sagebench
