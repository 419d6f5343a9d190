#include "model/model.h"

namespace trivet::model {

std::string parameter_name(const Model& model, size_t layer, size_t index) {
  return model.names.at(layer) + "." + model.layers.at(layer)->parameters()[index].name;
}

int64_t parameter_count(const Model& model) {
  int64_t count = 0;
  for (const auto& layer : model.layers)
    for (const ParameterSpec& parameter : layer->parameters())
      if (parameter.tied_to.empty()) count += parameter.shape.elements();
  return count;
}

double flops_per_token(const Model& model) {
  int64_t multiplied = 0;
  for (size_t layer = 1; layer < model.layers.size(); ++layer)  // the first layer only looks up its tables
    for (const ParameterSpec& parameter : model.layers[layer]->parameters())
      if (parameter.shape.dims() >= 2) multiplied += parameter.shape.elements();
  return 6.0 * static_cast<double>(multiplied) + model.attention_flops_per_token;
}

}  // namespace trivet::model
