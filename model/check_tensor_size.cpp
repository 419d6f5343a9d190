#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "model/model.h"
#include "tensor_parallel/cuts.h"
#include "tensor_parallel/split.h"

namespace trivet::model {
namespace {

void require_divided(const char* key, int64_t value, int size) {
  if (value % size == 0) return;
  throw ConfigError(fmt::format("parallel.tensor: model.{} {} cannot be divided among {} ranks; use a divisor of {}", key,
                                value, size, value));
}

void check_description(const Description& d, int size) {
  require_divided("heads", d.heads, size);
  if (d.key_value_heads % size != 0 && size % d.key_value_heads != 0)
    throw ConfigError(
        fmt::format("parallel.tensor: model.key_value_heads {} is neither a divisor nor a multiple of the {} ranks; "
                    "use a divisor or a multiple of {}",
                    d.key_value_heads, size, d.key_value_heads));
  require_divided("feed_forward_size", d.feed_forward, size);
  if (d.vocabulary_size < size)
    throw ConfigError(fmt::format("parallel.tensor: model.vocabulary_size {} is less than the {} ranks; use at most {}",
                                  d.vocabulary_size, size, d.vocabulary_size));
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
  if (tensor_parallel::kSumChunks % size != 0) throw std::logic_error("check_fixed_sums: `size` does not divide kSumChunks");
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

}  // namespace trivet::model
