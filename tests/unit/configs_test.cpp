// The shipped configs load, and the JSON Schema says what the reader does.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "inputs/distributions.h"
#include "scenario/expectations.h"
#include "scenario/fields.h"
#include "scenario/lengths.h"
#include "scenario/scenario.h"

namespace sagebench {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(SAGEBENCH_SOURCE_DIR) / "configs";

std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class ShippedConfig : public testing::TestWithParam<std::string> {};

TEST_P(ShippedConfig, LoadsWithUniqueCasesAndItsOwnName) {
  const Suite suite = load_suite((kConfigs / (GetParam() + ".json")).string());
  EXPECT_EQ(suite.name, GetParam());
  EXPECT_FALSE(suite.cases.empty());
  std::set<std::string> ids;
  for (const Case& c : suite.cases) {
    EXPECT_TRUE(ids.insert(c.id).second) << c.id;
    EXPECT_EQ(c.canonical_json.find(SAGEBENCH_SOURCE_DIR), std::string::npos)
        << "an echo with a machine's paths";
  }
}
INSTANTIATE_TEST_SUITE_P(All, ShippedConfig, testing::ValuesIn(shipped()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ShippedConfigs, AreTheOnesPromised) {
  EXPECT_EQ(shipped(),
            (std::vector<std::string>{"edge_cases", "h200-accuracy", "h200-attention", "kv-cache",
                                      "llama3-8b-prefill", "qwen2-7b-k-bias", "real-activations",
                                      "smoke", "strong-keys", "trace-conversation"}));
}

TEST(ShippedConfigs, TraceIsTheFirst32Conversations) {
  const Suite suite = load_suite((kConfigs / "trace-conversation.json").string());
  const std::vector<int64_t>& lengths = suite.cases.at(0).batch.qo_len;
  ASSERT_EQ(lengths.size(), 32u);
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), 26594);
  EXPECT_NE(suite.cases.at(2).batch.qo_len, lengths);
}

// ---- the schema
// ------------------------------------------------------------------------------------

class Schema : public testing::Test {
 protected:
  const Json schema_ = parse_json_file((kConfigs / "schema/scenario.schema.json").string());

  const Json& definition(const std::string& name) const { return schema_.at("$defs").at(name); }
  const Json& follow(const Json& node) const {
    if (!node.contains("$ref")) return node;
    return definition(node["$ref"].get<std::string>().substr(std::string("#/$defs/").size()));
  }
  static std::set<std::string> keys_of(const Json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.at("properties").items()) keys.insert(key);
    return keys;
  }
  // The enum of a node, of what it refers to, or of one of its alternatives; null means "default".
  std::set<std::string> enum_of(const Json& node) const {
    std::set<std::string> names;
    const Json& target = follow(node);
    if (target.contains("enum")) {
      for (const Json& name : target["enum"])
        if (!name.is_null()) names.insert(name.get<std::string>());
    }
    for (const Json& other : target.value("anyOf", Json::array()))
      if (follow(other).contains("enum")) return enum_of(other);
    return names;
  }
  // The object among a node's alternatives.
  const Json& object_of(const Json& node) const {
    const Json& target = follow(node);
    if (target.contains("anyOf"))
      for (const Json& other : target["anyOf"])
        if (follow(other).contains("properties")) return follow(other);
    return target;
  }
  void expect_same(const std::vector<Field>& fields, const Json& object, const std::string& path,
                   std::set<std::string> more = {}) const {
    std::set<std::string> keys = std::move(more);
    for (const Field& field : fields) keys.insert(field.key);
    EXPECT_EQ(keys_of(object), keys) << path;
    EXPECT_EQ(object.value("additionalProperties", Json(true)), Json(false)) << path;
    for (const Field& field : fields) {
      const Json& node = object.at("properties").at(field.key);
      if (!field.allowed.empty()) {
        EXPECT_EQ(enum_of(node), std::set<std::string>(field.allowed.begin(), field.allowed.end()))
            << path << "/" << field.key;
      }
      if (!field.children.empty())
        expect_same(field.children, object_of(node), path + "/" + field.key);
    }
  }
};

TEST_F(Schema, HasTheReadersKeysAndChoices) {
  expect_same(scenario_fields(), definition("scenario"), "", {"sweep"});
  std::vector<Field> defaults = scenario_fields();
  std::erase_if(defaults, [](const Field& field) { return field.key == "name"; });
  expect_same(defaults, definition("defaults"), "defaults");
  EXPECT_EQ(keys_of(schema_),
            (std::set<std::string>{"$schema", "schema", "name", "defaults", "scenarios"}));
}

TEST_F(Schema, HasTheLengthsDistributionsAndJudgements) {
  const auto set_of = [](const std::vector<std::string>& names) {
    return std::set<std::string>(names.begin(), names.end());
  };
  EXPECT_EQ(keys_of(object_of(definition("lengths"))), set_of(length_keys()));
  std::set<std::string> names;
  for (const DistributionRow& row : distributions()) names.insert(row.name);
  EXPECT_EQ(enum_of(definition("distribution_name")), names);
  std::set<std::string> words;
  for (const auto& [word, value] : find_distribution("strong_key")->params.at(0).words)
    words.insert(word);
  EXPECT_EQ(enum_of(object_of(definition("distribution")).at("properties").at("at")), words);
  EXPECT_EQ(keys_of(definition("tolerance")), set_of(tolerance_keys()));
  std::set<std::string> range = set_of(range_metrics());
  range.insert({"status", "why"});
  EXPECT_EQ(keys_of(definition("expected_range")), range);
  std::set<std::string> statuses = set_of(canonical_names<ExpectKind>());
  statuses.erase("range");
  EXPECT_EQ(enum_of(definition("expectation_status")), statuses);
}

}  // namespace
}  // namespace sagebench
