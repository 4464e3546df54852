#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "ops/reference.h"

namespace sagebench {
namespace {

// A token of the packed batch and its position in the sequence's context.
struct Token {
  int64_t sequence, row, position;
};

std::vector<Token> tokens_of(const Inputs& in) {
  const int32_t* cu = in.cu_seqlens_q.as<int32_t>();
  std::vector<Token> tokens;
  for (int64_t b = 0; b + 1 < in.cu_seqlens_q.size(); ++b) {
    const int64_t before = in.kv_len_before.empty() ? 0 : in.kv_len_before.as<int32_t>()[b];
    for (int64_t t = 0; t < cu[b + 1] - cu[b]; ++t) tokens.push_back({b, cu[b] + t, before + t});
  }
  return tokens;
}

// A token past the rotation table is skipped by rotation and write alike.
bool in_table(const Case& c, const Inputs& in, const Token& token) {
  return c.rope.style == sage::RopeStyle::kNone || token.position < in.cos_sin.shape[0];
}

struct Pair {
  int x, y;  // channels
};
Pair pair_of(const Rope& rope, int i) {
  return rope.style == sage::RopeStyle::kNeox ? Pair{i, i + rope.rotary_dim / 2}
                                              : Pair{2 * i, 2 * i + 1};
}

// Rotates one head in the precision of T: two products and one sum or difference, each rounded.
template <class T>
void rotate(const Rope& rope, const float* cos_sin, T* row) {
  const int half = rope.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const auto [x_at, y_at] = pair_of(rope, i);
    const T cos = cos_sin[i], sin = cos_sin[half + i], x = row[x_at], y = row[y_at];
    const T x_cos = x * cos, y_sin = y * sin, y_cos = y * cos, x_sin = x * sin;
    row[x_at] = x_cos - y_sin;
    row[y_at] = y_cos + x_sin;
  }
}

// fn(token, cos | sin of its position) for every token that is not skipped.
template <class Fn>
void for_each_token(const Case& c, const Inputs& in, Fn fn) {
  const std::vector<Token> tokens = tokens_of(in);
  constexpr int64_t kRun = 64;  // tokens per unit of parallel work
  const auto count = static_cast<int64_t>(tokens.size());
  parallel_for((count + kRun - 1) / kRun, [&](int64_t run) {
    std::vector<float> cos_sin(static_cast<size_t>(c.rope.rotary_dim));
    for (int64_t i = run * kRun; i < std::min(count, (run + 1) * kRun); ++i) {
      const Token& token = tokens[static_cast<size_t>(i)];
      if (!in_table(c, in, token)) continue;
      if (c.rope.style != sage::RopeStyle::kNone)
        for (int64_t d = 0; d < c.rope.rotary_dim; ++d)
          cos_sin[static_cast<size_t>(d)] = in.cos_sin.get(token.position * c.rope.rotary_dim + d);
      fn(token, cos_sin.data());
    }
  });
}

bool rotates(const Case& c) {
  return c.rope.style != sage::RopeStyle::kNone;
}

int64_t total_tokens(const Inputs& in) {
  return in.cu_seqlens_q.as<int32_t>()[in.cu_seqlens_q.size() - 1];
}

void rotate_exactly(const Case& c, const TensorView& x, int64_t row, const float* cos_sin,
                    std::vector<double>& out) {
  std::vector<float> values(static_cast<size_t>(x.dim));
  for (int h = 0; h < x.heads; ++h) {
    double* to = out.data() + (row * x.heads + h) * x.dim;
    x.read_row(row, h, values.data());
    std::copy(values.begin(), values.end(), to);
    if (rotates(c)) rotate(c.rope, cos_sin, to);
  }
}

void rotate_emulated(const Case& c, const TensorView& x, int64_t row, const float* cos_sin,
                     Tensor& out) {
  const size_t width = size_of(out.dtype);
  std::vector<float> values(static_cast<size_t>(x.dim));
  for (int h = 0; h < x.heads; ++h) {
    const int64_t to = (row * x.heads + h) * x.dim;
    std::memcpy(out.bytes.data() + static_cast<size_t>(to) * width,
                x.base->bytes.data() + static_cast<size_t>(x.index(row, h, 0)) * width,
                static_cast<size_t>(x.dim) * width);
    if (!rotates(c)) continue;
    x.read_row(row, h, values.data());
    rotate(c.rope, cos_sin, values.data());
    for (int i = 0; i < c.rope.rotary_dim; ++i) out.set(to + i, values[static_cast<size_t>(i)]);
  }
}

// Element of slot `slot` of page `page`, head h, channel 0.
int64_t cache_index(const Case& c, int64_t page, int64_t slot, int64_t h, int64_t dim) {
  const int64_t heads = c.model.num_kv_heads, size = c.cache.page_size;
  return c.cache.kv_layout == KvLayout::kHnd ? ((page * heads + h) * size + slot) * dim
                                             : ((page * size + slot) * heads + h) * dim;
}

// Page * page_size + slot where a token goes, or -1: nowhere.
int64_t slot_of(const Case& c, const Inputs& in, const Token& token) {
  const int64_t size = c.cache.page_size, num_slots = in.cache_shape[0] * size;
  int64_t slot = -1;
  if (!in.slot_mapping.empty()) {
    slot = in.slot_mapping.as<int64_t>()[token.row];
  } else {
    const int64_t max_pages = in.page_table.shape[1], entry = token.position / size;
    const int64_t page =
        entry < max_pages ? in.page_table.as<int32_t>()[token.sequence * max_pages + entry] : -1;
    if (page >= 0) slot = page * size + token.position % size;
  }
  return slot < num_slots ? slot : -1;
}

Tensor poisoned(DType dtype, std::vector<int64_t> shape, unsigned char poison) {
  Tensor t(dtype, std::move(shape));
  std::fill(t.bytes.begin(), t.bytes.end(), std::byte{poison});
  return t;
}

}  // namespace

RopeReference exact_rope(const Case& c, const Inputs& in) {
  RopeReference out;
  const int64_t total = total_tokens(in);
  out.q.resize(static_cast<size_t>(total * in.q.heads * in.q.dim));
  out.k.resize(static_cast<size_t>(total * in.k.heads * in.k.dim));
  for_each_token(c, in, [&](const Token& token, const float* cos_sin) {
    rotate_exactly(c, in.q, token.row, cos_sin, out.q);
    rotate_exactly(c, in.k, token.row, cos_sin, out.k);
  });
  return out;
}

void emulate_rope(const Case& c, const Inputs& in, StageOutputs& out) {
  const int64_t total = total_tokens(in);
  out.q_rope = Tensor(c.dtype, {total, in.q.heads, in.q.dim});
  out.k_rope = Tensor(c.dtype, {total, in.k.heads, in.k.dim});
  for_each_token(c, in, [&](const Token& token, const float* cos_sin) {
    rotate_emulated(c, in.q, token.row, cos_sin, out.q_rope);
    rotate_emulated(c, in.k, token.row, cos_sin, out.k_rope);
  });
}

void emulate_cache_write(const Case& c, const Inputs& in, unsigned char poison, StageOutputs& out) {
  const size_t width = size_of(c.dtype);
  const int64_t heads = c.model.num_kv_heads, dim = in.k.dim, dim_v = in.v.dim;
  std::vector<int64_t> value_shape = in.cache_shape;
  value_shape.back() = dim_v;
  out.key_cache = poisoned(c.dtype, in.cache_shape, poison);
  out.value_cache = poisoned(c.dtype, value_shape, poison);

  const auto copy = [width](const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at,
                            int64_t count) {
    std::memcpy(to.bytes.data() + static_cast<size_t>(to_at) * width,
                from.bytes.data() + static_cast<size_t>(from_at) * width,
                static_cast<size_t>(count) * width);
  };
  for (const Token& token : tokens_of(in)) {
    const int64_t slot = slot_of(c, in, token);
    if (slot < 0 || !in_table(c, in, token)) continue;
    const int64_t page = slot / c.cache.page_size, in_page = slot % c.cache.page_size;
    for (int h = 0; h < heads; ++h) {
      copy(out.k_rope, (token.row * heads + h) * dim, out.key_cache,
           cache_index(c, page, in_page, h, dim), dim);
      copy(*in.v.base, in.v.index(token.row, h, 0), out.value_cache,
           cache_index(c, page, in_page, h, dim_v), dim_v);
    }
  }
}

}  // namespace sagebench
