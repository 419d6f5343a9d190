#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/model.h"
#include "tensor_parallel/cuts.h"
#include "tensor_parallel/split.h"

namespace trivet::model {
namespace {

void check_description(const Description& description, int size) {
  const std::string problem = tensor_problem(description, size);
  if (problem.empty()) return;
  std::string accepted;
  for (int64_t ranks = 1; ranks <= description.heads; ++ranks)
    if (tensor_problem(description, ranks).empty()) accepted += (accepted.empty() ? "" : ", ") + std::to_string(ranks);
  throw ConfigError(fmt::format("parallel.tensor: {} {}; use one of {}", size, problem, accepted));
}

// Units (heads) are divided evenly, or several neighbours share one; a split without units may be cut anywhere.
void check_units(const std::string& name, const Split& split, int size) {
  for (int64_t units : split.units)
    if (units % size != 0 && size % units != 0)
      throw ConfigError(
          fmt::format("parallel.tensor: {} parts of {} cannot be divided among {} ranks; use a divisor or a multiple "
                      "of {}",
                      units, name, size, units));
}

}  // namespace

void check_tensor_size(const Model& model, int size) {
  if (size == 1) return;
  if (model.description) check_description(*model.description, size);
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const auto parameters = model.layers[layer]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      ParameterSpec named = parameters[i];
      named.name = parameter_name(model, layer, i);
      check_units(named.name, named.split, size);
      tensor_parallel::local_part(named, 0, size);  // throws
    }
  }
}

void check_fixed_sums(const Model& model, int size) {
  if (tensor_parallel::kSumChunks % size != 0)
    throw ConfigError(fmt::format("parallel.tensor: {} {}; use one of these", size, tensor_parallel::kNoDivisorOfSumChunks));
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const auto parameters = model.layers[layer]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Split& split = parameters[i].split;
      if (split.dim < 0 || tensor_parallel::can_cut(split, size)) continue;
      const std::vector<int64_t>& parts = split.units.empty() ? split.segments : split.units;
      const int64_t fewest = *std::min_element(parts.begin(), parts.end());
      throw ConfigError(fmt::format(
          "parallel.tensor: {} ranks are more than the {} parts (key/value heads) of {}. Ranks would share a part and sum its "
          "gradients, which reproducible \"layout\" does not allow; use at most {}, or reproducible \"run\"",
          size, fewest, parameter_name(model, layer, i), fewest));
    }
  }
}

std::string token_split_problem(const Model& model, int size) {
  const int64_t length = model.sample.input.dims() > 0 ? model.sample.input[0] : 1;
  if (length % size != 0)
    return fmt::format("is not accepted, as {} tensor ranks do not divide the model's {} tokens; use false, or a divisor of {}",
                       size, length, length);
  Shape shape{1, length};
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    if (!model.layers[layer]->allows_sequence_parallelism())
      return fmt::format("is not accepted by layer {} (Layer::allows_sequence_parallelism in core/layer.h); use false",
                         model.names[layer]);
    shape = model.layers[layer]->output_shape(shape);
    if (layer + 1 < model.layers.size() && (shape.dims() < 2 || shape[1] != length))
      return fmt::format("is not accepted, as layer {} makes {} of {} tokens, which is not [B, S, ...]; use false",
                         model.names[layer], to_string(shape), length);
  }
  return "";
}

}  // namespace trivet::model
