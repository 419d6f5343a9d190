// The scalars that an optimizer keeps for each parameter of a group (zero::ParameterGroup::parameter_scalars), on the host:
// read when this is made, written back by write(). Both wait for the device.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "zero/parameter_group.h"

namespace trivet {

class GroupScalars {
 public:
  GroupScalars(zero::ParameterGroup& group, kernels::Kernels& kernels)
      : kept_(group.parameter_scalars()), parameters_(group.layout().parameters.size()), values_(kept_.elements()) {
    kernels.to_host(kept_, view());
  }
  size_t parameters() const { return parameters_; }
  // `scalar`: its place in optimizer_scalar_names().
  float& at(int scalar, size_t parameter) { return values_[scalar * parameters_ + parameter]; }
  void write(kernels::Kernels& kernels) { kernels.from_host(view(), kept_); }

 private:
  TensorView view() { return {values_.data(), DType::Float32, {std::ssize(values_)}}; }

  TensorView kept_;
  size_t parameters_;
  std::vector<float> values_;
};

}  // namespace trivet
