#include "autotune/prediction.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "autotune/units.h"
#include "report/monitor/number_text.h"

namespace trivet::autotune {

std::vector<NamedValue> parts_of(const StepSeconds& seconds) {
  return {{"compute", seconds.compute}, {"recompute", seconds.recompute}, {"tensor", seconds.tensor},
          {"context", seconds.context}, {"expert", seconds.expert},       {"data", seconds.data},
          {"bubble", seconds.bubble},   {"optimizer", seconds.optimizer}, {"offload", seconds.offload}};
}

std::vector<NamedValue> parts_of(const StepBytes& bytes) {
  return {{"parameters", bytes.parameters},
          {"gradients", bytes.gradients},
          {"optimizer", bytes.optimizer},
          {"activations", bytes.activations},
          {"buffers", bytes.buffers}};
}

std::string figure(double value, int digits) {
  if (value <= 0) return "0";
  const double unit = std::pow(10, std::floor(std::log10(value)) - digits + 1), rounded = std::round(value / unit) * unit;
  return rounded < 1000 || rounded > 1e15 ? fmt::format("{:.{}g}", value, digits) : monitor::with_commas(std::llround(rounded));
}

std::string rate_text(double targets_per_second) { return figure(targets_per_second) + " tokens/s"; }

std::string flop_text(double flop) {
  for (const auto& [size, name] : {std::pair(1e18, "E"), {1e15, "P"}, {1e12, "T"}, {1e9, "G"}})
    if (flop >= size) return fmt::format("{} {}FLOP", figure(flop / size), name);
  return fmt::format("{} MFLOP", figure(flop / 1e6));
}

std::string step_text(const StepSeconds& seconds, double targets_per_second) {
  const Unit unit = unit_of_time(seconds.total());
  std::string text =
      fmt::format("step      {} {}, {}\n", figure(seconds.total() / unit.size), unit.name, rate_text(targets_per_second));
  for (const NamedValue& part : parts_of(seconds))
    text += fmt::format("  {:<12} {:>8.3f} {:<2} {:>7.1f} %\n", part.name, part.value / unit.size, unit.name,
                        100 * part.value / seconds.total());
  return text;
}

std::string communicating_axes(const Layout& layout) {
  return fmt::format("tensor{}{} and data", layout.context > 1 ? ", context" : "", layout.expert > 1 ? ", expert" : "");
}

double price_of_token(const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  return cluster.price_per_device_hour * as_double(devices) / 3600 / step.targets_per_second;
}

std::string price_text(const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  const double price = price_of_token(cluster, devices, step);
  return fmt::format("{} for 1 M tokens, {} for 1 B and {} for 1 T, at {} per device and hour", figure(1e6 * price),
                     figure(1e9 * price), figure(1e12 * price), cluster.price_per_device_hour);
}

namespace {

constexpr int kDigitsOfCost = 3;  // all that a prediction can have

std::string number_of_tokens(double tokens) {
  for (const auto& [size, name] : {std::pair(1e12, "T"), {1e9, "B"}, {1e6, "M"}})
    if (tokens >= size) return fmt::format("{:.4g} {}", tokens / size, name);
  return fmt::format("{:.0f}", tokens);
}

std::string time_in_words(double seconds) {
  constexpr double kDay = 86400;
  if (seconds < 2 * kDay) return monitor::duration(seconds);
  if (seconds < 20 * kDay) return fmt::format("{:.1f} days", seconds / kDay);
  return seconds < 1e9 * kDay ? monitor::with_commas(std::llround(seconds / kDay)) + " days"
                              : fmt::format("{:.3g} days", seconds / kDay);
}

}  // namespace

std::string tokens_text(double tokens, const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  std::string text = fmt::format("{} tokens: {}", number_of_tokens(tokens), time_in_words(tokens / step.targets_per_second));
  if (cluster.price_per_device_hour > 0)
    text += fmt::format(", {} at {} per device and hour",
                        figure(tokens * price_of_token(cluster, devices, step), kDigitsOfCost), cluster.price_per_device_hour);
  return text;
}

nlohmann::ordered_json tokens_json(double tokens, const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  nlohmann::ordered_json json{{"tokens", tokens}, {"seconds", tokens / step.targets_per_second}};
  if (cluster.price_per_device_hour > 0) json["price"] = tokens * price_of_token(cluster, devices, step);
  return json;
}

void add_step(nlohmann::ordered_json& json, const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  json["step_seconds"] = step.seconds.total();
  for (const NamedValue& part : parts_of(step.seconds)) json["seconds"][part.name] = part.value;
  json["hidden_communication_seconds"] = step.seconds.hidden;
  json["tokens_per_second"] = step.targets_per_second;
  json["model_flops_utilization"] = step.model_flops_utilization;
  if (cluster.price_per_device_hour <= 0) return;
  const double price = price_of_token(cluster, devices, step);
  json["price"] = {{"per_device_hour", cluster.price_per_device_hour},
                   {"per_token", price},
                   {"per_1e9_tokens", 1e9 * price},
                   {"per_1e12_tokens", 1e12 * price}};
}

nlohmann::ordered_json memory_json(const StepBytes& bytes) {
  nlohmann::ordered_json json;
  for (const NamedValue& part : parts_of(bytes)) json[part.name] = part.value;
  json["total"] = bytes.total();
  if (bytes.host > 0) json["host"] = bytes.host;
  return json;
}

nlohmann::ordered_json cluster_json(const Cluster& cluster) {
  return {{"name", cluster.name},
          {"device", cluster.device.name},
          {"memory_bytes", cluster.device.memory_bytes},
          {"reserve_bytes", cluster.device.reserve_bytes}};
}

}  // namespace trivet::autotune
