#include "scenario/scenario.h"

#include <algorithm>
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

// The command line's word over the file's. A field that is swept has its values in the ids, which
// would then tell what did not run.
void apply(const ScenarioOverrides& overrides, const Json& sweep, const Value& scenario,
           Document& d) {
  const auto set = [&](const char* field, const Json& value, const char* option) {
    for (const char* kind : {"zip", "cartesian"})
      if (const auto block = sweep.find(kind); block != sweep.end() && block->is_object())
        for (const auto& [swept, values] : block->items())
          if ((std::string(field) + ".").starts_with(swept + "."))
            scenario.fail_at("/sweep/" + std::string(kind) + "/" + escape_pointer(swept),
                             std::string("sweeps what ") + option + " sets; leave one of them out");
    set_field(d, field, value, option);
  };
  if (overrides.seed) set("seed", *overrides.seed, "--seed");
  if (overrides.rows) set("validate.rows", name_of(*overrides.rows), "--validate");
}

// Cases of one sweep must differ in more than their names: values are compared as they are
// understood, so that "bf16" and "bfloat16" are one.
class Repeats {
 public:
  void check(const SweepCase& one, const Case& c) {
    Json content = Json::parse(c.canonical_json);
    content.erase("name");
    content["batch"].erase("source");
    const auto [earlier, fresh] = seen_.emplace(content.dump(), one.pointers);
    if (fresh) return;
    const auto [now, before] =
        std::mismatch(one.pointers.begin(), one.pointers.end(), earlier->second.begin());
    throw UsageError(one.document.source.file + ": " + *now + ": makes the same case as " +
                     *before + "; sweeps need different values");
  }

 private:
  std::map<std::string, std::vector<std::string>> seen_;  // pointers of the values, by content
};

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
  Repeats repeats;
  for (SweepCase& one : expand_sweep(base, sweep, suite.path, pointer + "/sweep")) {
    apply(overrides, sweep, scenario, one.document);
    suite.cases.push_back(make_case(one, suite.path, pointer, fallback_name));
    repeats.check(one, suite.cases.back());
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
  if (const auto name = root.find("name")) {
    suite.name = name->text();
    if (printable(suite.name) != suite.name) name->refuse("a name without control characters");
  }
  Document defaults = canonical_document(Json::object(), path, "");
  if (const auto given = root.find("defaults")) {
    defaults = canonical_document(given->json(), path, "/defaults");
    for (const char* key : {"name", "sweep"})
      if (const auto stray = given->find(key))
        stray->fail(std::string("'") + key + "' belongs to a scenario, not to the defaults");
  }
  const auto scenarios = root.find("scenarios");
  if (!scenarios) root.fail("missing key 'scenarios'; expected a list of at least one");
  const std::vector<Value> list = scenarios->elements();
  if (list.empty()) scenarios->refuse("at least one scenario");
  for (const Value& scenario : list) add_scenario(scenario, defaults, overrides, suite);
  check_unique(suite);
  return suite;
}

std::string scenario_hash(const Case& c) {
  return hash_hex(c.canonical_json + (c.input.file.empty() ? "" : hash_of_file(c.input.file)));
}

}  // namespace sagebench
