#include "metrics.h"

#include <cmath>
#include <cstdio>

#include "metrics/stage_checks.h"
#include "metrics/tally.h"

namespace sagebench {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::optional<double> if_finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// Cases that state a range expect to miss the default limits; the range is judged elsewhere.
bool has_limits(const Case& c, const Kernel& kernel) {
  return c.expectation(kernel.name).kind != ExpectKind::kRange;
}

// The two references and what separates the subject from them.
class AccuracyMeasurement {
 public:
  AccuracyMeasurement(const Case& c, const Inputs& in, const Kernel& kernel, const RowSample& rows)
      : c_(c), kernel_(kernel), rows_(rows) {
    if (op_of(c.op).caches) emulate_rope(c, in, own_);
    x_ = operands_of(c, in, own_);
  }

  void measure(const AttentionRows& subject, bool itemise) {
    const int tile_q = kernel_.layout.tile_q;
    accuracy_.rows_checked = static_cast<int64_t>(rows_.rows.size());
    accuracy_.rows_total = rows_.total;
    AttentionRows emulated;
    if (c_.validate.exact) exact_ = exact_attention(c_, x_, rows_);
    if (c_.validate.emulated) {
      quantise();
      emulated = emulate_attention(c_, own_, *x_.cu_seqlens_q, *x_.cu_seqlens_kv, kernel_, rows_);
      accuracy_.kernel_vs_emulated = measure_error(c_, rows_, subject, emulated, tile_q);
    }
    if (!c_.validate.exact) return;
    accuracy_.kernel_vs_exact = measure_error(c_, rows_, subject, exact_, tile_q);
    if (c_.validate.emulated)
      accuracy_.emulated_vs_exact = measure_error(c_, rows_, emulated, exact_, tile_q);
    if (itemise) this->itemise();
  }

  // Relative L1 of the exact result but for one stage: what each quantisation costs.
  void itemise() {
    quantise();
    const auto price = [&](Price item) {
      return measure_error(c_, rows_, priced_attention(c_, x_, own_, kernel_, rows_, item), exact_)
          .all.rel_l1;
    };
    accuracy_.price_qk = price(Price::kQk);
    accuracy_.price_p = price(Price::kP);
    accuracy_.price_v = price(Price::kV);
  }

  std::string blame() const {
    const double qk = *accuracy_.price_qk, p = *accuracy_.price_p, v = *accuracy_.price_v;
    const char* largest = qk >= p && qk >= v ? "Q and K codes" : v >= p ? "V codes" : "P";
    return std::string("; the largest price is that of ") + largest + ": QK " + number(qk) +
           ", P " + number(p) + ", V " + number(v) + " relative L1";
  }

  const AttentionRows& exact() const { return exact_; }
  const Accuracy& accuracy() const { return accuracy_; }

 private:
  void quantise() {
    if (own_.q_codes.empty()) emulate_quantisation(c_, x_, kernel_, own_);
  }

  const Case& c_;
  const Kernel& kernel_;
  const RowSample& rows_;
  StageOutputs own_;  // of the references, from the inputs alone
  AttentionOperands x_;
  AttentionRows exact_;
  Accuracy accuracy_;
};

void check_accuracy(const Case& c, const Kernel& kernel, const RowSample& rows,
                    const AttentionRows& actual, AccuracyMeasurement& m,
                    std::vector<StageCheck>& checks) {
  if (!has_limits(c, kernel)) return;
  const auto& emulated_limit = c.validate.tolerance.rel_l1_emulated;
  if (c.validate.emulated && emulated_limit) {
    const double error = m.accuracy().kernel_vs_emulated.all.rel_l1;
    Tally tally;
    tally.add(error, *emulated_limit, 0, error, {});
    checks.push_back(finish(Stage::kO, "against emulated: relative L1 of the whole case", tally));
  }
  if (!c.validate.exact) return;
  std::vector<StageCheck> limits;
  check_limits(c, rows, actual, m.exact(), m.accuracy(), limits);
  for (StageCheck& check : limits) {
    if (!check.passed) {
      if (!m.accuracy().price_qk) m.itemise();
      check.detail += m.blame();
    }
    checks.push_back(std::move(check));
  }
}

void check_attention(const Case& c, const Inputs& in, const Kernel& kernel,
                     const StageOutputs& subject, unsigned char poison, const RowSample& rows,
                     bool itemise_price, Validation& v) {
  const AttentionOperands x = operands_of(c, in, subject);
  check_offsets(x, kernel, subject, v.checks);
  check_qk_codes(x, kernel, subject, v.checks);
  check_v_codes(x, kernel, subject, v.checks);
  check_o_written(c, x, subject, rows, poison, v.checks);
  if (!rows.rows.empty()) {
    const AttentionRows actual = gather_rows(c, *x.cu_seqlens_q, subject, rows);
    AttentionRows expected;
    if (c.validate.emulated) {
      expected = emulate_attention(c, subject, *x.cu_seqlens_q, *x.cu_seqlens_kv, kernel, rows);
      check_o(c, kernel, subject, rows, actual, expected, v.checks);
    }
    AccuracyMeasurement m(c, in, kernel, rows);
    m.measure(actual, itemise_price);
    check_accuracy(c, kernel, rows, actual, m, v.checks);
    v.accuracy = m.accuracy();
    if (c.return_lse) check_lse_dot(x, subject, v.checks);
    if (c.return_lse && c.validate.emulated)
      check_lse(c, kernel, subject, *x.cu_seqlens_q, rows, actual, expected, v.checks);
  }
}

}  // namespace

std::string to_string(const Coordinate& at) {
  std::string text;
  const auto add = [&](const char* name, int64_t value) {
    if (value >= 0) text += (text.empty() ? "" : ", ") + (name + std::to_string(value));
  };
  add("sequence ", at.sequence);
  add("head ", at.head);
  add("token ", at.token);
  add("channel ", at.channel);
  return text;
}

StageCheck finish(Stage stage, std::string rule, const Tally& tally) {
  StageCheck check;
  check.stage = stage;
  check.rule = std::move(rule);
  check.checked = tally.checked;
  check.wrong = tally.wrong;
  check.passed = tally.checked > 0 && tally.wrong == 0;
  check.worst = tally.worst;
  check.limit = tally.limit;
  check.at = tally.at;
  check.expected = if_finite(tally.expected);
  check.actual = if_finite(tally.actual);
  if (check.passed) return check;
  const std::string place = to_string(tally.at);
  check.detail = (place.empty() ? "" : place + ": ") + "expected " + number(tally.expected) +
                 ", found " + number(tally.actual);
  if (std::isfinite(tally.worst))
    check.detail += ", off by " + number(tally.worst) + " of " + number(tally.limit) + " allowed";
  check.detail +=
      "; " + std::to_string(tally.wrong) + " of " + std::to_string(tally.checked) + " wrong";
  return check;
}

AttentionOperands operands_of(const Case& c, const Inputs& in, const StageOutputs& rotated) {
  const auto view = [](const Tensor& t) {
    return TensorView{&t,
                      0,
                      t.shape[1] * t.shape[2],
                      t.shape[2],
                      t.shape[0],
                      static_cast<int>(t.shape[1]),
                      static_cast<int>(t.shape[2])};
  };
  AttentionOperands x{in.q, in.k, in.v, &in.cu_seqlens_q, &in.cu_seqlens_kv};
  if (op_of(c.op).caches) {
    x.q = view(rotated.q_rope);
    x.k = view(rotated.k_rope);
  }
  return x;
}

AttentionRows gather_rows(const Case& c, const Tensor& cu_seqlens_q, const StageOutputs& out,
                          const RowSample& rows) {
  AttentionRows result;
  const int64_t n = c.model.head_dim_v, heads = c.model.num_qo_heads;
  const int32_t* cu = cu_seqlens_q.as<int32_t>();
  const int64_t tokens = cu[cu_seqlens_q.size() - 1];
  for (const QueryRow& row : rows.rows) {
    const int64_t token = cu[row.sequence] + row.token;
    for (int64_t d = 0; d < n; ++d)
      result.o.push_back(out.o.get((token * heads + row.head) * n + d));
    if (!out.lse.empty()) result.lse.push_back(out.lse.get(row.head * tokens + token));
  }
  return result;
}

Validation validate(const Case& c, const Inputs& in, const Kernel& kernel,
                    const StageOutputs& subject, unsigned char poison, const RowSample& rows,
                    bool itemise_price) {
  Validation v;
  if (!check_shapes(c, in, kernel, subject, v.checks)) return v;
  if (op_of(c.op).caches) {
    check_rope(c, in, subject, v.checks);
    check_cache(c, in, subject, poison, v.checks);
  }
  if (op_of(c.op).attends) check_attention(c, in, kernel, subject, poison, rows, itemise_price, v);
  return v;
}

}  // namespace sagebench
