// Trains a tiny model for three steps with nothing but an installed Trivet. Exits with code 1 unless the loss falls.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "trivet.h"

namespace {

double train_three_steps(trivet::comm::World& world) {
  const trivet::Config config = trivet::parse_config(R"({
    "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 8, "vocabulary": 16},
    "train_batch_size": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 2}
  })",
                                                     "consumer");
  trivet::model::Model model = trivet::model::build(config.model);
  trivet::Plan plan = trivet::make_plan(config, model, world.size());
  trivet::Engine engine(std::move(plan), std::move(model), world);

  // Each target is its token plus one: 0 1 2 3 ...
  const trivet::Shape shape{config.batch.train_batch_size / world.size(), config.model.sequence_length};
  std::vector<int32_t> tokens, targets;
  for (int64_t at = 0; at < shape.elements(); ++at) {
    tokens.push_back(static_cast<int32_t>(at % 16));
    targets.push_back(static_cast<int32_t>((at + 1) % 16));
  }
  const trivet::Microbatch microbatch{
      {tokens.data(), trivet::DType::Int32, shape}, {targets.data(), trivet::DType::Int32, shape}, world.rank() * shape[0]};
  double first = 0, last = 0;
  for (int step = 0; step < 3; ++step) {
    last = engine.train_batch({&microbatch, 1}).loss;
    if (step == 0) first = last;
    if (world.rank() == 0) std::printf("step %d  loss %.4f\n", step, last);
  }
  return first - last;
}

}  // namespace

int main() {
  double fall = 0;
  trivet::comm::run_threads(2, [&](trivet::comm::World& world) {
    const double mine = train_three_steps(world);
    if (world.rank() == 0) fall = mine;
  });
  return fall > 0 ? 0 : 1;
}
