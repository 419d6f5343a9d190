#include "interchange/hugging_face/merged_source.h"

#include <fmt/format.h>

#include "interchange/hugging_face/low_rank.h"
#include "model/lora.h"
#include "model/model.h"

namespace trivet::hugging_face {

using checkpoint::Piece;
namespace {

// Lists the parameters of the model by name.
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
      const ParameterSpec& of_b = specs.at(prefix + "lora_b");
      Adapter adapter{.a = prefix + "lora_a", .b = prefix + "lora_b", .rows = of_b.shape[0], .matrices = of_b.matrices};
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

void MergedSource::add(const Piece& wanted, const Adapter& adapter) const {
  const std::scoped_lock lock(mutex_);
  if (kept_ != adapter.a) {
    kept_.clear();  // also if a read fails
    a_ = read_whole(adapter.a);
    b_ = read_whole(adapter.b);
    kept_ = adapter.a;
  }
  add_low_rank(wanted, {.a = a_,
                        .b = b_,
                        .rank = static_cast<int64_t>(b_.size()) / adapter.rows,
                        .rows = adapter.rows,
                        .first_row = adapter.first,
                        .scale = scale_,
                        .matrices = adapter.matrices});
}

}  // namespace trivet::hugging_face
