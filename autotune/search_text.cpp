// What a search found, for people and for scripts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "autotune/search.h"

namespace trivet::autotune {
namespace {

constexpr double kGib = 1 << 30;

std::string row(const Candidate& candidate) {
  const StepSeconds& s = candidate.step.seconds;
  const auto percent = [&](double part) { return 100 * part / s.total(); };
  return fmt::format("{:9.3f} {:6.1f} {:7.1f} {:8.1f} {:6.1f} {:6.1f} {:6.1f} {:6.1f}   {}\n", s.total(),
                     100 * candidate.step.model_flops_utilization, candidate.step.bytes.total() / kGib, percent(s.compute),
                     percent(s.recompute), percent(s.tensor), percent(s.bubble), percent(s.data), to_string(candidate.layout));
}

nlohmann::ordered_json json_of(const Candidate& candidate) {
  const Layout& layout = candidate.layout;
  const StepSeconds& seconds = candidate.step.seconds;
  const StepBytes& bytes = candidate.step.bytes;
  nlohmann::ordered_json json;
  json["mesh"] = {{"pipeline", layout.pipeline}, {"data", layout.data}, {"tensor", layout.tensor}};
  json["schedule"] = name_of(layout.schedule);
  json["chunks"] = layout.chunks;
  json["zero_stage"] = layout.zero_stage;
  json["train_micro_batch_size_per_gpu"] = layout.microbatch;
  json["gradient_accumulation_steps"] = layout.microbatches;
  json["recompute"] = name_of(layout.recompute);
  json["sequence_parallel"] = layout.sequence_parallel;
  json["step_seconds"] = seconds.total();
  json["seconds"] = {{"compute", seconds.compute}, {"recompute", seconds.recompute}, {"tensor", seconds.tensor},
                     {"bubble", seconds.bubble},   {"data", seconds.data},           {"optimizer", seconds.optimizer}};
  json["memory_bytes"] = {{"parameters", bytes.parameters},   {"gradients", bytes.gradients}, {"optimizer", bytes.optimizer},
                          {"activations", bytes.activations}, {"buffers", bytes.buffers},     {"total", bytes.total()}};
  json["tokens_per_second"] = candidate.step.tokens_per_second;
  json["model_flops_utilization"] = candidate.step.model_flops_utilization;
  return json;
}

std::string price(const SearchResult& result, const Cluster& cluster) {
  if (cluster.price_per_device_hour <= 0 || result.ranking.empty()) return "";
  const Candidate& best = result.ranking.front();
  const double an_hour = cluster.price_per_device_hour * static_cast<double>(best.layout.devices());
  return fmt::format("price     {:.3g} for a million tokens, at {} a device and hour\n",
                     an_hour / 3600 / best.step.tokens_per_second * 1e6, cluster.price_per_device_hour);
}

}  // namespace

std::string to_text(const SearchResult& result, const Cluster& cluster) {
  std::string text = fmt::format("cluster   {}: {} of {:.1f} GiB, {} a node\nsearch    {} layouts in {:.2f} s, {} fit\n",
                                 cluster.name, cluster.device.name, static_cast<double>(cluster.device.memory_bytes) / kGib,
                                 cluster.devices_per_node, result.tried, result.seconds, result.fitting);
  constexpr const char* kHead = "\n   step s  MFU %     GiB  compute  again tensor bubble   data   (% of the step)\n";
  if (result.ranking.empty())
    return text +
           fmt::format("\nnothing fits: the smallest needs {:.1f} GiB, {:.1f} more than a device has\n",
                       result.smallest.step.bytes.total() / kGib,
                       (result.smallest.step.bytes.total() - static_cast<double>(cluster.device.memory_bytes)) / kGib) +
           kHead + row(result.smallest) + "more devices, a smaller train_batch_size or shorter sequences are what is left\n";
  text += price(result, cluster) + kHead;
  for (const Candidate& candidate : result.ranking) text += row(candidate);
  text += "\nwhy not\n";
  for (const Alternative& alternative : result.alternatives)
    text += fmt::format("  {:22} {}\n", alternative.choice, alternative.why);
  return text;
}

std::string to_json(const SearchResult& result, const Cluster& cluster) {
  nlohmann::ordered_json json;
  json["cluster"] = {{"name", cluster.name}, {"device", cluster.device.name}, {"memory_bytes", cluster.device.memory_bytes}};
  json["tried"] = result.tried;
  json["fitting"] = result.fitting;
  json["seconds"] = result.seconds;
  json["ranking"] = nlohmann::ordered_json::array();
  for (const Candidate& candidate : result.ranking) json["ranking"].push_back(json_of(candidate));
  json["why_not"] = nlohmann::ordered_json::array();
  for (const Alternative& alternative : result.alternatives)
    json["why_not"].push_back({{"choice", alternative.choice},
                               {"fits", alternative.fits},
                               {"why", alternative.why},
                               {"best", json_of(alternative.best)}});
  json["smallest"] = json_of(result.smallest);
  return json.dump(2);
}

}  // namespace trivet::autotune
