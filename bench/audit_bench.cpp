// Measures the price of audits: of audit.weights_every, the time of one comparison of weights as a share of the steps between
// two comparisons; of audit.every_steps 100, the time by which an audited step is longer as a share of 100 steps.
//
//   audit_bench [ROUNDS [PART [MODEL]]]        default: 7 all ""; PART: weights or gradients; MODEL: part of a model's name
//
// Ranks are threads, one per core. Weights are compared at ZeRO-0, where each rank reads all of them. Steps and comparisons, or
// steps with and without an audit, alternate; the results are medians.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "autotune/bench/run_steps.h"
#include "comm/world.h"
#include "core/median.h"
#include "engine/engine.h"
#include "engine/weight_audit.h"

namespace trivet {
namespace {

struct Size {
  const char* name;
  int64_t layers, hidden, heads, vocabulary, batch;
};

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Config config_of(const Size& size, bool bf16) {
  Config config;
  config.source = "audit_bench";
  config.model.layers = size.layers;
  config.model.hidden_size = size.hidden;
  config.model.heads = size.heads;
  config.model.sequence_length = 256;
  config.model.vocabulary_size = size.vocabulary;
  config.batch.train_batch_size = size.batch;
  config.bf16.enabled = bf16;
  config.audit.weights_every = 0;  // only this program makes comparisons
  return config;
}

constexpr int64_t kEverySteps = 100;

void measure_gradients(comm::World& world, const Size& size, int stage, int64_t accumulation, int rounds) {
  Config config = config_of(size, false);
  config.reproducible = Reproducible::Layout;
  config.zero.stage = stage;
  config.batch.micro_batch_size = size.batch / world.size() / accumulation;
  config.audit.every_steps = 2;
  model::Model model = model::build(model::with_vocabulary(config.model, size.vocabulary));
  const Plan plan = make_plan(config, model, world.size());
  const autotune::MadeUpBatch batch(plan, model);
  Engine engine(plan, std::move(model), world, {});
  engine.set_microbatch_source(
      [&](int64_t, int64_t number) { return batch.microbatches()[number / engine.plan().mesh.size(Axis::Data)]; });
  autotune::run_step(engine, batch);
  autotune::run_step(engine, batch);
  std::vector<double> steps, audited;
  for (int round = 0; round < rounds; ++round) {
    steps.push_back(autotune::run_step(engine, batch));
    audited.push_back(autotune::run_step(engine, batch));
  }
  if (world.rank() != 0) return;
  const double step = median(steps), with_audit = median(audited);
  fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.2f} % |\n", size.name, stage, accumulation, 1e3 * step, 1e3 * with_audit,
             100 * (with_audit - step) / (static_cast<double>(kEverySteps) * step));
}

void measure(comm::World& world, const Size& size, bool bf16, int rounds) {
  const Config config = config_of(size, bf16);
  model::Model model = model::build(model::with_vocabulary(config.model, size.vocabulary));
  const Plan plan = make_plan(config, model, world.size());
  const autotune::MadeUpBatch batch(plan, model);
  Engine engine(plan, std::move(model), world, {});
  const auto group = world.group().subgroup({0, 1}, "audit");
  autotune::run_step(engine, batch);
  std::vector<double> steps, audits;
  for (int round = 0; round < rounds; ++round) {
    steps.push_back(autotune::run_step(engine, batch));
    audits.push_back(seconds([&] {
      compare_weights(engine.plan().mesh, engine.plan().shards(Sharing::Dense),
                      digest_weights(engine.parameters(), engine.kernels(), Device::Cpu), comm::over_group(*group),
                      world.host(), round, round);
    }));
  }
  if (world.rank() != 0) return;
  const int64_t every = AuditConfig{}.weights_every;
  const double step = median(steps), audit = median(audits);
  fmt::print("| {} | {} | {:.1f} | {:.2f} | {:.3f} % |\n", size.name, bf16 ? "bfloat16" : "float32", 1e3 * step, 1e3 * audit,
             100 * audit / (static_cast<double>(every) * step));
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  using namespace trivet;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::string_view part = argc > 2 ? argv[2] : "all", model = argc > 3 ? argv[3] : "";
  const auto for_each_size = [&](int64_t largest_batch, const std::function<void(const Size&)>& work) {
    for (const Size& size : {Size{"GPT 3.3M", 4, 256, 8, 256, 8}, Size{"GPT 124M", 12, 768, 12, 50257, largest_batch}})
      if (std::string_view(size.name).find(model) != std::string_view::npos) work(size);
  };
  if (part != "gradients") {
    fmt::print("| model | weights | step, ms | comparison, ms | price at every {} steps |\n|---|---|---|---|---|\n",
               AuditConfig{}.weights_every);
    for_each_size(2, [&](const Size& size) {
      for (const bool bf16 : {false, true})
        comm::run_threads(2, [&](comm::World& world) { measure(world, size, bf16, rounds); });
    });
  }
  if (part == "weights") return 0;
  fmt::print(
      "\n| model | ZeRO stage | microbatches per rank | step, ms | audited step, ms | price at every {} steps |\n"
      "|---|---|---|---|---|---|\n",
      kEverySteps);
  for_each_size(4, [&](const Size& size) {
    for (const int stage : {0, 1, 2, 3})
      for (const int64_t accumulation : {1, 2})
        comm::run_threads(2, [&](comm::World& world) { measure_gradients(world, size, stage, accumulation, rounds); });
  });
}
