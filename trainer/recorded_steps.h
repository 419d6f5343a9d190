// The steps that a config asks to look into: when the engine records, and the reports.
//
//   timeline.step, timeline.steps   a timeline of all ranks, in files
//   flops_profiler                  what one step computes, block by block
//   wall_clock_breakdown            where the time goes, for each step that leaves a line
//   memory_breakdown                what memory the phases use, for each step that leaves a line
//   comms_logger                    operations between ranks: of each step, if it is verbose, and in all
//
// Reports are notes of the monitors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/timeline/operation_log.h"
#include "engine/timeline/work_profile.h"
#include "trainer/run.h"

namespace trivet::trainer {

class RecordedSteps {
 public:
  // Throws ConfigError if the steps that the config names are not all within the run. Call it when the run is restored: it may
  // already be past them.
  explicit RecordedSteps(Run& run);

  void before_step();
  // Gathers what all ranks have recorded and reports it. Collective.
  void after_step();
  // The sums of the run.
  void at_end();

 private:
  bool is_in_timeline(int64_t step) const;
  bool leaves_line(int64_t step) const;
  bool breaks_down(int64_t step) const { return run_.config.wall_clock_breakdown && leaves_line(step); }
  void report_timeline();
  void report_work(const std::vector<pipeline::Recording>& recordings);
  void report_memory();
  void report_operations();
  void note(const char* name, const std::vector<std::string>& lines);
  std::vector<std::vector<pipeline::Recording>> gather(const std::vector<pipeline::Recording>& own);

  Run& run_;
  int64_t first_ = 0;                   // first step of the timeline; 0: none
  int64_t profiled_ = 0;                // the step of flops_profiler; 0: none
  int64_t begin_ = 0;                   // steps done when this run began
  std::optional<StepNumbers> numbers_;  // for the step that is profiled
  std::vector<pipeline::Recording> for_timeline_;
  timeline::OperationTotals totals_;
};

}  // namespace trivet::trainer
