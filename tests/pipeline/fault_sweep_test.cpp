// Every fault on one small case of every scenario of edge_cases.json: it acts without harm to the
// process, or says that it cannot act.
#include <gtest/gtest.h>

#include <set>

#include "evaluate.h"
#include "faults/faults.h"
#include "run/cpu_executor.h"
#include "scenario/scenario.h"
#include "verdict.h"

namespace sagebench {
namespace {

constexpr int64_t kMaxTokens = 300;  // tens of milliseconds of emulation
const std::string kEdgeCases = SAGEBENCH_SOURCE_DIR "/configs/edge_cases.json";

struct PlantedCase {
  Case c;
  Kernel kernel;
};

// The case `id`, or the first of every scenario, on the first kernel that supports it; properties,
// which run no fault, left out.
std::vector<PlantedCase> edge_cases(const std::string& id = "") {
  std::vector<PlantedCase> cases;
  std::set<std::string> seen;
  for (Case& c : load_suite(kEdgeCases).cases) {
    int64_t tokens = 0;
    for (const int64_t length : c.batch.qo_len) tokens += length;
    if (id.empty() ? tokens > kMaxTokens || !seen.insert(c.scenario).second : c.id != id) continue;
    c.validate.properties.clear();
    for (const Kernel& kernel : op_of(c.op).kernels(c))
      if (kernel.unsupported.empty()) {
        cases.push_back({c, kernel});
        break;
      }
  }
  return cases;
}

CaseResult planted(const PlantedCase& p, const std::string& fault) {
  EvaluateOptions options;
  options.timed = false;
  options.fault = find_fault(fault);
  return evaluate(*make_cpu_executor(), p.c, p.kernel, options);
}

class EveryFault : public testing::TestWithParam<size_t> {};

TEST_P(EveryFault, ActsOrSaysThatItCannot) {
  static const std::vector<PlantedCase> cases = edge_cases();
  ASSERT_GT(cases.size(), 20u);
  const Fault& fault = faults()[GetParam()];
  for (const PlantedCase& p : cases) {
    CaseResult result = planted(p, fault.name);
    if (fault.can_act(p.c, p.kernel)) {
      EXPECT_TRUE(result.status == CaseStatus::kPassed || result.status == CaseStatus::kWrong ||
                  result.status == CaseStatus::kUnchecked)
          << result.id << ": " << result.reason;
      continue;
    }
    EXPECT_EQ(result.reason, "no verdict: fault " + fault.name + " cannot act in this case");
    Report report;
    report.cases.push_back(std::move(result));
    EXPECT_EQ(judge(report).code, ExitCode::kNoVerdict);
  }
}

std::string fault_name(const testing::TestParamInfo<size_t>& info) {
  return faults()[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, testing::Range(size_t{0}, faults().size()),
                         fault_name);

struct Misfit {
  const char *id, *fault;
};
class Misfits : public testing::TestWithParam<Misfit> {};

TEST_P(Misfits, NeverRun) {
  const std::vector<PlantedCase> found = edge_cases(GetParam().id);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(planted(found[0], GetParam().fault).status, CaseStatus::kSkipped);
}

// Each of them read or wrote outside its tensors, or did nothing.
INSTANTIATE_TEST_SUITE_P(
    Faults, Misfits,
    testing::Values(Misfit{"rope-none", "rope_style_swapped"}, Misfit{"rope-none", "sin_sign"},
                    Misfit{"rope-none", "position_off_by_one"},
                    Misfit{"rope-none", "rotary_dim_ignored"},
                    Misfit{"rope-none", "sin_cos_swapped"},
                    Misfit{"only-empty-sequences", "nan_in_o"},
                    Misfit{"only-empty-sequences", "stale_row"},
                    Misfit{"only-empty-sequences", "unwritten_row"},
                    Misfit{"only-empty-sequences", "neighbours_row"},
                    Misfit{"head-ratios/num_qo_heads=1,num_kv_heads=1", "gqa_mapping"},
                    Misfit{"head-ratios/num_qo_heads=5,num_kv_heads=5", "gqa_mapping"}));

TEST(Fault, AKeyOfTheNextSequenceNeedsANextSequence) {
  PlantedCase p = edge_cases("sm-scale/sm_scale=0.25").at(0);
  EXPECT_EQ(planted(p, "kv_len_plus_one").status, CaseStatus::kWrong);
  p.c.batch.qo_len.resize(1);
  p.c.batch.kv_len.resize(1);
  p.c.batch.kv_len_before.resize(1);
  EXPECT_EQ(planted(p, "kv_len_plus_one").status, CaseStatus::kSkipped);
}

// Faults that edge_cases.json once could not see, and a case of it that sees each.
struct Seen {
  const char *id, *fault;
};
class SeenFaults : public testing::TestWithParam<Seen> {};

TEST_P(SeenFaults, AreCaughtByTheConfig) {
  const std::vector<PlantedCase> found = edge_cases(GetParam().id);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(planted(found[0], GetParam().fault).status, CaseStatus::kWrong);
}
INSTANTIATE_TEST_SUITE_P(
    Faults, SeenFaults,
    testing::Values(
        Seen{"pages/page_size=3,kv_layout=HND,index=page_table", "layout_mixed_up"},
        Seen{"pages/page_size=3,kv_layout=NHD,index=slot_mapping", "cache_head_swapped"},
        Seen{"settings/dtype=bf16,qk_granularity=per_thread,smooth_k=mean,smooth_v=mean,rotate="
             "none",
             "v_offset_of_neighbour"},
        Seen{"overflow", "fp16_saturated"},
        Seen{"values/distribution=v_channel_bias_s:10", "kv_len_minus_one"},
        Seen{"values/distribution=arange_code", "kv_len_minus_one"}));

TEST(Fault, GqaMappingIsSeenAtEveryGroupSize) {
  const PlantedCase p = edge_cases("head-ratios/num_qo_heads=6,num_kv_heads=2").at(0);
  EXPECT_EQ(planted(p, "gqa_mapping").status, CaseStatus::kWrong);
}

}  // namespace
}  // namespace sagebench
