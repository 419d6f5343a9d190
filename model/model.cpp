#include "model/model.h"

#include <fmt/format.h>

namespace trivet::model {

std::string training_problem(const Model& model, int64_t samples) {
  Shape shape = model.sample.inputs_of(samples);
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::string problem = model.layers[layer]->training_problem(shape);
    if (!problem.empty()) return fmt::format("layer {} {}", model.names[layer], problem);
    shape = model.layers[layer]->output_shape(shape);
  }
  return "";
}

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

int64_t elements_of_token(const ParameterSpec& parameter) {
  return parameter.shape.elements() / parameter.matrices * parameter.matrices_per_token;
}

int64_t active_parameter_count(const Model& model) {
  int64_t count = 0;
  for (const auto& layer : model.layers)
    for (const ParameterSpec& parameter : layer->parameters())
      if (parameter.tied_to.empty()) count += elements_of_token(parameter);
  return count;
}

}  // namespace trivet::model
