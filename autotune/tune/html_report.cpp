#include "autotune/tune/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "autotune/tune/metric.h"
#include "report/line_chart.h"
#include "report/monitor/number_text.h"
#include "report/page_drawing.h"

namespace trivet::autotune {
namespace {

using report::escaped;

// The style of this page, in addition to that of all pages.
constexpr const char* kStyle = R"(
.trials td:nth-child(2), .trials th:nth-child(2), .trials td:last-child, .trials th:last-child { text-align: left; }
.trials td:last-child { white-space: normal; min-width: 18em; } tr.best { font-weight: 600; } tr.not { color: var(--soft); }
figure { max-width: 520px; }
)";

double metric_of(const TuningReport& report, const TrialRecord& record) {
  return metrics_of(*record.trial, record.result.seconds, report.world_size).of(report.config->autotuning.metric);
}

// Draws a chart in the units of metric_text.
report::LineChart chart_of(const TuningReport& report) {
  const TuningMetric metric = report.config->autotuning.metric;
  const MetricUnit unit = unit_of(metric);
  report::Line best{.name = "best so far"}, each{.name = "each trial", .color = 2, .style = report::LineStyle::Dots};
  for (size_t i = 0; i < report.records.size(); ++i) {
    if (report.records[i].result.status != TrialStatus::Ok) continue;
    const double value = metric_of(report, report.records[i]) / unit.size, trial = static_cast<double>(i + 1);
    const bool better = best.points.empty() || is_better(metric, value, best.points.back().second);
    each.points.emplace_back(trial, value);
    best.points.emplace_back(trial, better ? value : best.points.back().second);
  }
  return {.title = fmt::format("{}, {}", monitor::with_capital(name_of(metric)), unit.name),
          .counts = "trial",
          .lines = {best, each},
          .marks = {}};
}

std::string note_of(const TuningReport& report, const TrialRecord& record) {
  const bool ran = record.result.status == TrialStatus::Ok;
  std::string note = !ran            ? std::string(name_of(record.result.status))
                     : record.reused ? "reused"
                                     : spread_text(record.measured);
  if (!record.result.message.empty()) note += ": " + record.result.message;
  if (&record != report.best()) return note;
  return note.empty() ? "best" : "best; " + note;
}

std::string row_of(const TuningReport& report, const TrialRecord& record, size_t number) {
  const bool ran = record.result.status == TrialStatus::Ok;
  const char* style = &record == report.best() ? " class=\"best\"" : ran ? "" : " class=\"not\"";
  return fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{}</td></tr>\n", style,
                     number, record.trial->name,
                     ran ? metric_text(report.config->autotuning.metric, metric_of(report, record)) : "",
                     ran ? fmt::format("{:.2f}", record.result.seconds * 1e3) : "",
                     record.predicted_seconds > 0 ? fmt::format("{:.2f}", record.predicted_seconds * 1e3) : "",
                     static_cast<double>(record.trial->memory_bytes) / (1 << 20), escaped(note_of(report, record)));
}

std::string state_of(const TuningReport& report) {
  return report.ended.empty() ? "Not ended: it is running, or was killed." : "Ended: " + report.ended + ".";
}

}  // namespace

std::string report_html(const TuningReport& report) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" "
      "content=\"trivet\"><meta name=\"viewport\" content=\"width=device-width\"><title>trivet tune</title>\n";
  page += fmt::format("<style>\n{}{}</style>\n</head><body>\n<h1>{}</h1>\n", report::page_style(), kStyle,
                      escaped(report.config->source));
  if (const TrialRecord* best = report.best())
    page += fmt::format("<p>Best: <b>{}</b>, {}.</p>\n", best->trial->name,
                        metric_text(report.config->autotuning.metric, metric_of(report, *best)));
  page += "<p>" + escaped(state_of(report)) + "</p>\n";
  if (const report::LineChart chart = chart_of(report); !report::is_empty(chart)) page += report::figure(chart, "chart");
  page += "<table class=\"figures trials\">\n<tr><th></th><th>trial</th><th>" +
          std::string(name_of(report.config->autotuning.metric)) +
          "</th><th>ms a step</th><th>predicted ms</th><th>MiB a rank</th><th>note</th></tr>\n";
  for (size_t i = 0; i < report.records.size(); ++i) page += row_of(report, report.records[i], i + 1);
  page += "</table>\n<pre>" + escaped(summary_text(report)) + "</pre>\n</body></html>\n";
  return page;
}

}  // namespace trivet::autotune
