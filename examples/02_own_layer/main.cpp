// Writes your own layer: its mathematics, a check of its gradients, its place in a model, and its training.
//
//   example_02_own_layer
//
// The layer mixes each position with the one before it, as RWKV does (Peng et al. 2023):
//
//   y[b, s, h] = m[h] x[b, s, h] + (1 - m[h]) x[b, s-1, h]        with x[b, -1, h] = 0 and one learned parameter, m[H]
#include <algorithm>
#include <cstdio>
#include <memory>

#include "comm/world.h"
#include "core/random.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "model/check_gradients.h"
#include "model/model.h"

namespace {

using namespace trivet;

// Calls body(at, before) with the places of x[b, s, h] and x[b, s-1, h]; `before` is -1 at the start of a sequence.
template <typename Body>
void for_each_element(const Shape& shape, Body body) {
  const int64_t length = shape[1], hidden = shape[2];
  for (int64_t at = 0; at < shape.elements(); ++at) body(at, at / hidden % length == 0 ? -1 : at - hidden, at % hidden);
}

// The planner runs every layer without memory, to learn what it allocates. A layer must skip its own arithmetic then.
bool planning(const Context& context) { return context.kernels.device() == Device::Meta; }

class PositionMix : public Layer {
 public:
  explicit PositionMix(int64_t hidden) {
    parameters_.push_back({.name = "mix", .shape = {hidden}, .init = {Init::Kind::Ones, 0}, .decay = false});
  }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }

  // Written once for all precisions: T is float, bfloat16, float16 or, in the gradient check, double.
  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    saved.reference(kX, x);  // the caller keeps x valid until backward_weight is done
    if (planning(context)) return;
    dispatch_float(x.dtype, [&]<typename T>() {
      const T *mix = weights[0].as<T>(), *in = x.as<T>();
      T* out = y.as<T>();
      for_each_element(x.shape, [&](int64_t at, int64_t before, int64_t h) {
        const Wide<T> m = wide(mix[h]), previous = before < 0 ? 0 : wide(in[before]);
        out[at] = T(m * wide(in[at]) + (1 - m) * previous);
      });
    });
  }

  // Each x[s] went into y[s] with the factor m and into y[s+1] with 1 - m. This is the last use of the weights.
  void backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    saved.reference(kDy, dy);
    if (dx.absent() || planning(context)) return;
    dispatch_float(dy.dtype, [&]<typename T>() {
      const T *mix = weights[0].as<T>(), *dout = dy.as<T>();
      T* din = dx.as<T>();
      for_each_element(dy.shape, [&](int64_t at, int64_t before, int64_t h) {
        const Wide<T> m = wide(mix[h]);
        din[at] = T(m * wide(dout[at]));  // positions ascend: dx[s-1] is complete after dy[s]
        if (before >= 0) din[before] = T(wide(din[before]) + (1 - m) * wide(dout[at]));
      });
    });
  }

  // dm[h] += sum over b, s of dy[b, s, h] (x[b, s, h] - x[b, s-1, h])
  void backward_weight(Context& context, Gradients gradients, const Saved& saved) const override {
    const Gradient& gradient = gradients[0];
    if (gradient.view.absent()) return;  // frozen
    if (!gradient.accumulate) context.kernels.zero(gradient.view);
    if (planning(context)) return;
    const ConstTensorView x = saved[kX], dy = saved[kDy];
    dispatch_float(x.dtype, [&]<typename T>() {
      const T *in = x.as<T>(), *dout = dy.as<T>();
      std::vector<double> sums(static_cast<size_t>(x.shape[2]));
      for_each_element(x.shape, [&](int64_t at, int64_t before, int64_t h) {
        const Wide<T> previous = before < 0 ? 0 : wide(in[before]);
        sums[h] += wide(dout[at]) * (wide(in[at]) - previous);
      });
      dispatch_float(gradient.view.dtype, [&]<typename G>() {  // float32 gradients may come with bfloat16 activations
        for (size_t h = 0; h < sums.size(); ++h) {
          G& dm = gradient.view.as<G>()[h];
          dm = G(static_cast<Wide<G>>(wide(dm) + sums[h]));
        }
      });
    });
  }

 private:
  enum Slot { kX, kDy };
  template <typename T>
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  template <typename T>
  static Wide<T> wide(T value) {
    return static_cast<Wide<T>>(value);
  }

  std::vector<ParameterSpec> parameters_;
};

// A model is a list of layers, so you can put your own layer anywhere. The name of its parameter is then "position_mix.mix".
model::Model model_with_own_layer(const model::Description& config) {
  model::Model model = model::build(config);
  model.layers.insert(model.layers.begin() + 1, std::make_unique<PositionMix>(config.hidden_size));
  model.names.insert(model.names.begin() + 1, "position_mix");
  return model;
}

Config small_run() {
  Config config;
  config.source = "example";
  config.model = {.layers = 1, .hidden_size = 32, .heads = 4, .sequence_length = 16, .vocabulary_size = 16};
  config.training.steps = 60;
  config.batch = {.train_batch_size = 32, .micro_batch_size = 16};
  config.optimizer.lr = 0.01;
  config.zero.stage = 2;
  return config;
}

// Random tokens; the target at each position is the token before it.
struct Task {
  std::vector<int32_t> tokens, targets;
  Microbatch microbatch;

  Task(const Config& config, int64_t step, int rank) {
    const Shape shape{config.batch.micro_batch_size, config.model.sequence_length};
    for (int64_t at = 0; at < shape.elements(); ++at) {
      const PhiloxBlock random = philox(static_cast<uint64_t>(step), static_cast<uint64_t>(at), static_cast<uint64_t>(rank));
      tokens.push_back(static_cast<int32_t>(random[0] % 16));
      targets.push_back(at % shape[1] == 0 ? -1 : tokens[at - 1]);  // -1: does not count
    }
    microbatch = {{tokens.data(), DType::Int32, shape}, {targets.data(), DType::Int32, shape}, rank * shape[0]};
  }
};

void train(comm::World& world) {
  const Config config = small_run();
  model::Model model = model_with_own_layer(config.model);
  Plan plan = make_plan(config, model, world.size());
  Engine engine(std::move(plan), std::move(model), world);
  for (int64_t step = 0; step < config.training.steps; ++step) {
    const Task task(config, step, world.rank());
    const StepResult result = engine.train_batch({&task.microbatch, 1});
    if (world.rank() == 0 && (step % 20 == 0 || step + 1 == config.training.steps))
      std::printf("step %lld: loss %.4f\n", static_cast<long long>(step), result.loss);
  }
  const std::vector<float> mix = engine.weight("position_mix.mix");
  const auto [least, most] = std::minmax_element(mix.begin(), mix.end());
  if (world.rank() == 0) std::printf("mix: 1 everywhere at first, now from %.2f to %.2f\n", *least, *most);
}

}  // namespace

int main() {
  const auto result = model::check_gradients(PositionMix(8), {.input_shape = {2, 5, 8}});
  std::printf("%lld gradients against central differences in double: worst relative error %.1e at %s\n",
              static_cast<long long>(result.compared), result.worst_error, result.where.c_str());
  if (!(result.worst_error < 1e-7)) return 1;
  std::printf("training with ZeRO-2 on two ranks (threads):\n");
  comm::run_threads(2, train);
}
