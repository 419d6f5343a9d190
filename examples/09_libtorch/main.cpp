// A libtorch trainer that keeps its model and autograd, and takes ZeRO 1 to 3 and the optimizer from Trivet.
//
//   example_09_libtorch       ranks as threads; exits with code 1 unless every stage learns what plain libtorch learns, and
//                             takes the memory it should
//   trivet launch --num_gpus 2 example_09_libtorch --rank         each process is one rank
//
// gpt.h is the model, sharded.h all that joins it to Trivet, train() the loop.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "engine/config/load.h"
#include "gpt.h"
#include "sharded.h"

namespace {

constexpr GptSize kSize;
constexpr int kSteps = 40, kMicrobatches = 4, kSamples = 4;  // per step, over all ranks; per microbatch

trivet::Config config(int stage, int ranks) {
  return trivet::parse_config(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.003, "weight_decay": 0.01}}, "gradient_clipping": 1.0,
          "gradient_accumulation_steps": )" +
          std::to_string(kMicrobatches / ranks) + R"(, "zero_optimization": {"stage": )" + std::to_string(stage) +
          R"(, "overlap_comm": true, "stage3_param_persistence_threshold": 0}})",
      "example");
}

// The same initial values each time. Ranks are threads here, and all threads of a process draw from one generator.
Gpt initial_model() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(1);
  return Gpt(kSize);
}

struct Run {
  std::vector<double> losses;
  trivet::MemoryBytes memory;
};

// One rank of a job.
Run train(trivet::comm::World& world, int stage) {
  Gpt model = initial_model();
  Sharded sharded(*model, config(stage, world.size()), world);
  const RunModule run = [&](const std::string& name, const torch::Tensor& x, const Forward& f) {
    return sharded.run(name, x, f);
  };
  Run result;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int m = world.rank(); m < kMicrobatches; m += world.size()) {
      const torch::Tensor loss = model->forward(sequences(kSize, step * kMicrobatches + m, kSamples), run);
      loss.backward();
      sharded.optimizer.end_microbatch(loss.item<double>());
    }
    result.losses.push_back(sharded.optimizer.step().loss);
  }
  result.memory = sharded.optimizer.measured_memory();
  return result;
}

// One rank of a job of processes. The ranks share the microbatches of a step.
void run_rank() {
  const auto world = trivet::comm::connect(trivet::comm::place_from_environment(trivet::comm::current_environment()));
  if (kMicrobatches % world->size() != 0)
    throw trivet::ConfigError("a step has " + std::to_string(kMicrobatches) + " microbatches, which cannot be divided among " +
                              std::to_string(world->size()) + " ranks; start 1, 2 or 4 ranks");
  const Run run = train(*world, 2);
  for (size_t step = 0; world->rank() == 0 && step < run.losses.size(); ++step)
    std::printf("step %2zu  loss %.17g\n", step + 1, run.losses[step]);
  world->close();
}

// ---- What it is compared with

// The same without Trivet, on one rank.
std::vector<double> train_plainly() {
  Gpt model = initial_model();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.003).weight_decay(0.01));
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    double sum = 0;
    optimizer.zero_grad();
    for (int m = 0; m < kMicrobatches; ++m) {
      const torch::Tensor loss =
          model->forward(sequences(kSize, step * kMicrobatches + m, kSamples), run_directly) / kMicrobatches;
      loss.backward();
      sum += loss.item<double>();
    }
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    losses.push_back(sum);
  }
  return losses;
}

// The largest relative difference. Both add the same float32 numbers, but in another order (over ranks, and within the norm),
// so each loss is rounded differently, by about 6e-8 of its size; over 40 steps, differences of up to 1.3e-7 were seen. Adam
// divides a gradient by its own magnitude, so another processor or another libtorch may make more of a rounding: 1e-5 leaves
// room for that.
constexpr double kTolerance = 1e-5;
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return largest;
}

// Bytes that a rank holds for each parameter, in float32: weights 4, gradients 4, Adam's moments 8, by zero/stage.h. Shards are
// padded, by less than a tenth here.
bool has_memory_of(int stage, int ranks, int64_t elements, const trivet::MemoryBytes& memory) {
  using enum trivet::MemoryCategory;
  const auto held = [&](trivet::MemoryCategory category, double bytes, bool sharded) {
    const double expected = bytes * static_cast<double>(elements) / (sharded ? ranks : 1),
                 real = static_cast<double>(memory[category]);
    return real >= expected && real < 1.1 * expected;
  };
  return held(Optimizer, 8, stage >= 1) && held(Gradients, 4, stage >= 2) && held(Parameters, 4, stage >= 3);
}

// Compares every stage on every number of ranks with plain libtorch.
bool check() {
  int64_t elements = 0;
  for (const torch::Tensor& parameter : Gpt(kSize)->parameters()) elements += parameter.numel();
  const std::vector<double> plain = train_plainly();
  std::printf("plain libtorch:   loss %.4f -> %.4f, %lld parameters\n", plain.front(), plain.back(),
              static_cast<long long>(elements));
  bool good = plain.back() < 0.8 * plain.front();
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3}) {
      if (ranks == 1 && stage > 0) continue;  // nothing to divide
      Run run;
      trivet::comm::run_threads(ranks, [&](trivet::comm::World& world) {
        const Run own = train(world, stage);
        if (world.rank() == 0) run = own;
      });
      const double apart = difference(run.losses, plain);
      const bool fits = has_memory_of(stage, ranks, elements, run.memory);
      good = good && apart < kTolerance && fits;
      std::printf(
          "%d ranks, ZeRO-%d:  loss %.4f -> %.4f, at most %.1e from plain; %8lld bytes of weights, gradients, states%s\n",
          ranks, stage, run.losses.front(), run.losses.back(), apart,
          static_cast<long long>(run.memory.total() - run.memory[trivet::MemoryCategory::Buffers]),
          fits ? "" : " (NOT what the stage says)");
    }
  std::puts(good ? "as plain libtorch" : "FAILED");
  return good;
}

}  // namespace

int main(int argc, char** argv) try {
  at::set_num_threads(1);
  if (argc == 2 && argv[1] == std::string("--rank")) {
    run_rank();
    return 0;
  }
  if (argc > 1) throw trivet::ConfigError(std::string(argv[1]) + ": unknown; use --rank, or nothing");
  return check() ? 0 : 1;
} catch (const trivet::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
}
