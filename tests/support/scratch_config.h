// Scenario files made on the spot, and the error that reading one gives.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "scenario/scenario.h"
#include "support/process.h"

namespace sagebench::test {

inline std::string suite_text(const std::string& scenarios, const std::string& defaults = "{}") {
  return R"({"schema": "sagebench.scenario/1", "name": "t", "defaults": )" + defaults +
         R"(, "scenarios": [)" + scenarios + "]}";
}

inline Suite load_text(const std::string& text, const ScenarioOverrides& overrides = {}) {
  const ScratchFolder folder;
  write_file(folder / "c.json", text);
  return load_suite(folder / "c.json", overrides);
}

// The cases of one scenario given by its fields.
inline std::vector<Case> load_cases(const std::string& fields) {
  return load_text(suite_text("{" + fields + "}")).cases;
}
inline Case load_one(const std::string& fields) {
  const std::vector<Case> cases = load_cases(fields);
  EXPECT_EQ(cases.size(), 1u);
  return cases.at(0);
}

// What follows the file's name in the UsageError; empty when there is none.
inline std::string error_of_text(const std::string& text) {
  try {
    load_text(text);
  } catch (const UsageError& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const size_t file = message.find("c.json: ");
    EXPECT_NE(file, std::string::npos) << message;
    return message.substr(file + 8);
  }
  return "";
}

// One bad scenario and what its error must say, what it starts with first.
struct BadScenario {
  const char* fields;
  std::vector<const char*> says;
};
inline void expect_error(const BadScenario& bad) {
  const std::string message = error_of_text(suite_text("{" + std::string(bad.fields) + "}"));
  EXPECT_EQ(message.rfind(bad.says[0], 0), 0u) << "for {" << bad.fields << "}: " << message;
  for (const char* part : bad.says)
    EXPECT_NE(message.find(part), std::string::npos)
        << "no '" << part << "' for {" << bad.fields << "}: " << message;
}

}  // namespace sagebench::test
