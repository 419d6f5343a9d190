// Trains a model that is not a language model on data that is not text: points in a space of 8 dims, and the class of each.
//
//   example_04_own_data
//
// The model states what a sample is, a source fills samples, and everything else follows: batches, order of samples, pipelines,
// ZeRO. One rank and a pipeline of two stages with ZeRO-3 on two ranks each give the same bits.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "core/random.h"
#include "data/microbatch_loader.h"
#include "engine/engine.h"
#include "model/linear.h"
#include "model/lm_head.h"
#include "model/mlp.h"

namespace {

using namespace trivet;

constexpr int64_t kDims = 8, kClasses = 4, kHidden = 32;

SampleSpec point() { return {.input_dtype = DType::Float32, .input = {kDims}, .targets = {1}, .classes = kClasses}; }

// Points around zero. The class is the largest of four sums of two neighbouring coordinates.
class Points final : public data::SampleSource {
 public:
  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return 512; }
  void fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const override {
    float x[kDims];
    for (uint64_t dim = 0; dim < kDims; ++dim)
      x[dim] = 2 * unit_float(philox(random_key(7, "points"), dim, static_cast<uint64_t>(sample))[0]) - 1;
    std::memcpy(input.data(), x, input.size());
    float sums[kClasses];
    for (int64_t i = 0; i < kClasses; ++i) sums[i] = x[2 * i] + x[2 * i + 1];
    targets[0] = static_cast<int32_t>(std::max_element(sums, sums + kClasses) - sums);
  }
  std::string digest() const override { return "points 512"; }

 private:
  SampleSpec spec_ = point();
};

// A list of layers with names. The last layer computes the loss; LmHead is a softmax over classes, whatever they are.
model::Model classifier() {
  model::Model model;
  model.sample = point();
  const auto add = [&](const std::string& name, std::unique_ptr<Layer> layer) {
    model.names.push_back(name);
    model.layers.push_back(std::move(layer));
  };
  add("input", std::make_unique<model::Linear>(model::Linear::Options{.in = kDims, .out = kHidden, .init_deviation = 0.3}));
  for (int i = 0; i < 2; ++i)
    add("hidden." + std::to_string(i),
        std::make_unique<model::Mlp>(model::Mlp::Options{
            .hidden = kHidden, .feed_forward = 2 * kHidden, .init_deviation = 0.2, .init_deviation_out = 0.2}));
  add("classes", std::make_unique<model::LmHead>(model::LmHead::Options{.vocabulary = kClasses, .hidden = kHidden},
                                                 model::make_norm(model::NormKind::LayerNorm, kHidden, 1e-5, true)));
  return model;
}

Config run(int pipeline, int zero_stage) {
  Config config;
  config.source = "example";
  config.training.steps = 60;
  config.batch = {.train_batch_size = 32, .micro_batch_size = 4};
  config.optimizer.lr = 0.01;
  config.parallel.pipeline = pipeline;
  config.zero.stage = zero_stage;
  config.reproducible = Reproducible::Layout;  // the same bits on every layout
  return config;
}

std::vector<double> losses_of(const Config& config, int ranks) {
  std::vector<double> losses;
  comm::run_threads(ranks, [&](comm::World& world) {
    model::Model model = classifier();
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    const auto source = std::make_shared<Points>();
    const data::SampleOrder order(source->samples(), 1, true);
    const data::MicrobatchLoader loader(source, order, engine.plan().batch_layout(world.rank()));
    std::vector<data::HostMicrobatch> memory(static_cast<size_t>(loader.layout().accumulation));
    for (int64_t step = 0; step < config.training.steps; ++step) {
      std::vector<Microbatch> microbatches;
      for (size_t m = 0; m < memory.size(); ++m) {
        loader.fill(step, static_cast<int64_t>(m), memory[m]);
        microbatches.push_back(memory[m].view);
      }
      const StepResult result = engine.train_batch(microbatches);
      if (world.rank() == 0) losses.push_back(result.loss);
    }
  });
  return losses;
}

}  // namespace

int main() {
  const std::vector<double> one = losses_of(run(1, 0), 1);
  std::printf("one rank:                        loss %.4f -> %.4f\n", one.front(), one.back());
  const std::vector<double> four = losses_of(run(2, 3), 4);
  std::printf("pipeline 2 x data 2, ZeRO-3:     loss %.4f -> %.4f\n", four.front(), four.back());
  std::printf("every loss has the same bits:    %s\n", one == four ? "yes" : "no");
  return one == four && one.back() < 0.5 * one.front() ? 0 : 1;
}
