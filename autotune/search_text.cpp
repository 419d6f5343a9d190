// Prints what a search found, for people and for scripts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "autotune/prediction.h"
#include "autotune/search.h"
#include "autotune/units.h"

namespace trivet::autotune {
namespace {

// The units of time and memory in all rows.
struct Units {
  explicit Units(const Candidate& first)
      : time(unit_of_time(first.step.seconds.total())), memory(unit_of_memory(first.step.bytes.total())) {}
  Unit time, memory;
};

std::string row(const Candidate& candidate, const Units& units) {
  const StepSeconds& s = candidate.step.seconds;
  const auto percent = [&](double part) { return 100 * part / s.total(); };
  return fmt::format("{:9.3f} {:6.1f} {:7.1f} {:8.1f} {:6.1f} {:6.1f} {:7.1f} {:6.1f} {:6.1f} {:6.1f} {:6.1f}   {}\n",
                     s.total() / units.time.size, 100 * candidate.step.model_flops_utilization,
                     candidate.step.bytes.total() / units.memory.size, percent(s.compute), percent(s.recompute),
                     percent(s.tensor), percent(s.context), percent(s.expert), percent(s.bubble), percent(s.data),
                     percent(s.optimizer + s.offload), layout_text(candidate));
}

nlohmann::ordered_json json_of(const Candidate& candidate, const Cluster& cluster) {
  const Layout& layout = candidate.layout;
  nlohmann::ordered_json json;
  json["mesh"] = {{"pipeline", layout.pipeline}, {"data", layout.data}, {"context", layout.context}, {"tensor", layout.tensor}};
  json["expert"] = layout.expert;
  json["schedule"] = name_of(layout.schedule);
  json["chunks"] = layout.chunks;
  json["zero_stage"] = layout.zero_stage;
  json["train_micro_batch_size_per_gpu"] = layout.microbatch;
  json["gradient_accumulation_steps"] = layout.microbatches;
  json["recompute"] = name_of(layout.recompute);
  json["sequence_parallel"] = layout.sequence_parallel;
  json["overlap_comm"] = layout.overlap;
  json["offload_optimizer"] = layout.offload_optimizer;
  add_step(json, cluster, layout.devices(), candidate.step);
  json["memory_bytes"] = memory_json(candidate.step.bytes);
  if (!candidate.other_chunks.empty()) json["slower_chunks"] = candidate.other_chunks;
  for (const auto& [key, value] : candidate.config) json["config"][key] = nlohmann::ordered_json::parse(value);
  return json;
}

// "--set parallel.tensor=8 --set ...", wrapped into lines as a shell takes them.
std::string flags(const ConfigKeys& config) {
  constexpr size_t kMost = 118;
  std::string text, line = " ";
  for (const auto& [key, value] : config) {
    const bool quoted = value.front() == '"';
    const std::string flag = fmt::format(" --set {}={}", key, quoted ? value.substr(1, value.size() - 2) : value);
    if (line.size() + flag.size() > kMost) text += line + " \\\n", line = " ";
    line += flag;
  }
  return text + line + "\n";
}

std::string head(const Units& units) {
  return fmt::format("\n{:>9}  MFU % {:>7}  compute recomp tensor context expert bubble   data update   (% of the step)\n",
                     fmt::format("step {}", units.time.name), units.memory.name);
}

std::string nothing_fits(const SearchResult& result, const Cluster& cluster) {
  const StepBytes& bytes = result.smallest.step.bytes;
  std::string text =
      fmt::format("\nnothing fits: the smallest layout needs {:.1f} GiB of {:.1f}, {}\n{}{}", bytes.total() / kGib,
                  as_double(cluster.device.usable_bytes()) / kGib, shortage(bytes, cluster), head(Units(result.smallest)),
                  row(result.smallest, Units(result.smallest)));
  text += what_would_fit(result, cluster) + "\n";
  if (!result.nearest) return text;
  return text + head(Units(*result.nearest)) + row(*result.nearest, Units(*result.nearest));
}

}  // namespace

std::vector<std::string> network_lines(const SearchResult& result, const Cluster& cluster) {
  if (result.ranking.empty()) return {};
  const Candidate& best = result.ranking.front();
  const StepSeconds& s = best.step.seconds;
  if (best.layout.devices() == best.layout.pipeline) return {};
  std::vector<std::string> lines{
      fmt::format("{} axes communicate for {:.1f} % of the first's step while it computes, and for {:.1f} % while it waits",
                  communicating_axes(best.layout), 100 * s.hidden / s.total(), 100 * s.waiting() / s.total())};
  if (best.layout.devices() <= cluster.devices_per_node) return lines;
  const Layout& with_half = result.best_layout_with_half_network;
  lines.push_back(
      fmt::format("with half the bandwidth between nodes its step takes {:.1f} % longer, and that of the fastest of these "
                  "layouts {:.1f} %{}",
                  100 * (result.with_half_network / s.total() - 1), 100 * (result.best_with_half_network / s.total() - 1),
                  with_half == best.layout ? "" : fmt::format(": {}", to_string(with_half))));
  return lines;
}

std::string layout_text(const Candidate& candidate) {
  return to_string(candidate.layout) +
         (candidate.other_chunks.empty() ? "" : fmt::format(" (slower: {})", fmt::join(candidate.other_chunks, ", ")));
}

std::string what_would_fit(const SearchResult& result, const Cluster& cluster) {
  if (!result.nearest)
    return cluster.most_devices() > 0
               ? fmt::format("doubling the devices up to the {} of the cluster does not make it fit", cluster.most_devices())
               : "doubling the devices up to what --world-size accepts does not make it fit; shorten sequences or use a larger "
                 "device";
  const Layout& layout = result.nearest->layout;
  const int64_t batch = layout.global_batch(), asked = result.smallest.layout.global_batch();
  return fmt::format("{} devices are enough: {}{}", layout.devices(), to_string(layout),
                     batch == asked ? "" : fmt::format(", with train_batch_size {} instead of {}", batch, asked));
}

std::string to_text(const SearchResult& result, const Cluster& cluster, double tokens) {
  const Accelerator& device = cluster.device;
  std::string text = fmt::format(
      "cluster   {}: {} of {:.1f} GiB, {} per node\nreserve   {:.1f} GiB, so {:.1f} GiB of each device can be used\n"
      "search    {} layouts in {:.2f} s, {} fit\n",
      cluster.name, device.name, as_double(device.memory_bytes) / kGib, cluster.devices_per_node,
      as_double(device.reserve_bytes) / kGib, as_double(device.usable_bytes()) / kGib, result.tried, result.seconds,
      result.fitting);
  if (!result.context.empty()) text += fmt::format("context   {}\n", result.context);
  if (!result.expert.empty()) text += fmt::format("expert    {}\n", result.expert);
  if (result.ranking.empty()) return text + nothing_fits(result, cluster);
  const Candidate& best = result.ranking.front();
  text += fmt::format("first     {}\n", rate_text(best.step.targets_per_second));
  if (tokens > 0) text += fmt::format("run       {}\n", tokens_text(tokens, cluster, best.layout.devices(), best.step));
  if (cluster.price_per_device_hour > 0)
    text += fmt::format("price     {}\n", price_text(cluster, best.layout.devices(), best.step));
  const Units units(best);
  const char* name = "network";
  for (const std::string& line : network_lines(result, cluster))
    text += fmt::format("{:<9} {}\n", std::exchange(name, ""), line);
  text += head(units);
  for (const Candidate& candidate : result.ranking) text += row(candidate, units);
  text += result.planned ? "the first fits by its plan, too; the memory of the others is predicted\n"
                         : "memory is predicted; --verify plans the first\n";
  for (const Refuted& refuted : result.refuted)
    text += fmt::format("refuted: {:.3f} s with {}: {}\n", refuted.candidate.step.seconds.total(),
                        to_string(refuted.candidate.layout), refuted.why);
  text += "\nto train with the first\n" + flags(best.config) + "\nwhy not\n";
  for (const Alternative& alternative : result.alternatives)
    text += fmt::format("  {:22} {}\n", alternative.choice, alternative.why);
  return text;
}

std::string to_json(const SearchResult& result, const Cluster& cluster, double tokens) {
  nlohmann::ordered_json json;
  json["cluster"] = cluster_json(cluster);
  json["tried"] = result.tried;
  json["fitting"] = result.fitting;
  json["seconds"] = result.seconds;
  json["context_ranks"] = result.context;
  json["shared_experts"] = result.expert;
  json["ranking"] = nlohmann::ordered_json::array();
  for (const Candidate& candidate : result.ranking) json["ranking"].push_back(json_of(candidate, cluster));
  if (!result.ranking.empty()) {
    const Candidate& best = result.ranking.front();
    json["step_seconds_with_half_network"] = result.with_half_network;
    json["best_step_seconds_with_half_network"] = result.best_with_half_network;
    if (tokens > 0) json["run"] = tokens_json(tokens, cluster, best.layout.devices(), best.step);
  }
  json["planned"] = result.planned;
  json["refuted"] = nlohmann::ordered_json::array();
  for (const Refuted& refuted : result.refuted)
    json["refuted"].push_back({{"why", refuted.why}, {"layout", json_of(refuted.candidate, cluster)}});
  json["why_not"] = nlohmann::ordered_json::array();
  for (const Alternative& alternative : result.alternatives)
    json["why_not"].push_back({{"choice", alternative.choice},
                               {"fits", alternative.fits},
                               {"why", alternative.why},
                               {"best", json_of(alternative.best, cluster)}});
  json["smallest"] = json_of(result.smallest, cluster);
  if (result.nearest) {
    json["nearest"] = json_of(*result.nearest, cluster);
    json["nearest"]["devices"] = result.nearest->layout.devices();
    json["nearest"]["train_batch_size"] = result.nearest->layout.global_batch();
  }
  return json.dump(2);
}

}  // namespace trivet::autotune
