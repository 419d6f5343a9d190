#include "engine/trainer/recorded_steps.h"

#include <fmt/format.h>

#include <filesystem>

#include "comm/participants.h"
#include "core/error.h"
#include "engine/timeline/timeline_report.h"

namespace trivet::trainer {

// If the config gives epochs, the last step is known only here.
RecordedSteps::RecordedSteps(Run& run) : run_(run) {
  const TimelineConfig& timeline = run.config.timeline;
  if (timeline.step == 0 || timeline.step <= run.steps_done()) return;
  if (timeline.step + timeline.steps - 1 > run.total_steps())
    throw ConfigError(fmt::format("{}: timeline.step: {} and the {} steps after it are not all within the {} steps of this run",
                                  run.config.source, timeline.step, timeline.steps - 1, run.total_steps()));
  if (run.is_first_rank()) timeline::make_directory(run.config);
  first_ = timeline.step;
}

bool RecordedSteps::contains(int64_t step) const {
  return first_ > 0 && step >= first_ && step < first_ + run_.config.timeline.steps;
}

void RecordedSteps::before_step() { run_.engine.record(contains(run_.steps_done() + 1)); }

void RecordedSteps::after_step() {
  const int64_t done = run_.steps_done();
  if (contains(done) && !contains(done + 1)) report();
}

void RecordedSteps::report() {
  std::vector<std::vector<pipeline::Recording>> recordings;
  const std::string mine = timeline::to_text(run_.engine.take_recordings());
  for (const std::string& text : comm::over_group(run_.world.group()).gather(mine))
    recordings.push_back(timeline::from_text(text));
  if (!run_.is_first_rank()) return;
  const timeline::TimelineReport report = timeline::make_timeline_report(run_.engine.plan(), std::move(recordings));
  timeline::write(report, run_.engine.plan());
  const std::filesystem::path drawing = std::filesystem::path(run_.config.timeline.directory) / "timeline.svg";
  run_.monitors.on_note({"timeline", fmt::format("{}: {}", drawing.string(), timeline::summary(report))});
}

}  // namespace trivet::trainer
