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

}  // namespace trivet::model
