// A trainer outside of Trivet's source tree, with its own model and its own gradients, that takes ZeRO, the optimizer, sums
// over ranks and checkpoints from an installed Trivet.
//
//   trivet launch --num_gpus 2 trainer CONFIG.json [KEY=VALUE...]   each process is one rank; alone, it is the only one
//
// It runs until training.steps, saves into checkpoint.directory at its end, and continues from what it finds there at its
// start.
//
// The model, by hand: f(x) = b2 + w2 tanh(w1 x + b1), fitted to sin(3 x0) x1 over the square [-1, 1]^2. Samples depend on their
// number alone, and the 12 microbatches of a step are dealt to the ranks: 1, 2, 3 and 4 ranks compute the same contributions.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "trivet.h"

namespace {

constexpr int kHidden = 32, kMicrobatches = 12, kSamples = 8;
enum { kW1, kB1, kW2, kB2, kParameters };
constexpr std::array<int64_t, kParameters> kElements{2 * kHidden, kHidden, kHidden, 1};

using Weights = std::array<const float*, kParameters>;
using Gradients = std::array<std::vector<float>, kParameters>;

// ---- The model

// Uniform in [-1, 1), the same for the same key on every rank.
float number(uint64_t key) {
  key += 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>((key ^ (key >> 31)) >> 40) / 8388608.0f - 1.0f;
}

// Adds the gradient of a sample's loss, (f(x) - y)^2 / 2, and returns the loss.
double add_sample(const Weights& weights, uint64_t sample, Gradients& gradients) {
  const float x[] = {number(2 * sample), number(2 * sample + 1)};
  float hidden[kHidden], error = weights[kB2][0] - std::sin(3 * x[0]) * x[1];
  for (int h = 0; h < kHidden; ++h) {
    hidden[h] = std::tanh(weights[kB1][h] + weights[kW1][2 * h] * x[0] + weights[kW1][2 * h + 1] * x[1]);
    error += weights[kW2][h] * hidden[h];
  }
  gradients[kB2][0] += error;
  for (int h = 0; h < kHidden; ++h) {
    const float before = error * weights[kW2][h] * (1 - hidden[h] * hidden[h]);
    gradients[kW2][h] += error * hidden[h];
    gradients[kB1][h] += before;
    for (int i = 0; i < 2; ++i) gradients[kW1][2 * h + i] += before * x[i];
  }
  return 0.5 * error * error;
}

// ---- The trainer, as one rank runs it

// Names, shapes and initial values; the two layers are the units that stage 3 gathers.
trivet::embed::ShardedOptimizer make_optimizer(const trivet::Config& config, trivet::comm::World& world) {
  std::vector<std::vector<float>> values;
  for (uint64_t p = 0; p < kParameters; ++p) {
    auto& of_one = values.emplace_back();
    for (int64_t i = 0; i < kElements[p]; ++i) of_one.push_back(number(1000000 * (p + 1) + static_cast<uint64_t>(i)));
  }
  for (float& value : values[kW2]) value *= 0.2f;
  const std::vector<trivet::embed::Parameter> parameters{
      {.name = "first.weight", .shape = {kHidden, 2}, .unit = "first", .values = values[kW1].data()},
      {.name = "first.bias", .shape = {kHidden}, .unit = "first", .values = values[kB1].data(), .decay = false},
      {.name = "second.weight", .shape = {1, kHidden}, .unit = "second", .values = values[kW2].data()},
      {.name = "second.bias", .shape = {1}, .unit = "second", .values = values[kB2].data(), .decay = false}};
  return {config, parameters, world};
}

void run_microbatch(trivet::embed::ShardedOptimizer& optimizer, uint64_t microbatch) {
  Weights weights;
  Gradients gradients;
  for (int unit = 0; unit < optimizer.units(); ++unit) optimizer.gather(unit);  // does nothing below stage 3
  for (int p = 0; p < kParameters; ++p) {
    weights[p] = optimizer.weight(p).as<float>();
    gradients[p].resize(static_cast<size_t>(kElements[p]));
  }
  double loss = 0;
  for (uint64_t s = 0; s < kSamples; ++s) loss += add_sample(weights, microbatch * kSamples + s, gradients);
  for (int unit = 0; unit < optimizer.units(); ++unit) optimizer.release(unit);
  for (int p = kParameters - 1; p >= 0; --p)
    optimizer.add_gradient(p, {gradients[p].data(), trivet::DType::Float32, {kElements[p]}});
  optimizer.end_microbatch(loss, kSamples);
}

void train(const trivet::Config& config, trivet::comm::World& world) {
  auto optimizer = make_optimizer(config, world);
  const bool resumed = optimizer.load(config.checkpoint.directory);
  if (resumed && world.rank() == 0) std::printf("resumed after step %lld\n", static_cast<long long>(optimizer.steps()));
  while (optimizer.steps() < config.training.steps) {
    // The position in the data follows from the number of steps.
    const auto first = static_cast<uint64_t>(optimizer.steps()) * kMicrobatches;
    for (int m = world.rank(); m < kMicrobatches; m += world.size())
      run_microbatch(optimizer, first + static_cast<uint64_t>(m));
    const trivet::embed::StepReport report = optimizer.step();
    if (world.rank() == 0 && (report.steps == 1 || report.steps % 50 == 0))
      std::printf("step %lld loss %.17g\n", static_cast<long long>(report.steps), report.loss);
  }
  optimizer.save(config.checkpoint.directory);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: trainer CONFIG.json [KEY=VALUE...]\n");
    return 2;
  }
  const trivet::Config config = trivet::load_config(argv[1], {argv + 2, argv + argc});
  const auto world = trivet::comm::connect(trivet::comm::place_from_environment(trivet::comm::current_environment()));
  train(config, *world);
  world->close();
  return 0;
} catch (const trivet::Error& error) {  // errors that a user can cause: the message says what to do
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
}
