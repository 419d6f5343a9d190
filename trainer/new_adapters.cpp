#include "trainer/new_adapters.h"

#include <algorithm>
#include <vector>

#include "core/random.h"
#include "kernels/kernels.h"
#include "model/adapters.h"

namespace trivet::trainer {

using checkpoint::Piece;

NewAdapters::NewAdapters(const checkpoint::TensorSource& weights, const model::Model& model, uint64_t seed)
    : weights_(weights), seed_(seed) {
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i) {
      const ParameterSpec& spec = model.layers[layer]->parameters()[i];
      const std::string name = parameter_name(model, layer, i);
      if (model::is_adapter(name) && !weights.find(name)) adapters_[name] = {{DType::Float32, spec.shape}, spec.init};
    }
}

const checkpoint::TensorInfo* NewAdapters::find(const std::string& name) const {
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? weights_.find(name) : &found->second.info;
}

void NewAdapters::read(std::span<const Piece> wanted) const {
  std::vector<Piece> others;
  for (const Piece& piece : wanted)
    if (!adapters_.contains(piece.name)) others.push_back(piece);
  weights_.read(others);
  for (const Piece& piece : wanted) {
    const auto adapter = adapters_.find(piece.name);
    if (adapter == adapters_.end()) continue;
    check_stored(*this, piece);
    make(piece, adapter->second);
  }
}

// The values are those of the whole tensor. A row of the box is a run of its elements.
void NewAdapters::make(const Piece& wanted, const Adapter& adapter) const {
  const auto kernels = kernels::make_cpu_kernels(1);
  const uint64_t key = random_key(seed_, wanted.name);
  const int64_t columns = wanted.box_shape[1], whole_columns = wanted.shape[1];
  for (int64_t done = 0; done < wanted.count;) {
    const int64_t element = wanted.first + done, row = element / columns, column = element % columns;
    const int64_t count = std::min(columns - column, wanted.count - done);
    const int64_t first = (wanted.box_start[0] + row) * whole_columns + wanted.box_start[1] + column;
    kernels->initialize(wanted.data.slice(done, count), adapter.init, key, first);
    done += count;
  }
}

}  // namespace trivet::trainer
