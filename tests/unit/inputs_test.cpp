// Buffers and views: where q, k and v live, and what is around them.
#include "inputs/inputs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sagebench {
namespace {

Case case_of(InputForm form) {
  Case c;
  c.model = {3, 1, 16, 8};
  c.batch.qo_len = c.batch.kv_len = {2, 0, 5};
  c.batch.kv_len_before = {0, 0, 0};
  c.sm_scale = 0.25;
  c.input.form = form;
  c.seed = 5;
  return c;
}

bool same(const TensorView& a, const TensorView& b) {
  if (a.tokens != b.tokens || a.heads != b.heads || a.dim != b.dim) return false;
  for (int64_t t = 0; t < a.tokens; ++t)
    for (int h = 0; h < a.heads; ++h)
      for (int d = 0; d < a.dim; ++d)
        if (a.get(t, h, d) != b.get(t, h, d)) return false;
  return true;
}

TEST(Inputs, PackedAndSplitHoldTheSameValues) {
  const Inputs packed = make_inputs(case_of(InputForm::kPackedQkv));
  const Inputs split = make_inputs(case_of(InputForm::kSplit));
  EXPECT_EQ(packed.packed.shape, (std::vector<int64_t>{7, 4 * 16 + 8}));
  EXPECT_TRUE(split.packed.empty());
  EXPECT_EQ(split.k_split.shape, (std::vector<int64_t>{7, 16}));
  EXPECT_TRUE(same(packed.q, split.q));
  EXPECT_TRUE(same(packed.k, split.k));
  EXPECT_TRUE(same(packed.v, split.v));
  EXPECT_EQ(packed.k.offset, 48);
  EXPECT_EQ(packed.v.offset, 64);
  EXPECT_EQ(std::vector<int32_t>(packed.cu_seqlens_q.as<int32_t>(),
                                 packed.cu_seqlens_q.as<int32_t>() + 4),
            (std::vector<int32_t>{0, 2, 2, 7}));
}

TEST(Inputs, UnlikeLengthsAreSplit) {
  Case c = case_of(InputForm::kPackedQkv);
  c.batch.kv_len = {4, 1, 9};
  const Inputs in = make_inputs(c);
  EXPECT_TRUE(in.packed.empty());
  EXPECT_EQ(in.q.tokens, 7);
  EXPECT_EQ(in.k.tokens, 14);
  EXPECT_EQ(in.cu_seqlens_kv.as<int32_t>()[3], 14);
}

// Everything that is not a live element is NaN.
TEST(Inputs, GapsAndPaddingRowsAreNan) {
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (const InputForm form : {InputForm::kPackedQkv, InputForm::kSplit}) {
      Case c = case_of(form);
      c.dtype = dtype;
      c.input.token_padding = 8;
      c.input.k = {{"nan_in_padding", {}}};
      const Inputs in = make_inputs(c);
      int64_t elements = 0, nans = 0;
      for (const Tensor* t : {&in.packed, &in.q_split, &in.k_split, &in.v_split}) {
        elements += t->size();
        for (int64_t i = 0; i < t->size(); ++i) nans += std::isnan(t->get(i));
      }
      const int64_t live = 7 * (4 * 16 + 8), buffers = form == InputForm::kSplit ? 3 : 1;
      EXPECT_EQ(elements, (7 + 64) * (72 + 8 * buffers));
      EXPECT_EQ(nans, elements - live);
      EXPECT_EQ(in.q.tokens, 7);
      c.input.token_padding = 0;
      c.input.k = {};
      EXPECT_TRUE(same(in.q, make_inputs(c).q));
    }
}

TEST(Inputs, ViewsFollowMovesAndClones) {
  for (const InputForm form : {InputForm::kPackedQkv, InputForm::kSplit}) {
    Inputs original = make_inputs(case_of(form));
    Inputs copy = original.clone();
    EXPECT_TRUE(same(copy.v, original.v));
    EXPECT_NE(copy.v.base, original.v.base);
    const Inputs moved = std::move(original);
    EXPECT_TRUE(same(copy.q, moved.q));
    EXPECT_EQ(moved.q.base, form == InputForm::kSplit ? &moved.q_split : &moved.packed);
    Inputs assigned;
    assigned = std::move(copy);
    EXPECT_TRUE(same(assigned.k, moved.k));
    EXPECT_EQ(assigned.v.base, form == InputForm::kSplit ? &assigned.v_split : &assigned.packed);
    assigned.v_split = Tensor();
    assigned.packed = Tensor();
    EXPECT_FALSE(moved.packed.empty() && moved.v_split.empty()) << "a clone shares nothing";
  }
}

TEST(Inputs, FromGivenTensors) {
  for (const InputForm form : {InputForm::kPackedQkv, InputForm::kSplit}) {
    Case c = case_of(form);
    c.input.token_padding = 8;
    Tensor q(c.dtype, {7, 3, 16}), k(c.dtype, {7, 1, 16}), v(c.dtype, {7, 1, 8});
    for (Tensor* t : {&q, &k, &v})
      for (int64_t i = 0; i < t->size(); ++i) t->set(i, static_cast<float>(i % 128));
    const Inputs in = make_inputs_from(c, q, k, v);
    EXPECT_EQ(in.q.get(6, 2, 15), static_cast<float>(((6 * 3 + 2) * 16 + 15) % 128));
    EXPECT_EQ(in.v.get(6, 0, 7), 55.0f);
    EXPECT_TRUE(std::isnan(in.q.base->get(in.q.base->size() - 1)));
    EXPECT_THROW(make_inputs_from(c, k, k, v), std::logic_error);
    EXPECT_THROW(make_inputs_from(c, q, k, Tensor(DType::kFp32, {7, 1, 8})), std::logic_error);
  }
}

TEST(Inputs, EmptyBatches) {
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{}, {0, 0}}) {
    Case c = case_of(InputForm::kPackedQkv);
    c.op = OpKind::kPrefill;
    c.rope.rotary_dim = 16;
    c.batch.qo_len = c.batch.kv_len = c.batch.kv_len_before = lengths;
    const Inputs in = make_inputs(c);
    EXPECT_EQ(in.q.tokens, 0);
    EXPECT_EQ(in.cu_seqlens_q.size(), static_cast<int64_t>(lengths.size()) + 1);
    EXPECT_EQ(in.cos_sin.shape, (std::vector<int64_t>{1, 16}));
    EXPECT_EQ(in.page_table.shape, (std::vector<int64_t>{static_cast<int64_t>(lengths.size()), 1}));
  }
  Case c = case_of(InputForm::kPackedQkv);
  c.op = OpKind::kPrefill;
  c.rope.style = sage::RopeStyle::kNone;
  EXPECT_TRUE(make_inputs(c).cos_sin.empty());
}

}  // namespace
}  // namespace sagebench
