#include "scenario/input_fields.h"

#include <algorithm>

#include "core/error.h"
#include "inputs/distributions.h"
#include "inputs/inputs.h"
#include "inputs/safetensors.h"
#include "ops/op.h"
#include "scenario/field_builders.h"
#include "scenario/paths.h"

namespace sagebench {
namespace {

constexpr int64_t kPaddedStride = 8;  // elements added by "padded": rows stay 16-byte aligned

std::vector<std::string> distribution_names() {
  std::vector<std::string> names;
  for (const DistributionRow& row : distributions()) names.emplace_back(row.name);
  return names;
}

double read_param(const Value& v, const DistributionParam& p) {
  if (p.words.empty() || !v.json().is_string()) return v.number(p.low, p.high);
  std::vector<std::string> words;
  for (const auto& [word, value] : p.words) words.emplace_back(word);
  return p.words[v.one_of(words)].second;
}

// "name", or {"name": ..., parameters}: with every parameter, defaults included.
Distribution read_distribution(const Value& v) {
  const std::vector<std::string> names = distribution_names();
  Distribution d;
  if (!v.json().is_object()) {
    d.name = names[v.one_of(names)];
  } else {
    const std::optional<Value> name = v.find("name");
    if (!name) v.fail("missing key 'name'; allowed: " + joined(names));
    d.name = names[name->one_of(names)];
  }
  std::vector<std::string> keys{"name"};
  for (const DistributionParam& p : find_distribution(d.name)->params) {
    keys.emplace_back(p.name);
    d.params[p.name] = p.fallback;
    if (v.json().is_object())
      if (const auto value = v.find(p.name)) d.params[p.name] = read_param(*value, p);
  }
  if (v.json().is_object()) v.allow_only(keys);
  if (d.name == "uniform" && d.params["low"] >= d.params["high"])
    v.fail("uniform needs low < high");
  return d;
}

std::vector<std::pair<Value, Distribution>> read_list(const Value& v) {
  std::vector<std::pair<Value, Distribution>> list;
  const auto add = [&](const Value& entry) {
    Distribution d = read_distribution(entry);
    for (const auto& [other, known] : list)
      if (known.name == d.name) entry.fail("'" + d.name + "' occurs twice");
    if (d.name == "strong_key" && !list.empty() && list.front().second.name != "normal")
      entry.fail("strong_key must come first in the list");
    list.emplace_back(entry, std::move(d));
  };
  if (v.json().is_array())
    for (const Value& entry : v.elements()) add(entry);
  else
    add(v);
  return list;
}

bool is_per_tensor(const Value& v) {
  return v.json().is_object() && !v.json().contains("name");
}

// One tensor's list, or a list for all: there each entry applies where it makes sense.
void read_distributions(const Value& v, Case& c) {
  const std::pair<char, std::vector<Distribution>*> tensors[] = {
      {'q', &c.input.q}, {'k', &c.input.k}, {'v', &c.input.v}};
  const bool per_tensor = is_per_tensor(v);
  if (per_tensor) v.allow_only({"q", "k", "v"});
  for (const auto& [tensor, list] : tensors) {
    const std::optional<Value> own = per_tensor ? v.find(std::string(1, tensor)) : v;
    if (!own) continue;
    list->clear();
    for (auto& [entry, d] : read_list(*own)) {
      const bool applies = find_distribution(d.name)->on(tensor);
      if (!applies && per_tensor)
        entry.fail("'" + d.name + "' does not apply to " + tensor + ", only to " +
                   find_distribution(d.name)->tensors);
      if (applies && d.name != "normal") list->push_back(std::move(d));
    }
  }
  const auto strong = [](const std::vector<Distribution>& list) {
    return !list.empty() && list[0].name == "strong_key" ? &list[0] : nullptr;
  };
  const Distribution *q = strong(c.input.q), *k = strong(c.input.k);
  if (!q != !k || (q && q->params != k->params))
    v.fail("strong_key sets q and k together: give it to both, with the same parameters");
  if (q && op_of(c.op).caches)
    v.fail("strong_key needs op attention: RoPE would turn its direction");
}

Json write_list(const std::vector<Distribution>& list) {
  Json out = Json::array();
  for (const Distribution& d : list) {
    Json entry = {{"name", d.name}};
    for (const DistributionParam& p : find_distribution(d.name)->params) {
      const double value = param_of(d, p.name);
      entry[p.name] = value;
      for (auto word = p.words.rbegin(); word != p.words.rend(); ++word)
        if (word->second == value) entry[p.name] = word->first;
    }
    out.push_back(std::move(entry));
  }
  if (out.empty()) out.push_back("normal");
  return out;
}

Field distribution() {
  return {"distribution",
          kForAll,
          {},
          read_distributions,
          [](const Case& c) -> Json {
            if (!c.input.file.empty()) return {};
            return {{"q", write_list(c.input.q)},
                    {"k", write_list(c.input.k)},
                    {"v", write_list(c.input.v)}};
          },
          {}};
}

Field strides() {
  return {"strides",
          kForAll,
          {},
          [](const Value& v, Case& c) {
            if (!v.json().is_object()) {
              c.input.token_padding = v.one_of({"dense", "padded"}) == 0 ? 0 : kPaddedStride;
              return;
            }
            v.allow_only({"token_padding"});
            if (const auto n = v.find("token_padding"))
              c.input.token_padding = n->integer(0, 65536);
          },
          [](const Case& c) -> Json {
            if (c.input.token_padding == 0) return "dense";
            if (c.input.token_padding == kPaddedStride) return "padded";
            return {{"token_padding", c.input.token_padding}};
          },
          {}};
}

Field file() {
  return {"file",
          kForAll,
          {},
          [](const Value& v, Case& c) {
            c.input.file_name = v.text();
            const auto path = find_beside(c.config_path, c.input.file_name);
            if (!path) v.fail(not_found(c.config_path, c.input.file_name));
            c.input.file = *path;
            c.files_read.push_back(*path);
          },
          [](const Case& c) { return c.input.file.empty() ? Json() : Json(c.input.file_name); },
          {}};
}

Field tensors() {
  Field f = block("tensors", kForAll,
                  {text("q", kForAll, at(&Case::input, &Input::file_q)),
                   text("k", kForAll, at(&Case::input, &Input::file_k)),
                   text("v", kForAll, at(&Case::input, &Input::file_v))});
  f.write = [write = f.write](const Case& c) { return c.input.file.empty() ? Json() : write(c); };
  return f;
}

std::string shape_text(const SafetensorsEntry& e) {
  std::string s = std::string(name_of(e.dtype)) + " [";
  for (size_t i = 0; i < e.shape.size(); ++i) s += (i ? ", " : "") + std::to_string(e.shape[i]);
  return s + "]";
}

// Lengths of the file's sequences; `tokens` is what they must add up to.
std::vector<int64_t> file_lengths(const SafetensorsFile& file, const std::string& path,
                                  int64_t tokens) {
  const SafetensorsEntry& e = file.entry("cu_seqlens");
  if ((e.dtype != DType::kInt32 && e.dtype != DType::kInt64) || e.shape.size() != 1 ||
      e.shape[0] < 1)
    throw UsageError(path + ": tensor 'cu_seqlens' is " + shape_text(e) +
                     "; expected int32 or int64 [batch + 1]");
  const Tensor cu = file.read("cu_seqlens");
  const auto at = [&](int64_t i) {
    return e.dtype == DType::kInt32 ? cu.as<int32_t>()[i] : cu.as<int64_t>()[i];
  };
  if (e.shape[0] < 2)
    throw UsageError(path + ": 'cu_seqlens' has one entry, so no sequence; expected at least two");
  std::vector<int64_t> lengths;
  bool rises = at(0) == 0;
  for (int64_t i = 1; i < e.shape[0]; ++i) {
    rises &= at(i) >= at(i - 1);
    lengths.push_back(at(i) - at(i - 1));
  }
  if (!rises || at(e.shape[0] - 1) != tokens)
    throw UsageError(path + ": 'cu_seqlens' must rise from 0 to the " + std::to_string(tokens) +
                     " tokens of q");
  return lengths;
}

struct FileContent {
  std::vector<int64_t> q, k, v;  // shapes [tokens, heads, dim]
  std::vector<int64_t> lengths;
};

FileContent read_content(const Case& c) {
  constexpr int64_t kMost = 1024;  // heads and dims, as in the model block
  const std::string& path = c.input.file;
  const SafetensorsFile file(path);
  const auto shape = [&](const std::string& name) {
    const SafetensorsEntry& e = file.entry(name);
    const bool real = e.dtype == DType::kBf16 || e.dtype == DType::kFp16 || e.dtype == DType::kFp32;
    if (!real || e.shape.size() != 3 || e.shape[1] < 1 || e.shape[1] > kMost || e.shape[2] < 1 ||
        e.shape[2] > kMost)
      throw UsageError(path + ": tensor '" + name + "' is " + shape_text(e) +
                       "; expected bf16, fp16 or fp32 [tokens, heads, dim], at most 1024 heads "
                       "and channels");
    return e.shape;
  };
  FileContent f{shape(c.input.file_q), shape(c.input.file_k), shape(c.input.file_v), {}};
  if (f.k[0] != f.q[0] || f.v[0] != f.q[0] || f.v[1] != f.k[1] || f.k[2] != f.q[2])
    throw UsageError(path + ": q, k and v must have the same tokens, k and v the same heads, q " +
                     "and k the same dim");
  f.lengths = file_lengths(file, path, f.q[0]);
  for (const std::string& name : {c.input.file_q, c.input.file_k, c.input.file_v})
    read_as(c, file, name);  // only its errors matter yet
  return f;
}

}  // namespace

std::vector<Field> input_fields() {
  return {choice<InputForm>("form", kForAll, at(&Case::input, &Input::form)), distribution(),
          strides(), file(), tensors()};
}

void adopt_file(const Value& scenario, Case& c) {
  if (c.input.file.empty()) return;
  const Value file = *scenario.find("input")->find("file");
  if (const auto given = scenario.find("input")->find("distribution"))
    if (!given->from_defaults())
      given->fail("input.file and input.distribution exclude each other");
  c.input.q = c.input.k = c.input.v = {};
  FileContent content;
  try {
    content = read_content(c);
  } catch (const UsageError& e) {
    file.fail(e.what());
  }
  const auto adopt = [&](const char* key, int64_t size, int& field) {
    const std::optional<Value> model = scenario.find("model");
    const std::optional<Value> given = model ? model->find(key) : std::nullopt;
    if (given && !given->from_defaults() && field != size)
      given->fail(given->json().dump() + " disagrees with " + c.input.file + ", which has " +
                  std::to_string(size));
    field = static_cast<int>(size);
  };
  adopt("num_qo_heads", content.q[1], c.model.num_qo_heads);
  adopt("num_kv_heads", content.k[1], c.model.num_kv_heads);
  adopt("head_dim", content.q[2], c.model.head_dim);
  adopt("head_dim_v", content.v[2], c.model.head_dim_v);
  const std::vector<int64_t>& lengths = content.lengths;
  const std::optional<Value> batch = scenario.find("batch");
  if (batch && !batch->from_defaults()) {
    if (c.batch.qo_len != lengths || c.batch.kv_len != lengths)
      batch->fail("disagrees with the lengths in " + c.input.file +
                  "; leave batch out: they come from its cu_seqlens");
  } else {
    c.batch.kv_len_before.assign(lengths.size(), 0);
    c.batch.source = "cu_seqlens of " + c.input.file_name;
  }
  c.batch.qo_len = c.batch.kv_len = lengths;
}

}  // namespace sagebench
