// Holds what is known about a run, for pages: read from the run's folder (read_run.h), or collected while it trains
// (live_run.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "report/monitor/monitor.h"
#include "report/page_drawing.h"
#include "report/thinned_series.h"

namespace trivet::report {

// A number that was not finite is NaN.
struct StepPoint {
  int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = 0, targets_per_second = 0, step_ms = 0, memory_bytes = 0;
  double loss_scale = 0;  // 0: none
  double fullest = 0;     // tokens of the expert with most, times the mean of its block; 0: none has experts
  bool skipped = false;
  bool without_targets = false;  // it has no loss; the loss and what else has no value is NaN
};

struct EvaluationPoint {
  int64_t step = 0;
  double loss = 0;
  bool without_targets = false;                                // the same
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // out of 1; NaN: the model does not choose classes
};

// A note that a run printed after this step: {"timeline", "41.20 ms measured ..."}, {"checkpoint", "its save began"}.
struct Note {
  int64_t step = 0;
  std::string what, text;
};
// A save in the background may still fail; the run then says so on the console.
inline Note checkpoint_note(int64_t step) { return {step, "checkpoint", "its save began"}; }

// The time of a rank in the recorded step of the timeline.
struct RankTime {
  int rank = 0;
  double compute_ms = 0, wait_ms = 0;
};

// Figures from the plan; 0 or empty where they are not known.
struct PlanFigures {
  int64_t ranks = 0;
  int64_t samples_per_step = 0;           // over all ranks
  double flops_per_step = 0;              // over all ranks
  double peak_flops = 0;                  // peak of one rank's device, in a second
  std::vector<NamedValue> memory;         // bytes of each category on the rank that needs most
  std::vector<NamedValue> communication;  // bytes that a rank sends in one step, by line of the plan
};

struct KnownStart {
  int64_t steps_done = 0;
  int64_t ranks = 0;  // 0: not known
};

enum class RunState : uint8_t { Unfinished, Running, Ended };  // Unfinished: it is running, or was killed

struct RunData {
  std::string name;
  std::string report_path;  // path of the page that the run leaves; empty: it leaves none, or this is that page
  RunState state = RunState::Unfinished;
  int64_t total_steps = 0;                                     // 0: not known
  int64_t starts = 0;                                          // number of starts; 0: not known
  std::vector<KnownStart> known_starts;                        // the newest of them, oldest first
  std::vector<std::pair<std::string, std::string>> facts;      // from the last start
  std::vector<std::pair<std::string, std::string>> end_facts;  // such as measured memory
  monitor::TargetWords targets = monitor::kTokens;
  ThinnedSeries<StepPoint> steps;
  int64_t skipped_steps = 0, steps_without_targets = 0;
  ThinnedSeries<EvaluationPoint> evaluations;
  double best_validation_loss = std::numeric_limits<double>::quiet_NaN();  // NaN: no evaluation had a finite loss
  int64_t best_validation_step = 0;
  double best_accuracy = std::numeric_limits<double>::quiet_NaN();  // NaN: none is known
  int64_t best_accuracy_step = 0;
  monitor::ShownPredictions predictions;  // from the last evaluation that had some
  std::vector<Note> notes;
  std::vector<monitor::MemoryPeak> memory;  // known at the end
  PlanFigures plan;
  std::vector<RankTime> ranks;  // if a timeline was recorded
  std::string timeline_svg;     // empty: none
  std::string config_json;      // empty: not known
  std::string plan_text;        // the same
  std::string last_start_json;  // command, environment, versions and hosts of the last start; empty: not known
};

void add(RunData& run, const StepPoint& step);
void add(RunData& run, const EvaluationPoint& evaluation);
void add(RunData& run, Note note);  // the newest 500 stay

}  // namespace trivet::report
