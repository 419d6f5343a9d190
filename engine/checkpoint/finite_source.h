// Weights that training is to begin with: a number among them that is not finite is refused as it is read, with the tensor and
// the file that it is in. Later it would look as if the learning rate had been too high.
#pragma once

#include <span>
#include <string>

#include "engine/checkpoint/tensor_source.h"

namespace trivet::checkpoint {

class FiniteSource final : public TensorSource {
 public:
  // `weights` must outlive this. `key` has named them, for messages: "--init-from".
  FiniteSource(const TensorSource& weights, std::string key) : weights_(weights), key_(std::move(key)) {}

  std::string source() const override { return weights_.source(); }
  std::string origin(const std::string& name, int64_t row) const override { return weights_.origin(name, row); }
  const TensorInfo* find(const std::string& name) const override { return weights_.find(name); }
  // Into host memory. Throws CheckpointError (CheckpointCorrupt) for such a number, and for one that is infinite in the dtype
  // that the layers use.
  void read(std::span<const Piece> wanted) const override;

 private:
  [[noreturn]] void refuse(const Piece& piece, int64_t element) const;

  const TensorSource& weights_;
  std::string key_;
};

}  // namespace trivet::checkpoint
