// A layer's description of each of its parameters: enough to create, shard, initialize, name and save it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace trivet {

// The way in which initial values are drawn. They depend on (seed, name, element) alone, never on the layout.
struct Init {
  enum class Kind { Zeros, Ones, Normal, Uniform };
  Kind kind = Kind::Normal;
  double scale = 0.02;  // Normal: standard deviation. Uniform: values in [-scale, scale).
};

// The division of a parameter over tensor ranks. `segments` are lengths along `dim`, each divided separately: a fused
// [query, key, value] projection has three. A segment is cut only between its `units` (heads); with too few, neighbours
// hold the same unit. If `dim` is -1, every rank holds it whole. tensor_parallel/split.h does the arithmetic.
struct Split {
  int dim = -1;
  std::vector<int64_t> segments;
  std::vector<int64_t> units;  // number in each segment; empty: each element is a unit
};

// The ranks with the same elements of a parameter; engine/sharing.h names their axes of the mesh. Dense: all ranks that
// work on different samples, or on different parts of one. Expert: those among them that have the same experts.
enum class Sharing : uint8_t { Dense, Expert };
inline constexpr int kSharings = 2;

// The way in which a step changes a parameter.
//
//   Optimizer       by its gradient, as the optimizer says
//   RunningAverage  value = (1 - momentum) * value + momentum * average, where the average is that of what the microbatches of
//                   the step contribute. A layer adds its contribution (times gradient_scale) where gradients go, so that it is
//                   summed over microbatches and ranks like one. It is no part of the gradient's norm, and is neither clipped
//                   nor decayed.
//   ExpertBalance   value[e] += rate * sign(mean of the counts - counts[e]), where counts are the tokens of the step that each
//                   expert of the layer has computed (Context::expert_tokens). There is no gradient: such a parameter is not
//                   trainable.
struct ParameterUpdate {
  enum class Kind : uint8_t { Optimizer, RunningAverage, ExpertBalance };
  Kind kind = Kind::Optimizer;
  double momentum = 0;  // RunningAverage
  double rate = 0;      // ExpertBalance

  bool operator==(const ParameterUpdate&) const = default;
};

struct ParameterSpec {
  std::string name;  // unique within its layer, e.g. "attention.qkv.weight"; the model puts the layer's name before it
  Shape shape;       // shape of the whole parameter
  Init init;
  Split split;
  bool decay = true;      // weight decay applies (matrices yes; biases and norms no, unless the optimizer decays all)
  bool trainable = true;  // frozen parameters have no gradient and no optimizer state
  Sharing sharing = Sharing::Dense;
  ParameterUpdate update;
  bool keeps_float32 = false;  // it is float32 in models of 16 bits, too: rounded it would mean something else
  // It is so many matrices of equally many rows, one below the other, and a token is multiplied by some of them only: those of
  // experts. An optimizer of matrices updates each by itself.
  int64_t matrices = 1, matrices_per_token = 1;
  std::string tied_to;  // full name of the parameter (same shape, another layer) that this one shares; it then owns nothing
};

// The type of a parameter as layers see it, in a model of this type.
inline DType dtype_in(const ParameterSpec& spec, DType of_model) {
  return spec.keeps_float32 && size_of(of_model) < size_of(DType::Float32) ? DType::Float32 : of_model;
}

}  // namespace trivet
