// Layers between images and sequences, for networks that are a list of layers. A sequence [B, T, W] has T tokens of W numbers.
//
//   Patches    [B, C, H, W] -> [B, T, W]     one token for each square of pixels, row by row: a dense layer of its pixels
//   Columns    [B, C, H, W] -> [B, W, C H]   one token for each column of pixels, from left to right
//   Positions  [B, T, W]                     adds a learned vector to each token, which depends on its place
//   TokenMean  [B, T, W] -> [B, W]           the average of the tokens
#pragma once

#include <vector>

#include "core/layer.h"
#include "model/convolution.h"

namespace trivet::model {

// A convolution whose stride is the size of its window. Pixels after the last whole square are not used.
class Patches : public Layer {
 public:
  struct Options {
    int64_t channels = 0, width = 0;  // channels of the image, width of a token
    int64_t size = 4;                 // pixels along an edge of a square
    bool bias = true;
  };
  explicit Patches(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return convolution_.parameters(); }
  Shape output_shape(const Shape& images) const override;
  std::string_view type() const override { return "patches"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  enum Slot { kX, kDmaps };  // the places of Saved that this layer uses

  Convolution convolution_;
};

class Columns : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& images) const override { return {images[0], images[3], images[1] * images[2]}; }
  std::string_view type() const override { return "columns"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}
};

class Positions : public Layer {
 public:
  Positions(int64_t tokens, int64_t width);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }
  std::string_view type() const override { return "positions"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  enum Slot { kDy };  // the place of Saved that this layer uses

  std::vector<ParameterSpec> parameters_;
};

class TokenMean : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& input) const override { return {input[0], input[2]}; }
  std::string_view type() const override { return "mean"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}
};

}  // namespace trivet::model
