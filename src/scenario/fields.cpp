#include "scenario/fields.h"

#include <algorithm>
#include <limits>

#include "ops/op.h"
#include "scenario/expectations.h"
#include "scenario/field_builders.h"
#include "scenario/input_fields.h"
#include "scenario/lengths.h"

namespace sagebench {
namespace {

Field model() {
  constexpr int64_t kHeads = 1024, kDim = 1024;
  return block("model", kForAll,
               {integer("num_qo_heads", kForAll, 1, kHeads, at(&Case::model, &Model::num_qo_heads)),
                integer("num_kv_heads", kForAll, 1, kHeads, at(&Case::model, &Model::num_kv_heads)),
                integer("head_dim", kForAll, 1, kDim, at(&Case::model, &Model::head_dim)),
                integer("head_dim_v", kForAll, 1, kDim, at(&Case::model, &Model::head_dim_v))});
}

Field mask() {
  Field alignment{"alignment",
                  kSoftmaxOps,
                  {"bottom_right", "top_left"},
                  [](const Value& v, Case& c) {
                    c.bottom_right = v.one_of({"bottom_right", "top_left"}) == 0;
                  },
                  [](const Case& c) { return Json(c.bottom_right ? "bottom_right" : "top_left"); },
                  {}};
  return block("mask", kSoftmaxOps, {boolean("causal", kSoftmaxOps, at(&Case::causal)), alignment});
}

Field softmax() {
  Field scale = number("sm_scale", kSoftmaxOps, 1e-6, 1e3, at(&Case::sm_scale));
  scale.read = [read = scale.read](const Value& v, Case& c) {
    if (!v.json().is_null()) read(v, c);
  };
  return block("softmax", kSoftmaxOps,
               {scale, boolean("return_lse", kSoftmaxOps, at(&Case::return_lse))});
}

Field sage_block() {
  return block(
      "sage", kSoftmaxOps,
      {choice<sage::Granularity>("qk_granularity", kSoftmaxOps,
                                 at(&Case::sage, &SageChoice::qk_granularity)),
       choice<sage::Smooth>("smooth_k", kSoftmaxOps, at(&Case::sage, &SageChoice::smooth_k)),
       choice<sage::Smooth>("smooth_v", kSoftmaxOps, at(&Case::sage, &SageChoice::smooth_v)),
       boolean("correct_v", kSoftmaxOps, at(&Case::sage, &SageChoice::correct_v)),
       choice<sage::VScale>("v_scale", kSoftmaxOps, at(&Case::sage, &SageChoice::v_scale)),
       choice<sage::Rotate>("rotate", kSoftmaxOps, at(&Case::sage, &SageChoice::rotate)),
       choice<sage::PvType>("pv", kSoftmaxOps, at(&Case::sage, &SageChoice::pv)),
       choice<sage::PMode>("p", kSoftmaxOps, at(&Case::sage, &SageChoice::p))});
}

Field rope() {
  constexpr double kMany = 1e9;
  const auto real = [](const char* key, double low, double high, auto get) {
    return number(key, kCacheOps, low, high, get);
  };
  const std::vector<Field> scaling = {
      choice<RopeScaling>("type", kCacheOps, at(&Case::rope, &Rope::scaling)),
      real("factor", 1, 1e6, at(&Case::rope, &Rope::factor)),
      real("low_freq_factor", 1e-3, 1e6, at(&Case::rope, &Rope::low_freq_factor)),
      real("high_freq_factor", 1e-3, 1e6, at(&Case::rope, &Rope::high_freq_factor)),
      real("original_max_position", 1, kMany, at(&Case::rope, &Rope::original_max_position)),
      real("beta_fast", 1e-3, kMany, at(&Case::rope, &Rope::beta_fast)),
      real("beta_slow", 1e-3, kMany, at(&Case::rope, &Rope::beta_slow)),
      real("attention_factor", 0, 1e3, at(&Case::rope, &Rope::attention_factor))};
  const std::vector<std::string> table_dtypes{"fp32", "input", "bf16", "fp16"};
  const Field dtype{"dtype",
                    kCacheOps,
                    table_dtypes,
                    [=](const Value& v, Case& c) {
                      const std::string& name = table_dtypes[v.one_of(table_dtypes)];
                      c.rope.table_dtype = name == "fp32" ? DType::kFp32 : c.dtype;
                      if (name != "fp32" && name != "input" && name != name_of(c.dtype))
                        v.refuse("fp32 or the case's dtype, " + std::string(name_of(c.dtype)));
                    },
                    [](const Case& c) { return Json(name_of(c.rope.table_dtype)); },
                    {}};
  return block(
      "rope", kCacheOps,
      {choice<sage::RopeStyle>("style", kCacheOps, at(&Case::rope, &Rope::style)),
       integer("rotary_dim", kCacheOps, 0, 1024, at(&Case::rope, &Rope::rotary_dim)),
       real("theta", 1.5, 1e12, at(&Case::rope, &Rope::theta)),
       block("scaling", kCacheOps, scaling, true), block("table", kCacheOps, {dtype}, true)});
}

// A list of integers; not echoed while empty.
template <class Get>
Field id_list(const char* key, Get get) {
  return {key,
          kCacheOps,
          {},
          [=](const Value& v, Case& c) {
            for (const Value& id : v.elements())
              get(c).push_back(id.integer(-1, std::numeric_limits<int64_t>::max()));
          },
          [=](const Case& c) { return get(c).empty() ? Json() : Json(get(c)); },
          {}};
}

Field cache() {
  Field guard =
      integer("guard_bytes", kForAll, 0, int64_t{1} << 26, at(&Case::cache, &Cache::guard_bytes));
  guard.read = [read = guard.read](const Value& v, Case& c) {
    read(v, c);
    if (c.cache.guard_bytes % 256 != 0) v.refuse("a multiple of 256 bytes, the alignment kept");
  };
  const Field dtype{"dtype",
                    kCacheOps,
                    canonical_names<DType>(),
                    [](const Value& v, Case& c) {
                      if (v.choice<DType>() != c.dtype)
                        v.refuse("the case's dtype, " + std::string(name_of(c.dtype)));
                    },
                    [](const Case& c) { return Json(name_of(c.dtype)); },
                    {}};
  return block(
      "cache", kForAll,
      {dtype, integer("page_size", kCacheOps, 1, 65536, at(&Case::cache, &Cache::page_size)),
       integer("num_pages", kCacheOps, 1, std::numeric_limits<int32_t>::max(),
               at(&Case::cache, &Cache::num_pages)),
       choice<KvLayout>("kv_layout", kCacheOps, at(&Case::cache, &Cache::kv_layout)),
       choice<CacheIndex>("index", kCacheOps, at(&Case::cache, &Cache::index)),
       choice<Allocation>("allocation", kCacheOps, at(&Case::cache, &Cache::allocation)),
       id_list("page_ids", at(&Case::cache, &Cache::page_ids)),
       id_list("slots", at(&Case::cache, &Cache::slots)), constant("initial", kCacheOps, "poison"),
       guard});
}

Field exec() {
  const Field kernels{
      "kernels",
      kForAll,
      {},
      [](const Value& v, Case& c) { read_kernels(v, c); },
      [](const Case& c) { return c.exec.kernels.empty() ? Json("*") : Json(c.exec.kernels); },
      {}};
  return block("exec", kForAll,
               {choice<StreamKind>("stream", kForAll, at(&Case::exec, &Exec::stream)),
                boolean("graph", kForAll, at(&Case::exec, &Exec::graph)), kernels});
}

Field validate() {
  const std::vector<std::string> references{"both", "exact", "emulated"};
  const Field reference{
      "reference",
      kForAll,
      references,
      [=](const Value& v, Case& c) {
        const size_t i = v.one_of(references);
        c.validate.exact = i != 2;
        c.validate.emulated = i != 1;
      },
      [=](const Case& c) {
        return Json(references[!c.validate.emulated ? 1 : !c.validate.exact * 2u]);
      },
      {}};
  const Field tolerance{"tolerance", kForAll, {}, read_tolerance, write_tolerance, {}};
  const Field properties{"properties",
                         kForAll,
                         {},
                         read_properties,
                         [](const Case& c) {
                           return c.validate.properties.empty() ? Json()
                                                                : Json(c.validate.properties);
                         },
                         {}};
  return block("validate", kForAll,
               {choice<Rows>("rows", kForAll, at(&Case::validate, &Validate::rows)), reference,
                tolerance, properties});
}

Field timing() {
  const auto seconds = [](const char* key, auto get) {
    return number(key, kForAll, 0.0, 600, get);
  };
  return block("timing", kForAll,
               {seconds("min_time_s", at(&Case::timing, &Timing::min_time_s)),
                seconds("max_time_s", at(&Case::timing, &Timing::max_time_s)),
                number("max_noise", kForAll, 1e-4, 1, at(&Case::timing, &Timing::max_noise)),
                choice<L2>("l2", kForAll, at(&Case::timing, &Timing::l2)),
                constant("warmup", kForAll, "settle")});
}

Field name() {
  return {"name",
          kForAll,
          {},
          [](const Value& v, Case& c) {
            constexpr size_t kLongest = 200;
            c.scenario = v.text();
            if (c.scenario.size() > kLongest)
              v.fail("a name of " + std::to_string(c.scenario.size()) +
                     " characters; expected at most " + std::to_string(kLongest));
            const auto plain = [](char ch) {
              return ch > ' ' && ch < 127 && ch != '@' && ch != '\'' && ch != '"';
            };
            if (c.scenario.empty() || !std::all_of(c.scenario.begin(), c.scenario.end(), plain))
              v.refuse("a name of printable ASCII without spaces, quotes and @");
          },
          [](const Case& c) { return Json(c.id); },
          {}};
}

Field seed() {
  return {"seed",
          kForAll,
          {},
          [](const Value& v, Case& c) { c.seed = v.unsigned_integer(); },
          [](const Case& c) { return Json(c.seed); },
          {}};
}

bool uses(const Case& c, const Field& field) {
  const Op& op = op_of(c.op);
  return field.ops == kCacheOps ? op.caches : field.ops == kSoftmaxOps ? op.attends : true;
}

// A key of another block: "mask.causal" for "causal".
std::string elsewhere(const std::string& key) {
  for (const Field& block : scenario_fields())
    for (const Field& field : block.children)
      if (field.key == key) return block.key + "." + key;
  return "";
}

}  // namespace

const std::vector<Field>& scenario_fields() {
  static const std::vector<Field> fields = {
      name(),
      choice<OpKind>("op", kForAll, at(&Case::op)),
      choice<DType>("dtype", kForAll, at(&Case::dtype)),
      seed(),
      model(),
      mask(),
      softmax(),
      sage_block(),
      rope(),
      cache(),
      block("input", kForAll, input_fields()),
      {"batch", kForAll, {}, read_batch, write_batch, batch_fields()},
      exec(),
      validate(),
      timing(),
      {"expect", kForAll, {}, read_expectation, write_expectation, {}},
  };
  return fields;
}

void read_fields(const Value& object, const std::vector<Field>& fields, Case& c) {
  std::vector<std::string> keys;
  for (const Field& field : fields) keys.push_back(field.key);
  if (&fields == &scenario_fields()) keys.emplace_back("sweep");  // expanded before a case is read
  object.allow_only(keys, elsewhere);
  for (const Field& field : fields) {
    const std::optional<Value> value = object.find(field.key);
    if (!value) continue;
    // defaults may hold what only some of the file's ops use
    if (!uses(c, field) && !value->from_defaults())
      value->fail("op " + std::string(name_of(c.op)) + " does not use '" + field.key + "'");
    field.read(*value, c);
  }
}

Json write_fields(const std::vector<Field>& fields, const Case& c) {
  Json out = Json::object();
  for (const Field& field : fields) {
    if (!uses(c, field)) continue;
    Json value = field.write(c);
    if (!value.is_null()) out[field.key] = std::move(value);
  }
  return out;
}

}  // namespace sagebench
