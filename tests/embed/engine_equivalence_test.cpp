// An embedded optimizer, whose trainer runs the layers itself, learns the same bits as an Engine that runs the same layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "comm/rank_axis.h"
#include "comm/world.h"
#include "core/random.h"
#include "embed/sharded_optimizer.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "model/linear.h"
#include "model/lm_head.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace trivet::embed {
namespace {

constexpr int64_t kDims = 8, kClasses = 4, kWidth = 16, kBatch = 2, kMicrobatchesOfStep = 4;
constexpr int kStepsOfBoth = 6;

// The layer without what it says about tensor parallelism, which an embedded optimizer does not know: layout mode ends the
// blocks of a norm where a parameter could be split, and other blocks may round the norm's last bit differently.
class Unsplit final : public Layer {
 public:
  explicit Unsplit(std::unique_ptr<Layer> layer)
      : layer_(std::move(layer)), specs_(layer_->parameters().begin(), layer_->parameters().end()) {
    for (ParameterSpec& spec : specs_) spec.split = {};
  }
  std::span<const ParameterSpec> parameters() const override { return specs_; }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  LayerRole role() const override { return layer_->role(); }
  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    layer_->forward(context, weights, x, y, saved);
  }
  void backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    layer_->backward_input(context, weights, dy, dx, saved);
  }
  void backward_weight(Context& context, Gradients gradients, const Saved& saved) const override {
    layer_->backward_weight(context, gradients, saved);
  }
  void forward_backward(Context& context, Weights weights, Gradients gradients, ConstTensorView x, TensorView dx,
                        Saved& saved) const override {
    layer_->forward_backward(context, weights, gradients, x, dx, saved);
  }

 private:
  std::unique_ptr<Layer> layer_;
  std::vector<ParameterSpec> specs_;
};

model::Model layers() {
  model::Model model;
  model.sample = {.input_dtype = DType::Float32, .input = {kDims}, .targets = {1}, .classes = kClasses};
  const auto add = [&](const std::string& name, std::unique_ptr<Layer> layer) {
    model.names.push_back(name);
    model.layers.push_back(std::make_unique<Unsplit>(std::move(layer)));
  };
  add("input", std::make_unique<model::Linear>(model::Linear::Options{.in = kDims, .out = kWidth, .init_deviation = 0.3}));
  add("hidden", std::make_unique<model::Mlp>(model::Mlp::Options{
                    .hidden = kWidth, .feed_forward = 2 * kWidth, .init_deviation = 0.2, .init_deviation_out = 0.2}));
  add("classes", std::make_unique<model::LmHead>(model::LmHead::Options{.vocabulary = kClasses, .hidden = kWidth},
                                                 model::make_norm(model::NormKind::LayerNorm, kWidth, 1e-5, true)));
  return model;
}

// Owns the samples of a microbatch, which depend on its number only.
struct Samples {
  std::vector<float> input;
  std::vector<int32_t> targets;

  explicit Samples(int64_t number) : input(kBatch * kDims), targets(kBatch) {
    for (size_t i = 0; i < input.size(); ++i)
      input[i] = 2 * unit_float(philox(random_key(3, "samples"), static_cast<uint64_t>(number), i)[0]) - 1;
    for (int64_t b = 0; b < kBatch; ++b) targets[b] = input[b * kDims] > 0 ? 1 : 3;
  }
  Microbatch view() const {
    return {{input.data(), DType::Float32, {kBatch, kDims}}, {targets.data(), DType::Int32, {kBatch, 1}}, 0};
  }
};

Config config_of_both(const std::string& optimizer, int stage, bool layout) {
  return parse_config(R"({"optimizer": )" + optimizer + R"(, "gradient_clipping": 0.1, "train_micro_batch_size_per_gpu": 2,
      "train_batch_size": 8, "zero_optimization": {"stage": )" +
                          std::to_string(stage) + R"(, "stage3_param_persistence_threshold": 20}, "reproducible": ")" +
                          (layout ? "layout" : "run") + "\"}",
                      "both");
}

using Weights = std::map<std::string, std::vector<float>>;
struct Learned {
  std::vector<double> losses, norms;
  Weights weights;
};

Learned learned_by_engine(const Config& config, int ranks) {
  Learned learned;
  comm::run_threads(ranks, [&](comm::World& world) {
    model::Model model = layers();
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    for (int64_t step = 0; step < kStepsOfBoth; ++step) {
      std::vector<Samples> samples;
      for (int64_t m = world.rank(); m < kMicrobatchesOfStep; m += world.size())
        samples.emplace_back(step % 2 * kMicrobatchesOfStep + m);
      std::vector<Microbatch> microbatches;
      for (const Samples& one : samples) microbatches.push_back(one.view());
      const StepResult result = engine.train_batch(microbatches);
      if (world.rank() != 0) continue;
      learned.losses.push_back(result.loss);
      learned.norms.push_back(result.grad_norm);
    }
    for (size_t layer = 0; layer < engine.model().layers.size(); ++layer)
      for (const ParameterSpec& spec : engine.model().layers[layer]->parameters()) {
        const std::string name = engine.model().names[layer] + "." + spec.name;
        const std::vector<float> values = engine.weight(name);
        if (world.rank() == 0) learned.weights[name] = values;
      }
  });
  return learned;
}

// Runs the layers of a model, each of which is a unit of the optimizer.
class LayerTrainer {
 public:
  LayerTrainer(const Config& config, comm::World& world)
      : world_(world), optimizer_(config, parameters(), world), kernels_(kernels::make_cpu_kernels(1)) {
    tensor_axis_.fixed_sums = config.reproducible == Reproducible::Layout;
  }

  StepReport step() {
    const int64_t first = optimizer_.steps() % 2 * kMicrobatchesOfStep;
    for (int64_t m = world_.rank(); m < kMicrobatchesOfStep; m += world_.size()) microbatch(Samples(first + m));
    return optimizer_.step();
  }

  Weights weights() {
    Weights weights;
    for (int p = 0; p < optimizer_.parameters(); ++p) {
      optimizer_.gather(optimizer_.unit_of(p));
      const float* data = optimizer_.weight(p).as<float>();
      weights[optimizer_.name(p)].assign(data, data + optimizer_.elements(p));
      optimizer_.release(optimizer_.unit_of(p));
    }
    return weights;
  }

 private:
  std::vector<Parameter> parameters() {
    std::vector<Parameter> list;
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      first_.push_back(static_cast<int>(list.size()));
      for (const ParameterSpec& spec : model_.layers[layer]->parameters())
        list.push_back({.name = model_.names[layer] + "." + spec.name,
                        .shape = spec.shape,
                        .unit = model_.names[layer],
                        .init = spec.init,
                        .decay = spec.decay,
                        .role = model_.layers[layer]->role()});
    }
    return list;
  }

  std::vector<ConstTensorView> weights_of(size_t layer) {
    std::vector<ConstTensorView> views;
    for (size_t i = 0; i < model_.layers[layer]->parameters().size(); ++i)
      views.push_back(optimizer_.weight(first_[layer] + static_cast<int>(i)));
    return views;
  }

  std::vector<Gradient> gradients_of(size_t layer) {
    std::vector<Gradient> gradients;
    for (size_t i = 0; i < model_.layers[layer]->parameters().size(); ++i)
      gradients.push_back(optimizer_.gradient(first_[layer] + static_cast<int>(i)));
    return gradients;
  }

  void ready(size_t layer) {
    for (size_t i = 0; i < model_.layers[layer]->parameters().size(); ++i)
      optimizer_.gradient_ready(first_[layer] + static_cast<int>(i));
  }

  void microbatch(const Samples& samples) {
    const Microbatch microbatch = samples.view();
    double loss[2] = {};
    Context context{.kernels = *kernels_, .arena = arena_, .microbatch = &microbatch};
    context.gradient_scale = 1.0 / kBatch;
    context.loss = {loss, DType::Float64, {2}};
    context.axes[Axis::Tensor] = &tensor_axis_;
    const size_t layers = model_.layers.size();
    std::vector<Saved> saved(layers);
    std::vector<std::vector<float>> outputs(layers), gradients(layers);
    std::vector<ConstTensorView> inputs{microbatch.input};
    const auto memory = [](std::vector<float>& values, const Shape& shape) {
      values.resize(static_cast<size_t>(shape.elements()));
      return TensorView{values.data(), DType::Float32, shape};
    };
    for (size_t layer = 0; layer + 1 < layers; ++layer) {
      optimizer_.gather(static_cast<int>(layer));
      const TensorView y = memory(outputs[layer], model_.layers[layer]->output_shape(inputs.back().shape));
      model_.layers[layer]->forward(context, weights_of(layer), inputs.back(), y, saved[layer]);
      optimizer_.release(static_cast<int>(layer));
      inputs.push_back(y);
    }
    for (size_t layer = layers; layer-- > 0;) {
      optimizer_.gather(static_cast<int>(layer));
      const TensorView dx = layer > 0 ? memory(gradients[layer], inputs[layer].shape) : TensorView{};
      const std::vector<Gradient> into = gradients_of(layer);
      if (layer + 1 == layers)
        model_.layers[layer]->forward_backward(context, weights_of(layer), into, inputs[layer], dx, saved[layer]);
      else
        model_.layers[layer]->backward(context, weights_of(layer), into,
                                       TensorView{gradients[layer + 1].data(), DType::Float32, inputs[layer + 1].shape}, dx,
                                       saved[layer]);
      saved[layer].clear();
      optimizer_.release(static_cast<int>(layer));
      ready(layer);
    }
    optimizer_.end_microbatch(loss[0] / kBatch);
  }

  comm::World& world_;
  model::Model model_ = layers();
  std::vector<int> first_;  // [layer] its first parameter
  ShardedOptimizer optimizer_;
  std::unique_ptr<kernels::Kernels> kernels_;
  // In layout mode, layers cut their sums as 8 tensor ranks would.
  std::unique_ptr<comm::ProcessGroup> alone_ = comm::make_single_group("tensor");
  std::unique_ptr<Stream> stream_ = make_inline_stream();
  comm::RankAxis tensor_axis_{.group = *alone_, .stream = *stream_};
  MemoryMeter meter_;
  Arena arena_{"activations", host_allocator(), meter_, MemoryCategory::Activations, 1 << 20};
};

Learned learned_by_trainer(const Config& config, int ranks) {
  Learned learned;
  comm::run_threads(ranks, [&](comm::World& world) {
    LayerTrainer trainer(config, world);
    for (int step = 0; step < kStepsOfBoth; ++step) {
      const StepReport report = trainer.step();
      if (world.rank() != 0) continue;
      learned.losses.push_back(report.loss);
      learned.norms.push_back(report.gradient_norm);
    }
    const Weights weights = trainer.weights();
    if (world.rank() == 0) learned.weights = weights;
  });
  return learned;
}

// The mean of a microbatch's losses is rounded before it is added, so losses agree to a last bit or two.
TEST(ShardedOptimizer, LearnsTheSameBitsAsAnEngine) {
  const std::string adam = R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";
  const std::string muon = R"({"type": "Muon", "params": {"lr": 0.01}})";
  const std::string lamb = R"({"type": "Lamb", "params": {"lr": 0.01}})";
  for (const std::string& optimizer : {adam, muon, lamb})
    for (const bool layout : {false, true})
      for (const auto& [ranks, stage] : {std::pair{1, 0}, {2, 1}, {2, 2}, {4, 3}}) {
        const Config config = config_of_both(optimizer, stage, layout);
        const Learned engine = learned_by_engine(config, ranks), trainer = learned_by_trainer(config, ranks);
        const std::string where =
            optimizer + (layout ? " layout " : " run ") + std::to_string(ranks) + " ranks, stage " + std::to_string(stage);
        EXPECT_EQ(trainer.weights, engine.weights) << where;
        EXPECT_EQ(trainer.norms, engine.norms) << where;
        for (int i = 0; i < kStepsOfBoth; ++i) EXPECT_NEAR(trainer.losses[i], engine.losses[i], 1e-15 * 10) << where;
        EXPECT_LT(trainer.losses[kStepsOfBoth - 2], trainer.losses[0]) << where;  // the same samples
      }
}

}  // namespace
}  // namespace trivet::embed
