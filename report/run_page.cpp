#include "report/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base64.h"
#include "report/common_steps.h"
#include "report/config_differences.h"
#include "report/embedded_text.h"
#include "report/monitor/number_text.h"
#include "report/predictions_section.h"
#include "report/run_charts.h"
#include "report/scaling.h"

namespace trivet::report {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr double kMib = 0x1p20;
constexpr const char* kNoTargets = "none: no targets";
constexpr const char* kPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

// Replaces {{names}} of the skeleton. Values are not searched again.
std::string filled(std::string_view skeleton, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string text;
  while (true) {
    const size_t open = skeleton.find("{{"), close = skeleton.find("}}", open);
    text += skeleton.substr(0, open);
    if (open == std::string_view::npos || close == std::string_view::npos) return text;
    const std::string_view name = skeleton.substr(open + 2, close - open - 2);
    for (const auto& [known, value] : values)
      if (known == name) text += value;
    skeleton.remove_prefix(close + 2);
  }
}

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.4f}", value) : fmt::format("{}", value); }

std::string tile(const std::string& name, const std::string& value, const std::string& more = "") {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd>{}</div>\n", escaped(name), escaped(value),
                     more.empty() ? "" : "<dd class=\"more\">" + escaped(more) + "</dd>");
}

// The time that the other steps will take. Other work of the run is not known.
std::string time_left(const RunData& run) {
  if (run.steps.count() < 2 || run.total_steps <= run.steps.last().step) return "";
  const double seconds = static_cast<double>(run.total_steps - run.steps.last().step) * median_step_ms(run) / 1000;
  return fmt::format(", {} left for the steps", monitor::duration(seconds));
}

bool all_steps_are_done(const RunData& run) {
  return !run.steps.empty() && run.total_steps > 0 && run.steps.last().step >= run.total_steps;
}

// The trainer's fact about the end begins like this if evaluations ended the run.
bool stopped_early(const RunData& run) {
  return std::ranges::any_of(run.end_facts,
                             [](const auto& fact) { return fact.first == "stopped" && fact.second.starts_with("early"); });
}

std::string state_text(const RunData& run) {
  if (run.state == RunState::Running) return all_steps_are_done(run) ? "all steps done" : "running" + time_left(run);
  if (run.state == RunState::Unfinished) return "not ended: it is running, or was killed";
  if (run.steps.empty() || run.total_steps == 0 || all_steps_are_done(run)) return "complete";
  return stopped_early(run) ? "complete: stopped early" : "stopped before its end";
}

// For the script of the live page, which says what it means that the run does not answer any more.
const char* state_name(const RunData& run) {
  if (run.state == RunState::Ended) return "ended";
  return all_steps_are_done(run) ? "done" : "running";
}

std::string steps_text(const RunData& run) {
  const int64_t done = run.steps.empty() ? 0 : run.steps.last().step;
  return run.total_steps > 0 ? fmt::format("{} of {}", monitor::with_commas(done), monitor::with_commas(run.total_steps))
                             : monitor::with_commas(done);
}

std::string loss_text(const RunData& run) {
  if (run.steps.empty()) return "";
  return run.steps.last().without_targets ? kNoTargets : number(run.steps.last().loss);
}

std::string validation_text(const RunData& run) {
  if (run.evaluations.empty()) return "";
  return run.evaluations.last().without_targets ? kNoTargets : number(run.evaluations.last().loss);
}

std::string best_text(const RunData& run) {
  if (run.evaluations.empty()) return "";
  return run.best_validation_step == 0
             ? "none"
             : fmt::format("{} at step {}", number(run.best_validation_loss), monitor::with_commas(run.best_validation_step));
}

// Empty if the model does not choose classes.
std::string percent_text(double share) { return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : ""; }

std::string accuracy_text(const RunData& run) {
  return run.evaluations.empty() ? "" : percent_text(run.evaluations.last().accuracy);
}

std::string best_accuracy_text(const RunData& run) {
  return fmt::format("best {} at step {}", percent_text(run.best_accuracy), monitor::with_commas(run.best_accuracy_step));
}

std::string tiles(const RunData& run) {
  std::string text = fmt::format("<dl class=\"tiles\" data-state=\"{}\">\n", state_name(run)) +
                     tile("Steps", steps_text(run), state_text(run));
  if (!run.steps.empty()) text += tile("Loss", loss_text(run));
  if (!run.evaluations.empty()) text += tile("Validation loss", validation_text(run), "best " + best_text(run));
  if (const std::string accuracy = accuracy_text(run); !accuracy.empty())
    text += tile("Validation accuracy", accuracy, best_accuracy_text(run));
  if (run.steps.count() > 1) {
    text +=
        tile(monitor::with_capital(run.targets.many) + " per second", monitor::rate(median_targets_per_second(run)), "median");
    text += tile("Time of a step", fmt::format("{:.4g} ms", median_step_ms(run)), "median");
    if (const double percent = utilization_percent(run.plan, median_step_ms(run)); percent > 0)
      text += tile("MFU", fmt::format("{:.1f} %", percent), "model FLOPs, median");
  }
  if (!run.steps.empty())
    text += tile("Memory", monitor::memory_size(static_cast<int64_t>(std::clamp(run.steps.last().memory_bytes, 0.0, 1e18))),
                 "peak of rank 0");
  if (run.skipped_steps > 0) text += tile("Skipped steps", monitor::with_commas(run.skipped_steps));
  return text + "</dl>\n";
}

std::string charts(std::span<const RunData> runs, const ChartOptions& options) {
  std::string text = "<div class=\"charts\">\n";
  int number_of_chart = 0;
  for (const LineChart& chart : charts_of(runs, options)) text += figure(chart, fmt::format("chart{}", number_of_chart++));
  return text + "</div>\n";
}

// The table says the same in words, so the drawing is hidden from readers of the page's text.
std::string drawing(const std::string& svg) { return "<div aria-hidden=\"true\">" + svg + "</div>\n"; }

std::string mebibytes(double bytes) { return fmt::format("{:.2f}", bytes / kMib); }

std::string measured_memory(const RunData& run) {
  Bar planned{"planned", {}}, measured{"measured", {}};
  Rows rows{{"of rank 0", "planned MiB", "measured MiB"}};
  double all_planned = 0, all_measured = 0;
  for (const monitor::MemoryPeak& peak : run.memory) {
    const auto plan = static_cast<double>(peak.planned_bytes), found = static_cast<double>(peak.measured_bytes);
    planned.parts.push_back({peak.category, plan});
    measured.parts.push_back({peak.category, found});
    rows.push_back({peak.category, mebibytes(plan), mebibytes(found)});
    all_planned += plan, all_measured += found;
  }
  if (all_planned + all_measured <= 0) return "";
  rows.push_back({"total", mebibytes(all_planned), mebibytes(all_measured)});
  return drawing(stacked_bars({planned, measured}, {.unit = kMib, .unit_name = "MiB"})) + table_of_figures(rows);
}

double sum(const std::vector<NamedValue>& values) {
  double sum = 0;
  for (const NamedValue& value : values) sum += value.value;
  return sum;
}

std::string bar_and_table(const std::string& label, const std::vector<NamedValue>& values, const std::string& column) {
  Rows rows{{label, column}};
  for (const NamedValue& value : values) rows.push_back({value.name, mebibytes(value.value)});
  rows.push_back({"total", mebibytes(sum(values))});
  return drawing(stacked_bars({{label, values}}, {.unit = kMib, .unit_name = "MiB"})) + table_of_figures(rows);
}

std::string memory_section(const RunData& run) {
  if (!run.memory.empty()) return "<h2>Memory, planned and measured</h2>\n" + measured_memory(run);
  if (sum(run.plan.memory) <= 0) return "";
  return "<h2>Memory, planned</h2>\n" + bar_and_table("per rank", run.plan.memory, "MiB on the rank that needs most");
}

std::string communication_section(const RunData& run) {
  std::vector<NamedValue> used;
  for (const NamedValue& line : run.plan.communication)
    if (line.value > 0) used.push_back(line);
  if (used.empty()) return "";
  return "<h2>Communication of one step, planned</h2>\n" + bar_and_table("sent", used, "MiB that a rank sends");
}

std::string ranks_section(const RunData& run) {
  constexpr size_t kMostBars = 64;
  if (run.ranks.empty()) return "";
  std::vector<Bar> bars;
  Rows rows{{"rank", "computes ms", "waits ms"}};
  double most = 0;
  for (const RankTime& rank : run.ranks) {
    if (bars.size() < kMostBars)
      bars.push_back({fmt::format("rank {}", rank.rank), {{"computes", rank.compute_ms}, {"waits", rank.wait_ms}}});
    rows.push_back({std::to_string(rank.rank), fmt::format("{:.2f}", rank.compute_ms), fmt::format("{:.2f}", rank.wait_ms)});
    most = std::max(most, rank.compute_ms + rank.wait_ms);
  }
  if (most <= 0) return "";
  return "<h2>Ranks in the recorded step</h2>\n<p>The others wait for the rank that computes longest and waits "
         "least.</p>\n" +
         drawing(stacked_bars(bars, {.unit_name = "ms"})) + table_of_figures(rows);
}

// Shows the file as an image, which cannot run scripts or change the page's style, whatever the file contains.
std::string timeline_section(const RunData& run) {
  if (run.timeline_svg.empty()) return "";
  std::string words;
  for (const Note& note : run.notes)
    if (note.what == "timeline") words = note.text;
  return fmt::format(
      "<h2>Timeline of a step: measured, and simulated with the measured costs</h2>\n<p>{0}</p>\n<div class=\"wide "
      "picture\"><img alt=\"Timeline of all ranks. {0}\" src=\"data:image/svg+xml;base64,{1}\"></div>\n",
      escaped(words), to_base64(run.timeline_svg));
}

// A table whose last column has long texts.
std::string table_of_texts(const Rows& rows) { return "<div class=\"texts\">\n" + table(rows) + "</div>\n"; }

std::string notes_section(const RunData& run) {
  if (run.notes.empty()) return "";
  Rows rows{{"step", "what", "text"}};
  for (const Note& note : run.notes) rows.push_back({monitor::with_commas(note.step), note.what, note.text});
  constexpr size_t kMostOpen = 12;
  std::string text = table_of_texts(rows);
  if (run.notes.size() > kMostOpen)
    text = fmt::format("<details id=\"notes\"><summary>All {}</summary>\n{}</details>\n", run.notes.size(), text);
  return "<h2>Checkpoints and notes</h2>\n" + text;
}

std::string opened(const std::string& id, const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<details id=\"{}\"><summary>{}</summary>\n<pre>{}</pre></details>\n", id, title, escaped(content));
}

std::string facts_section(const RunData& run) {
  Rows rows{{"what", "text"}};
  for (const auto& [what, text] : run.facts) rows.push_back({what, text});
  for (const auto& [what, text] : run.end_facts) rows.push_back({what + ", at the end", text});
  std::string text = "<h2>What made this run</h2>\n";
  if (rows.size() > 1) text += table_of_texts(rows);
  text += opened("start", "Command, environment, versions and hosts", run.last_start_json);
  text += opened("config", "Config, with every default", run.config_json);
  return text + opened("plan", "Plan", run.plan_text);
}

std::string range_text(const StepRange& range) {
  const std::string first = monitor::with_commas(range.first), last = monitor::with_commas(range.last);
  if (range.last == INT64_MAX) return range.first == 0 ? "" : fmt::format("The steps from {} on are drawn.", first);
  return range.first == 0 ? fmt::format("The steps up to {} are drawn.", last)
                          : fmt::format("The steps from {} to {} are drawn.", first, last);
}

// Below the charts: which steps they leave out.
std::string drawn_steps_note(std::span<const RunData> runs, const StepRange& range) {
  int64_t stride = 1;
  for (const RunData& run : runs) stride = std::max(stride, run.steps.stride());
  std::string text = range_text(range);
  if (stride > 1) text += fmt::format(" One step in {} of the longest run is drawn.", stride);
  return text.empty() ? "" : "<p class=\"soft\">" + text + "</p>\n";
}

// Below the tiles of a live page.
std::string report_note(const RunData& run) {
  if (run.report_path.empty()) return "";
  return fmt::format("<p class=\"soft\">{} <code>{}</code></p>\n",
                     run.state == RunState::Ended ? "This page is kept as" : "When the run ends, this page is kept as",
                     escaped(run.report_path));
}

std::string one_run(const RunData& run, const ChartOptions& options) {
  return fmt::format("<h1>{}</h1>\n", escaped(run.name)) + tiles(run) + report_note(run) + charts({&run, 1}, options) +
         drawn_steps_note({&run, 1}, options.steps) + to_section(run.predictions) + memory_section(run) +
         communication_section(run) + timeline_section(run) + ranks_section(run) + notes_section(run) + facts_section(run);
}

std::string differences_section(std::span<const RunData> runs) {
  Rows rows{{"key"}};
  std::vector<std::string> configs;
  for (const RunData& run : runs) {
    rows[0].push_back(run.name);
    configs.push_back(run.config_json);
  }
  for (auto& row : config_differences(configs)) rows.push_back(std::move(row));
  return rows.size() == 1 ? "" : "<h2>Where the configs differ</h2>\n<div class=\"values\">\n" + table(rows) + "</div>\n";
}

// Returns the rows without columns that have only a name.
Rows without_empty_columns(Rows rows) {
  for (size_t column = rows[0].size(); column-- > 0;)
    if (std::ranges::all_of(rows.begin() + 1, rows.end(), [&](const auto& row) { return row[column].empty(); }))
      for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  return rows;
}

std::string several_runs(std::span<const RunData> runs, const ChartOptions& options) {
  Rows rows{{"run", "steps", "state", "loss", "validation loss", "best", "accuracy",
             fmt::format("{}/s", targets_of(runs).short_many), "step ms", "MFU %"}};
  for (const RunData& run : runs) {
    const double ms = median_step_ms(run), percent = utilization_percent(run.plan, ms);
    rows.push_back({run.name, steps_text(run), state_text(run), loss_text(run), validation_text(run), best_text(run),
                    accuracy_text(run), ms > 0 ? monitor::rate(median_targets_per_second(run)) : "",
                    ms > 0 ? fmt::format("{:.4g}", ms) : "", percent > 0 ? fmt::format("{:.1f}", percent) : ""});
  }
  return fmt::format("<h1>{} runs</h1>\n", runs.size()) + table_of_runs(without_empty_columns(rows)) +
         common_steps_section(runs, options) + charts(runs, options) + drawn_steps_note(runs, options.steps) +
         differences_section(runs);
}

// A page that never changes.
std::string page_of(const std::string& title, const std::string& content) {
  return filled(
      kRunPageHtml,
      {{"policy", kPolicy}, {"title", escaped(title)}, {"style", page_style()}, {"content", content}, {"script", ""}});
}

}  // namespace

std::string page_content(std::span<const RunData> runs, const ChartOptions& options) {
  return runs.size() == 1 ? one_run(runs[0], options) : several_runs(runs, options);
}

std::string to_page(std::span<const RunData> runs, const ChartOptions& options) {
  return page_of(runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size()), page_content(runs, options));
}

std::string to_scaling_page(std::span<const RunData> runs) {
  return page_of(fmt::format("Scaling of {} runs", runs.size()), to_section(scaling_of(runs)) + page_content(runs));
}

std::string live_policy(const std::string& nonce) {
  return fmt::format("{}; connect-src 'self'; script-src 'nonce-{}'", kPolicy, nonce);
}

std::string to_live_page(const RunData& run, const std::string& nonce) {
  return filled(kRunPageHtml, {{"policy", live_policy(nonce)},
                               {"title", escaped(run.name)},
                               {"style", page_style()},
                               {"content", page_content({&run, 1})},
                               {"script", fmt::format("<script nonce=\"{}\">\n{}</script>\n", nonce, kLivePageJs)}});
}

}  // namespace trivet::report
