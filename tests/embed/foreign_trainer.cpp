#include "tests/embed/foreign_trainer.h"

#include <fmt/format.h>

#include <cmath>

#include "core/random.h"

namespace trivet::embed {
namespace {

struct Point {
  float x[kInputs], y;
};

Point point(int64_t number) {
  const PhiloxBlock random = philox(7, static_cast<uint64_t>(number), 0);
  const float x0 = 2 * unit_float(random[0]) - 1, x1 = 2 * unit_float(random[1]) - 1;
  return {{x0, x1}, std::sin(3 * x0) * x1};
}

float predict(const float* const weights[], const Point& at, float* hidden) {
  float out = weights[kB2][0];
  for (int h = 0; h < kHidden; ++h) {
    const float* w1 = weights[kW1] + h * kInputs;
    hidden[h] = std::tanh(weights[kB1][h] + w1[0] * at.x[0] + w1[1] * at.x[1]);
    out += weights[kW2][h] * hidden[h];
  }
  return out;
}

// Adds the gradient of (f(x) - y)^2 / 2, and returns that.
double add_gradient(const float* const weights[], const Point& at, float scale, std::vector<std::vector<float>>& gradients) {
  float hidden[kHidden];
  const float difference = predict(weights, at, hidden) - at.y, error = scale * difference;
  gradients[kB2][0] += error;
  for (int h = 0; h < kHidden; ++h) {
    gradients[kW2][h] += error * hidden[h];
    const float before = error * weights[kW2][h] * (1 - hidden[h] * hidden[h]);
    gradients[kB1][h] += before;
    for (int i = 0; i < kInputs; ++i) gradients[kW1][h * kInputs + i] += before * at.x[i];
  }
  return 0.5 * difference * difference;
}

}  // namespace

Config config_of(const std::string& more, int ranks) {
  const bool has_optimizer = more.find("\"optimizer\"") != std::string::npos;
  return parse_config(
      fmt::format(
          R"({{{}"gradient_accumulation_steps": {}, "train_micro_batch_size_per_gpu": {}, "train_batch_size": {}{}{}}})",
          has_optimizer ? "" : R"("optimizer": {"type": "Adam", "params": {"lr": 0.02}}, )", kMicrobatches / ranks, kSamples,
          kMicrobatches * kSamples, more.empty() ? "" : ", ", more),
      "test.json");
}

std::vector<std::vector<float>> foreign_values(int rank) {
  std::vector<std::vector<float>> values;
  for (int p = 0; p < kForeignParameters; ++p) {
    values.emplace_back(kElements[p]);
    for (int64_t i = 0; i < kElements[p]; ++i)  // only rank 0's count
      values[p][i] =
          unit_float(philox(static_cast<uint64_t>(p), static_cast<uint64_t>(i), 0)[0]) - 0.5f + static_cast<float>(rank);
  }
  return values;
}

std::vector<Parameter> foreign_parameters(const std::vector<std::vector<float>>& values, bool units) {
  const std::string first = units ? "first" : "", second = units ? "second" : "";
  return {{.name = "first.weight", .shape = {kHidden, kInputs}, .unit = first, .values = values[kW1].data()},
          {.name = "first.bias", .shape = {kHidden}, .unit = first, .values = values[kB1].data(), .decay = false},
          {.name = "second.weight", .shape = {1, kHidden}, .unit = second, .values = values[kW2].data()},
          {.name = "second.bias", .shape = {1}, .unit = second, .values = values[kB2].data(), .decay = false}};
}

ForeignTrainer::ForeignTrainer(const Config& config, comm::World& world, bool units, int64_t bucket_elements)
    : world_(world),
      optimizer_(config, foreign_parameters(foreign_values(world.rank()), units), world, {.bucket_elements = bucket_elements}) {
}

double ForeignTrainer::microbatch(int64_t number) {
  for (int unit = 0; unit < optimizer_.units(); ++unit) optimizer_.gather(unit);
  std::vector<std::vector<float>> weights(kForeignParameters), gradients(kForeignParameters);
  const float* pointers[kForeignParameters];
  const auto kernels = kernels::make_cpu_kernels(1);
  for (int p = 0; p < kForeignParameters; ++p) {
    weights[p].resize(kElements[p]);
    gradients[p].resize(kElements[p]);
    kernels->copy(optimizer_.weight(p), {weights[p].data(), DType::Float32, {kElements[p]}});
    pointers[p] = weights[p].data();
  }
  for (int unit = 0; unit < optimizer_.units(); ++unit) optimizer_.release(unit);
  double loss = 0;
  const auto scale = static_cast<float>(optimizer_.loss_scale());
  for (int s = 0; s < kSamples; ++s) loss += add_gradient(pointers, point(number * kSamples + s), scale, gradients);
  for (const int p : order) {
    const ConstTensorView gradient{gradients[p].data(), DType::Float32, {kElements[p]}};
    if (!in_place) {
      optimizer_.add_gradient(p, gradient);
      continue;
    }
    const Gradient own = optimizer_.gradient(p);
    const ConstTensorView flat = gradient.reshaped(own.view.shape);
    own.accumulate ? kernels->add(flat, own.view) : kernels->copy(flat, own.view);
    optimizer_.gradient_ready(p);
  }
  return loss;
}

StepReport ForeignTrainer::step() {
  const int64_t first = optimizer_.steps() * kMicrobatches;
  for (int m = 0; m < optimizer_.microbatches(); ++m)
    optimizer_.end_microbatch(microbatch(first + m * world_.size() + world_.rank()), kSamples);
  return optimizer_.step();
}

Bits ForeignTrainer::weights() {
  Bits bits;
  const auto kernels = kernels::make_cpu_kernels(1);
  for (int p = 0; p < kForeignParameters; ++p) {
    optimizer_.gather(optimizer_.unit_of(p));
    Bits part(kElements[p]);
    kernels->copy(optimizer_.weight(p), {part.data(), DType::Float32, {kElements[p]}});
    optimizer_.release(optimizer_.unit_of(p));
    bits.insert(bits.end(), part.begin(), part.end());
  }
  return bits;
}

Bits train(const std::string& config, int ranks, int steps, const std::function<void(ForeignTrainer&, int rank)>& prepare,
           bool units) {
  Bits bits;
  comm::run_threads(ranks, [&](comm::World& world) {
    ForeignTrainer trainer(config_of(config, world.size()), world, units);
    if (prepare) prepare(trainer, world.rank());
    for (int i = 0; i < steps; ++i) trainer.step();
    const Bits own = trainer.weights();
    if (world.rank() == 0) bits = own;
  });
  return bits;
}

}  // namespace trivet::embed
