// The weights of a model with low-rank adapters, as those of a model without: W + scale B A, in float32 (model/adapters.h). A
// and B of the last matrix that was read are kept for the next piece of it. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/tensor_source.h"
#include "model/description.h"

namespace trivet::hugging_face {

class MergedSource final : public checkpoint::TensorSource {
 public:
  // `weights` must outlive this, and be able to give float32.
  MergedSource(const checkpoint::TensorSource& weights, const model::Description& description);

  std::string source() const override { return weights_.source(); }
  const checkpoint::TensorInfo* find(const std::string& name) const override;
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  // Rows [first, first + rows) of a weight have this adapter, an equal part of them for each of its matrices.
  struct Adapter {
    std::string a, b;
    int64_t first = 0, rows = 0, matrices = 1;
  };
  void add(const checkpoint::Piece& wanted, const Adapter& adapter) const;
  std::vector<float> read_whole(const std::string& name) const;

  const checkpoint::TensorSource& weights_;
  double scale_;
  std::map<std::string, std::vector<Adapter>> adapters_;  // adapters by weight
  mutable std::mutex mutex_;
  mutable std::string kept_;  // the name of `a_`
  mutable std::vector<float> a_, b_;
};

}  // namespace trivet::hugging_face
