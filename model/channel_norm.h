// Group norm and batch norm of images [B, C, ...]; formulas are in kernels/channel_norm.h.
//
// Batch norm's statistics in training are those of a microbatch, whatever its rank: a microbatch is a part of the mathematics,
// so no layout changes a bit. Evaluation uses running statistics. They are parameters (ParameterUpdate::RunningAverage) that
// move, once per step, towards the average over the step's microbatches of mean and unbiased variance. With one microbatch per
// step this is what PyTorch's BatchNorm2d does.
#pragma once

#include <vector>

#include "core/layer.h"
#include "kernels/channel_norm.h"

namespace trivet::model {

class ChannelNorm : public Layer {
 public:
  struct Options {
    int64_t channels = 0;
    int64_t groups = kernels::NormSets::kBatch;
    double epsilon = 1e-5;
    double momentum = 0.1;  // for running statistics (batch norm)
  };
  explicit ChannelNorm(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }
  std::string training_problem(const Shape& input) const override;
  std::string_view type() const override { return is_batch_norm() ? "batch_norm" : "group_norm"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  enum Slot { kX, kDy, kMean, kRstd };                              // the places of Saved that this layer uses
  enum Parameter { kGain, kBias, kRunningMean, kRunningVariance };  // the last two: batch norm

  bool is_batch_norm() const { return sets_.groups == kernels::NormSets::kBatch; }
  void add_statistics(Context&, Gradients, const Saved&) const;

  kernels::NormSets sets_;
  float epsilon_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trivet::model
