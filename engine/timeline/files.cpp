// Recordings as text, and the files of a report.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/refuse.h"
#include "engine/timeline/timeline_report.h"
#include "pipeline/render.h"

namespace trivet::timeline {
namespace {

using pipeline::Recording;

pipeline::Caption caption(const Plan& plan, const std::string& what) {
  const PipelineConfig& config = plan.config.pipeline;
  const std::string schedule = config.schedule_file.empty() ? std::string(name_of(config.schedule)) : config.schedule_file;
  const int ranks = plan.mesh.size(Axis::Pipeline);
  return {.schedule = ranks == 1 ? what : what + " " + schedule,
          .ranks = ranks,
          .microbatches = static_cast<int>(plan.batch.gradient_accumulation_steps),
          .chunks = (plan.stages.stages() + ranks - 1) / ranks,
          .unit = "ms",
          .is_step = true};
}

std::string svg(const TimelineReport& report, const Plan& plan) {
  const pipeline::Caption measured = caption(plan, "measured"), simulated = caption(plan, "simulated");
  const pipeline::Panel panels[] = {{report.measured.timeline, measured}, {report.simulated.timeline, simulated}};
  return pipeline::to_svg(panels);
}

void write_file(const Config& config, const std::string& name, const std::string& text) {
  const std::string path = (std::filesystem::path(config.timeline.directory) / name).string();
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush))
    config::refuse(config, "timeline.directory", fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

// Returns what each rank did in the measured step, in ms: [{"rank": 0, "compute_ms": 30.2, "wait_ms": 4.1}, ...]
std::string rank_times(const pipeline::Timeline& timeline) {
  auto json = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    double compute = 0, wait = 0;
    for (const pipeline::TimedInstruction& timed : timeline.ranks[rank])
      if (pipeline::computes(timed.instruction.op)) compute += timed.end - timed.start;
    for (const pipeline::TimedWait& waited : timeline.waits[rank]) wait += waited.end - waited.start;
    json.push_back({{"rank", rank}, {"compute_ms", compute}, {"wait_ms", wait}});
  }
  return json.dump(2) + "\n";
}

}  // namespace

std::string to_text(const std::vector<Recording>& steps) {
  auto json = nlohmann::json::array();
  for (const Recording& step : steps) {
    auto spans = nlohmann::json::array();
    for (const Recording::Span& span : step.spans)
      spans.push_back({static_cast<int>(span.kind), static_cast<int>(span.queue), span.at, span.start, span.end});
    json.push_back({step.begin, step.program_end, step.end, std::move(spans)});
  }
  return json.dump();
}

std::vector<Recording> from_text(const std::string& text) {
  std::vector<Recording> steps;
  for (const auto& step : nlohmann::json::parse(text)) {
    Recording& recording = steps.emplace_back(Recording{step[0], step[1], step[2], {}});
    for (const auto& span : step[3])
      recording.spans.push_back({static_cast<Recording::Kind>(span[0].get<int>()),
                                 static_cast<pipeline::Queue>(span[1].get<int>()), span[2], span[3], span[4]});
  }
  return steps;
}

void make_directory(const Config& config) {
  std::error_code error;
  std::filesystem::create_directories(config.timeline.directory, error);
  if (error)
    config::refuse(config, "timeline.directory",
                   fmt::format("\"{}\" cannot be created: {}", config.timeline.directory, error.message()));
}

void write(const TimelineReport& report, const Plan& plan) {
  write_file(plan.config, "timeline.svg", svg(report, plan));
  write_file(plan.config, "measured.json", pipeline::to_chrome_trace(report.measured.timeline));
  write_file(plan.config, "simulated.json", pipeline::to_chrome_trace(report.simulated.timeline));
  write_file(plan.config, "costs.json", to_json(report.blocks, plan.batch.micro_batch_size));
  write_file(plan.config, "ranks.json", rank_times(report.measured.timeline));
}

}  // namespace trivet::timeline
