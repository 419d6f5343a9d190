// Runs of optimizers that send signs, with gradients that are known exactly: the loss of a sample is half the squared distance
// of the weights from it, except of one weight, which has no gradient.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"

namespace trivet::test {

inline constexpr int64_t kNeverUsed = 17;

// Values in [-1, 3), which tests/golden/one_bit_lamb_reference.py computes, too. No sum of a few is a multiple of their number,
// so that no gradient of a weight that is 0 or 1 is 0 but for its rounding.
inline double distance_sample(int64_t step, int64_t sample, int64_t weight) {
  uint64_t x = static_cast<uint64_t>(step * 1000003 + sample * 8191 + weight * 127 + 12345);
  for (int i = 0; i < 3; ++i) x = (x * 1103515245 + 12345) % 2147483648 ^ x >> 9;
  return static_cast<double>(x % 4093) / 1023.25 - 0.9997;
}

class Distance final : public Layer {
 public:
  explicit Distance(std::vector<ParameterSpec> parameters) : parameters_(std::move(parameters)) {}
  static int64_t weights_of(const std::vector<ParameterSpec>& parameters) {
    int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters) sum += parameter.shape.elements();
    return sum;
  }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape&) const override { return {1}; }
  LayerRole role() const override { return LayerRole::Loss; }
  void forward(Context&, Weights, ConstTensorView, TensorView, Saved&) const override {}
  void backward_input(Context&, Weights, ConstTensorView, TensorView, Saved&) const override {}
  void backward_weight(Context&, Gradients, const Saved&) const override {}
  void forward_backward(Context& c, Weights weights, Gradients gradients, ConstTensorView x, TensorView,
                        Saved&) const override {
    if (c.kernels.device() == Device::Meta) return;
    const int64_t samples = x.shape[0], all = weights_of(parameters_);
    const auto scale = static_cast<float>(c.gradient_scale.value());
    double loss = 0;
    int64_t first = 0;  // weights of the parameters before
    for (size_t p = 0; p < parameters_.size(); ++p) {
      auto* const gradient = gradients[p].view.as<float>();
      for (int64_t w = 0; w < parameters_[p].shape.elements(); ++w) {
        float sum = gradients[p].accumulate ? gradient[w] : 0.0f;
        for (int64_t s = 0; s < samples && first + w != kNeverUsed; ++s) {
          const float difference = weights[p].as<float>()[w] - x.as<float>()[s * all + first + w];
          loss += 0.5 * static_cast<double>(difference) * static_cast<double>(difference);
          sum += difference * scale;
        }
        gradient[w] = sum;
      }
      first += parameters_[p].shape.elements();
    }
    if (c.loss.absent()) return;
    c.loss.as<double>()[0] += loss;
    c.loss.as<double>()[1] += static_cast<double>(samples);
  }

 private:
  std::vector<ParameterSpec> parameters_;
};

inline model::Model distance_model(const std::vector<ParameterSpec>& parameters) {
  model::Model model;
  model.sample = {.input_dtype = DType::Float32, .input = {Distance::weights_of(parameters)}, .targets = {1}, .classes = 1};
  model.names = {"distance"};
  model.layers.push_back(std::make_unique<Distance>(parameters));
  return model;
}

struct DistanceRun {
  Config config;
  std::vector<ParameterSpec> parameters;
  int ranks = 1;
  int64_t steps = 12;
  std::string load_from = {}, save_to = {};
};

// What a rank trains on in a step.
struct DistanceBatch {
  std::vector<std::vector<float>> inputs;
  std::vector<int32_t> targets;
  std::vector<Microbatch> views;

  DistanceBatch(const Plan& plan, int64_t weights, int rank, int64_t step) {
    const int64_t micro = plan.batch.micro_batch_size, ranks = plan.mesh.size(Axis::Data);
    targets.assign(micro, 0);
    for (int64_t m = 0; m < plan.batch.gradient_accumulation_steps; ++m) {
      const int64_t first = (m * ranks + rank) * micro;
      std::vector<float>& input = inputs.emplace_back();
      for (int64_t s = first; s < first + micro; ++s)
        for (int64_t w = 0; w < weights; ++w) input.push_back(static_cast<float>(distance_sample(step, s, w)));
    }
    for (size_t m = 0; m < inputs.size(); ++m)
      views.push_back({{inputs[m].data(), DType::Float32, {micro, weights}},
                       {targets.data(), DType::Int32, {micro, 1}},
                       (static_cast<int64_t>(m) * ranks + rank) * micro});
  }
};

struct DistanceOutcome {
  std::vector<std::vector<float>> weights;  // before the first step, and after each; all parameters one after another
  std::vector<std::vector<std::vector<float>>> of_layers;  // [rank] the same, as the rank's layers see them
  std::vector<double> norms;
};

inline std::vector<float> all_weights(Engine& engine, const std::vector<ParameterSpec>& parameters) {
  std::vector<float> all;
  for (const ParameterSpec& parameter : parameters) {
    const std::vector<float> some = engine.weight("distance." + parameter.name);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Weights as this rank's layers see them, in float32, in the order of `parameters`.
inline std::vector<float> weights_of_layers(Engine& engine, const std::vector<ParameterSpec>& parameters) {
  std::vector<float> all;
  for (const ParameterSpec& parameter : parameters)
    engine.parameters().for_each_group([&](int, zero::ParameterGroup& group) {
      for (size_t i = 0; i < group.layout().parameters.size(); ++i) {
        if (group.layout().parameters[i].name != "distance." + parameter.name) continue;
        const ConstTensorView weight = group.weight(static_cast<int>(i));
        all.insert(all.end(), weight.as<float>(), weight.as<float>() + weight.elements());
      }
    });
  return all;
}

inline DistanceOutcome train(const DistanceRun& run) {
  DistanceOutcome outcome;
  outcome.of_layers.resize(run.ranks);
  comm::run_threads(run.ranks, [&](comm::World& world) {
    model::Model model = distance_model(run.parameters);
    Plan plan = make_plan(run.config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    if (!run.load_from.empty()) {
      EXPECT_TRUE(engine.load(run.load_from));
    }
    const auto keep = [&] {
      std::vector<float> weights = all_weights(engine, run.parameters);
      if (world.rank() == 0) outcome.weights.push_back(std::move(weights));
      outcome.of_layers[world.rank()].push_back(weights_of_layers(engine, run.parameters));
    };
    keep();
    while (engine.progress().steps < run.steps) {
      const DistanceBatch batch(engine.plan(), Distance::weights_of(run.parameters), world.rank(), engine.progress().steps);
      const StepResult result = engine.train_batch(batch.views);
      if (world.rank() == 0) outcome.norms.push_back(result.grad_norm);
      keep();
    }
    EXPECT_EQ(engine.measured_memory(), engine.plan().rank(world.rank()).memory);
    if (!run.save_to.empty()) engine.save(run.save_to);
  });
  return outcome;
}

// What references of such runs share, in double.
class DistanceReference {
 public:
  DistanceReference(const DistanceRun& run, const std::vector<float>& weights)
      : run_(run), weights_(weights.begin(), weights.end()) {}

  const std::vector<double>& weights() const { return weights_; }
  double norm() const { return norm_; }

 protected:
  static double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  }

  // The gradients of the mean loss over the samples of each rank. Ranks are numbered as the batch layout does.
  std::vector<std::vector<double>> gradients(int64_t step) const {
    const int64_t batch = run_.config.batch.train_batch_size, micro = run_.config.batch.micro_batch_size;
    std::vector<std::vector<double>> all(run_.ranks, std::vector<double>(weights_.size()));
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t w = 0; w < std::ssize(weights_); ++w)
        if (w != kNeverUsed)
          all[s / micro % run_.ranks][w] +=
              (weights_[w] - distance_sample(step, s, w)) * run_.ranks / static_cast<double>(batch);
    return all;
  }

  std::vector<double> mean_of(const std::vector<std::vector<double>>& own) const {
    std::vector<double> mean(weights_.size());
    for (const auto& gradient : own)
      for (size_t w = 0; w < mean.size(); ++w) mean[w] += gradient[w] / run_.ranks;
    return mean;
  }

  // Sets the norm, and returns what clipping makes of the gradients. `own`: each rank has its own.
  double clip(const std::vector<std::vector<double>>& gradients, bool own) {
    double sum = 0;
    for (const auto& gradient : gradients) sum += squares(gradient);
    norm_ = std::sqrt(own ? sum / run_.ranks : squares(mean_of(gradients)));
    const double clipping = run_.config.gradient_clipping;
    return clipping > 0 ? std::min(1.0, clipping / (norm_ + 1e-6)) : 1;
  }

  // Signs of `values` with a scale for every 256 of a parameter; elements without variance do not count. `values` becomes what
  // is lost.
  std::vector<double> take_signs(std::vector<double>& values, const std::vector<double>& variance) const {
    constexpr int64_t kBlock = 256;
    std::vector<double> taken(values.size());
    int64_t begin = 0;
    for (const ParameterSpec& parameter : run_.parameters) {
      const int64_t last = begin + parameter.shape.elements();
      for (int64_t first = begin; first < last; first += kBlock) {
        const int64_t end = std::min(first + kBlock, last);
        double sum = 0, counted = 0;
        for (int64_t w = first; w < end; ++w)
          if (variance[w] > 0) sum += std::abs(values[w]), ++counted;
        for (int64_t w = first; w < end; ++w) {
          taken[w] = variance[w] > 0 ? std::copysign(sum / counted, values[w]) : 0;
          values[w] = variance[w] > 0 ? values[w] - taken[w] : 0;
        }
      }
      begin = last;
    }
    return taken;
  }

  // The average of what the ranks have, and of what they and the average still lack.
  std::vector<double> average_signs(const std::vector<std::vector<double>>& values, const std::vector<double>& variance) {
    errors_.resize(run_.ranks, std::vector<double>(weights_.size()));
    server_error_.resize(weights_.size());
    for (int rank = 0; rank < run_.ranks; ++rank) {
      for (size_t w = 0; w < weights_.size(); ++w) errors_[rank][w] += values[rank][w];
      const std::vector<double> taken = take_signs(errors_[rank], variance);
      for (size_t w = 0; w < weights_.size(); ++w) server_error_[w] += taken[w] / run_.ranks;
    }
    return take_signs(server_error_, variance);
  }

  void forget_errors() {
    errors_.clear();
    server_error_.clear();
  }

  // Each rank's momentum with its own gradient.
  std::vector<std::vector<double>> own_momenta(const std::vector<double>& momentum,
                                               const std::vector<std::vector<double>>& gradients, double clip) const {
    const double beta1 = run_.config.optimizer.beta1;
    std::vector<std::vector<double>> all = gradients;
    for (std::vector<double>& own : all)
      for (size_t w = 0; w < momentum.size(); ++w) own[w] = beta1 * momentum[w] + (1 - beta1) * own[w] * clip;
    return all;
  }

  const DistanceRun& run_;
  std::vector<double> weights_;

 private:
  std::vector<std::vector<double>> errors_;
  std::vector<double> server_error_;
  double norm_ = 0;
};

// Compares the weights after every step with those of the reference, and the norms.
template <typename Reference>
void expect_as_reference(const DistanceRun& run, double tolerance) {
  const DistanceOutcome outcome = train(run);
  Reference reference(run, outcome.weights.front());
  for (int64_t step = 0; step < run.steps; ++step) {
    reference.step(step);
    EXPECT_NEAR(outcome.norms[step], reference.norm(), 1e-5 * reference.norm()) << step;
    for (size_t w = 0; w < reference.weights().size(); ++w)
      ASSERT_NEAR(outcome.weights[step + 1][w], reference.weights()[w], tolerance) << "step " << step << ", weight " << w;
  }
}

}  // namespace trivet::test
