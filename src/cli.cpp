#include "cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <regex>

#include "commit.h"  // made by the build
#include "core/error.h"
#include "core/nearest.h"
#include "report/report.h"
#include "scenario/names.h"

namespace sagebench {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 all measured and right, 1 regression, 2 usage or config, 3 wrong result,\n"
    "4 no verdict, 5 no usable GPU, 6 CUDA or internal error.";

[[noreturn]] void fail(const std::string& message) {
  throw UsageError(message + "; see sagebench --help");
}

uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    fail("--seed: '" + text + "' is not a whole number from 0 to 2^64 - 1");
  return seed;
}

Rows parse_rows(const std::string& text) {
  std::string allowed;
  for (const EnumName<Rows>& row : enum_names(Rows{})) {
    if (text == row.name) return row.value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(row.name);
  }
  fail("--validate: '" + text + "' is none of " + allowed);
}

void check_device(const std::string& device) {
  static const std::regex allowed("auto|cpu|cuda(:[0-9]{1,4})?");
  if (!std::regex_match(device, allowed))
    fail("--device: '" + device + "' is none of auto, cpu, cuda, cuda:N");
}

// What CLI11 found too much: an unknown option or a stray word, with what resembles it. The dashes
// are no part of the likeness.
[[noreturn]] void fail_on_extras(const CLI::App& app) {
  const auto bare = [](const std::string& name) {
    return name.substr(std::min(name.find_first_not_of('-'), name.size()));
  };
  const std::string typed = app.remaining(true).at(0);
  std::map<std::string, std::string> known;  // without dashes -> as it is typed
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) known[bare(option->get_name())] = option->get_name();
  for (const CLI::App* command : app.get_subcommands({}))
    known[command->get_name()] = command->get_name();
  std::vector<std::string> names;
  for (const auto& [name, full] : known) names.push_back(name);
  const auto best = nearest(bare(typed.substr(0, typed.find('='))), names, 1);
  fail("unknown argument '" + typed + "'" +
       (best.empty() ? "" : "; did you mean '" + known[best[0]] + "'?"));
}

std::string quoted(const std::string& word) {
  static const std::regex plain("[A-Za-z0-9_./:@=+,-]+");
  if (std::regex_match(word, plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void check_no_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) fail(option->get_name() + ": the value is empty");
}

void check_combinations(const Options& o) {
  if (o.config.empty()) fail("nothing to do: give --config FILE, doctor or selftest");
  if (o.resume && o.out.empty() && !o.files.contains("json"))
    fail("--resume: needs --out DIR or --json FILE to resume from");
  if (o.resume && o.profile) fail("--resume: a profiled run has no results to resume");
  if (o.resume && !o.inject.empty()) fail("--resume: a run with a planted fault is not resumed");
  if (!o.inject.empty() && o.device.rfind("cuda", 0) == 0)
    fail("--inject: faults are planted in the CPU subject; use --device cpu");
}

}  // namespace

const char* tool_version() {
  return SAGEBENCH_VERSION;
}
const char* tool_commit() {
  return SAGEBENCH_COMMIT;
}

Options parse_command_line(int argc, const char* const* argv) {
  Options o;
  o.argv.assign(argv, argv + argc);
  std::string seed, rows;
  bool list = false, dry_run = false, version = false;

  CLI::App app("Validates and times variable-length SageAttention and paged KV-cache writes.",
               "sagebench");
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "Print this and exit");
  app.add_flag("--version", version, "Print the version and exit");
  app.add_option("--config", o.config, "Scenario file to run")->type_name("FILE");
  app.add_flag("--list", list, "Print the ids of the selected cases and exit");
  app.add_flag("--dry-run", dry_run,
               "Print the selected cases with FLOPs, bytes, memory and reference cost, and exit");
  app.add_option("--only", o.only, "Run one case, or one case@kernel; may be repeated")
      ->type_name("ID")
      ->expected(1)
      ->take_all();
  app.add_option("--filter", o.filter, "Run what this regular expression finds in case@kernel")
      ->type_name("REGEX");
  app.add_option("--kernel", o.kernels, "Run these kernels only")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->expected(1)
      ->take_all();
  app.add_option("--device", o.device, "auto, cpu, cuda or cuda:N (default auto)")
      ->type_name("NAME");
  app.add_option("--out", o.out, "Write every report format into this directory")->type_name("DIR");
  for (const Format& format : formats())
    app.add_option(format.flag, o.files[format.name], "Write " + std::string(format.name) + " here")
        ->type_name("FILE");
  app.add_option("--seed", seed, "Seed of the inputs, over the config's")->type_name("N");
  app.add_option("--validate", rows, "Rows to validate: auto, full, sampled or off")
      ->type_name("ROWS");
  app.add_flag("--resume", o.resume, "Keep the results already in the results file");
  app.add_flag("--no-timing", o.no_timing,
               "Check only: every stage and property, no timed launches");
  app.add_flag("--profile", o.profile,
               "Launch each case a few times for a profiler; compares nothing");
  app.add_option("--inject", o.inject, "Plant a fault of selftest in the CPU subject")->group("");
  CLI::App* doctor = app.add_subcommand("doctor", "Say what this machine has and what is missing");
  CLI::App* selftest =
      app.add_subcommand("selftest", "Plant known faults and check that each is caught");
  app.require_subcommand(0, 1);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    o.command = Command::kPrint;
    o.text = app.help();
    return o;
  } catch (const CLI::ExtrasError&) {
    fail_on_extras(app);
  } catch (const CLI::ParseError& e) {
    fail(e.what());
  }

  if (version) {
    o.command = Command::kPrint;
    o.text = std::string("sagebench ") + tool_version();
    if (*tool_commit()) o.text += std::string(" ") + tool_commit();
    o.text += "\n";
    return o;
  }
  check_no_empty_values(app);
  std::erase_if(o.files, [](const auto& file) { return file.second.empty(); });
  if (doctor->parsed() || selftest->parsed()) {
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0)
        fail(option->get_name() + ": does not go with doctor or selftest, which take no options");
    o.command = doctor->parsed() ? Command::kDoctor : Command::kSelftest;
    return o;
  }
  if (list && dry_run) fail("--list, --dry-run: give one of them");
  o.command = list ? Command::kList : dry_run ? Command::kDryRun : Command::kRun;
  check_device(o.device);
  if (!seed.empty()) o.seed = parse_seed(seed);
  if (!rows.empty()) o.rows = parse_rows(rows);
  check_combinations(o);
  return o;
}

std::string rerun_command(const Options& o, const std::string& id) {
  std::string command =
      quoted(o.argv.at(0)) + " --config " + quoted(o.config) + " --only " + quoted(id);
  if (o.device != "auto") command += " --device " + o.device;
  if (o.seed) command += " --seed " + std::to_string(*o.seed);
  if (o.rows) command += " --validate " + std::string(name_of(*o.rows));
  if (o.no_timing) command += " --no-timing";
  if (o.profile) command += " --profile";
  if (!o.inject.empty()) command += " --inject " + quoted(o.inject);
  return command;
}

}  // namespace sagebench
