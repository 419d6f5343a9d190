#include "autotune/prediction.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/monitor/number_text.h"

namespace trivet::autotune {

std::vector<NamedValue> parts_of(const StepSeconds& seconds) {
  return {{"compute", seconds.compute}, {"recompute", seconds.recompute}, {"tensor", seconds.tensor},  {"data", seconds.data},
          {"bubble", seconds.bubble},   {"optimizer", seconds.optimizer}, {"offload", seconds.offload}};
}

std::vector<NamedValue> parts_of(const StepBytes& bytes) {
  return {{"parameters", bytes.parameters},
          {"gradients", bytes.gradients},
          {"optimizer", bytes.optimizer},
          {"activations", bytes.activations},
          {"buffers", bytes.buffers}};
}

double price_of_token(const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  return cluster.price_per_device_hour * as_double(devices) / 3600 / step.targets_per_second;
}

std::string price_text(const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  const double price = price_of_token(cluster, devices, step);
  return fmt::format("{:.4g} per token, {:.4g} for 1e9 and {:.4g} for 1e12 tokens, at {} per device and hour", price,
                     1e9 * price, 1e12 * price, cluster.price_per_device_hour);
}

namespace {

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

// Three digits are all that a prediction can have.
std::string money(double amount) {
  const double unit = std::pow(10, std::floor(std::log10(amount)) - 2);
  return amount < 100 || amount > 1e15 ? fmt::format("{:.3g}", amount)
                                       : monitor::with_commas(std::llround(std::round(amount / unit) * unit));
}

}  // namespace

std::string tokens_text(double tokens, const Cluster& cluster, int64_t devices, const StepPrediction& step) {
  std::string text = fmt::format("{} tokens: {}", number_of_tokens(tokens), time_in_words(tokens / step.targets_per_second));
  if (cluster.price_per_device_hour > 0)
    text += fmt::format(", {} at {} per device and hour", money(tokens * price_of_token(cluster, devices, step)),
                        cluster.price_per_device_hour);
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
