#include "tests/engine/measured_run.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"

namespace trivet {
namespace {

using comm::Operation;

struct Measured {
  MemoryBytes memory;
  int64_t activation_arena_bytes = 0, buffer_arena_bytes = 0;
  std::map<std::string, int64_t> sent_bytes;  // in a step, by the lines of the plan
};

// The formulas of docs/communication.md.
int64_t bytes_sent(const timeline::LoggedOperation& logged) {
  const int64_t others = logged.bytes / logged.ranks * (logged.ranks - 1);
  switch (logged.operation) {
    case Operation::AllReduce: return 2 * others;
    case Operation::ReduceScatter:
    case Operation::AllGather:
    case Operation::AllToAll: return others;
    case Operation::AllToAllV:
    case Operation::Send: return logged.bytes;
    default: return 0;
  }
}

std::map<std::string, int64_t> sent_by_line(const Plan& plan, const std::vector<timeline::LoggedOperation>& operations) {
  std::map<std::string, std::string> lines;  // by names of groups
  std::map<std::string, int64_t> sent;
  for (const ChannelSpec& channel : plan.channels()) {
    lines[channel.name] = channel.traffic;
    if (!channel.traffic.empty()) sent[channel.traffic] = 0;
  }
  for (const timeline::LoggedOperation& operation : operations)
    if (const std::string& line = lines.at(operation.group); !line.empty()) sent[line] += bytes_sent(operation);
  return sent;
}

// A step after another one. What it sends last may be on its way when it ends, but not after an evaluation, which waits for all
// weights; and a step after an evaluation may find weights that this has gathered. So it is what two steps and an evaluation
// send less what one step and an evaluation send.
std::map<std::string, int64_t> sent_by_a_step(const Plan& plan, Engine& engine, const std::function<void(int steps)>& run) {
  const auto sent_by = [&](int steps) {
    engine.operation_log()->take();
    run(steps);
    return sent_by_line(plan, engine.operation_log()->take());
  };
  std::map<std::string, int64_t> sent = sent_by(2);
  for (const auto& [line, bytes] : sent_by(1)) sent[line] -= bytes;
  return sent;
}

Measured measure(const Plan& plan, comm::World& world) {
  Engine engine(plan, model_as_configured(plan.config), world);
  const SampleSpec& sample = engine.model().sample;
  const Shape inputs = sample.inputs_of(plan.batch.micro_batch_size), targets = sample.targets_of(plan.batch.micro_batch_size);
  const std::vector<std::byte> input_bytes(inputs.elements() * size_of(sample.input_dtype));
  const std::vector<int32_t> ids(targets.elements());
  Microbatch zeros{{input_bytes.data(), sample.input_dtype, inputs}, {ids.data(), DType::Int32, targets}, 0};
  std::vector<int32_t> documents;  // each has one token
  for (int64_t i = 0; i < targets.elements(); ++i) documents.push_back(static_cast<int32_t>(i % sample.targets.elements()));
  const Shape references = sample.reference_of(plan.batch.micro_batch_size);
  const std::vector<double> reference(references.elements());
  zeros.reference = {reference.data(), DType::Float64, references};
  if (sample.documents) {
    zeros.documents = {documents.data(), DType::Int32, targets};
    zeros.positions = zeros.targets;
  }
  const std::vector<Microbatch> batch(plan.batch.gradient_accumulation_steps, zeros);
  engine.set_microbatch_source([&](int64_t, int64_t) { return batch[0]; });  // all microbatches are the same
  const auto run = [&](int steps) {
    for (int step = 0; step < steps; ++step)
      EXPECT_FALSE(engine.train_batch(batch).skipped) << "a step without an update may need less";
    engine.evaluate(batch);
  };
  run(2);
  const std::map<std::string, int64_t> sent_bytes =
      engine.operation_log() ? sent_by_a_step(plan, engine, run) : std::map<std::string, int64_t>();
  return {engine.measured_memory(), engine.activations().peak_bytes(), engine.buffers().peak_bytes(), sent_bytes};
}

}  // namespace

void expect_measured_as_planned(const Plan& plan) {
  std::vector<Measured> measured(plan.mesh.size());
  comm::run_threads(plan.mesh.size(), [&](comm::World& world) { measured[world.rank()] = measure(plan, world); });
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const Measured& is = measured[rank];
    const RankPlan& planned = plan.rank(rank);
    for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
      EXPECT_EQ(is.memory[category], planned.memory[category]) << name << " of rank " << rank;
    EXPECT_EQ(is.activation_arena_bytes, planned.activation_arena_bytes) << "arena of rank " << rank;
    EXPECT_EQ(is.buffer_arena_bytes, planned.buffer_arena_bytes) << "arena of rank " << rank;
    for (const auto& [line, bytes] : is.sent_bytes) {
      if (line == "expert") continue;  // how many rows ranks send each other follows from the data
      EXPECT_EQ(bytes, planned.traffic_of(line).bytes_sent) << line << " of rank " << rank;
    }
  }
}

}  // namespace trivet
