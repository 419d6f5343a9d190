#include "autotune/prediction.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
