// What a layer says of each of its parameters: enough to create, shard, initialise, name and save it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/shape.h"

namespace trivet {

// How initial values are drawn. They depend on (seed, name, element) alone, never on the layout.
struct Init {
  enum class Kind { Zeros, Ones, Normal, Uniform };
  Kind kind = Kind::Normal;
  double scale = 0.02;  // Normal: standard deviation. Uniform: values in [-scale, scale).
};

// How tensor parallelism divides a parameter. `segments` are the lengths along `dim` that are each divided by themselves: a
// fused [query, key, value] projection has three. A segment is cut between its `units` only (heads); with fewer units than
// ranks, neighbouring ranks hold the same unit. No dim: every rank holds the whole. tensor_parallel/split.h does the
// arithmetic.
struct Split {
  int dim = -1;
  std::vector<int64_t> segments;
  std::vector<int64_t> units;  // of each segment; empty: each element is one
};

struct ParameterSpec {
  std::string name;  // unique within its layer, e.g. "attention.qkv.weight"; the model puts the layer's name before it
  Shape shape;       // of the whole parameter
  Init init;
  Split split;
  bool decay = true;      // weight decay applies (matrices yes; biases and norms no, unless the optimizer decays all)
  bool trainable = true;  // frozen parameters have no gradient and no optimizer state
  std::string tied_to;    // full name of another layer's parameter of the same shape that this one is; it owns nothing then
};

}  // namespace trivet
