#include "scenario/lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "inputs/rng.h"
#include "ops/op.h"
#include "scenario/paths.h"
#include "scenario/trace.h"

namespace sagebench {
namespace {

// Uses of random numbers, beside the streams of src/inputs. Trace picks share one, so that two
// columns of a trace stay paired.
enum Stream : uint64_t { kQoLen = 128, kKvLen, kKvLenBefore, kPick };

struct Draw {
  const Value& object;  // the length object
  Case& c;
  int64_t requests;
  uint64_t stream;
};
using Lengths = std::vector<int64_t>;

Lengths for_each_request(const Draw& d, auto fn) {
  Lengths lengths;
  for (int64_t i = 0; i < d.requests; ++i)
    lengths.push_back(fn(random_bits(d.stream, static_cast<uint64_t>(i))));
  return lengths;
}

struct Range {
  int64_t low, high;
  int64_t draw(uint64_t bits) const {
    return low + static_cast<int64_t>(random_below(bits, static_cast<uint64_t>(high - low) + 1));
  }
};
Range read_range(const Value& v) {
  const std::vector<Value> ends = v.elements();
  if (ends.size() != 2) v.refuse("[low, high]");
  const Range r{ends[0].integer(0, kMaxTokens), ends[1].integer(0, kMaxTokens)};
  if (r.low > r.high) v.refuse("[low, high] with low <= high");
  return r;
}

Value required(const Value& object, const std::string& key, const std::string& expected) {
  const std::optional<Value> value = object.find(key);
  if (!value) object.fail("missing key '" + key + "'; expected " + expected);
  return *value;
}

Lengths constant(const Value& form, const Draw& d) {
  return Lengths(static_cast<size_t>(d.requests), form.integer(0, kMaxTokens));
}

Lengths uniform(const Value& form, const Draw& d) {
  const Range range = read_range(form);
  return for_each_request(d, [&](uint64_t bits) { return range.draw(bits); });
}

Lengths lognormal(const Value& form, const Draw& d) {
  form.allow_only({"median", "sigma", "max"});
  const double median = required(form, "median", "a length").number(1, kMaxTokens);
  const double sigma = required(form, "sigma", "a number from 0 to 10").number(0, 10);
  const auto max =
      static_cast<double>(required(form, "max", "the greatest length").integer(1, kMaxTokens));
  return for_each_request(d, [&](uint64_t bits) {
    const double z = static_cast<double>(normal_fixed(bits)) / static_cast<double>(kFixedOne);
    return static_cast<int64_t>(std::llround(std::clamp(median * std::exp(sigma * z), 1.0, max)));
  });
}

Lengths bimodal(const Value& form, const Draw& d) {
  form.allow_only({"short", "long", "long_fraction"});
  const Range low = read_range(required(form, "short", "[low, high]")),
              high = read_range(required(form, "long", "[low, high]"));
  const double fraction = required(form, "long_fraction", "a number from 0 to 1").number(0, 1);
  const auto limit = static_cast<uint64_t>(std::llround(fraction * (1 << 30)));
  return for_each_request(d, [&](uint64_t bits) {
    return ((bits & ((1u << 30) - 1)) < limit ? high : low).draw(bits);
  });
}

Lengths trace(const Value& form, const Draw& d) {
  const std::string name = form.text();
  const auto path = find_beside(d.c.config_path, name);
  if (!path) form.fail(not_found(d.c.config_path, name));
  d.c.files_read.push_back(*path);
  const Value column = required(d.object, "column", "the name of one of the trace's columns");
  const std::string column_name = column.text();
  Lengths all;
  try {
    all = read_trace_column(*path, column_name);
  } catch (const UsageError& e) {
    column.fail(e.what());
  }
  const auto rows = static_cast<int64_t>(all.size());
  if (rows < d.requests)
    d.object.fail_at("/requests", std::to_string(d.requests) + " requests, but " + *path +
                                      " has only " + std::to_string(rows));
  const auto pick = d.object.find("pick");
  if (pick && pick->one_of({"seeded", "first"}) == 1) {
    all.resize(static_cast<size_t>(d.requests));
    return all;
  }
  // a sample without repetition, kept in the trace's order
  std::vector<int64_t> row(all.size());
  std::iota(row.begin(), row.end(), int64_t{0});
  for (int64_t i = 0; i < d.requests; ++i) {
    const uint64_t bits = random_bits(d.stream, static_cast<uint64_t>(i));
    const int64_t other =
        i + static_cast<int64_t>(random_below(bits, static_cast<uint64_t>(rows - i)));
    std::swap(row[static_cast<size_t>(i)], row[static_cast<size_t>(other)]);
  }
  row.resize(static_cast<size_t>(d.requests));
  std::sort(row.begin(), row.end());
  Lengths lengths;
  for (const int64_t r : row) lengths.push_back(all[static_cast<size_t>(r)]);
  return lengths;
}

struct FormRow {
  const char* key;
  Lengths (*draw)(const Value& form, const Draw& d);
};
constexpr FormRow kForms[] = {{"constant", constant},
                              {"uniform", uniform},
                              {"lognormal", lognormal},
                              {"bimodal", bimodal},
                              {"trace", trace}};
const std::vector<std::string> kBatchKeys = {"qo_len", "kv_len", "kv_len_before", "source"};

std::string describe(const Value& object) {
  std::string text;
  for (const std::string& key : length_keys())
    if (const auto value = object.find(key))
      text += (text.empty() ? "" : ", ") + key + " " +
              (value->json().is_string() ? value->text() : value->json().dump());
  return text;
}

// `requests`: how many when the object does not say.
Lengths draw_lengths(const Value& object, Case& c, Stream use, std::optional<int64_t> requests) {
  const FormRow* form = nullptr;
  for (const FormRow& row : kForms)
    if (const auto value = object.find(row.key)) {
      if (form)
        value->fail(std::string("'") + row.key + "' and '" + form->key + "' exclude each other");
      form = &row;
    }
  if (!form) object.fail("no lengths; expected a list, or one of: " + joined(length_forms()));
  if (form->draw != trace)
    for (const char* key : {"column", "pick"})
      if (const auto stray = object.find(key))
        stray->fail(std::string("'") + key + "' goes with trace only");
  if (const auto given = object.find("requests")) requests = given->integer(1, kMaxRequests);
  if (!requests)
    object.fail("missing key 'requests'; expected the number of sequences, from 1 to " +
                std::to_string(kMaxRequests));
  const uint64_t stream = random_stream(c.seed, form->draw == trace ? kPick : use);
  return form->draw(*object.find(form->key), {object, c, *requests, stream});
}

Lengths read_lengths(const Value& v, Case& c, Stream use, std::optional<int64_t> requests) {
  if (v.json().is_object()) {
    v.allow_only(length_keys());
    return draw_lengths(v, c, use, requests);
  }
  if (!v.json().is_array())
    v.refuse("a list of lengths, or an object with one of: " + joined(length_forms()));
  Lengths lengths;
  for (const Value& length : v.elements()) lengths.push_back(length.integer(0, kMaxTokens));
  if (lengths.empty()) v.refuse("at least one length; 0 is one");
  if (static_cast<int64_t>(lengths.size()) > kMaxRequests)
    v.fail(std::to_string(lengths.size()) + " sequences; at most " + std::to_string(kMaxRequests));
  return lengths;
}

void check_total(const Value& v, const char* key, const Lengths& lengths) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (total > kMaxTokens)
    v.fail_at(std::string("/") + key,
              std::to_string(total) + " tokens in all; at most 2^31 - 1, as cu_seqlens is int32");
}

Lengths matching(const Value& v, Case& c, Stream use, size_t batch) {
  Lengths lengths = read_lengths(v, c, use, static_cast<int64_t>(batch));
  if (lengths.size() != batch)
    v.fail(std::to_string(lengths.size()) + " lengths for " + std::to_string(batch) +
           " sequences of qo_len");
  return lengths;
}

// A long run of one length is echoed as such.
Json write_lengths(const Lengths& lengths) {
  constexpr size_t kLong = 16;
  const bool same =
      std::adjacent_find(lengths.begin(), lengths.end(), std::not_equal_to<>()) == lengths.end();
  if (lengths.size() < kLong || !same) return lengths;
  return {{"constant", lengths[0]}, {"requests", lengths.size()}};
}

}  // namespace

std::vector<std::string> length_forms() {
  std::vector<std::string> keys;
  for (const FormRow& row : kForms) keys.emplace_back(row.key);
  return keys;
}

std::vector<std::string> length_keys() {
  std::vector<std::string> keys = length_forms();
  keys.insert(keys.end(), {"requests", "column", "pick"});
  return keys;
}

std::vector<Field> batch_fields() {
  std::vector<Field> fields;
  for (const std::string& key : kBatchKeys) fields.push_back({key, kForAll, {}, {}, {}, {}});
  for (const std::string& key : length_keys()) fields.push_back({key, kForAll, {}, {}, {}, {}});
  return fields;
}

void read_batch(const Value& v, Case& c) {
  std::vector<std::string> keys = kBatchKeys;
  for (const std::string& key : length_keys()) keys.push_back(key);
  v.allow_only(keys);
  const Op& op = op_of(c.op);
  Batch& batch = c.batch;
  if (const auto qo_len = v.find("qo_len")) {
    for (const std::string& key : length_keys())
      if (const auto stray = v.find(key))
        stray->fail("'" + key + "' and 'qo_len' exclude each other");
    batch.qo_len = read_lengths(*qo_len, c, kQoLen, std::nullopt);
    batch.source = qo_len->json().is_array() ? "explicit" : describe(*qo_len);
  } else {
    batch.qo_len = draw_lengths(v, c, kQoLen, std::nullopt);
    batch.source = describe(v);
  }
  check_total(v, v.find("qo_len") ? "qo_len" : "", batch.qo_len);

  batch.kv_len = batch.qo_len;
  const auto kv_len = v.find("kv_len");
  if (kv_len && !(kv_len->json().is_string() && kv_len->one_of({"same"}) == 0)) {
    if (op.caches)
      kv_len->fail("op " + std::string(op.name) +
                   " attends to its new tokens: leave kv_len out, or \"same\"");
    batch.kv_len = matching(*kv_len, c, kKvLen, batch.qo_len.size());
    check_total(v, "kv_len", batch.kv_len);
  }

  batch.kv_len_before.assign(batch.qo_len.size(), 0);
  if (const auto before = v.find("kv_len_before")) {
    if (!op.caches)
      before->fail("op " + std::string(op.name) + " has no cache: give the keys as kv_len");
    batch.kv_len_before = matching(*before, c, kKvLenBefore, batch.qo_len.size());
    for (size_t b = 0; b < batch.qo_len.size(); ++b)
      if (batch.kv_len_before[b] + batch.qo_len[b] > kMaxTokens)
        before->fail("sequence " + std::to_string(b) + " ends past position 2^31 - 2");
  }
  if (const auto source = v.find("source")) batch.source = source->text();
}

Json write_batch(const Case& c) {
  Json out = {{"qo_len", write_lengths(c.batch.qo_len)}};
  if (op_of(c.op).caches)
    out["kv_len_before"] = write_lengths(c.batch.kv_len_before);
  else
    out["kv_len"] = c.batch.kv_len == c.batch.qo_len ? Json("same") : write_lengths(c.batch.kv_len);
  out["source"] = c.batch.source;
  return out;
}

}  // namespace sagebench
