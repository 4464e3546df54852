#include <algorithm>
#include <cstring>

#include "metrics/cache_map.h"
#include "properties/properties_parts.h"

namespace sagebench {
namespace {

constexpr size_t kCpuRows = 512;

size_t bytes_of(const Tensor& t, int64_t elements) {
  return static_cast<size_t>(elements) * size_of(t.dtype);
}

// `count` elements at two places, bit by bit; the first that differs is named.
std::string compare(const char* what, const Tensor& a, int64_t a_at, const Tensor& b, int64_t b_at,
                    int64_t count, const Coordinate& at) {
  const std::byte* x = a.bytes.data() + bytes_of(a, a_at);
  const std::byte* y = b.bytes.data() + bytes_of(b, b_at);
  if (std::memcmp(x, y, bytes_of(a, count)) == 0) return "";
  const size_t width = size_of(a.dtype);
  int64_t d = 0;
  while (std::memcmp(x + static_cast<size_t>(d) * width, y + static_cast<size_t>(d) * width,
                     width) == 0)
    ++d;
  return std::string(what) + " differs at " + to_string(at) + ", element " + std::to_string(d) +
         ": " + std::to_string(a.get(a_at + d)) + " became " + std::to_string(b.get(b_at + d));
}

struct Pairing {
  const Side &a, &b;
  const int32_t *cu_a, *cu_b;

  Pairing(const Side& a, const Side& b)
      : a(a), b(b), cu_a(a.in.cu_seqlens_q.as<int32_t>()), cu_b(b.in.cu_seqlens_q.as<int32_t>()) {}

  // fn(packed token of a, packed token of b, sequence of b, token in b)
  template <class Fn>
  std::string each_token(const std::vector<SequencePair>& pairs, const Fn& fn) const {
    for (const SequencePair& p : pairs)
      for (int64_t t = 0; t < cu_b[p.b + 1] - cu_b[p.b]; ++t)
        if (std::string found = fn(cu_a[p.a] + p.shift + t, cu_b[p.b] + t, p.b, t); !found.empty())
          return found;
    return "";
  }
};

std::string compare_rotated(const Pairing& p, const std::vector<SequencePair>& pairs) {
  for (const auto member : {&StageOutputs::q_rope, &StageOutputs::k_rope}) {
    const Tensor &a = p.a.out.*member, &b = p.b.out.*member;
    if (a.empty() || b.empty()) continue;
    const int64_t row = a.shape[1] * a.shape[2];
    const char* what = member == &StageOutputs::q_rope ? "rotated q" : "rotated k";
    std::string found = p.each_token(pairs, [&](int64_t ta, int64_t tb, int64_t s, int64_t t) {
      return compare(what, a, ta * row, b, tb * row, row, {s, -1, t, -1});
    });
    if (!found.empty()) return found;
  }
  return "";
}

std::string compare_cached(const Pairing& p, const std::vector<SequencePair>& pairs) {
  if (p.a.out.key_cache.empty() || p.b.out.key_cache.empty()) return "";
  const std::vector<int64_t> slots_a = token_slots(p.a.c, p.a.in),
                             slots_b = token_slots(p.b.c, p.b.in);
  for (const auto member : {&StageOutputs::key_cache, &StageOutputs::value_cache}) {
    const Tensor &a = p.a.out.*member, &b = p.b.out.*member;
    const CacheView view_a(p.a.c, a), view_b(p.b.c, b);
    const char* what = member == &StageOutputs::key_cache ? "cached K" : "cached V";
    std::string found = p.each_token(pairs, [&](int64_t ta, int64_t tb, int64_t s, int64_t t) {
      const int64_t slot_a = slots_a[static_cast<size_t>(ta)],
                    slot_b = slots_b[static_cast<size_t>(tb)];
      if (slot_a == kNoSlot || slot_b == kNoSlot) return std::string();
      std::string different;
      for (int h = 0; h < view_a.heads && different.empty(); ++h)
        different = compare(what, a, view_a.index(slot_a, h, 0), b, view_b.index(slot_b, h, 0),
                            view_a.dim, {s, h, t, -1});
      return different;
    });
    if (!found.empty()) return found;
  }
  return "";
}

std::string compare_results(const Pairing& p, const std::vector<SequencePair>& pairs,
                            const RowSample& rows_of_b) {
  std::vector<SequencePair> pair_of(static_cast<size_t>(p.b.c.batch.size()), {-1, -1, 0});
  for (const SequencePair& pair : pairs) pair_of[static_cast<size_t>(pair.b)] = pair;
  const Tensor &oa = p.a.out.o, &ob = p.b.out.o;
  if (oa.empty() || ob.empty()) return "";
  const int64_t heads = oa.shape[1], dim = oa.shape[2];
  for (const QueryRow& row : rows_of_b.rows) {
    const SequencePair& pair = pair_of[static_cast<size_t>(row.sequence)];
    if (pair.a < 0) continue;
    const int64_t ta = p.cu_a[pair.a] + pair.shift + row.token, tb = p.cu_b[pair.b] + row.token;
    const Coordinate where{row.sequence, row.head, row.token, -1};
    std::string found = compare("O", oa, (ta * heads + row.head) * dim, ob,
                                (tb * heads + row.head) * dim, dim, where);
    const Tensor &la = p.a.out.lse, &lb = p.b.out.lse;
    if (found.empty() && !la.empty() && !lb.empty())
      found = compare("LSE", la, row.head * la.shape[1] + ta, lb, row.head * lb.shape[1] + tb, 1,
                      where);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

PropertyCheck passed(const char* name, std::string detail) {
  return {name, true, false, std::move(detail)};
}
PropertyCheck failed(const char* name, std::string detail) {
  return {name, false, false, std::move(detail)};
}
PropertyCheck skipped(const char* name, std::string reason) {
  return {name, false, true, std::move(reason)};
}
PropertyCheck passed_unless(const char* name, const std::string& difference, std::string detail) {
  return difference.empty() ? passed(name, std::move(detail)) : failed(name, difference);
}

RowSample rows_to_compare(const Baseline& base) {
  if (!base.executor.is_gpu()) return rows_to_measure(base);
  Case c = base.c;
  c.validate.rows = Rows::kFull;
  return sample_rows(c, base.kernel.layout);
}

RowSample rows_to_measure(const Baseline& base) {
  Case c = base.c;
  if (base.executor.is_gpu()) c.validate.rows = Rows::kSampled;  // every row is there
  const RowSample sample = sample_rows(c, base.kernel.layout);
  if (base.executor.is_gpu() || sample.rows.size() <= kCpuRows) return sample;
  RowSample few;
  few.total = sample.total;
  for (size_t i = 0; i < kCpuRows; ++i)
    few.rows.push_back(sample.rows[i * (sample.rows.size() - 1) / (kCpuRows - 1)]);
  return few;
}

Case with_batch(const Case& c, const Batch& batch) {
  Case changed = c;
  changed.batch = batch;
  changed.cache.page_ids.clear();
  changed.cache.slots.clear();
  return changed;
}

Variant run_variant(const Baseline& base, Case c, Inputs in, const RowSample& rows,
                    RunOptions options) {
  options.rows = &rows;
  Variant v{std::move(c), std::move(in), {}};
  v.out = base.executor.run(v.c, base.kernel, v.in, options).outputs;
  return v;
}

Tensor dense(const TensorView& x, int64_t first, int64_t count) {
  Tensor t(x.base->dtype, {count, x.heads, x.dim});
  const size_t row = bytes_of(t, x.dim);
  for (int64_t i = 0; i < count; ++i)
    for (int h = 0; h < x.heads; ++h)
      std::memcpy(t.bytes.data() + static_cast<size_t>(i * x.heads + h) * row,
                  x.base->bytes.data() + bytes_of(t, x.index(first + i, h, 0)), row);
  return t;
}

Tensor dense(const TensorView& x) {
  return dense(x, 0, x.tokens);
}

Tensor concatenated(const std::vector<Tensor>& parts) {
  Tensor all = parts.at(0);
  for (size_t i = 1; i < parts.size(); ++i) {
    all.shape[0] += parts[i].shape[0];
    all.bytes.insert(all.bytes.end(), parts[i].bytes.begin(), parts[i].bytes.end());
  }
  return all;
}

RowSample rows_in_b(const RowSample& rows_of_a, const std::vector<SequencePair>& pairs,
                    const Case& b) {
  RowSample rows;
  for (const QueryRow& row : rows_of_a.rows)
    for (const SequencePair& p : pairs) {
      const int64_t token = row.token - p.shift;
      if (p.a != row.sequence || token < 0 || token >= b.batch.qo_len[static_cast<size_t>(p.b)])
        continue;
      rows.rows.push_back({static_cast<int32_t>(p.b), row.head, token});
    }
  std::sort(rows.rows.begin(), rows.rows.end(), [](const QueryRow& x, const QueryRow& y) {
    return std::tie(x.sequence, x.head, x.token) < std::tie(y.sequence, y.head, y.token);
  });
  for (const int64_t n : b.batch.qo_len) rows.total += n * b.model.num_qo_heads;
  return rows;
}

std::string difference(const Side& a, const Side& b, const std::vector<SequencePair>& pairs,
                       const RowSample& rows_of_b) {
  const Pairing pairing(a, b);
  std::string found = compare_rotated(pairing, pairs);
  if (found.empty()) found = compare_cached(pairing, pairs);
  if (found.empty()) found = compare_results(pairing, pairs, rows_of_b);
  return found;
}

std::vector<SequencePair> same_sequences(const Case& c) {
  std::vector<SequencePair> pairs;
  for (int64_t b = 0; b < c.batch.size(); ++b) pairs.push_back({b, b});
  return pairs;
}

}  // namespace sagebench
