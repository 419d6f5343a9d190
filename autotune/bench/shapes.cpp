#include "autotune/bench/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "engine/make_plan.h"
#include "model/count_flops.h"

namespace trivet::autotune {
namespace {

// Sixteen shapes in a row take each sixteenth of the range of every choice once, in an order of its own (Latin hypercubes,
// McKay, Beckman and Conover 1979).
class Choices {
 public:
  explicit Choices(int n) : n_(n) {}
  template <typename T, size_t N>
  T of(const std::array<T, N>& values) {
    return values[static_cast<size_t>(next() * N)];
  }
  // A multiple of `step`, spread evenly by logarithm.
  int64_t between(double low, double high, int64_t step) {
    const double value = low * std::pow(high / low, next());
    return std::max<int64_t>(1, std::llround(value / static_cast<double>(step))) * step;
  }

 private:
  double next() {
    const uint64_t key = random_key(static_cast<uint64_t>(asked_++), "bench.shapes");
    const auto cube = static_cast<uint64_t>(n_ / kCube);
    std::array<int, kCube> order;
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = kCube; i > 1; --i) std::swap(order[i - 1], order[philox(key, i, cube)[0] % i]);
    return (order[n_ % kCube] + 0.5) / kCube;
  }

  static constexpr int kCube = 16;
  int n_;
  size_t asked_ = 0;
};

// Returns the most FLOPs for a step of one rank: about a fifth of a second on a core, and almost nothing on a GPU.
double most_flops(DeviceChoice device) { return device == DeviceChoice::Cpu ? 12e9 : 4e12; }

Config config_of(int n, int ranks, DeviceChoice device) {
  Choices choose(n);
  const double wider = device == DeviceChoice::Cpu ? 1 : 8;
  Config config;
  config.source = "trivet bench";
  config.device = device;
  model::Description& model = config.model;
  model.hidden_size = choose.between(64, 1024 * wider, 32);
  model.sequence_length = choose.between(64, 1024 * wider, 32);
  config.batch.micro_batch_size = choose.of(std::array<int64_t, 4>{1, 2, 4, 8});
  const auto dtype = choose.of(std::array{DType::Float32, DType::BFloat16, DType::Float32, DType::BFloat16, DType::Float16});
  config.bf16.enabled = dtype == DType::BFloat16;
  config.fp16.enabled = dtype == DType::Float16;
  model.type = choose.of(std::array{model::Type::Gpt, model::Type::Llama, model::Type::Gpt});
  model.tied_embedding = model.type == model::Type::Gpt;
  const auto head = choose.of(std::array<int64_t, 4>{16, 32, 64, 128});
  model.heads = std::max<int64_t>(1, model.hidden_size / head);
  while (model.hidden_size % (2 * model.heads) != 0) --model.heads;
  model.vocabulary_size = choose.of(std::array<int64_t, 4>{256, 1024, 4096, 16384});
  model.layers = choose.of(std::array<int64_t, 3>{1, 2, 3});
  config.batch.gradient_accumulation_steps = choose.of(std::array<int64_t, 2>{1, 2});
  model.dropout = choose.of(std::array{0.0, 0.0, 0.0, 0.1});
  config.optimizer.type = choose.of(std::array{OptimizerType::AdamW, OptimizerType::AdamW, OptimizerType::AdamW,
                                               OptimizerType::Sgd, OptimizerType::Lion, OptimizerType::Lamb});
  config.reproducible = choose.of(std::array{Reproducible::Run, Reproducible::Run, Reproducible::Run, Reproducible::Layout});
  config.zero.stage = ranks == 1 ? 0 : choose.of(std::array<int, 4>{0, 1, 2, 3});
  config.zero.overlap_comm = false;  // required by KernelTimer
  config.parallel.tensor = ranks == 1 ? 1 : choose.of(std::array<int64_t, 2>{1, ranks});
  if (config.parallel.tensor == 1 && config.reproducible == Reproducible::Run && model.sequence_length % ranks == 0 &&
      model::ulysses_problem(model, ranks, 1).empty())
    config.parallel.context = choose.of(std::array<int64_t, 3>{1, 1, ranks});
  config.gradient_clipping = 1;
  BatchConfig& batch = config.batch;
  batch.train_batch_size =
      batch.micro_batch_size * batch.gradient_accumulation_steps * (ranks / config.parallel.tensor / config.parallel.context);
  return config;
}

}  // namespace

std::optional<Config> bench_config(int n, int ranks, DeviceChoice device) {
  const Config config = config_of(n, ranks, device);
  const auto samples = static_cast<double>(config.batch.micro_batch_size * config.batch.gradient_accumulation_steps);
  try {
    const model::Model model = model::build(config.model);
    const auto sharers = static_cast<double>(config.parallel.tensor * config.parallel.context);
    if (model::flops_per_sample(model) * samples / sharers > most_flops(device)) return {};
    make_plan(config, model, ranks);
  } catch (const ConfigError&) {  // such as heads that the tensor ranks cannot share
    return {};
  }
  return config;
}

}  // namespace trivet::autotune
