// Weights that a run begins with: a number among them that is not finite is refused as it is read, with the tensor and the file
// that it is in. Later it would look as if the learning rate had been too high.
#pragma once

#include <span>
#include <string>

#include "engine/checkpoint/tensor_source.h"

namespace trivet::trainer {

class FiniteWeights final : public checkpoint::TensorSource {
 public:
  // `weights` must outlive this.
  explicit FiniteWeights(const checkpoint::TensorSource& weights) : weights_(weights) {}

  std::string source() const override { return weights_.source(); }
  const checkpoint::TensorInfo* find(const std::string& name) const override { return weights_.find(name); }
  // Into host memory. Throws CheckpointError (CheckpointCorrupt) for such a number, and for one that is infinite in the dtype
  // that the layers use.
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  const checkpoint::TensorSource& weights_;
};

}  // namespace trivet::trainer
