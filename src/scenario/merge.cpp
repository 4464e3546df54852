#include "scenario/merge.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace sagebench {
namespace {

// Other tools' words for a key, accepted wherever the key is.
constexpr Alias kAliases[] = {
    {"num_heads", "num_qo_heads"},
    {"n_heads", "num_qo_heads"},
    {"num_q_heads", "num_qo_heads"},
    {"num_attention_heads", "num_qo_heads"},
    {"num_heads_k", "num_kv_heads"},
    {"num_heads_kv", "num_kv_heads"},
    {"n_kv_heads", "num_kv_heads"},
    {"kv_num_heads", "num_kv_heads"},
    {"num_key_value_heads", "num_kv_heads"},
    {"headdim", "head_dim"},
    {"head_size", "head_dim"},
    {"headdim_v", "head_dim_v"},
    {"head_size_v", "head_dim_v"},
    {"v_head_dim", "head_dim_v"},
    {"data_type", "dtype"},
    {"seqlens_q", "qo_len"},
    {"seqlen_q", "qo_len"},
    {"q_len", "qo_len"},
    {"seqlens_k", "kv_len"},
    {"seqlen_k", "kv_len"},
    {"k_len", "kv_len"},
    {"cache_seqlens", "kv_len_before"},
    {"context_lens", "kv_len_before"},
    {"is_causal", "causal"},
    {"softmax_scale", "sm_scale"},
    {"scale", "sm_scale"},
    {"qk_quant_gran", "qk_granularity"},
    {"rope_theta", "theta"},
    {"rope_scaling", "scaling"},
    {"rope_type", "type"},
    {"original_max_position_embeddings", "original_max_position"},
    {"block_size", "page_size"},
    {"tokens_per_block", "page_size"},
    {"num_blocks", "num_pages"},
    {"layout", "kv_layout"},
    {"block_ids", "page_ids"},
};

// Values that are one of several forms: never merged with another form from the defaults.
constexpr std::array kForms = {"qo_len",       "kv_len", "kv_len_before",
                               "distribution", "expect", "tolerance"};
// Keys that say how a batch's lengths are made.
constexpr std::array kLengthForms = {"qo_len",    "constant", "uniform",
                                     "lognormal", "bimodal",  "trace"};

template <class List>
bool contains(const List& list, const std::string& key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

Json with_canonical_keys(const Json& json, const std::string& path, const std::string& pointer,
                         Source& source) {
  source.written[path] = pointer;
  if (!json.is_object()) return json;
  Json out = Json::object();
  for (const auto& [key, value] : json.items()) {
    const std::string canonical = canonical_key(key);
    const std::string at = pointer + "/" + escape_pointer(key);
    if (out.contains(canonical))
      throw UsageError(source.file + ": " + at + ": '" + key + "' repeats '" + canonical +
                       "', of which one is an alias of the other");
    out[canonical] = with_canonical_keys(value, path + "/" + escape_pointer(canonical), at, source);
  }
  return out;
}

void merge_into(Json& base, Source& source, const Json& over, const std::string& path) {
  if (path == "/batch" && std::any_of(kLengthForms.begin(), kLengthForms.end(),
                                      [&](const char* key) { return over.contains(key); })) {
    source.forget(path);
    base = over;
    return;
  }
  for (const auto& [key, value] : over.items()) {
    const std::string at = path + "/" + escape_pointer(key);
    if (base.contains(key) && base[key].is_object() && value.is_object() && !contains(kForms, key))
      merge_into(base[key], source, value, at);
    else {
      source.forget(at);
      base[key] = value;
    }
  }
}

}  // namespace

std::span<const Alias> aliases() {
  return kAliases;
}

std::string canonical_key(const std::string& key) {
  for (const Alias& row : kAliases)
    if (key == row.alias) return row.key;
  return key;
}

Document canonical_document(const Json& json, const std::string& file, const std::string& pointer) {
  Document d;
  d.source.file = file;
  if (!json.is_object()) {
    d.source.written[""] = pointer;
    Value(json, d.source).refuse("an object");
  }
  d.json = with_canonical_keys(json, "", pointer, d.source);
  return d;
}

Document merged(Document base, const Document& over) {
  merge_into(base.json, base.source, over.json, "");
  for (const auto& [path, pointer] : over.source.written) base.source.written[path] = pointer;
  base.source.file = over.source.file;
  return base;
}

std::vector<std::string> canonical_keys(const std::string& dotted) {
  std::vector<std::string> keys;
  for (size_t start = 0; start <= dotted.size();) {
    const size_t dot = std::min(dotted.find('.', start), dotted.size());
    keys.push_back(canonical_key(dotted.substr(start, dot - start)));
    start = dot + 1;
  }
  return keys;
}

void set_field(Document& document, const std::string& dotted, const Json& value,
               const std::string& pointer) {
  Json* at = &document.json;
  std::string path;
  for (const std::string& key : canonical_keys(dotted)) {
    if (!at->is_object()) {
      if (!at->is_null())
        throw UsageError(document.source.file + ": " + pointer + ": '" + dotted +
                         "' goes below a value that is not an object");
      *at = Json::object();
      document.source.written[path] = pointer;
    }
    path += "/" + escape_pointer(key);
    at = &(*at)[key];
  }
  document.source.forget(path);
  *at = with_canonical_keys(value, path, pointer, document.source);
}

}  // namespace sagebench
