#include "report/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "report/monitor/number_text.h"
#include "report/page_drawing.h"
#include "report/run_charts.h"
#include "report/timed_steps.h"

namespace trivet::report {
namespace {

[[noreturn]] void refuse_run(const RunData& run, const std::string& why) {
  throw DataError(ExitCode::Usage, fmt::format("{}: {}", printable(run.name), why));
}

ScalingRow scaling_row(const RunData& run) {
  ScalingRow row{.run = run.name, .ranks = run.plan.ranks, .samples_per_step = run.plan.samples_per_step};
  if (row.ranks < 1 || row.samples_per_step < 1)
    refuse_run(run, "there is no plan, which says how many ranks there were; use the folder that run.directory named");
  row.step_ms = median_step_ms(run);
  row.note = timed_steps(run).note;
  if (row.step_ms <= 0)
    refuse_run(run, row.note.empty() ? "has fewer than two steps whose time is known; the first one is not counted"
                                     : row.note + "; no step is left whose time counts");
  row.samples_per_second = static_cast<double>(row.samples_per_step) / row.step_ms * 1e3;
  row.targets_per_second = median_targets_per_second(run);
  row.targets = run.targets;
  return row;
}

std::string kind_in_words(ScalingKind kind) {
  if (kind == ScalingKind::Strong) return "All runs have the same batch (strong scaling).";
  if (kind == ScalingKind::Weak) return "The batch grows with the ranks (weak scaling).";
  return "The batches are neither all the same nor in proportion to the ranks.";
}

std::vector<std::vector<std::string>> cells_of(const std::vector<ScalingRow>& rows) {
  const bool same = std::ranges::all_of(rows, [&](const ScalingRow& row) { return row.targets == rows.front().targets; });
  const std::string speed = fmt::format("{}/s", same ? rows.front().targets.short_many : monitor::kTargets.short_many);
  std::vector<std::vector<std::string>> cells{
      {"ranks", "batch", "samples/s", "speedup", "ideal", "efficiency", speed, "step ms", "run"}};
  for (const ScalingRow& row : rows)
    cells.push_back(
        {std::to_string(row.ranks), monitor::with_commas(row.samples_per_step),
         row.samples_per_second < 1000 ? fmt::format("{:.1f}", row.samples_per_second) : monitor::rate(row.samples_per_second),
         fmt::format("{:.2f}", row.speedup), fmt::format("{:.2f}", row.ideal), fmt::format("{:.1f} %", 100 * row.efficiency),
         monitor::rate(row.targets_per_second), fmt::format("{:.1f}", row.step_ms), row.run});
  return cells;
}

}  // namespace

std::vector<ScalingRow> scaling_of(std::span<const RunData> runs) {
  if (runs.size() < 2)
    throw DataError(ExitCode::Usage,
                    "scaling: one run is not enough; give the folders of at least two, with different numbers of ranks");
  std::vector<ScalingRow> rows;
  for (const RunData& run : runs) rows.push_back(scaling_row(run));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.ranks < b.ranks; });
  for (ScalingRow& row : rows) {
    row.speedup = row.samples_per_second / rows.front().samples_per_second;
    row.ideal = static_cast<double>(row.ranks) / static_cast<double>(rows.front().ranks);
    row.efficiency = row.speedup / row.ideal;
  }
  return rows;
}

ScalingKind kind_of(const std::vector<ScalingRow>& rows) {
  const ScalingRow& first = rows.front();
  const auto all = [&](auto&& holds) { return std::all_of(rows.begin(), rows.end(), holds); };
  if (all([&](const ScalingRow& row) { return row.samples_per_step == first.samples_per_step; })) return ScalingKind::Strong;
  // The figures come from files; as integers, their products could overflow.
  const auto product = [](int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
  const bool weak = all([&](const ScalingRow& row) {
    return product(row.samples_per_step, first.ranks) == product(first.samples_per_step, row.ranks);
  });
  return weak ? ScalingKind::Weak : ScalingKind::Mixed;
}

std::string to_text(const std::vector<ScalingRow>& rows) {
  std::string text;
  for (const auto& cells : cells_of(rows))
    text += fmt::format("{:>6} {:>8} {:>12} {:>8} {:>7} {:>11} {:>11} {:>10}  {}\n", cells[0], cells[1], cells[2], cells[3],
                        cells[4], cells[5], cells[6], cells[7], escape_control(cells[8]));
  text += kind_in_words(kind_of(rows)) + "\n";
  for (const ScalingRow& row : rows)
    if (!row.note.empty()) text += fmt::format("{}: {}.\n", printable(row.run), row.note);
  return text;
}

std::string to_json(const std::vector<ScalingRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ScalingRow& row : rows)
    list.push_back({{"run", row.run},
                    {"ranks", row.ranks},
                    {"train_batch_size", row.samples_per_step},
                    {"samples_per_second", row.samples_per_second},
                    {std::string(row.targets.many) + "_per_second", row.targets_per_second},
                    {"step_ms", row.step_ms},
                    {"speedup", row.speedup},
                    {"ideal", row.ideal},
                    {"efficiency", row.efficiency}});
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].note.empty()) list[i]["note"] = rows[i].note;
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_section(const std::vector<ScalingRow>& rows) {
  const double per_rank = rows.front().samples_per_second / static_cast<double>(rows.front().ranks);
  std::vector<Bar> bars;
  for (const ScalingRow& row : rows) {
    const double ideal = per_rank * static_cast<double>(row.ranks);
    bars.push_back({.label = fmt::format("{} rank{}", row.ranks, row.ranks == 1 ? "" : "s"),
                    .parts = {{"reached", row.samples_per_second}},
                    .mark = NamedValue{"in proportion to the ranks", ideal}});
  }
  std::string notes;
  for (const ScalingRow& row : rows)
    if (!row.note.empty()) notes += fmt::format("\n<p>{}: {}.</p>", escaped(row.run), row.note);
  return fmt::format("<h2>Scaling</h2>\n<p>{}</p>\n<div aria-hidden=\"true\">{}</div>\n{}{}", kind_in_words(kind_of(rows)),
                     stacked_bars(bars, {.unit_name = "samples/s"}), table_of_figures(cells_of(rows)), notes);
}

}  // namespace trivet::report
