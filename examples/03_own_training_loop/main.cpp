// A trainer that has its own model and its own gradients and uses only the sharding of Trivet: the lower level, zero/.
//
//   example_03_own_training_loop        exits with code 1 unless all layouts learn the same model, to the last bit
//
// One zero::ParameterGroup holds the parameters. In each step the loop calls:
//
//   unshard, wait, weight(i)        to get whole weights while the model computes (at stages 0 to 2 they are always whole)
//   begin_step                      to start with no contributions
//   gradient(i), end_contribution   for each microbatch: to learn where its gradients go, and to say that they are complete
//   reshard                         to release the whole weights
//   reduce, retire                  to sum over ranks; each rank then has the sums for the range that it owns
//   owned, publish                  to update only the owned range, and to send the new weights to the other ranks
//
// The model, by hand: f(x) = b2 + W2 tanh(W1 x + b1), fitted to sin(3 x0) x1 over the square [-1, 1]^2.
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "comm/world.h"
#include "core/random.h"
#include "kernels/kernels.h"
#include "zero/parameter_group.h"

namespace {

using namespace trivet;

constexpr int kHidden = 32, kInputs = 2, kSteps = 300;
constexpr int kMicrobatches = 12, kMicrobatchSamples = 8;  // per step, over all ranks; divisible by 1, 2, 3 and 4 ranks
enum Parameter { kW1, kB1, kW2, kB2, kParameters };

std::vector<ParameterSpec> specs() {
  return {{.name = "w1", .shape = {kHidden, kInputs}, .init = {Init::Kind::Uniform, 1.0}},
          {.name = "b1", .shape = {kHidden}, .init = {Init::Kind::Uniform, 1.0}},
          {.name = "w2", .shape = {kHidden}, .init = {Init::Kind::Uniform, 0.2}},
          {.name = "b2", .shape = {1}, .init = {Init::Kind::Zeros}}};
}

// ---- The model: plain functions over plain pointers, as any autograd or CUDA code would be.

struct Sample {
  float x[kInputs], y;
};

// Depends only on its number, so it is the same on whichever rank computes it.
Sample sample(int64_t number) {
  const PhiloxBlock random = philox(7, static_cast<uint64_t>(number), 0);
  const float x0 = 2 * unit_float(random[0]) - 1, x1 = 2 * unit_float(random[1]) - 1;
  return {{x0, x1}, std::sin(3 * x0) * x1};
}

struct Net {
  const float* parameters[kParameters];

  float predict(const Sample& sample, float* hidden) const {
    float out = parameters[kB2][0];
    for (int h = 0; h < kHidden; ++h) {
      const float* w1 = parameters[kW1] + h * kInputs;
      hidden[h] = std::tanh(parameters[kB1][h] + w1[0] * sample.x[0] + w1[1] * sample.x[1]);
      out += parameters[kW2][h] * hidden[h];
    }
    return out;
  }

  // Adds d/dparameters of (f(x) - y)^2 / 2.
  void add_gradient(const Sample& sample, float* const gradients[kParameters]) const {
    float hidden[kHidden];
    const float error = predict(sample, hidden) - sample.y;
    gradients[kB2][0] += error;
    for (int h = 0; h < kHidden; ++h) {
      gradients[kW2][h] += error * hidden[h];
      const float before = error * parameters[kW2][h] * (1 - hidden[h] * hidden[h]);
      gradients[kB1][h] += before;
      for (int i = 0; i < kInputs; ++i) gradients[kW1][h * kInputs + i] += before * sample.x[i];
    }
  }
};

// ---- The trainer, as one rank runs it.

class Trainer {
 public:
  Trainer(comm::World& world, int stage)
      : world_(world),
        kernels_(kernels::make_cpu_kernels(1)),
        stream_(make_inline_stream()),
        buffers_("buffers", host_allocator(), meter_, MemoryCategory::Buffers, 1 << 20),
        specs_(specs()),
        layout_(zero::make_shard_layout({{"net", specs_}}, {.shards = zero::ShardCounts(world.size())})),
        group_(layout_.blocks[0].groups[0],
               {.lifetimes = zero::lifetimes_of(stage, false),
                .fixed_point = true,  // sums that do not depend on the order; false: float32, less memory
                .fixed_point_terms = kMicrobatches,
                .optimizer_states = 2},
               {.kernels = *kernels_,
                .allocator = host_allocator(),
                .meter = meter_,
                .buffers = buffers_,
                .axes = {{world.group(), *stream_, world.group(), *stream_}},
                .collectives = {},
                .refused = {&refused_, DType::Int64, {1}}}) {
    group_.initialize(1234);  // from seed and names: the same on every layout
    group_.publish();
  }

  void step(int64_t number) {
    group_.unshard();
    group_.begin_step();
    for (int m = world_.rank(); m < kMicrobatches; m += world_.size())
      contribute((number * kMicrobatches + m) * kMicrobatchSamples);
    group_.reshard();
    group_.reduce();
    group_.retire();
    update(number);
    group_.publish();
  }

  // Mean squared error over samples that no step has seen. All ranks call it together: at stage 3 it gathers.
  double test_error() {
    constexpr int kTest = 500;
    group_.unshard();
    const Net net = whole();
    float hidden[kHidden];
    double sum = 0;
    for (int i = 0; i < kTest; ++i) {
      const Sample test = sample(-1 - i);
      sum += std::pow(net.predict(test, hidden) - test.y, 2);
    }
    group_.reshard();
    return sum / kTest;
  }

  int64_t bytes() const { return meter_.now().total() - meter_.now()[MemoryCategory::Buffers]; }

 private:
  Net whole() {
    group_.wait();
    Net net;
    for (int i = 0; i < kParameters; ++i) net.parameters[i] = group_.weight(i).as<float>();
    return net;
  }

  // The gradient of each microbatch is rounded once, to the grid on which sums are exact.
  void contribute(int64_t first_sample) {
    const Net net = whole();
    float* gradients[kParameters];
    for (int i = 0; i < kParameters; ++i) {
      const Gradient gradient = group_.gradient(i);
      if (!gradient.accumulate) kernels_->zero(gradient.view);
      gradients[i] = gradient.view.as<float>();
    }
    for (int s = 0; s < kMicrobatchSamples; ++s) net.add_gradient(sample(first_sample + s), gradients);
    group_.end_contribution(1.0);
    if (refused_ > 0) throw std::runtime_error("a gradient does not fit into fixed-point sums");
  }

  // Any update that treats each element by itself can be used here; it sees only this rank's part of the parameters.
  void update(int64_t number) {
    const zero::OwnedRange range = group_.owned();
    const ScopedTensor gradient(buffers_, DType::Float32, {range.count});
    kernels_->fixed_point_read(range.gradient, gradient);
    kernels_->adam({.master = range.master,
                    .moment1 = range.states[0],
                    .moment2 = range.states[1],
                    .copy_out = range.copy_out,
                    .gradient = gradient,
                    .lr = 0.02,
                    .gradient_scale = 1.0 / (kMicrobatches * kMicrobatchSamples),
                    .correction1 = kernels::bias_correction(0.9, number + 1),
                    .correction2 = kernels::bias_correction(0.999, number + 1)});
  }

  comm::World& world_;
  int64_t refused_ = 0;  // gradients too large for fixed-point sums
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  MemoryMeter meter_;
  Arena buffers_;
  std::vector<ParameterSpec> specs_;
  zero::ShardLayout layout_;
  zero::ParameterGroup group_;
};

double train(int ranks, int stage) {
  double error = 0;
  comm::run_threads(ranks, [&](comm::World& world) {
    Trainer trainer(world, stage);
    const double before = trainer.test_error();
    for (int64_t step = 0; step < kSteps; ++step) trainer.step(step);
    const double after = trainer.test_error();
    if (world.rank() != 0) return;
    error = after;
    std::printf("%d ranks, ZeRO-%d, %6lld bytes per rank: error %.6f -> %.17g\n", ranks, stage,
                static_cast<long long>(trainer.bytes()), before, after);
  });
  return error;
}

}  // namespace

int main() {
  const double alone = train(1, 0);
  bool good = alone < 0.01;
  for (int ranks : {2, 3, 4})
    for (int stage : {0, 1, 2, 3})
      good = train(ranks, stage) == alone && good;  // byte counts include the padding of shards (zero/shard_layout.h)
  std::puts(good ? "the same bits on every layout" : "FAILED: layouts differ, or nothing was learned");
  return good ? 0 : 1;
}
