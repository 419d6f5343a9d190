#include "trainer/recorded_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "comm/participants.h"
#include "core/error.h"
#include "engine/config/refuse.h"
#include "engine/timeline/timeline_report.h"
#include "report/monitor/output_file.h"

namespace trivet::trainer {
namespace {

// DeepSpeed counts the steps before the one that it profiles, so its step 1 is the second. Returns 0 if none is to come.
int64_t step_to_profile(const Run& run) {
  const FlopsProfilerConfig& profiler = run.config.flops_profiler;
  const int64_t step = profiler.profile_step + 1;
  if (!profiler.enabled || step <= run.steps_done()) return 0;
  if (step > run.total_steps())
    config::refuse(run.config, "flops_profiler.profile_step",
                   fmt::format("{} steps come before the one that is profiled, but this run has only {}; use at most {}",
                               profiler.profile_step, run.total_steps(), run.total_steps() - 1));
  return step;
}

// Replaces an earlier report. Returns false where it cannot, which the log then says: the run is worth more than its report.
bool write_report(const std::string& file, const std::vector<std::string>& lines) {
  std::error_code none;
  if (std::filesystem::is_regular_file(file, none)) std::filesystem::resize_file(file, 0, none);
  return monitor::OutputFile::opened_late(file).write(fmt::format("{}\n", fmt::join(lines, "\n")));
}

}  // namespace

// If the config gives epochs, the last step is known only here.
RecordedSteps::RecordedSteps(Run& run)
    : run_(run), profiled_(step_to_profile(run)), begin_(run.steps_done()), totals_(run.config.comms_logger.debug) {
  const TimelineConfig& timeline = run.config.timeline;
  if (timeline.step == 0 || timeline.step <= run.steps_done()) return;
  if (timeline.step + timeline.steps - 1 > run.total_steps())
    throw ConfigError(fmt::format("{}: timeline.step: {} and the {} steps after it are not all within the {} steps of this run",
                                  run.config.source, timeline.step, timeline.steps - 1, run.total_steps()));
  if (run.is_first_rank()) timeline::make_directory(run.config);
  first_ = timeline.step;
}

bool RecordedSteps::is_in_timeline(int64_t step) const {
  return first_ > 0 && step >= first_ && step < first_ + run_.config.timeline.steps;
}

// Checks whether monitor::Console prints the step.
bool RecordedSteps::leaves_line(int64_t step) const {
  const int64_t every = run_.config.steps_per_print;
  return step == begin_ + 1 || (every > 0 && step % every == 0) || step == run_.total_steps();
}

void RecordedSteps::before_step() {
  const int64_t step = run_.steps_done() + 1;
  run_.engine.record(is_in_timeline(step) || step == profiled_ || breaks_down(step));
  run_.engine.watch_memory(run_.config.memory_breakdown && leaves_line(step));
  if (step == profiled_) numbers_ = run_.engine.next_numbers();
}

void RecordedSteps::after_step() {
  const int64_t done = run_.steps_done();
  const bool looks_into_one = done == profiled_ || breaks_down(done);
  if (is_in_timeline(done) || looks_into_one) {
    const std::vector<pipeline::Recording> recorded = run_.engine.take_recordings();
    if (is_in_timeline(done)) for_timeline_.insert(for_timeline_.end(), recorded.begin(), recorded.end());
    if (looks_into_one) {
      std::vector<pipeline::Recording> last;
      for (const auto& steps : gather(recorded)) last.push_back(steps.back());
      if (run_.is_first_rank()) report_work(last);
    }
    if (is_in_timeline(done) && !is_in_timeline(done + 1)) report_timeline();
  }
  if (run_.config.memory_breakdown && leaves_line(done)) report_memory();
  report_operations();
}

std::vector<std::vector<pipeline::Recording>> RecordedSteps::gather(const std::vector<pipeline::Recording>& own) {
  std::vector<std::vector<pipeline::Recording>> recordings;
  for (const std::string& text : comm::over_group(run_.world.group()).gather(timeline::to_text(own)))
    recordings.push_back(timeline::from_text(text));
  return recordings;
}

void RecordedSteps::note(const char* name, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) run_.monitors.on_note({name, line});
}

void RecordedSteps::report_timeline() {
  std::vector<std::vector<pipeline::Recording>> recordings = gather(for_timeline_);
  if (!run_.is_first_rank()) return;
  const timeline::TimelineReport report = timeline::make_timeline_report(run_.engine.plan(), std::move(recordings));
  try {
    timeline::write(report, run_.engine.plan());
  } catch (const ConfigError& error) {  // the run is worth more than its drawing
    run_.log.warning(error.what());
    return;
  }
  const std::filesystem::path drawing = std::filesystem::path(run_.config.timeline.directory) / "timeline.svg";
  note("timeline", {fmt::format("{}: {}", drawing.string(), timeline::summary(report))});
}

void RecordedSteps::report_work(const std::vector<pipeline::Recording>& recordings) {
  const int64_t done = run_.steps_done();
  const Plan& plan = run_.engine.plan();
  if (breaks_down(done)) note("time", {timeline::breakdown_of(plan, recordings)});
  if (done != profiled_) return;
  timeline::WorkProfile profile = timeline::count_work(plan, run_.engine.model(), *numbers_);
  timeline::add_times(profile, plan, recordings);
  const std::vector<std::string> lines = timeline::report_of(profile, plan, done);
  const std::string& file = run_.config.flops_profiler.output_file;
  if (file.empty() || !write_report(file, lines)) return note("flops", lines);
  note("flops", {file + ": " + lines.front()});
}

void RecordedSteps::report_memory() {
  if (run_.is_first_rank()) note("memory", run_.engine.memory_phases().table());
}

void RecordedSteps::report_operations() {
  timeline::OperationLog* const log = run_.engine.operation_log();
  if (!log) return;
  const CommsLoggerConfig& config = run_.config.comms_logger;
  for (timeline::LoggedOperation& operation : log->take()) {
    if (!run_.is_first_rank()) continue;
    totals_.add(operation);
    if (!config.debug) operation.group.clear();
    if (config.verbose) note("comms", {timeline::line_of(operation)});
  }
}

void RecordedSteps::at_end() {
  run_.engine.wait_for_collectives();
  report_operations();
  if (!totals_.all().empty()) note("comms", timeline::table_of(totals_.all()));
}

}  // namespace trivet::trainer
