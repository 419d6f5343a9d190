#include "autotune/tune/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "autotune/tune/metric.h"
#include "engine/report/page_drawing.h"

namespace trivet::autotune {
namespace {

using report::escaped;

// In addition to the style of all pages.
constexpr const char* kStyle = R"(
.trials td:nth-child(2), .trials th:nth-child(2), .trials td:last-child { text-align: left; }
tr.best { font-weight: 600; } tr.not { color: var(--soft); }
.axis { stroke: var(--line); fill: none; } .all { fill: var(--soft); } .curve { stroke: var(--c0); stroke-width: 2; fill: none; }
)";

struct Curve {
  std::vector<double> values, best;  // after each trial that was Ok
};

Curve curve_of(const TuningReport& report) {
  const TuningMetric metric = report.config->autotuning.metric;
  Curve curve;
  for (const TrialRecord& record : report.records) {
    if (record.result.status != TrialStatus::Ok) continue;
    const double value = metrics_of(*record.trial, record.result.seconds, report.world_size).of(metric);
    const bool better = curve.best.empty() || is_better(metric, value, curve.best.back());
    curve.values.push_back(value);
    curve.best.push_back(better ? value : curve.best.back());
  }
  return curve;
}

std::string curve_svg(const TuningReport& report) {
  constexpr double kLeft = 110, kTop = 15, kWidth = 620, kHeight = 220;
  const Curve curve = curve_of(report);
  if (curve.values.empty()) return "";
  const double low = std::ranges::min(curve.values), high = std::ranges::max(curve.values);
  const double range = high > low ? high - low : 1;
  const auto x = [&](size_t trial) {
    return kLeft + kWidth * static_cast<double>(trial) / static_cast<double>(std::max<size_t>(curve.values.size() - 1, 1));
  };
  const auto y = [&](double value) { return kTop + kHeight * (1 - (value - low) / range); };
  const TuningMetric metric = report.config->autotuning.metric;
  std::string svg = fmt::format(
      "<svg class=\"drawn\" viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"{} by trial, best so far as a "
      "line\">\n",
      kLeft + kWidth + 20, kTop + kHeight + 40, kLeft + kWidth + 20, name_of(metric));
  svg += fmt::format("<path class=\"axis\" d=\"M{0} {1}V{2}H{3}\"/>\n", kLeft - 8, kTop, kTop + kHeight + 8, kLeft + kWidth);
  for (const double value : {low, high})
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 14, y(value) + 4,
                       metric_text(metric, value));
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">trials that ran: {}</text>\n", kLeft + kWidth / 2,
                     kTop + kHeight + 30, curve.values.size());
  std::string path;
  for (size_t i = 0; i < curve.values.size(); ++i) {
    svg += fmt::format("<circle class=\"all\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n", x(i), y(curve.values[i]));
    path +=
        i == 0 ? fmt::format("M{:.1f} {:.1f}", x(i), y(curve.best[i])) : fmt::format("H{:.1f}V{:.1f}", x(i), y(curve.best[i]));
  }
  return svg + fmt::format("<path class=\"curve\" d=\"{}\"/>\n</svg>\n", path);
}

std::string row_of(const TuningReport& report, const TrialRecord& record, size_t number) {
  const TuningMetric metric = report.config->autotuning.metric;
  const bool ran = record.result.status == TrialStatus::Ok;
  const std::string measured =
      ran ? metric_text(metric, metrics_of(*record.trial, record.result.seconds, report.world_size).of(metric)) : "";
  const std::string predicted =
      record.predicted_seconds > 0 ? fmt::format("{:.2f}", record.predicted_seconds * 1e3) : std::string("");
  return fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{}{}</td></tr>\n",
                     &record == report.best() ? " class=\"best\""
                     : ran                    ? ""
                                              : " class=\"not\"",
                     number, record.trial->name, measured, ran ? fmt::format("{:.2f}", record.result.seconds * 1e3) : "",
                     predicted, static_cast<double>(record.trial->memory_bytes) / (1 << 20),
                     ran ? (record.reused ? "reused" : spread_text(record.measured)) : name_of(record.result.status),
                     record.result.message.empty() ? "" : ": " + escaped(record.result.message));
}

}  // namespace

std::string report_html(const TuningReport& report) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" "
      "content=\"trivet\"><meta name=\"viewport\" content=\"width=device-width\"><title>trivet tune</title>\n";
  page += fmt::format("<style>\n{}{}</style>\n</head><body>\n<h1>{}</h1>\n", report::page_style(), kStyle,
                      escaped(report.config->source));
  if (const TrialRecord* best = report.best())
    page += fmt::format(
        "<p>Best: <b>{}</b>, {}.</p>\n", best->trial->name,
        metric_text(report.config->autotuning.metric,
                    metrics_of(*best->trial, best->result.seconds, report.world_size).of(report.config->autotuning.metric)));
  page += curve_svg(report);
  page += "<table class=\"figures trials\">\n<tr><th></th><th>trial</th><th>" +
          std::string(name_of(report.config->autotuning.metric)) +
          "</th><th>ms a step</th><th>predicted ms</th><th>MiB a rank</th><th></th></tr>\n";
  for (size_t i = 0; i < report.records.size(); ++i) page += row_of(report, report.records[i], i + 1);
  page += "</table>\n<pre>" + escaped(summary_text(report)) + "</pre>\n</body></html>\n";
  return page;
}

}  // namespace trivet::autotune
