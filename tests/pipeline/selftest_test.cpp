#include "selftest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <sstream>

namespace sagebench {
namespace {

TEST(Selftest, CatchesEveryFaultAndPassesWithout) {
  std::ostringstream out;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run_selftest(out), 0) << out.str();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(out.str().find("MISSED"), std::string::npos);
  EXPECT_EQ(out.str().find("FAILED"), std::string::npos);

  // One line per fault, ending in the stage.
  std::istringstream lines(out.str());
  size_t faults_seen = 0;
  for (std::string line; std::getline(lines, line);)
    for (const Fault& fault : faults())
      if (line.rfind(fault.name + " (", 0) == 0) {
        const std::string end = std::string("caught at ") + name_of(fault.caught_at);
        EXPECT_EQ(line.substr(line.size() - end.size()), end);
        ++faults_seen;
      }
  EXPECT_EQ(faults_seen, faults().size());
}

TEST(Selftest, FaultsAreManyAndDistinct) {
  std::set<std::string> names;
  std::set<Stage> stages;
  for (const Fault& fault : faults()) {
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_TRUE(fault.before || fault.after) << fault.name;
    EXPECT_EQ(find_fault(fault.name), &fault);
    stages.insert(fault.caught_at);
  }
  EXPECT_GE(names.size(), 30u);
  EXPECT_EQ(stages.size(), 7u);
  EXPECT_EQ(find_fault("no_such_fault"), nullptr);
}

// The net itself can report a miss: a fault without effect, and one that shows at another stage.
TEST(Selftest, HarmlessFaultIsMissed) {
  const std::vector<SelftestCase> cases = selftest_cases();
  const auto nothing = [](FaultContext&) {};
  const Fault harmless{"harmless",
                       "does nothing",
                       OpKind::kKvCacheWrite,
                       Stage::kRope,
                       Stage::kRope,
                       nothing,
                       nothing,
                       [](const Case&, const Kernel&) { return true; }};
  const FaultOutcome outcome = try_fault(harmless, cases);
  EXPECT_FALSE(outcome.caught);
  EXPECT_EQ(outcome.line.substr(outcome.line.size() - 6), "MISSED");

  Fault elsewhere = *find_fault("sin_sign");
  elsewhere.caught_at = Stage::kCache;
  const FaultOutcome wrong = try_fault(elsewhere, cases);
  EXPECT_FALSE(wrong.caught);
  EXPECT_NE(wrong.line.find("caught at rope instead of cache"), std::string::npos) << wrong.line;
}

}  // namespace
}  // namespace sagebench
