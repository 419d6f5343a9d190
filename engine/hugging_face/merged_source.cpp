#include "engine/hugging_face/merged_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/lora.h"
#include "model/model.h"

namespace trivet::hugging_face {

using checkpoint::Piece;
namespace {

// The weights of the model's linear layers, by name.
std::map<std::string, ParameterSpec> specs_of(const model::Model& model) {
  std::map<std::string, ParameterSpec> specs;
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i)
      specs.emplace(parameter_name(model, layer, i), model.layers[layer]->parameters()[i]);
  return specs;
}

}  // namespace

MergedSource::MergedSource(const checkpoint::TensorSource& weights, const model::Description& description)
    : weights_(weights), scale_(model::adapter_scale(description.lora)) {
  const auto specs = specs_of(model::build(description));
  const model::AdaptedPlaces places = model::adapted_places(description);
  for (size_t block = 0; block < places.size(); ++block)
    for (const model::AdapterPlace* place : places[block]) {
      const std::string linear = fmt::format("blocks.{}.{}.", block, place->linear);
      const std::string prefix = place->part.empty() ? linear : fmt::format("{}{}.", linear, place->part);
      const std::vector<int64_t>& segments = specs.at(linear + "weight").split.segments;
      Adapter adapter{.a = prefix + "lora_a", .b = prefix + "lora_b", .rows = specs.at(prefix + "lora_b").shape[0]};
      for (int segment = 0; segment < place->segment; ++segment) adapter.first += segments.at(static_cast<size_t>(segment));
      adapters_[linear + "weight"].push_back(std::move(adapter));
    }
}

const checkpoint::TensorInfo* MergedSource::find(const std::string& name) const {
  return model::is_adapter(name) ? nullptr : weights_.find(name);
}

void MergedSource::read(std::span<const Piece> wanted) const {
  weights_.read(wanted);
  for (const Piece& piece : wanted) {
    const auto adapted = adapters_.find(piece.name);
    if (adapted == adapters_.end()) continue;
    for (const Adapter& adapter : adapted->second) add(piece, adapter);
  }
}

std::vector<float> MergedSource::read_whole(const std::string& name) const {
  const Shape shape = weights_.find(name)->shape;
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  const Piece piece = checkpoint::whole_box_piece(name, shape, 0, {values.data(), DType::Float32, {shape.elements()}});
  weights_.read({&piece, 1});
  return values;
}

// Sums over the rank are in double, so each element is rounded once.
void MergedSource::add(const Piece& wanted, const Adapter& adapter) const {
  const std::vector<float> a = read_whole(adapter.a), b = read_whole(adapter.b);
  const int64_t columns = wanted.box_shape[1], whole_columns = wanted.shape[1];
  const int64_t rank = static_cast<int64_t>(b.size()) / adapter.rows;
  std::vector<double> sums;
  for (int64_t done = 0; done < wanted.count;) {
    const int64_t element = wanted.first + done, column = element % columns;
    const int64_t count = std::min(columns - column, wanted.count - done);
    const int64_t row = wanted.box_start[0] + element / columns - adapter.first;
    float* const to = wanted.data.as<float>() + done;
    done += count;
    if (row < 0 || row >= adapter.rows) continue;
    sums.assign(static_cast<size_t>(count), 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      const double factor = scale_ * static_cast<double>(b[static_cast<size_t>(row * rank + k)]);
      const float* const from = a.data() + k * whole_columns + wanted.box_start[1] + column;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += factor * static_cast<double>(from[i]);
    }
    for (size_t i = 0; i < sums.size(); ++i) to[i] = static_cast<float>(static_cast<double>(to[i]) + sums[i]);
  }
}

}  // namespace trivet::hugging_face
