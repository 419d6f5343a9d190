// A Linear layer of a network that is a list of layers. Its parameters start as those of PyTorch's Linear do.
#pragma once

#include <cmath>

#include "model/linear.h"

namespace trivet::model {

class Dense : public Linear {
 public:
  Dense(int64_t in, int64_t out, bool with_bias)
      : Linear({.in = in, .out = out, .bias = with_bias, .init_bound = 1 / std::sqrt(static_cast<double>(in))}) {}
  std::string_view type() const override { return "dense"; }
};

}  // namespace trivet::model
