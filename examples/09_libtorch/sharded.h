// All that a libtorch trainer needs to take ZeRO 1 to 3, bucketed sums, optimizers and checkpoints from Trivet, while it keeps
// its model and autograd. Each child of the model is a unit (embed/units.h).
//
//   weights    each parameter's storage points to Trivet's memory; at stage 3 only while its module runs
//   gradients  a hook hands each over when autograd has it, and frees it
//
// A storage keeps its identity when its memory changes, so what autograd has saved of a weight (also its transpose) finds the
// weights where they are gathered for backward.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "embed/sharded_optimizer.h"

class Sharded {
 public:
  Sharded(const torch::nn::Module& model, const trivet::Config& config, trivet::comm::World& world)
      : optimizer(config, described(model), world), parameters_(model.parameters()), missing_(optimizer.units()) {
    for (int i = 0; i < optimizer.parameters(); ++i) {
      units_[optimizer.unit(optimizer.unit_of(i)).name] = optimizer.unit_of(i);
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
      accumulators_[i]->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
            take_gradient(i);
            return outputs;
          }));
    }
    for (int unit = 0; unit < optimizer.units(); ++unit) point_to_weights(unit);
  }

  // Runs a module with its weights gathered, in forward and again in backward.
  torch::Tensor run(const std::string& name, const torch::Tensor& x,
                    const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
    const int unit = units_.at(name);
    gather(unit);
    torch::Tensor y = forward(x);
    release(unit);
    if (!y.requires_grad()) return y;
    y.register_hook([this, unit](const torch::Tensor&) {
      gather(unit);
      missing_[unit] = optimizer.unit(unit).parameters.size();
    });
    return y;
  }

  trivet::embed::ShardedOptimizer optimizer;

 private:
  static std::vector<trivet::embed::Parameter> described(const torch::nn::Module& model) {
    std::vector<trivet::embed::Parameter> list;
    for (const auto& item : model.named_parameters())
      list.push_back({.name = item.key(),
                      .shape = trivet::Shape(std::span(item.value().sizes().data(), item.value().sizes().size())),
                      .unit = item.key().substr(0, item.key().find('.')),
                      .values = item.value().data_ptr<float>()});
    return list;
  }
  void take_gradient(int i) {
    const torch::Tensor gradient = parameters_[i].grad().contiguous();
    optimizer.add_gradient(i, {gradient.data_ptr<float>(), trivet::DType::Float32, {gradient.numel()}});
    parameters_[i].mutable_grad().reset();
    if (--missing_[optimizer.unit_of(i)] == 0) release(optimizer.unit_of(i));
  }
  void gather(int unit) { optimizer.gather(unit), point_to_weights(unit); }
  void release(int unit) { optimizer.release(unit), point_to_weights(unit); }
  void point_to_weights(int unit) {
    for (const int i : optimizer.unit(unit).parameters) {
      void* const data = optimizer.is_whole(unit) ? const_cast<void*>(optimizer.weight(i).data) : nullptr;
      parameters_[i].storage().set_data_ptr(at::DataPtr(data, torch::kCPU));
    }
  }

  std::vector<torch::Tensor> parameters_;
  // A shared_ptr, and from PyTorch 2.15 on an intrusive_ptr.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));
  std::vector<Accumulator> accumulators_;
  std::vector<size_t> missing_;  // [unit] gradients of this backward
  std::map<std::string, int> units_;
};
