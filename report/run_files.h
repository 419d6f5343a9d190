// The folder of a run (run.directory), and what is in it:
//
//   config.json                the config with every default, of the last start
//   plan.txt  plan.json        what `trivet plan` says about it
//   starts.jsonl               one line per start: time, command, environment, versions, hosts of the ranks
//   metrics.jsonl              one line per step (report/monitor/jsonl.h)
//   metrics.evaluation.jsonl   one line per evaluation
//   events.jsonl               starts, checkpoints, notes and ends (event_log.h)
//   predictions.json           samples of the last evaluation, with what the model predicts (predictions_file.h)
//   timeline/                  of the recorded steps, if timeline.step asks for them
//   report.html                all of this as a page
#pragma once

namespace trivet::report {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kPlanTextFile = "plan.txt";
inline constexpr const char* kPlanFile = "plan.json";
inline constexpr const char* kStartsFile = "starts.jsonl";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kPredictionsFile = "predictions.json";
inline constexpr const char* kTimelineFolder = "timeline";
inline constexpr const char* kTimelineDrawing = "timeline/timeline.svg";
inline constexpr const char* kRankTimesFile = "timeline/ranks.json";
inline constexpr const char* kReportFile = "report.html";

}  // namespace trivet::report
