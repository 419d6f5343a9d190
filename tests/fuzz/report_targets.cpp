// Fuzz targets for what pages of runs are made of, and for what browsers ask.
#include <array>
#include <cmath>
#include <sstream>

#include "report/config_differences.h"
#include "report/http_request.h"
#include "report/predictions_file.h"
#include "report/predictions_section.h"
#include "report/read_run.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

constexpr std::initializer_list<ExitCode> kRunRefused{ExitCode::Usage};

}  // namespace

void run_metrics(std::string_view input) {
  report::RunData run;
  accepts(kRunRefused, [&] {
    std::istringstream lines{std::string(input)};
    report::read_steps(lines, "input", run);
  });
  for (const report::StepPoint& point : run.steps.points()) require(point.step >= 0, "steps are not negative");
  accepts(kRunRefused, [&] {
    std::istringstream lines{std::string(input)};
    report::read_evaluations(lines, "input", run);
  });
}

void run_events(std::string_view input) {
  report::RunData run;
  accepts(kRunRefused, [&] {
    std::istringstream lines{std::string(input)};
    report::read_events(lines, "input", run);
  });
  for (const monitor::MemoryPeak& peak : run.memory)
    require(peak.planned_bytes >= 0 && peak.measured_bytes >= 0, "memory is not negative");
}

void run_plan(std::string_view input) {
  report::PlanFigures plan;
  if (accepts(kRunRefused, [&] { plan = report::parse_plan_figures(input, "input"); })) {
    require(plan.ranks >= 1 && std::isfinite(plan.flops_per_step), "a plan has ranks and work");
    for (const report::NamedValue& part : plan.memory)
      require(std::isfinite(part.value) && part.value >= 0, "memory can be drawn");
  }
  accepts(kRunRefused, [&] { report::parse_rank_times(input, "input"); });
  const std::array<std::string, 2> configs{std::string(input), "{}"};
  report::config_differences(configs);
}

void run_predictions(std::string_view input) {
  monitor::ShownPredictions read;
  if (!accepts(kRunRefused, [&] { read = report::parse_predictions(input, "input"); })) return;
  require(read.step >= 0, "steps are not negative");
  const monitor::ShownPredictions again = report::parse_predictions(report::to_json(read), "again");
  require(report::to_section(again) == report::to_section(read), "what was read is written the same");
}

void http_request(std::string_view input) {
  const report::ParsedRequest parsed = report::parse_request(input);
  require(parsed.status == 200 || (parsed.request.path.empty() && parsed.request.token.empty()), "a refusal asks for nothing");
  require(parsed.status != 200 || parsed.request.path.starts_with('/'), "a path begins with /");
  require(parsed.status != 200 || input.starts_with("GET /"), "only GET is accepted");
}

}  // namespace trivet::fuzz
