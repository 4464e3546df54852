#include "results.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "core/interrupt.h"

namespace sagebench {
namespace {

namespace fs = std::filesystem;

void make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directory(path, error);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw UsageError("--out: " + path +
                     " cannot be made a directory: " + (error ? error.message() : "it is a file") +
                     "; its parent has to exist and be writable");
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// A result that need not be measured again: not one of a planted fault, nor one without a latency
// where this run times.
bool is_final(const CaseResult& result, bool timed) {
  const bool ran = result.status == CaseStatus::kPassed || result.status == CaseStatus::kWrong ||
                   result.status == CaseStatus::kUnchecked;
  return result.status != CaseStatus::kError && result.status != CaseStatus::kSkipped &&
         result.timings_valid && result.fault.empty() &&
         (!timed || !ran || result.cold || result.hot);
}

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw UsageError(file + ": cannot resume: " + why +
                   "; name another file, or leave --resume out to measure all again");
}

// Where a path leads, whether it exists or not.
fs::path place(const std::string& path) {
  std::error_code error;
  const fs::path there = fs::weakly_canonical(path, error);
  if (error) throw UsageError(path + ": " + error.message() + "; name another file");
  return there;
}

// Once a run has begun, a place that can no longer be written is not a matter of usage.
void write_results(const std::string& path, const std::string& content) {
  try {
    write_file_atomically(path, content);
  } catch (const UsageError& e) {
    throw NotSaved(e.what());
  }
}

// Where the results are while the run goes on.
std::string partial(const std::string& path) {
  return path + ".partial";
}

}  // namespace

ResultFiles::ResultFiles(const Options& options, const Suite& suite) {
  std::set<fs::path> read = {place(options.config)};
  for (const Case& c : suite.cases)
    for (const std::string& file : c.files_read) read.insert(place(file));
  if (!options.out.empty()) make_directory(options.out);
  for (const Format& format : formats()) {
    if (const auto file = options.files.find(format.name); file != options.files.end()) {
      formats_.push_back(&format);
      paths_.push_back(file->second);
    }
    if (!options.out.empty()) {
      formats_.push_back(&format);
      paths_.push_back((fs::path(options.out) / format.file_name).string());
    }
  }
  std::set<fs::path> places;
  for (const std::string& path : paths_)
    for (const std::string& file : {path, partial(path)}) {
      const fs::path there = place(file);
      if (read.contains(there))
        throw UsageError(file +
                         ": is the config itself or a file that it reads; give the report another");
      check_writable(file);
      if (!places.insert(there).second)
        throw UsageError(file + ": named for two reports; give each its own file");
    }
}

Earlier ResultFiles::earlier(const Suite& suite, const std::vector<PlannedRun>& plan,
                             bool timed) const {
  Earlier earlier{file_to_resume(), {}};
  if (earlier.file.empty()) return earlier;
  earlier.report = read_json_report(earlier.file);
  std::map<std::string, std::string> hash_of_case;
  for (const Case& c : suite.cases) hash_of_case[c.id] = scenario_hash(c);
  std::set<std::string> planned;
  for (const PlannedRun& run : plan) planned.insert(run.id());
  for (const CaseResult& result : earlier.report.cases) {
    const auto hash = hash_of_case.find(result.case_id);
    if (hash == hash_of_case.end())
      refuse(earlier.file,
             "it holds '" + result.id + "', a case that " + suite.path + " does not have");
    if (hash->second != result.scenario_hash)
      refuse(earlier.file,
             "it holds '" + result.id + "' of another seed or of settings that have changed since");
  }
  std::erase_if(earlier.report.cases, [&](const CaseResult& result) {
    return planned.contains(result.id) && !is_final(result, timed);
  });
  return earlier;
}

void resume(Earlier earlier, Report& report) {
  if (earlier.file.empty()) return;
  const Report& before = earlier.report;
  const auto maker = [](const Report& r) {
    return r.tool_version + " " + r.commit + " on " + r.environment.device + " (" +
           r.environment.device_name + ")";
  };
  if (maker(before) != maker(report))
    refuse(earlier.file, "it was measured by " + maker(before) + ", this is " + maker(report));
  report.cases = std::move(earlier.report.cases);
}

std::string ResultFiles::file_to_resume() const {
  for (size_t i = 0; i < paths_.size(); ++i)
    if (std::string(formats_[i]->name) == "json")
      for (const std::string& file : {partial(paths_[i]), paths_[i]})
        if (fs::exists(file)) return file;
  return "";
}

void ResultFiles::save(const Report& report) {
  const auto start = std::chrono::steady_clock::now();
  if (start < next_save_) return;
  for (size_t i = 0; i < paths_.size(); ++i)
    write_results(partial(paths_[i]), formats_[i]->render(report));
  if (paths_.empty()) return;
  const std::string file = file_to_resume();
  say_on_interrupt("sagebench: interrupted; what was finished is in " +
                   (file.empty() ? partial(paths_[0]) : file + ": continue with --resume"));
  const auto end = std::chrono::steady_clock::now();
  next_save_ = end + 10 * (end - start);
}

void ResultFiles::finish(const Report& report) const {
  for (size_t i = 0; i < paths_.size(); ++i) write_results(paths_[i], formats_[i]->render(report));
  for (const std::string& path : paths_) fs::remove(partial(path));
}

Report start_report(const Options& options, const Suite& suite, const Environment& environment) {
  Report report;
  report.tool_version = tool_version();
  report.commit = tool_commit();
  report.config_path = suite.path;
  report.config_hash = suite.hash;
  report.suite = suite.name;
  report.started_at = utc_now();
  report.argv = options.argv;
  report.environment = environment;
  return report;
}

}  // namespace sagebench
