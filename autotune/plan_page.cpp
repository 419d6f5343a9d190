#include "autotune/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "autotune/prediction.h"
#include "autotune/units.h"
#include "pipeline/simulate.h"
#include "report/page_drawing.h"

namespace trivet::autotune {
namespace {

using report::Bar;
using report::escaped;
using report::heat_map;
using report::HeatMap;
using report::page_style;
using report::stacked_bars;
using report::table;

// Returns how many microbatches of a step are drawn, so that the drawing is not too large: all of them, or a multiple
// of the ranks. 0: not even one for each rank.
int64_t drawn_microbatches(const Layout& layout) {
  const int64_t each = 3 * layout.pipeline * layout.chunks, most = kMaxBoxes / each;
  return layout.microbatches <= most ? layout.microbatches : most / layout.pipeline * layout.pipeline;
}

std::optional<DrawnSchedule> schedule_of(const StepModel& steps, const Layout& layout) {
  const int64_t microbatches = drawn_microbatches(layout);
  if (layout.pipeline == 1 || microbatches == 0) return std::nullopt;
  const std::string shown =
      microbatches < layout.microbatches
          ? fmt::format("{}, the first {} of {} microbatches", name_of(layout.schedule), microbatches, layout.microbatches)
          : std::string(name_of(layout.schedule));
  return DrawnSchedule{
      steps.timeline(layout, microbatches),
      {shown, static_cast<int>(layout.pipeline), static_cast<int>(microbatches), static_cast<int>(layout.chunks), "ms"}};
}

// [moment] Bytes of a rank. Its activations are proportional to the microbatches between the start of F and the end of W.
std::vector<double> bytes_over_time(const StepBytes& rank, const std::vector<pipeline::TimedInstruction>& timed,
                                    double makespan, size_t moments) {
  std::vector<double> flying(moments);
  const auto moment = [&](double time) {
    return std::min(moments - 1, static_cast<size_t>(time / makespan * static_cast<double>(moments)));
  };
  std::map<std::pair<int, int>, double> begun;  // (stage, microbatch)
  for (const pipeline::TimedInstruction& t : timed) {
    const std::pair key{t.instruction.stage, t.instruction.microbatch};
    if (t.instruction.op == pipeline::Op::Forward) begun.emplace(key, t.start);
    if (!pipeline::makes_weight_gradients(t.instruction.op)) continue;
    const auto found = begun.find(key);
    for (size_t m = moment(found == begun.end() ? t.start : found->second); m <= moment(t.end - 1e-9 * makespan); ++m)
      ++flying[m];
  }
  const double most = *std::ranges::max_element(flying), states = rank.total() - rank.activations;
  for (double& count : flying) count = states + (most > 0 ? rank.activations * count / most : 0);
  return flying;
}

std::string memory_section(const PlanPage& page) {
  const double most = std::ranges::max_element(page.ranks, {}, &StepBytes::total)->total();
  const Unit unit = unit_of_memory(most);
  std::vector<Bar> bars;
  std::vector<std::vector<std::string>> rows{{"pipeline rank"}};
  for (const NamedValue& part : parts_of(page.ranks.front())) rows[0].push_back(fmt::format("{} {}", part.name, unit.name));
  rows[0].push_back(fmt::format("total {}", unit.name));
  for (size_t r = 0; r < page.ranks.size(); ++r) {
    bars.push_back({fmt::format("rank {}", r), parts_of(page.ranks[r])});
    auto& row = rows.emplace_back(std::vector{std::to_string(r)});
    for (const NamedValue& part : bars.back().parts) row.push_back(fmt::format("{:.2f}", part.value / unit.size));
    row.push_back(fmt::format("{:.2f}", page.ranks[r].total() / unit.size));
  }
  constexpr double kInSight = 0.02;  // bars that are shorter on the scale of the limit are drawn without it
  const bool shows_limit = most >= kInSight * page.usable_bytes;
  const std::string limit = shows_limit ? "" : fmt::format("<p>a run can use {:.1f} GiB</p>\n", page.usable_bytes / kGib);
  return "<h2>Memory of each pipeline rank</h2>\n" + limit +
         stacked_bars(bars, {.limit = shows_limit ? page.usable_bytes : 0,
                             .limit_name = "a run can use",
                             .unit = unit.size,
                             .unit_name = unit.name}) +
         table(rows);
}

std::string step_section(const PlanPage& page) {
  if (!page.step) return "";
  const StepSeconds& seconds = page.step->seconds;
  std::vector<std::vector<std::string>> rows{{"part", "seconds", "% of the step"}};
  for (const NamedValue& part : parts_of(seconds))
    rows.push_back({part.name, fmt::format("{:.4g}", part.value), fmt::format("{:.1f}", 100 * part.value / seconds.total())});
  rows.push_back({"step", fmt::format("{:.4g}", seconds.total()), "100.0"});
  std::string more = page.run.empty() ? "" : fmt::format("<p>{}</p>\n", escaped(page.run));
  for (const std::string& line : page.network) more += fmt::format("<p>{}</p>\n", escaped(line));
  return fmt::format("<h2>Time of a step</h2>\n<p>{}, {:.1f} % model FLOPs utilization{}</p>\n{}",
                     rate_text(page.step->targets_per_second), 100 * page.step->model_flops_utilization,
                     page.price.empty() ? "" : "; " + escaped(page.price), more) +
         stacked_bars({{"step", parts_of(seconds)}}, {.limit_name = {}, .unit_name = "s"}) + table(rows);
}

std::string schedule_section(const PlanPage& page) {
  if (!page.schedule) return "";
  constexpr size_t kMoments = 80;
  const pipeline::Timeline& timeline = page.schedule->timeline;
  const Unit unit = unit_of_memory(std::ranges::max_element(page.ranks, {}, &StepBytes::total)->total());
  HeatMap map{
      .rows = {}, .columns = std::vector<std::string>(kMoments), .values = {}, .unit_name = unit.name, .writes_values = false};
  for (size_t r = 0; r < page.ranks.size(); ++r) {
    map.rows.push_back(fmt::format("rank {}", r));
    auto& row = map.values.emplace_back();
    for (const double bytes : bytes_over_time(page.ranks[r], timeline.ranks[r], timeline.makespan, kMoments))
      row.emplace_back(bytes / unit.size);
  }
  return "<h2>Schedule</h2>\n<div class=\"wide\">\n" + to_svg(timeline, page.schedule->caption) +
         "</div>\n<h2>Memory over the schedule</h2>\n<p>from left to right; activations in proportion to the microbatches in "
         "flight</p>\n" +
         heat_map(map);
}

// The best time of each pair of tensor and pipeline sizes.
std::string sizes_section(const SearchResult& result) {
  std::set<int64_t> tensors, pipelines;
  for (const Candidate& candidate : result.fastest)
    tensors.insert(candidate.layout.tensor), pipelines.insert(candidate.layout.pipeline);
  const Unit unit = unit_of_time(result.ranking.front().step.seconds.total());
  HeatMap map{.rows = {}, .columns = {}, .values = {}, .unit_name = unit.name, .marks_least = true};
  for (const int64_t pipeline : pipelines) map.columns.push_back(fmt::format("pp {}", pipeline));
  for (const int64_t tensor : tensors) {
    map.rows.push_back(fmt::format("tensor {}", tensor));
    auto& row = map.values.emplace_back();
    for (const int64_t pipeline : pipelines) {
      const auto found = std::ranges::find_if(result.fastest, [&](const Candidate& candidate) {
        return candidate.layout.tensor == tensor && candidate.layout.pipeline == pipeline;
      });
      row.push_back(found == result.fastest.end() ? std::nullopt : std::optional(found->step.seconds.total() / unit.size));
    }
  }
  return fmt::format("<h2>{} of the fastest layout with each tensor and pipeline (pp) size</h2>\n",
                     unit.size == 1 ? "Seconds" : "Milliseconds") +
         heat_map(map);
}

std::string search_section(const PlanPage& page) {
  if (!page.search) return "";
  const SearchResult& result = *page.search;
  std::string text = result.context.empty() ? "" : fmt::format("<p>context {}</p>\n", escaped(result.context));
  if (!result.expert.empty()) text += fmt::format("<p>expert {}</p>\n", escaped(result.expert));
  if (!result.ranking.empty()) {
    const StepPrediction& first = result.ranking.front().step;
    const Unit time = unit_of_time(first.seconds.total()), memory = unit_of_memory(first.bytes.total());
    std::vector<std::vector<std::string>> rows{{fmt::format("step {}", time.name), "MFU %", memory.name, "layout"}};
    for (const Candidate& candidate : result.ranking)
      rows.push_back({fmt::format("{:.3f}", candidate.step.seconds.total() / time.size),
                      fmt::format("{:.1f}", 100 * candidate.step.model_flops_utilization),
                      fmt::format("{:.1f}", candidate.step.bytes.total() / memory.size), layout_text(candidate)});
    std::vector<std::vector<std::string>> keys{{"key", "value"}};
    for (const auto& [key, value] : result.ranking.front().config) keys.push_back({key, value});
    text += sizes_section(result) + "<h2>Ranking</h2>\n" + table(rows) + "<h2>To train with the first</h2>\n" + table(keys);
  }
  if (result.alternatives.empty()) return text;
  std::vector<std::vector<std::string>> rows{{"choice", "why not"}};
  for (const Alternative& alternative : result.alternatives) rows.push_back({alternative.choice, alternative.why});
  return text + "<h2>Why not</h2>\n" + table(rows);
}

}  // namespace

PlanPage page_of(const Plan& plan) {
  PlanPage page{.title = fmt::format("Plan of {} rank{}", plan.mesh.size(), plan.mesh.size() == 1 ? "" : "s"),
                .layout = fmt::format("{}, ZeRO-{}, microbatch {} x {}", to_string(plan.mesh), plan.config.zero.stage,
                                      plan.batch.micro_batch_size, plan.batch.gradient_accumulation_steps),
                .ranks = bytes_of_ranks(plan)};
  const auto ranks = static_cast<int64_t>(plan.schedule.size());
  if (ranks == 1 || 3 * plan.stages.stages() * plan.batch.gradient_accumulation_steps > kMaxBoxes) return page;
  const PipelineConfig& config = plan.config.pipeline;
  page.schedule = {
      pipeline::simulate(plan.schedule, {.cost = pipeline::even_costs(plan.schedule, {})}),
      {config.schedule_file.empty() ? std::string(name_of(config.schedule)) : config.schedule_file, static_cast<int>(ranks),
       static_cast<int>(plan.batch.gradient_accumulation_steps), static_cast<int>(plan.stages.stages() / ranks)}};
  return page;
}

PlanPage page_of(const Plan& plan, const PlanPrediction& prediction, const model::Model& model, const Cluster& cluster,
                 double tokens) {
  const Layout& layout = prediction.layout;
  const StepModel steps(model, cluster, state_types(plan.config));
  return {.title = fmt::format("Plan of {} x {}", layout.devices(), cluster.device.name),
          .layout = fmt::format("{}: {}", to_string(layout), fit_text(prediction.step.bytes, cluster)),
          .ranks = prediction.ranks,
          .usable_bytes = as_double(cluster.device.usable_bytes()),
          .step = prediction.step,
          .price = cluster.price_per_device_hour > 0 ? price_text(cluster, layout.devices(), prediction.step) : "",
          .run = tokens > 0 ? tokens_text(tokens, cluster, layout.devices(), prediction.step) : "",
          .network = network_lines(prediction),
          .schedule = schedule_of(steps, layout)};
}

PlanPage page_of(const SearchResult& result, const model::Model& model, const Cluster& cluster, const SearchSpace& space,
                 double tokens) {
  const bool some_fit = !result.ranking.empty();
  const Candidate& shown = some_fit ? result.ranking.front() : result.nearest ? *result.nearest : result.smallest;
  const StepModel steps(model, cluster, space.types);
  const std::string what = some_fit ? "the fastest" : "nothing fits; " + what_would_fit(result, cluster);
  return {.title = fmt::format("Search of {} x {}", space.devices, cluster.device.name),
          .layout = fmt::format("{} layouts, {} fit; {}{}", result.tried, result.fitting, what,
                                some_fit ? ": " + to_string(shown.layout) : ""),
          .ranks = steps.bytes_of_ranks(shown.layout),
          .usable_bytes = as_double(cluster.device.usable_bytes()),
          .step = shown.step,
          .price = cluster.price_per_device_hour > 0 ? price_text(cluster, shown.layout.devices(), shown.step) : "",
          .run = tokens > 0 ? tokens_text(tokens, cluster, shown.layout.devices(), shown.step) : "",
          .network = network_lines(result, cluster),
          .schedule = schedule_of(steps, shown.layout),
          .search = &result};
}

std::string to_html(const PlanPage& page) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"generator\" content=\"trivet\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p>{2}</p>\n"
      "{3}{4}{5}{6}</body>\n</html>\n",
      escaped(page.title), page_style(), escaped(page.layout), memory_section(page), step_section(page), search_section(page),
      schedule_section(page));
}

}  // namespace trivet::autotune
