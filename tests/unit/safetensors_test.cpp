#include "inputs/safetensors.h"

#include <gtest/gtest.h>

#include "inputs/inputs.h"
#include "support/scratch_config.h"

namespace sagebench {
namespace {

std::string with_header(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return file + header + std::string(data_bytes, '\1');
}

std::string error_of(const std::string& content) {
  const ScratchFolder folder;
  write_file(folder / "t.safetensors", content);
  try {
    const SafetensorsFile file(folder / "t.safetensors");
  } catch (const UsageError& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("t.safetensors: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "";
}

TEST(Safetensors, ReadsNamedTensors) {
  const ScratchFolder folder;
  write_file(folder / "t.safetensors", with_header(R"({"__metadata__": {"a": "b"},
                "x": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
                "y": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]},
                "z": {"dtype": "BF16", "shape": [0, 5], "data_offsets": [16, 16]}})",
                                                   16));
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.read("x").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(file.read("x").as<uint32_t>()[1], 0x01010101u);
  EXPECT_EQ(file.entry("y").dtype, DType::kInt64);
  EXPECT_EQ(file.read("z").size(), 0);
  EXPECT_THROW(file.read("w"), UsageError);
}

TEST(Safetensors, MalformedFilesAreNamedErrors) {
  const auto tensor = [](const std::string& fields) { return "{\"x\": {" + fields + "}}"; };
  const std::string good = R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8])";
  EXPECT_EQ(error_of(with_header(tensor(good), 8)), "");
  const struct {
    std::string file;
    const char* says;
  } bad[] = {
      {"", "shorter than the 8 bytes"},
      {"1234567", "shorter than the 8 bytes"},
      {std::string(8, '\xff'), "header length 18446744073709551615 does not fit"},
      {with_header(tensor(good), 8).substr(0, 20), "does not fit a file of 20 bytes"},
      {with_header("nonsense", 8), "header is not JSON, as of its byte 2"},
      {with_header("[1]", 8), "not a JSON object"},
      {with_header("5", 8), "not a JSON object"},
      {with_header("{\"x\": 3}", 8), "tensor 'x': is not an object"},
      {with_header("{\"x\": []}", 8), "tensor 'x': is not an object"},
      {with_header("{\"x\": null}", 8), "tensor 'x': is not an object"},
      {with_header("{\"__metadata__\": 5}", 0), "__metadata__ is not an object"},
      {with_header("{\"x\": 1e999}", 8), "number in the header is out of range"},
      {with_header("{\"x\": {}", 8), "header is not JSON"},
      {with_header(tensor(R"("shape": [2], "data_offsets": [0, 8])"), 8), "has no dtype"},
      {with_header(tensor(R"("dtype": 3, "shape": [2], "data_offsets": [0, 8])"), 8),
       "dtype is not a name"},
      {with_header(tensor(R"("dtype": "F32", "shape": {}, "data_offsets": [0, 8])"), 8),
       "shape is not a list"},
      {with_header(tensor(R"("dtype": "F32", "shape": ["2"], "data_offsets": [0, 8])"), 8),
       "shape entry \"2\" is not a size"},
      {with_header(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": 8)"), 8),
       "data_offsets is not a pair"},
      {with_header(tensor(R"("shape": )" + std::string(100000, '[')), 8), "deeper than 8 levels"},
      {with_header(tensor(R"("dtype": "F8", "shape": [2], "data_offsets": [0, 8])"), 8),
       "dtype F8"},
      {with_header(tensor(R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])"), 8),
       "shape entry -2"},
      {with_header(tensor(R"("dtype": "F32", "shape": [3], "data_offsets": [0, 8])"), 8),
       "need 12 bytes, data_offsets span 8"},
      {with_header(
           tensor(R"("dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8])"),
           8),
       "shape is too large"},
      {with_header(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])"), 8),
       "run backwards"},
      {with_header(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0])"), 8), "pair"},
      {with_header(tensor(good), 4), "ends at byte 8 of the data, the file holds 4"},
      {with_header(tensor(good), 9), "1 trailing bytes"},
      {with_header(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [4, 12])"), 12),
       "4 unused bytes before tensor 'x'"},
      {with_header(R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                       "y": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
                   12),
       "overlaps"},
      {with_header(R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                       "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
                   8),
       "twice"},
  };
  for (const auto& one : bad) {
    const std::string message = error_of(one.file);
    EXPECT_NE(message.find(one.says), std::string::npos)
        << "no '" << one.says << "' in: " << message;
  }
  EXPECT_THROW(SafetensorsFile("no/such/file"), UsageError);
  try {
    const SafetensorsFile folder("/");
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("is a directory"), std::string::npos) << e.what();
  }
}

// q, k [3, 2 | 1, 4], v [3, 1, 2] in fp32, and lengths 1, 0, 2.
class FileInputs : public testing::Test {
 protected:
  FileInputs() {
    std::vector<float> values;
    for (int i = 0; i < 24 + 12 + 6; ++i) values.push_back(1.0f + static_cast<float>(i) * 0x1p-9f);
    const int32_t cu[] = {0, 1, 1, 3};
    data_.assign(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    data_.append(reinterpret_cast<const char*>(cu), sizeof(cu));
  }
  std::string header(const std::string& cu_name = "cu_seqlens", int kv_heads = 1) const {
    return R"({"q": {"dtype": "F32", "shape": [3, 2, 4], "data_offsets": [0, 96]},
               "k": {"dtype": "F32", "shape": [3, )" +
           std::to_string(kv_heads) + ", " + std::to_string(4 / kv_heads) +
           R"(], "data_offsets": [96, 144]},
               "v": {"dtype": "F32", "shape": [3, 1, 2], "data_offsets": [144, 168]}, ")" +
           cu_name + R"(": {"dtype": "I32", "shape": [4], "data_offsets": [168, 184]}})";
  }
  Suite load(const std::string& header, const std::string& more) {
    std::string file(8, '\0');
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
    write_file(folder_ / "f.safetensors", file + header + data_);
    write_file(
        folder_ / "c.json",
        test::suite_text(R"({"op": "prefill", "input": {"file": "f.safetensors"})" + more + "}"));
    return load_suite(folder_ / "c.json");
  }
  void expect_error(const std::string& header, const std::string& more,
                    std::vector<const char*> says) {
    try {
      load(header, more);
      ADD_FAILURE() << "no error for " << more;
    } catch (const UsageError& e) {
      for (const char* part : says)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
            << "no '" << part << "' in: " << e.what();
    }
  }
  ScratchFolder folder_;
  std::string data_;
};

TEST_F(FileInputs, GiveShapesLengthsAndValues) {
  const Case c = load(header(), "").cases.at(0);
  EXPECT_EQ(c.model.num_qo_heads, 2);
  EXPECT_EQ(c.model.num_kv_heads, 1);
  EXPECT_EQ(c.model.head_dim, 4);
  EXPECT_EQ(c.model.head_dim_v, 2);
  EXPECT_EQ(c.batch.qo_len, (std::vector<int64_t>{1, 0, 2}));
  const Inputs in = make_inputs(c);
  EXPECT_EQ(in.q.base, &in.packed);
  EXPECT_EQ(in.q.get(2, 1, 3), float_from_bf16(bf16_from_float(1.0f + 23 * 0x1p-9f)));
  EXPECT_EQ(in.k.get(0, 0, 1), float_from_bf16(bf16_from_float(1.0f + 25 * 0x1p-9f)));
  EXPECT_EQ(in.v.get(2, 0, 1), float_from_bf16(bf16_from_float(1.0f + 41 * 0x1p-9f)));
  const Case half = load(header(), R"(, "dtype": "fp16")").cases.at(0);
  EXPECT_EQ(make_inputs(half).q.get(2, 1, 3), 1.0f + 23 * 0x1p-9f);
}

TEST_F(FileInputs, DisagreementIsAnError) {
  load(header(), R"(, "model": {"num_qo_heads": 2}, "batch": {"qo_len": [1, 0, 2]})");
  expect_error(header(), R"(, "model": {"num_qo_heads": 4})",
               {"/scenarios/0/model/num_qo_heads: 4 disagrees", "which has 2"});
  expect_error(header(), R"(, "batch": {"qo_len": [1, 2]})",
               {"/scenarios/0/batch: disagrees", "cu_seqlens"});
  expect_error(header("lengths"), "",
               {"/scenarios/0/input/file", "no tensor 'cu_seqlens'", "k, lengths, q, v"});
  expect_error(header("cu_seqlens", 2), "", {"k and v the same heads"});
  data_[data_.size() - 4] = 2;
  expect_error(header(), "", {"'cu_seqlens' must rise from 0 to the 3 tokens"});
}

TEST_F(FileInputs, ValuesThatTheDtypeCannotHoldAreAnError) {
  const float large = 1e6f;
  data_.replace(4, 4, reinterpret_cast<const char*>(&large), 4);
  EXPECT_NO_THROW(make_inputs(load(header(), "").cases.at(0)));
  try {
    make_inputs(load(header(), R"(, "dtype": "fp16")").cases.at(0));
    ADD_FAILURE() << "1e6 in fp16";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("tensor 'q', element 1: not a finite fp16"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace sagebench
