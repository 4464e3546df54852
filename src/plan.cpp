#include "plan.h"

#include <algorithm>
#include <numeric>
#include <regex>
#include <set>

#include "core/error.h"
#include "core/nearest.h"
#include "ops/reference.h"

namespace sagebench {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::vector<PlannedRun> every_run(const Suite& suite) {
  std::vector<PlannedRun> all;
  for (const Case& c : suite.cases)
    for (Kernel& kernel : op_of(c.op).kernels(c)) all.push_back({&c, std::move(kernel)});
  return all;
}

// Kernel names are a closed table: one that is in none of its rows is a typing error.
void check_kernels(const std::vector<std::string>& asked, const std::vector<PlannedRun>& all,
                   const std::string& place) {
  std::vector<std::string> known;
  for (const PlannedRun& run : all)
    if (!contains(known, run.kernel.name)) known.push_back(run.kernel.name);
  for (const std::string& name : asked)
    if (!contains(known, name))
      throw UsageError(place + ": no kernel '" + name + "' for these cases; there are " +
                       joined(known));
}

// Matched in polynomial time and little stack, whatever the expression; back-references are
// refused.
std::regex compile(const std::string& filter) {
  constexpr size_t kLongest = 1000;  // the compiler of expressions recurses
  if (filter.size() > kLongest)
    throw UsageError("--filter: " + std::to_string(filter.size()) + " characters; at most " +
                     std::to_string(kLongest));
  try {
#ifdef __GLIBCXX__
    return std::regex(filter, std::regex::ECMAScript | std::regex_constants::__polynomial);
#else
    return std::regex(filter);
#endif
  } catch (const std::regex_error& e) {
    throw UsageError("--filter: '" + filter + "' is not a regular expression: " + e.what());
  }
}

[[noreturn]] void fail_on_nothing(const Suite& suite, const Options& options,
                                  const std::vector<PlannedRun>& all) {
  std::vector<std::string> ids;
  const bool with_kernel = !options.only.empty() && options.only[0].find('@') != std::string::npos;
  for (const PlannedRun& run : all) {
    const std::string id = with_kernel ? run.id() : run.c->id;
    if (!contains(ids, id)) ids.push_back(id);
  }
  const std::string typed = !options.only.empty() ? options.only[0] : options.filter;
  const std::string near = joined(nearest(typed, ids, 3));
  throw Error(ExitCode::kNoVerdict, suite.path + ": nothing selected" +
                                        (typed.empty() ? "" : " by '" + typed + "'") + " among " +
                                        std::to_string(suite.cases.size()) + " cases; " +
                                        (near.empty() ? "--list shows them" : "nearest: " + near));
}

std::string scaled(double value, const char* unit) {
  constexpr const char* kPrefix[] = {"", "k", "M", "G", "T", "P"};
  size_t step = 0;
  for (; value >= 1000 && step + 1 < std::size(kPrefix); ++step) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s%s", value, kPrefix[step], unit);
  return text;
}

int64_t total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::string render_cost(const PlannedRun& run) {
  const Case& c = *run.c;
  const Work work = op_of(c.op).work(c, run.kernel);
  std::string out = scaled(work.flops, "FLOP") + ", " + scaled(work.bytes, "B moved") + ", " +
                    scaled(static_cast<double>(work.device_bytes), "B on the GPU");
  if (c.validate.rows == Rows::kOff) return out + ", not validated";
  if (!run.kernel.attention) return out + ", reference " + scaled(work.reference_flops, "FLOP");
  const RowSample rows = sample_rows(c, run.kernel.layout);
  const double share =
      rows.total == 0 ? 0.0
                      : static_cast<double>(rows.rows.size()) / static_cast<double>(rows.total);
  return out + ", reference " + scaled(work.reference_flops * share, "FLOP") + " (" +
         std::to_string(rows.rows.size()) + " of " + std::to_string(rows.total) + " rows)";
}

}  // namespace

std::vector<PlannedRun> make_plan(const Suite& suite, const Options& options) {
  const std::vector<PlannedRun> all = every_run(suite);
  check_kernels(options.kernels, all, "--kernel");
  for (const Case& c : suite.cases)
    check_kernels(c.exec.kernels, all, suite.path + ": " + c.pointer + "/exec/kernels");

  const std::regex filter = compile(options.filter);
  std::set<std::string> found;  // the --only ids that selected something
  std::vector<PlannedRun> plan;
  for (const PlannedRun& run : all) {
    if (!run.c->exec.kernels.empty() && !contains(run.c->exec.kernels, run.kernel.name)) continue;
    if (!options.kernels.empty() && !contains(options.kernels, run.kernel.name)) continue;
    if (!options.filter.empty() && !std::regex_search(run.id(), filter)) continue;
    if (!options.only.empty()) {
      const bool by_case = contains(options.only, run.c->id);
      const bool by_run = contains(options.only, run.id());
      if (by_case) found.insert(run.c->id);
      if (by_run) found.insert(run.id());
      if (!by_case && !by_run) continue;
    }
    plan.push_back(run);
  }
  for (const std::string& id : options.only)
    if (!found.contains(id)) {
      Options missing = options;
      missing.only = {id};
      fail_on_nothing(suite, missing, all);
    }
  if (plan.empty()) fail_on_nothing(suite, options, all);
  return plan;
}

std::string render_list(const std::vector<PlannedRun>& plan) {
  std::string out;
  const Case* last = nullptr;
  for (const PlannedRun& run : plan)
    if (run.c != last) out += (last = run.c)->id + "\n";
  return out;
}

std::string render_dry_run(const std::vector<PlannedRun>& plan) {
  std::string out;
  const Case* last = nullptr;
  for (const PlannedRun& run : plan) {
    const Case& c = *run.c;
    if (&c != last)
      out += c.id + ": " + op_of(c.op).name + ", " + std::to_string(c.batch.size()) + " seqs (" +
             c.batch.source + "), " + std::to_string(total(c.batch.qo_len)) + " q, " +
             std::to_string(total(c.batch.kv_len)) + " kv\n";
    last = &c;
    out += "  " + run.kernel.name + ": " +
           (run.kernel.unsupported.empty() ? render_cost(run)
                                           : "unsupported: " + run.kernel.unsupported) +
           "\n";
  }
  return out;
}

}  // namespace sagebench
