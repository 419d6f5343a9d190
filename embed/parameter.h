// Describes a parameter of an embedding trainer.
#pragma once

#include <string>

#include "core/layer_role.h"
#include "core/parameter_spec.h"

namespace trivet::embed {

struct Parameter {
  std::string name;  // unique; checkpoints keep the parameter under it
  Shape shape;
  // Parameters of the same unit are gathered, summed over ranks and released together. Empty: the parameter shares a bucket
  // with its neighbours that have no unit either (embed/units.h).
  std::string unit;
  // Initial values, float32 and row-major, shape.elements() of them. Only the constructor of ShardedOptimizer reads them, and
  // only those of rank 0 count, which must be finite. Null, on all ranks alike: the values are drawn as `init` says.
  const float* values = nullptr;
  Init init = {Init::Kind::Zeros};
  bool decay = true;                   // weight decay applies
  bool trainable = true;               // a frozen parameter has no gradient and no optimizer state
  LayerRole role = LayerRole::Hidden;  // Muon leaves the parameters of input and loss layers to Adam
};

}  // namespace trivet::embed
