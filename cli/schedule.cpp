// trivet schedule: prints, validates and times a pipeline schedule. It starts no rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/usage.h"
#include "core/error.h"
#include "pipeline/render.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"

namespace trivet::cli {
namespace {

using namespace pipeline;

struct ScheduleArguments {
  std::string type, format = "text";
  int stages = 0, microbatches = 0, chunks = 0;  // 0: not given
  ComputeCosts costs;
};

struct NamedSchedule {
  Schedule schedule;
  Caption caption;
  BackwardSends sends = BackwardSends::AfterWeights;
};

NamedSchedule from_file(const ScheduleArguments& arguments, const std::string& path) {
  if (arguments.stages || arguments.microbatches || arguments.chunks)
    throw ConfigError(fmt::format("schedule: {} determines --stages, --microbatches and --chunks; leave them out", path));
  Schedule schedule = read_schedule(path);
  const int ranks = static_cast<int>(schedule.size()), stages = static_cast<int>(stage_ranks(schedule).size());
  const Caption caption{path, ranks, count_microbatches(schedule), (stages + ranks - 1) / ranks};
  return {std::move(schedule), caption};
}

NamedSchedule from_kind(const ScheduleArguments& arguments) {
  const auto kind = from_name<ScheduleKind>(arguments.type);
  if (!kind)
    throw ConfigError(fmt::format("schedule: --type: \"{}\" is not accepted; use one of {}, or file:PATH", arguments.type,
                                  accepted_names<ScheduleKind>()));
  if (!arguments.stages || !arguments.microbatches)
    throw ConfigError(fmt::format("schedule: --type {} needs --stages and --microbatches", arguments.type));
  const int chunks = arguments.chunks ? arguments.chunks : traits_of(*kind).chunks;
  const Caption caption{arguments.type, arguments.stages, arguments.microbatches, chunks};
  return {generate(*kind, {arguments.stages, arguments.microbatches, chunks}), caption, backward_sends(*kind)};
}

NamedSchedule make_schedule(const ScheduleArguments& arguments) {
  const std::string file = "file:";
  return arguments.type.starts_with(file) ? from_file(arguments, arguments.type.substr(file.size())) : from_kind(arguments);
}

// Removes the rounding errors of sums of decimal fractions.
double rounded(double value) { return std::stod(fmt::format("{:.12g}", value)); }

std::string to_json(const Timeline& timeline, const Schedule& schedule) {
  nlohmann::ordered_json json{{"makespan", rounded(timeline.makespan)},
                              {"bubble_fraction", rounded(timeline.bubble_fraction)},
                              {"peak_microbatches", timeline.peak_microbatches},
                              {"programs", nlohmann::ordered_json::array()}};
  for (const Program& program : schedule) {
    auto& tokens = json["programs"].emplace_back(nlohmann::ordered_json::array());
    for (const Instruction& i : program) tokens.push_back(pipeline::to_string(i));
  }
  return json.dump() + "\n";
}

void run(const ScheduleArguments& arguments) {
  const NamedSchedule named = make_schedule(arguments);
  validate(named.schedule, named.caption.microbatches);
  const Timeline timeline =
      simulate(named.schedule, {.cost = even_costs(named.schedule, arguments.costs), .sends = named.sends});
  const std::string text = arguments.format == "json"    ? to_json(timeline, named.schedule)
                           : arguments.format == "svg"   ? to_svg(timeline, named.caption)
                           : arguments.format == "trace" ? to_chrome_trace(timeline)
                                                         : to_text(timeline, named.caption);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string check_cost(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && *end == 0 && std::isfinite(value) && value > 0;
  return good ? "" : fmt::format("\"{}\" is not accepted; use a number above 0", text);
}

std::string check_format(const std::string& text) {
  const bool good = text == "text" || text == "json" || text == "svg" || text == "trace";
  return good ? "" : fmt::format("\"{}\" is not accepted; use one of \"text\", \"json\", \"svg\", \"trace\"", text);
}

}  // namespace

void add_schedule(CLI::App& program) {
  auto arguments = std::make_shared<ScheduleArguments>();
  CLI::App* command =
      program.add_subcommand("schedule", "Print, validate and time a pipeline schedule (docs/schedules.md). Runs nothing.");
  command->footer("Example:\n  trivet schedule --type zb-h1 --stages 4 --microbatches 8 --format svg > zb-h1.svg");
  command->add_option("--type", arguments->type, fmt::format("{}, or file:PATH", accepted_names<ScheduleKind>()))->required();
  command->add_option("--stages", arguments->stages, "pipeline ranks, P")->check(from_to(1, 512));
  command->add_option("--microbatches", arguments->microbatches, "microbatches per step, M")->check(from_to(1, 4096));
  command->add_option("--chunks", arguments->chunks, "stages on each rank, V (2 for interleaved and zb-v, else 1)")
      ->check(from_to(1, 64));
  command->add_option("--forward", arguments->costs.forward, "time of the forward pass (F) of a microbatch on a rank (1)")
      ->check(check_cost);
  command->add_option("--backward-input", arguments->costs.backward_input, "time of the backward pass for the input (I) (1)")
      ->check(check_cost);
  command
      ->add_option("--backward-weight", arguments->costs.backward_weight, "time of the backward pass for the weights (W) (1)")
      ->check(check_cost);
  command->add_option("--format", arguments->format, "text, json, svg, or trace for chrome://tracing (text)")
      ->check(check_format);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli
