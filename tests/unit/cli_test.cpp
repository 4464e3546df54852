// Command lines in, typed options or one-line errors out.
#include "cli.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/nearest.h"

namespace sagebench {
namespace {

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "sagebench");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

std::string error_of(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(CommandLine, EveryOptionArrives) {
  const Options o = parse({"--config",   "c.json",
                           "--only",     "a",
                           "--only",     "b@k",
                           "--filter",   "x.*",
                           "--kernel",   "k1,k2",
                           "--device",   "cuda:1",
                           "--out",      "d",
                           "--json",     "j",
                           "--csv",      "c",
                           "--md",       "m",
                           "--seed",     "18446744073709551615",
                           "--validate", "sampled",
                           "--resume"});
  EXPECT_EQ(o.command, Command::kRun);
  EXPECT_EQ(o.config, "c.json");
  EXPECT_EQ(o.only, (std::vector<std::string>{"a", "b@k"}));
  EXPECT_EQ(o.filter, "x.*");
  EXPECT_EQ(o.kernels, (std::vector<std::string>{"k1", "k2"}));
  EXPECT_EQ(o.device, "cuda:1");
  EXPECT_EQ(o.out, "d");
  EXPECT_EQ(o.files,
            (std::map<std::string, std::string>{{"json", "j"}, {"csv", "c"}, {"markdown", "m"}}));
  EXPECT_EQ(o.seed, UINT64_MAX);
  EXPECT_EQ(o.rows, Rows::kSampled);
  EXPECT_TRUE(o.resume);
  EXPECT_FALSE(o.profile);
  EXPECT_EQ(o.argv.size(), 26u);
}

TEST(CommandLine, Commands) {
  EXPECT_EQ(parse({"--config", "c", "--list"}).command, Command::kList);
  EXPECT_EQ(parse({"--config", "c", "--dry-run"}).command, Command::kDryRun);
  EXPECT_EQ(parse({"doctor"}).command, Command::kDoctor);
  EXPECT_EQ(parse({"selftest"}).command, Command::kSelftest);
  EXPECT_EQ(parse({"--config", "c", "--inject", "f", "--device", "cpu"}).inject, "f");
  for (const char* flag : {"--help", "-h", "--version"}) {
    EXPECT_EQ(parse({flag}).command, Command::kPrint) << flag;
    EXPECT_FALSE(parse({flag}).text.empty()) << flag;
  }
  EXPECT_EQ(parse({"--help"}).text.find("--inject"), std::string::npos);
}

TEST(CommandLine, BadUsageIsOneLineWithAHint) {
  struct Row {
    std::vector<const char*> arguments;
    const char* says;
  };
  const Row rows[] = {
      {{}, "nothing to do"},
      {{"--confg", "c"}, "did you mean '--config'?"},
      {{"--zz"}, "unknown argument '--zz'; see sagebench --help"},
      {{"---"}, "unknown argument '---'; see sagebench --help"},
      {{"--config", "c", "doctr"}, "did you mean 'doctor'?"},
      {{"--config"}, "--config"},
      {{"--config", ""}, "empty"},
      {{"--config", "c", "stray"}, "unknown argument 'stray'"},
      {{"--config", "c", "--seed", "-1"}, "--seed: '-1'"},
      {{"--config", "c", "--seed", "18446744073709551616"}, "--seed"},
      {{"--config", "c", "--seed", "7x"}, "--seed: '7x'"},
      {{"--config", "c", "--validate", "some"}, "auto, full, sampled, off"},
      {{"--config", "c", "--device", "gpu"}, "auto, cpu, cuda, cuda:N"},
      {{"--config", "c", "--device", "cuda:"}, "--device: 'cuda:'"},
      {{"--config", "c", "--list", "--dry-run"}, "one of them"},
      {{"--config", "c", "--resume"}, "--out DIR or --json FILE"},
      {{"--config", "c", "--resume", "--out", "d", "--profile"}, "--resume"},
      {{"--config", "c", "--inject", "f", "--device", "cuda"}, "--device cpu"},
      {{"--config", "c", "doctor"}, "--config"},
      {{"doctor", "selftest"}, "selftest"},
      {{"--list"}, "--config FILE"},
      {{"--config", "a", "--config", "b"}, "--config"},
  };
  for (const Row& row : rows) {
    const std::string error = error_of(row.arguments);
    EXPECT_NE(error.find(row.says), std::string::npos) << error << " should say " << row.says;
    EXPECT_NE(error.find("sagebench --help"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(CommandLine, RerunCarriesWhatChangesTheResult) {
  EXPECT_EQ(rerun_command(parse({"--config", "c.json"}), "a/x=1@k"),
            "sagebench --config c.json --only a/x=1@k");
  EXPECT_EQ(rerun_command(parse({"--config", "my configs/c.json", "--device", "cpu", "--seed", "3",
                                 "--validate", "full", "--inject", "f"}),
                          "it's@k"),
            "sagebench --config 'my configs/c.json' --only 'it'\\''s@k' --device cpu --seed 3 "
            "--validate full --inject f");
}

TEST(Nearest, FewestEditsThenContains) {
  const std::vector<std::string> names = {"head_dim", "num_kv_heads", "page_size", "kv_layout"};
  EXPECT_EQ(nearest("head_dmi", names, 1).at(0), "head_dim");
  EXPECT_EQ(nearest("pagesize", names, 2).at(0), "page_size");
  EXPECT_EQ(nearest("layout", names, 1).at(0), "kv_layout");
  EXPECT_EQ(nearest("page_sizes", names, 9), std::vector<std::string>{"page_size"});
  for (const char* unlike : {"x", "", "d", "zz", "rope"})
    EXPECT_TRUE(nearest(unlike, names, 9).empty()) << unlike;
  EXPECT_EQ(did_you_mean("zz", names), "");
  EXPECT_EQ(did_you_mean("kv", names), "; did you mean 'num_kv_heads'?");
  EXPECT_TRUE(nearest("x", {}, 3).empty());
}

}  // namespace
}  // namespace sagebench
