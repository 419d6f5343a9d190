// The net of Horovod's MNIST example, by hand: 1,199,882 parameters.
//
//   image 28 x 28 x 1 -> convolution 3 x 3, 32, ReLU -> 26 x 26 x 32 -> convolution 3 x 3, 64, ReLU -> 24 x 24 x 64
//     -> 2 x 2 maximum -> 12 x 12 x 64 -> dropout 1/4 -> dense 128, ReLU -> dropout 1/2 -> dense 10 -> softmax
//
// A convolution is a product of patches with weights. Images are computed kChunk at a time, because patches take much memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "images.h"
#include "kernels/kernels.h"

constexpr int kChunk = 16;

// [height, width, channels] in, 3 x 3 patches out: one row of 9 x channels for each of the (height - 2) x (width - 2) places.
inline void patches(const float* image, int side, int channels, float* rows) {
  for (int y = 0; y + 2 < side; ++y)
    for (int x = 0; x + 2 < side; ++x)
      for (int dy = 0; dy < 3; ++dy, rows += 3 * channels)
        std::copy_n(image + ((y + dy) * side + x) * channels, 3 * channels, rows);
}
// Adds the gradients of patches to those of the image.
inline void add_patches(const float* rows, int side, int channels, float* image) {
  for (int y = 0; y + 2 < side; ++y)
    for (int x = 0; x + 2 < side; ++x)
      for (int dy = 0; dy < 3; ++dy, rows += 3 * channels)
        for (int i = 0; i < 3 * channels; ++i) image[((y + dy) * side + x) * channels + i] += rows[i];
}

class Net {
 public:
  enum Parameter { kConv1, kConv1Bias, kConv2, kConv2Bias, kDense1, kDense1Bias, kDense2, kDense2Bias, kParameters };
  // Called when backward has computed a gradient.
  using Ready = std::function<void(size_t parameter)>;

  Net(trivet::kernels::Kernels& kernels, uint64_t seed) : kernels_(kernels) {
    const int64_t shapes[kParameters][2] = {{9, 32}, {1, 32}, {288, 64}, {1, 64}, {9216, 128}, {1, 128}, {128, 10}, {1, 10}};
    for (int p = 0; p < kParameters; ++p) {
      weights[p].resize(shapes[p][0] * shapes[p][1]);
      gradients[p].resize(weights[p].size());
      if (shapes[p][0] == 1) continue;                      // biases are 0
      const bool convolution = p == kConv1 || p == kConv2;  // Glorot & Bengio 2010: 9 weights lead from and to each channel
      const auto fans = static_cast<float>(shapes[p][0] + shapes[p][1] * (convolution ? 9 : 1));
      const float limit = std::sqrt(6 / fans);
      for (size_t i = 0; i < weights[p].size(); ++i)
        weights[p][i] = limit * (2 * trivet::unit_float(trivet::philox(seed, p, i)[0]) - 1);
    }
  }

  static const char* name(int parameter) {
    static const char* const names[kParameters] = {"conv1.weight",  "conv1.bias",  "conv2.weight",  "conv2.bias",
                                                   "dense1.weight", "dense1.bias", "dense2.weight", "dense2.bias"};
    return names[parameter];
  }
  int64_t parameter_count() const {
    int64_t count = 0;
    for (const auto& weight : weights) count += static_cast<int64_t>(weight.size());
    return count;
  }

  struct Score {
    double loss = 0;  // sum over the images
    int64_t correct = 0;
  };
  // Evaluates images[indices]; with `ready`, also computes the gradients of their mean loss. `dropout` is a key of random
  // numbers; 0: no dropout.
  Score run(const Images& images, const std::vector<int64_t>& indices, uint64_t dropout = 0, const Ready& ready = {}) {
    for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.f);
    Score score;
    const auto count = static_cast<int64_t>(indices.size());
    for (int64_t first = 0; first < count; first += kChunk) {
      batch_ = std::min<int64_t>(kChunk, count - first);
      dropout_ = dropout ? dropout + static_cast<uint64_t>(first) : 0;
      load(images, indices.data() + first);
      forward();
      finish(images, indices.data() + first, count, score);
      if (ready) backward(first + batch_ == count ? ready : [](size_t) {});
    }
    return score;
  }

  std::vector<float> weights[kParameters], gradients[kParameters];

 private:
  static constexpr int kSide1 = 26, kSide2 = 24, kSide3 = 12, kFlat = 12 * 12 * 64;
  using Values = std::vector<float>;

  static trivet::TensorView matrix(Values& values, int64_t rows, int64_t cols) {
    values.resize(rows * cols);
    return {values.data(), trivet::DType::Float32, {rows, cols}};
  }

  // out = x w + b, w being [inputs, outputs]
  void linear(Values& x, int64_t rows, int weight, int64_t inputs, int64_t outputs, Values& out) {
    const trivet::TensorView bias{weights[weight + 1].data(), trivet::DType::Float32, {outputs}};
    kernels_.matmul({.a = matrix(x, rows, inputs),
                     .b = matrix(weights[weight], inputs, outputs),
                     .out = matrix(out, rows, outputs),
                     .bias = bias});
  }
  void linear_backward(Values& x, Values& dout, int64_t rows, int weight, int64_t inputs, int64_t outputs, Values* dx) {
    const trivet::TensorView dbias{gradients[weight + 1].data(), trivet::DType::Float32, {outputs}};
    const trivet::TensorView dy = matrix(dout, rows, outputs);
    kernels_.matmul({.a = matrix(x, rows, inputs),
                     .b = dy,
                     .out = matrix(gradients[weight], inputs, outputs),
                     .transpose_a = true,
                     .accumulate = true});
    kernels_.bias_gradient({.dy = dy, .dbias = dbias});
    if (dx)
      kernels_.matmul(
          {.a = dy, .b = matrix(weights[weight], inputs, outputs), .out = matrix(*dx, rows, inputs), .transpose_b = true});
  }

  static void relu(Values& values) {
    for (float& value : values) value = std::max(value, 0.f);
  }
  static void relu_backward(const Values& out, Values& gradient) {
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] <= 0) gradient[i] = 0;
  }
  // Drops a fraction and scales the rest; the same elements in forward and backward.
  void drop(Values& values, float fraction, uint64_t site) const {
    if (!dropout_) return;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool dropped = trivet::unit_float(trivet::philox(dropout_, i, site)[0]) < fraction;
      values[i] = dropped ? 0 : values[i] / (1 - fraction);
    }
  }

  void load(const Images& images, const int64_t* indices) {
    pixels_.resize(batch_ * kPixels);
    for (int64_t b = 0; b < batch_; ++b)
      for (int p = 0; p < kPixels; ++p)
        pixels_[b * kPixels + p] = static_cast<float>(images.pixels[indices[b] * kPixels + p]) / 255;
  }

  void convolve(const Values& in, int side, int channels, Values& rows, int weight, int outputs, Values& out) {
    const int64_t places = int64_t{side - 2} * (side - 2), row = 9 * channels;
    rows.resize(batch_ * places * row);
    for (int64_t b = 0; b < batch_; ++b)
      patches(in.data() + b * side * side * channels, side, channels, rows.data() + b * places * row);
    linear(rows, batch_ * places, weight, row, outputs, out);
    relu(out);
  }

  // For each channel and 2 x 2 square: the largest value, and where it is.
  void pool() {
    flat_.resize(batch_ * kFlat);
    source_.resize(flat_.size());
    for (size_t i = 0; i < flat_.size(); ++i) {
      const size_t channel = i % 64, x = i / 64 % kSide3, y = i / 64 / kSide3 % kSide3, image = i / kFlat;
      size_t best = ((image * kSide2 + 2 * y) * kSide2 + 2 * x) * 64 + channel;
      const size_t first = best;
      for (size_t other : {first + 64, first + kSide2 * 64, first + kSide2 * 64 + 64})
        if (conv2_[other] > conv2_[best]) best = other;
      source_[i] = best;
      flat_[i] = conv2_[best];
    }
  }

  void forward() {
    convolve(pixels_, kSide, 1, patches1_, kConv1, 32, conv1_);
    convolve(conv1_, kSide1, 32, patches2_, kConv2, 64, conv2_);
    pool();
    drop(flat_, 0.25f, 1);
    linear(flat_, batch_, kDense1, kFlat, 128, dense1_);
    relu(dense1_);
    drop(dense1_, 0.5f, 2);
    linear(dense1_, batch_, kDense2, 128, kClasses, logits_);
  }

  // Cross entropy of softmax; leaves the gradient of the mean over `count` images in logits_.
  void finish(const Images& images, const int64_t* indices, int64_t count, Score& score) {
    for (int64_t b = 0; b < batch_; ++b) {
      float* row = logits_.data() + b * kClasses;
      const int label = images.labels[indices[b]];
      const float largest = *std::max_element(row, row + kClasses);
      score.correct += std::max_element(row, row + kClasses) - row == label;
      float sum = 0;
      for (int c = 0; c < kClasses; ++c) sum += std::exp(row[c] - largest);
      score.loss += std::log(sum) + largest - row[label];
      for (int c = 0; c < kClasses; ++c)
        row[c] = (std::exp(row[c] - largest) / sum - static_cast<float>(c == label)) / static_cast<float>(count);
    }
  }

  void backward(const Ready& ready) {
    linear_backward(dense1_, logits_, batch_, kDense2, 128, kClasses, &ddense1_);
    ready(kDense2Bias);
    ready(kDense2);
    drop(ddense1_, 0.5f, 2);
    relu_backward(dense1_, ddense1_);
    linear_backward(flat_, ddense1_, batch_, kDense1, kFlat, 128, &dflat_);
    ready(kDense1Bias);
    ready(kDense1);
    drop(dflat_, 0.25f, 1);
    dconv2_.assign(conv2_.size(), 0);
    for (size_t i = 0; i < dflat_.size(); ++i) dconv2_[source_[i]] += dflat_[i];
    relu_backward(conv2_, dconv2_);
    const int64_t places1 = kSide1 * kSide1, places2 = kSide2 * kSide2;
    linear_backward(patches2_, dconv2_, batch_ * places2, kConv2, 288, 64, &dpatches2_);
    ready(kConv2Bias);
    ready(kConv2);
    dconv1_.assign(conv1_.size(), 0);
    for (int64_t b = 0; b < batch_; ++b)
      add_patches(dpatches2_.data() + b * places2 * 288, kSide1, 32, dconv1_.data() + b * places1 * 32);
    relu_backward(conv1_, dconv1_);
    linear_backward(patches1_, dconv1_, batch_ * places1, kConv1, 9, 32, nullptr);
    ready(kConv1Bias);
    ready(kConv1);
  }

  trivet::kernels::Kernels& kernels_;
  int64_t batch_ = 0;     // images of the present chunk
  uint64_t dropout_ = 0;  // for the present chunk
  Values pixels_, patches1_, conv1_, patches2_, conv2_, flat_, dense1_, logits_;
  Values ddense1_, dflat_, dconv2_, dpatches2_, dconv1_;
  std::vector<size_t> source_;  // places of the pooled values in conv2_
};
