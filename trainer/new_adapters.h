// The weights of a model without low-rank adapters, with new adapters: a run with --init-from may add these. They have the
// values that they would have in a run from random weights: those of the seed and their names.
#pragma once

#include <map>
#include <span>
#include <string>

#include "core/parameter_spec.h"
#include "engine/checkpoint/tensor_source.h"
#include "model/model.h"

namespace trivet::trainer {

class NewAdapters final : public checkpoint::TensorSource {
 public:
  // Adapters that `weights` has are taken from it. It must outlive this.
  NewAdapters(const checkpoint::TensorSource& weights, const model::Model& model, uint64_t seed);

  std::string source() const override { return weights_.source(); }
  const checkpoint::TensorInfo* find(const std::string& name) const override;
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  struct Adapter {
    checkpoint::TensorInfo info;
    Init init;
  };
  void make(const checkpoint::Piece& wanted, const Adapter& adapter) const;

  const checkpoint::TensorSource& weights_;
  uint64_t seed_;
  std::map<std::string, Adapter> adapters_;
};

}  // namespace trivet::trainer
