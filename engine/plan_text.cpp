#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/plan.h"

namespace trivet {
namespace {

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string traffic_line(const char* name, const comm::Traffic& traffic) {
  return fmt::format("  {:<10} {:>4} operations {:>10.2f} MiB sent by each rank\n", name, traffic.operations,
                     mebibytes(traffic.bytes_sent));
}

// Long programs are shown by their beginning and end.
std::string shortened(const pipeline::Program& program) {
  constexpr size_t kMost = 60, kEnd = 20;
  if (program.size() <= kMost) return to_string(program);
  const pipeline::Program head(program.begin(), program.begin() + (kMost - kEnd)), tail(program.end() - kEnd, program.end());
  return fmt::format("{} ... ({} more) ... {}", to_string(head), program.size() - kMost, to_string(tail));
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text;
  text += fmt::format("mesh      {}, {} ranks\n", to_string(plan.mesh), plan.mesh.size());
  text += fmt::format("model     {} parameters in {} blocks\n", plan.parameters, plan.layout.blocks.size());
  text += fmt::format("batch     {} = micro {} x accumulation {} x data {}\n", plan.batch.train_batch_size,
                      plan.batch.micro_batch_size, plan.batch.gradient_accumulation_steps, plan.mesh.size(Axis::Data));
  text += fmt::format("precision {}, ZeRO stage {}, reproducible \"{}\"\n", name_of(plan.config.model_dtype()),
                      plan.config.zero.stage, name_of(plan.config.reproducible));
  text += "memory of the heaviest rank\n";
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    text += fmt::format("  {:<12} {:>10.2f} MiB\n", name, mebibytes(plan.memory[category]));
  text += fmt::format("  {:<12} {:>10.2f} MiB\n", "total", mebibytes(plan.memory.total()));
  text += "communication of one step\n";
  text += traffic_line("gather", plan.gather);
  text += traffic_line("reduce", plan.reduce);
  text += fmt::format("compute   {:.2f} GFLOP a step on all ranks\n", plan.model_flops_per_step / 1e9);
  text += fmt::format("program   {}\n", shortened(plan.programs.train));
  return text;
}

std::string to_json(const Plan& plan) {
  nlohmann::ordered_json json;
  for (const auto& [name, axis] : EnumNames<Axis>::table) json["mesh"][std::string(name)] = plan.mesh.size(axis);
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    json["memory_bytes"][std::string(name)] = plan.memory[category];
  json["memory_bytes"]["total"] = plan.memory.total();
  json["parameters"] = plan.parameters;
  json["train_batch_size"] = plan.batch.train_batch_size;
  json["train_micro_batch_size_per_gpu"] = plan.batch.micro_batch_size;
  json["gradient_accumulation_steps"] = plan.batch.gradient_accumulation_steps;
  json["communication_bytes"] = {{"gather", plan.gather.bytes_sent}, {"reduce", plan.reduce.bytes_sent}};
  json["model_flops_per_step"] = plan.model_flops_per_step;
  json["programs"] = nlohmann::ordered_json::array();
  auto& program = json["programs"].emplace_back(nlohmann::ordered_json::array());
  for (const auto& instruction : plan.programs.train) program.push_back(to_string(instruction));
  return json.dump(2);
}

}  // namespace trivet
