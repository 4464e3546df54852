// Every kind of bad input: one line that names place and remedy, the right exit code, and a good
// results file left as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <regex>

#include "support/process.h"

namespace sagebench {
namespace {

// One scenario with these fields, after "name".
std::string config_of(const std::string& fields) {
  return R"({"schema": "sagebench.scenario/1", "name": "bad", "scenarios": [{"name": "s", )" +
         fields + "}]}";
}

// One cache write of 5 tokens.
std::string cache_config(const std::string& fields) {
  return config_of(R"("op": "kv_cache_write", "batch": {"qo_len": [2, 3]}, )" + fields);
}

struct BadInput {
  const char* name;
  std::string config;
  std::vector<const char*> says;  // besides the file's name
};

const BadInput kBadInputs[] = {
    {"truncated", R"({"schema": "sagebench.scenario/1", "scenarios": [)", {"line 1", "JSON"}},
    {"not_json", "hello", {"line 1", "JSON"}},
    {"empty_file", "", {"JSON"}},
    {"unknown_op",
     config_of(R"("op": "attentoin", "batch": {"qo_len": [4]})"),
     {"/scenarios/0/op", "attentoin", "attention"}},
    {"unknown_key",
     config_of(R"("op": "attention", "batch": {"qo_len": [4]}, "modle": {})"),
     {"/scenarios/0", "modle", "model"}},
    {"heads_do_not_divide",
     config_of(R"("op": "attention", "batch": {"qo_len": [4]},
                  "model": {"num_qo_heads": 3, "num_kv_heads": 2})"),
     {"/scenarios/0/model/num_kv_heads", "2", "3"}},
    {"negative_length",
     config_of(R"("op": "attention", "batch": {"qo_len": [4, -1]})"),
     {"/scenarios/0/batch/qo_len/1", "-1"}},
    {"length_of_2_to_the_40",
     config_of(R"("op": "attention", "batch": {"qo_len": [1099511627776]})"),
     {"/scenarios/0/batch/qo_len/0", "1099511627776"}},
    {"too_few_pages",
     cache_config(R"("cache": {"page_size": 2, "num_pages": 2})"),
     {"/scenarios/0/cache/num_pages", "2", "3"}},
    {"duplicate_slots",
     cache_config(R"("cache": {"index": "slot_mapping", "slots": [0, 1, 2, 1, 4]})"),
     {"/scenarios/0/cache/slots", "1"}},
    {"page_out_of_range",
     cache_config(R"("cache": {"page_size": 4, "num_pages": 4, "page_ids": [0, 99]})"),
     {"/scenarios/0/cache/page_ids", "99", "3"}},
    {"rotary_dim_over_head_dim",
     cache_config(R"("model": {"head_dim": 64}, "rope": {"rotary_dim": 96})"),
     {"/scenarios/0/rope/rotary_dim", "96", "64"}},
    {"rotary_dim_odd",
     cache_config(R"("model": {"head_dim": 64}, "rope": {"rotary_dim": 33})"),
     {"/scenarios/0/rope/rotary_dim", "33", "even"}},
    {"trace_without_the_column",
     config_of(R"("op": "attention",
                  "batch": {"trace": "trace.csv", "column": "Tokens", "requests": 2})"),
     {"/scenarios/0/batch", "trace.csv", "Tokens", "ContextTokens"}},
    {"trace_is_a_directory",
     config_of(R"("op": "attention",
                  "batch": {"trace": "folder", "column": "ContextTokens", "requests": 2})"),
     {"/scenarios/0/batch/trace", "folder' is a directory"}},
    {"safetensors_is_a_directory",
     config_of(R"("op": "attention", "input": {"file": "folder"})"),
     {"/scenarios/0/input/file", "folder' is a directory"}},
    {"safetensors_header_of_other_json",
     config_of(R"("op": "attention", "input": {"file": "five.safetensors"})"),
     {"/scenarios/0/input/file", "five.safetensors", "tensor 'q': is not an object"}},
    {"safetensors_with_an_infinity",
     config_of(R"("op": "attention", "input": {"file": "infinite.safetensors"})"),
     {"/scenarios/0/input/file", "infinite.safetensors: tensor 'q', element 0: not a finite bf16"}},
    {"safetensors_over_the_range_of_fp16",
     config_of(R"("op": "attention", "dtype": "fp16", "input": {"file": "large.safetensors"})"),
     {"/scenarios/0/input/file", "large.safetensors: tensor 'q', element 0: not a finite fp16"}},
    {"a_key_with_a_line_break",
     config_of(R"("op": "attention", "batch": {"qo_len": [4]}, "mo\ndel": {})"),
     {"/scenarios/0/mo\\x0adel"}},
    {"a_key_with_a_zero_byte",
     config_of(R"("op": "attention", "batch": {"qo_len": [4]}, "mo\u0000del": {})"),
     {"/scenarios/0/mo\\x00del: unknown key 'mo\\x00del'", "allowed: name, op"}},
    {"a_file_name_with_a_zero_byte_and_an_escape",
     config_of(R"("op": "attention", "input": {"file": "a\u0000b\u001b\u007f"})"),
     {"/scenarios/0/input/file", "a\\x00b\\x1b\\x7f", "beside the config"}},
    {"a_file_name_that_a_zero_byte_cuts_short",
     config_of(R"("op": "attention", "input": {"file": "infinite.safetensors\u0000x"})"),
     {"/scenarios/0/input/file: no file 'infinite.safetensors\\x00x'"}},
    {"a_suite_name_with_a_line_break",
     R"({"schema": "sagebench.scenario/1", "name": "a\nb", "scenarios": []})",
     {"/name", "a\\nb", "control characters"}},
    {"swept_twice",
     config_of(R"("op": "attention", "batch": {"qo_len": [4]},
                  "sweep": {"cartesian": {"mask": [{"causal": true}], "mask.causal": [false]}})"),
     {"/scenarios/0/sweep/cartesian/mask.causal", "/scenarios/0/sweep/cartesian/mask,"}},
    {"no_lengths",
     config_of(R"("op": "attention", "batch": {"qo_len": []})"),
     {"/scenarios/0/batch/qo_len", "at least one"}},
    {"tolerance_without_metric",
     cache_config(R"("validate": {"tolerance": {"rel_l1": 0.1, "why": "w"}})"),
     {"/scenarios/0/validate/tolerance/rel_l1", "allowed metrics"}},
    {"safetensors_of_the_wrong_size",
     config_of(R"("op": "attention", "batch": {"qo_len": [1]},
                  "model": {"num_qo_heads": 1, "num_kv_heads": 1, "head_dim": 64},
                  "input": {"file": "short.safetensors"})"),
     {"short.safetensors"}},
};

class BadInputs : public testing::TestWithParam<BadInput> {};

// A header of less than 128 bytes, and 4 bytes behind it.
std::string safetensors(const std::string& header) {
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  return length + header + "1234";
}

TEST_P(BadInputs, OneLineExitTwoAndTheGoodFileStays) {
  const ScratchFolder folder;
  write_file(folder / "bad.json", GetParam().config);
  write_file(folder / "trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,12,3\n");
  write_file(folder / "short.safetensors",
             safetensors(R"({"q":{"dtype":"BF16","shape":[1,1,64],"data_offsets":[0,128]}})"));
  write_file(folder / "five.safetensors", safetensors(R"({"q": 5})"));
  write_file(folder / "infinite.safetensors", token_file(0x7f80));
  write_file(folder / "large.safetensors", token_file(0x7f00));
  std::filesystem::create_directory(folder / "folder");
  write_file(folder / "good.json", "good");
  const ProcessResult run = run_tool(
      {"--config", folder / "bad.json", "--device", "cpu", "--json", folder / "good.json"});
  EXPECT_EQ(run.code, 2) << run.out << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_NE(run.err.find("bad.json"), std::string::npos) << run.err;
  for (const char* part : GetParam().says)
    EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in: " << run.err;
  EXPECT_EQ(read_file(folder / "good.json"), "good");
  EXPECT_EQ(folder.names().size(), 8u);
  EXPECT_EQ(run.out, "") << "work was done before the check";
}

INSTANTIATE_TEST_SUITE_P(All, BadInputs, testing::ValuesIn(kBadInputs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadPlaces, AMissingConfigIsNamed) {
  const ProcessResult run = run_tool({"--config", "configs/none.json", "--list"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("configs/none.json"), std::string::npos) << run.err;
}

TEST(BadPlaces, OutputsAreCheckedBeforeAnyWork) {
  const ScratchFolder folder;
  write_file(folder / "file", "good");
  const std::vector<std::string> bad[] = {{"--json", folder / "missing/r.json"},
                                          {"--csv", folder / "file/r.csv"},
                                          {"--md", folder / ""},
                                          {"--out", folder / "missing/out"},
                                          {"--out", folder / "file"},
                                          {"--json", "/dev/null"},
                                          {"--json", folder / "r", "--csv", folder / "r"}};
  for (const auto& output : bad) {
    std::vector<std::string> arguments = {"--config", "configs/smoke.json", "--device", "cpu"};
    arguments.insert(arguments.end(), output.begin(), output.end());
    const ProcessResult run = run_tool(arguments);
    EXPECT_EQ(run.code, 2) << output[0] << " " << output[1] << ": " << run.err;
    EXPECT_EQ(run.out, "") << "work was done before the check";
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
  }
  EXPECT_EQ(read_file(folder / "file"), "good");
}

TEST(BadPlaces, AReportNeverReplacesItsConfig) {
  const ScratchFolder folder;
  const std::string config = read_file(std::string(SAGEBENCH_SOURCE_DIR) + "/configs/smoke.json");
  for (const char* flag : {"--json", "--csv", "--md"}) {
    write_file(folder / "mine.json", config);
    const ProcessResult run =
        run_tool({"--config", folder / "mine.json", "--device", "cpu", flag, folder / "mine.json"});
    EXPECT_EQ(run.code, 2) << flag;
    EXPECT_NE(run.err.find("is the config itself"), std::string::npos) << run.err;
    EXPECT_EQ(read_file(folder / "mine.json"), config) << flag;
  }
}

TEST(BadPlaces, AReportNeverReplacesWhatTheConfigReads) {
  const ScratchFolder folder;
  const std::string trace = "tokens\n3\n5\n";
  write_file(folder / "t.csv", trace);
  write_file(folder / "c.json",
             R"({"schema": "sagebench.scenario/1", "scenarios": [{"name": "a", "op": "attention",
                 "batch": {"trace": "t.csv", "column": "tokens", "requests": 2}}]})");
  ProcessResult run =
      run_tool({"--config", folder / "c.json", "--device", "cpu", "--csv", folder / "t.csv"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("a file that it reads"), std::string::npos) << run.err;
  EXPECT_EQ(read_file(folder / "t.csv"), trace);
  run = run_tool({"--config", folder / "c.json", "--device", "cpu", "--json", folder / "loop"});
  EXPECT_EQ(run.code, 0) << run.err;
  std::filesystem::remove(folder / "loop");
  std::filesystem::create_symlink("loop", folder / "loop");
  for (const auto& [flag, place] : {std::pair("--json", "loop"), std::pair("--json", "loop/r.json"),
                                    std::pair("--out", "loop"), std::pair("--out", "loop/out")}) {
    run = run_tool({"--config", folder / "c.json", "--device", "cpu", flag, folder / place});
    EXPECT_EQ(run.code, 2) << flag << " " << place << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_NE(run.err.find(folder / place), std::string::npos) << run.err;
  }
}

TEST(BadPlaces, AReportNeverReplacesTheActivations) {
  const ScratchFolder folder;
  const std::string file = token_file(0x3f80);
  write_file(folder / "a.safetensors", file);
  std::filesystem::create_symlink("a.safetensors", folder / "link");
  write_file(folder / "c.json",
             config_of(R"("op": "attention", "input": {"file": "a.safetensors"})"));
  for (const char* place : {"a.safetensors", "link"}) {
    const ProcessResult run =
        run_tool({"--config", folder / "c.json", "--device", "cpu", "--json", folder / place});
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find("a file that it reads"), std::string::npos) << run.err;
    EXPECT_EQ(read_file(folder / "a.safetensors"), file);
  }
}

TEST(BadPlaces, AGpuThatIsNotThereIsExitFive) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const ScratchFolder folder;
  write_file(folder / "good.json", "good");
  const ProcessResult run = run_tool(
      {"--config", "configs/smoke.json", "--device", "cuda", "--json", folder / "good.json"});
  EXPECT_EQ(run.code, 5) << run.err;
  EXPECT_NE(run.err.find("--device cuda"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("--device cpu"), std::string::npos) << run.err;
  EXPECT_EQ(read_file(folder / "good.json"), "good");
}

// 64 sequences of a million tokens: 2 TB and more, on whatever device.
TEST(BadPlaces, TooLittleMemoryIsExitFourWithTheNumbers) {
  const ScratchFolder folder;
  write_file(folder / "big.json",
             config_of(R"("op": "attention", "batch": {"constant": 1048576, "requests": 64},
                          "model": {"num_qo_heads": 64, "num_kv_heads": 64})"));
  const ProcessResult run = run_tool({"--config", folder / "big.json"});
  EXPECT_EQ(run.code, 4) << run.out << run.err;
  EXPECT_NE(run.out.find("memory"), std::string::npos) << run.out;
  EXPECT_TRUE(!has_gpu() || run.out.find("GiB") != std::string::npos) << run.out;
}

// 2 GiB of q, and half of it of address space: said with both numbers, nothing allocated.
TEST(BadPlaces, TooLittleHostMemoryIsExitFourWithBothNumbers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer itself needs more than the limit set here";
#endif
  const ScratchFolder folder;
  write_file(folder / "big.json",
             config_of(R"("op": "attention", "batch": {"constant": 65536, "requests": 2},
                          "model": {"num_qo_heads": 64, "num_kv_heads": 1},
                          "validate": {"rows": "sampled"})"));
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult run =
      run_process({"sh", "-c",
                   "ulimit -v 1048576; exec " SAGEBENCH_EXECUTABLE " --device cpu --config " +
                       shell_quoted(folder / "big.json")});
  EXPECT_EQ(run.code, 4) << run.out << run.err;
  const std::regex said("needs about [0-9.]+ GiB of host memory .*, [0-9.]+ MiB are available");
  EXPECT_TRUE(std::regex_search(run.out, said)) << run.out;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace sagebench
