#include "scenario/scenario.h"

#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/hash.h"
#include "scenario/checks.h"
#include "scenario/fields.h"
#include "scenario/input_fields.h"
#include "scenario/sweep.h"

namespace sagebench {
namespace {

constexpr const char* kSchema = "sagebench.scenario/1";

Case make_case(const SweepCase& sweep, const std::string& config_path, const std::string& pointer,
               const std::string& fallback_name) {
  const Value scenario(sweep.document.json, sweep.document.source);
  Case c;
  c.config_path = config_path;
  c.pointer = pointer;
  if (!scenario.find("op"))
    scenario.fail("missing key 'op'; allowed: " + joined(canonical_names<OpKind>()));
  read_fields(scenario, scenario_fields(), c);
  if (!scenario.find("batch") && c.input.file.empty())
    scenario.fail("missing key 'batch': lengths, or input.file to take them from");
  adopt_file(scenario, c);
  resolve_defaults(scenario, c);
  check_case(scenario, c);
  if (c.scenario.empty()) c.scenario = fallback_name;
  c.id = c.scenario + (sweep.suffix.empty() ? "" : "/" + sweep.suffix);
  c.canonical_json = write_fields(scenario_fields(), c).dump();
  return c;
}

void apply(const ScenarioOverrides& overrides, Document& d) {
  if (overrides.seed) set_field(d, "seed", *overrides.seed, "--seed");
  if (overrides.rows) set_field(d, "validate.rows", name_of(*overrides.rows), "--validate");
}

void add_scenario(const Value& scenario, const Document& defaults,
                  const ScenarioOverrides& overrides, Suite& suite) {
  Json own = scenario.json();
  if (!own.is_object()) scenario.refuse("an object");
  Json sweep;
  if (const auto it = own.find("sweep"); it != own.end()) {
    sweep = *it;
    if (!sweep.is_object()) scenario.find("sweep")->refuse("an object");
    own.erase("sweep");
  }
  const std::string pointer = scenario.pointer();
  const Document base = merged(defaults, canonical_document(own, suite.path, pointer));
  const std::string fallback_name = "scenario" + pointer.substr(pointer.rfind('/') + 1);
  for (SweepCase& one : expand_sweep(base, sweep, suite.path, pointer + "/sweep")) {
    apply(overrides, one.document);
    suite.cases.push_back(make_case(one, suite.path, pointer, fallback_name));
  }
}

void check_unique(const Suite& suite) {
  std::map<std::string, const Case*> seen;
  for (const Case& c : suite.cases)
    if (const auto [it, fresh] = seen.emplace(c.id, &c); !fresh)
      throw UsageError(suite.path + ": " + c.pointer + ": the case id '" + c.id +
                       "' occurs twice, first at " + it->second->pointer +
                       "; scenarios need different names, sweeps different values");
}

}  // namespace

Suite load_suite(const std::string& path, const ScenarioOverrides& overrides) {
  std::string text;
  const Json json = parse_json_file(path, &text);
  const Source source{path, {}};
  const Value root(json, source);
  root.allow_only({"$schema", "schema", "name", "defaults", "scenarios"});
  const auto schema = root.find("schema");
  if (!schema) root.fail(std::string("missing key 'schema'; expected \"") + kSchema + "\"");
  schema->one_of({kSchema});

  Suite suite;
  suite.path = path;
  suite.hash = hash_hex(text);
  suite.name = std::filesystem::path(path).stem().string();
  if (const auto name = root.find("name")) suite.name = name->text();
  Document defaults = canonical_document(Json::object(), path, "");
  if (const auto given = root.find("defaults")) {
    defaults = canonical_document(given->json(), path, "/defaults");
    for (const char* key : {"name", "sweep"})
      if (const auto stray = given->find(key))
        stray->fail(std::string("'") + key + "' belongs to a scenario, not to the defaults");
  }
  const auto scenarios = root.find("scenarios");
  if (!scenarios) root.fail("missing key 'scenarios'");
  const std::vector<Value> list = scenarios->elements();
  if (list.empty()) scenarios->refuse("at least one scenario");
  for (const Value& scenario : list) add_scenario(scenario, defaults, overrides, suite);
  check_unique(suite);
  return suite;
}

}  // namespace sagebench
