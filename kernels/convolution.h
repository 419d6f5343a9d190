// Convolutions of images, and pooling over windows of them.
//
//   B images, C channels, H x W pixels, O output channels, P x Q output pixels; images are [B, C, H, W]
#pragma once

#include <cstdint>

#include "kernels/kernel_call.h"

namespace trivet::kernels {

// The pixels that one output pixel is computed from: `rows` x `cols` of them. The windows of neighbouring outputs are `stride`
// pixels apart, and the first one starts `padding` pixels outside of the image.
struct Window {
  int64_t rows = 1, cols = 1, stride = 1, padding = 0;

  int64_t pixels() const { return rows * cols; }
  // The number of windows along an edge of `pixels` pixels; 0 or less: the window does not fit.
  int64_t output_rows(int64_t pixels) const { return outputs(pixels, rows); }
  int64_t output_cols(int64_t pixels) const { return outputs(pixels, cols); }

 private:
  int64_t outputs(int64_t pixels, int64_t size) const {
    const int64_t room = pixels + 2 * padding - size;
    return room < 0 ? 0 : room / stride + 1;
  }
};

// y[b, o, p, q] = bias[o] + sum over c, i, j of weight[o, c, i, j] x[b, c, p stride + i - padding, q stride + j - padding].
// Pixels outside of the image are 0. The window's size is that of the weight.
struct Convolution {
  ConstTensorView x;       // [B, C, H, W]
  ConstTensorView weight;  // [O, C, window.rows, window.cols]
  ConstTensorView bias;    // optional [O]
  TensorView y;            // [B, O, P, Q]
  Window window;

  void check() const;
  KernelCall describe() const;
};

struct ConvolutionBackwardInput {
  ConstTensorView dy, weight;
  TensorView dx;
  Window window;

  void check() const;
  KernelCall describe() const;
};

// dweight, dbias (+)= sums over images and pixels; each is optional
struct ConvolutionBackwardWeight {
  ConstTensorView dy, x;
  TensorView dweight, dbias;
  Window window;
  bool accumulate_weight = true, accumulate_bias = true;

  void check() const;
  KernelCall describe() const;
};

// Max: the largest pixel of each window; pixels outside of the image do not count. Average: the sum of the window's pixels,
// divided by the number of all its pixels, also those outside of the image (as PyTorch's default). The padding may be at most
// half of the window, so that no window lies outside.
enum class Pooling : uint8_t { Max, Average };

struct Pool {
  ConstTensorView x;  // [B, C, H, W]
  TensorView y;       // [B, C, P, Q]
  Window window;
  Pooling kind = Pooling::Max;

  void check() const;
  KernelCall describe() const;
};

// The gradient of a maximum goes to the first of the largest pixels, in row order, which is found again in x.
struct PoolBackward {
  ConstTensorView dy;
  ConstTensorView x;  // read for Pooling::Max only; may be absent for Average
  TensorView dx;
  Window window;
  Pooling kind = Pooling::Max;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
