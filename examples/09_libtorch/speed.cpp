// Tokens per second of the example's trainer, and of the same trainer with libtorch's own data parallelism (c10d::Reducer over
// gloo, which is what DistributedDataParallel runs) and optimizer. Each process is one rank:
//
//   trivet launch --num_gpus 2 example_09_libtorch_speed zero2 20     ZeRO-2; 20 steps are measured
//   DDP_STORE=$(mktemp -u) trivet launch --num_gpus 2 example_09_libtorch_speed ddp 20
//
// DDP_STORE names a file through which the ranks of the second find each other. Rank 0 prints one JSON object. Set
// OMP_NUM_THREADS to the cores of a rank, and let runs of the two alternate, because they share the machine.
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "comm/world.h"
#include "engine/config/load.h"
#include "gpt.h"
#include "sharded.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr GptSize kSize{.vocabulary = 512, .sequence = 128, .hidden = 256, .heads = 4, .blocks = 4};
constexpr int kSamples = 4, kWarmUp = 3;

// Milliseconds of a step, after some that are not measured.
double milliseconds_per_step(int steps, const std::function<void(int64_t step)>& step) {
  for (int64_t i = 0; i < kWarmUp; ++i) step(i);
  const auto start = Clock::now();
  for (int64_t i = 0; i < steps; ++i) step(kWarmUp + i);
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / steps;
}

double run_trivet(trivet::comm::World& world, char stage, int steps) {
  Gpt model(kSize);
  const trivet::Config config = trivet::parse_config(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.003}}, "gradient_clipping": 0,
          "zero_optimization": {"stage": )" +
          std::string(1, stage) + R"(, "overlap_comm": true}})",
      "speed");
  Sharded sharded(*model, config, world);
  const RunModule run = [&](const std::string& name, const torch::Tensor& x, const Forward& f) {
    return sharded.run(name, x, f);
  };
  return milliseconds_per_step(steps, [&](int64_t step) {
    const torch::Tensor loss = model->forward(sequences(kSize, step * world.size() + world.rank(), kSamples), run);
    loss.backward();
    sharded.optimizer.end_microbatch(loss.item<double>());
    sharded.optimizer.step();
  });
}

// As torch::nn::parallel::DistributedDataParallel in Python: buckets of 25 MiB, the first of 1 MiB, filled from the last
// parameter, and gradients that are views of buckets, which saves a copy (gradient_as_bucket_view, zero_grad(set_to_none)).
double run_ddp(trivet::comm::World& world, int steps) {
  Gpt model(kSize);
  const char* file = std::getenv("DDP_STORE");
  if (!file) throw std::runtime_error("DDP_STORE is not set; name a file that does not exist yet");
  const auto store = c10::make_intrusive<c10d::FileStore>(file, world.size());
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, world.rank(), world.size(), options);
  const std::vector<torch::Tensor> parameters = model->parameters();
  for (const torch::Tensor& parameter : parameters) {
    std::vector<torch::Tensor> values{parameter.detach()};
    group->broadcast(values)->wait();
  }
  const std::vector<size_t> limits{size_t{1} << 20, size_t{25} << 20};
  auto [buckets, sizes] = c10d::compute_bucket_assignment_by_size(parameters, limits);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(sizes.begin(), sizes.end());
  c10d::Reducer reducer(parameters, buckets, sizes, group, std::vector<bool>(parameters.size(), false), int64_t{25} << 20,
                        false, true, {}, int64_t{1} << 20);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.003));
  return milliseconds_per_step(steps, [&](int64_t step) {
    for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    const torch::Tensor loss = model->forward(sequences(kSize, step * world.size() + world.rank(), kSamples), run_directly);
    reducer.prepare_for_forward();
    reducer.prepare_for_backward({loss});
    loss.backward();
    std::vector<torch::Tensor> sum{loss.detach().clone()};
    group->allreduce(sum)->wait();  // Trivet's step() sums the loss, too
    optimizer.step();
  });
}

int run(const std::string& trainer, int steps) {
  const auto world = trivet::comm::connect(trivet::comm::place_from_environment(trivet::comm::current_environment()));
  const double ms = trainer == "ddp" ? run_ddp(*world, steps) : run_trivet(*world, trainer.back(), steps);
  const double tokens = static_cast<double>(world->size() * kSamples * kSize.sequence) * 1000 / ms;
  if (world->rank() == 0)
    std::printf("{\"trainer\": \"%s\", \"ranks\": %d, \"ms_per_step\": %.2f, \"tokens_per_s\": %.0f}\n", trainer.c_str(),
                world->size(), ms, tokens);
  world->close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::set<std::string> trainers{"zero0", "zero1", "zero2", "zero3", "ddp"};
  const int steps = argc == 3 ? std::atoi(argv[2]) : 0;
  if (steps < 1 || !trainers.count(argv[1])) {
    std::fputs("use: example_09_libtorch_speed zero0|zero1|zero2|zero3|ddp STEPS\n", stderr);
    return 2;
  }
  at::set_num_threads(1);
  torch::manual_seed(1);
  try {
    return run(argv[1], steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "example_09_libtorch_speed: %s\n", error.what());
    return 1;
  }
}
