#include "interchange/hugging_face/same_model.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "engine/config/config.h"
#include "engine/config/explain.h"
#include "model/model.h"

namespace trivet::hugging_face {
namespace {

Config config_of(const model::Description& description) {
  Config config;
  config.model = model::with_defaults(description);
  config.vocabulary.kind = VocabularyKind::Size;
  return config;
}

bool has_dense_blocks(const model::Description& d) { return !d.experts.enabled() || !d.experts.dense_blocks.empty(); }

}  // namespace

std::string model_difference(const model::Description& ours, const model::Description& weights) {
  Config here = config_of(ours);
  Config there = config_of(weights);
  here.model.dropout = there.model.dropout;
  here.model.initializer_range = there.model.initializer_range;
  if (here.model.vocabulary_size == 0 || there.model.vocabulary_size == 0)
    here.model.vocabulary_size = there.model.vocabulary_size = 0;
  if (here.model.type == model::Type::Llama && here.model.sequence_length < there.model.sequence_length)
    here.model.sequence_length = there.model.sequence_length;
  here.model.experts.balance_loss = there.model.experts.balance_loss;  // losses of a training, not of the model
  here.model.experts.z_loss = there.model.experts.z_loss;
  here.model.experts.bias_update_rate = there.model.experts.bias_update_rate;
  if (!has_dense_blocks(here.model) && !has_dense_blocks(there.model))
    here.model.feed_forward_size = there.model.feed_forward_size;
  if (!there.model.lora.enabled()) here.model.lora = there.model.lora;  // new adapters come to the weights
  std::set<std::string> unused;
  for (const ExplainedKey& key : explain(there))
    if (!key.without_effect.empty()) unused.insert(key.path);
  std::string text;
  for (const ConfigDifference& difference : diff(here, there))
    if (difference.path.starts_with("model.") && !unused.contains(difference.path))
      text += fmt::format("{}{} is {}, not {}", text.empty() ? "" : "; ", difference.path, difference.before, difference.after);
  return text;
}

void check_shapes(const checkpoint::TensorSource& weights, const model::Description& description) {
  const model::Model model = model::build(description);
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i) {
      const ParameterSpec& spec = model.layers[layer]->parameters()[i];
      if (!spec.tied_to.empty()) continue;
      checkpoint::check_stored(
          weights, checkpoint::whole_box_piece(parameter_name(model, layer, i), spec.shape, 0, {nullptr, DType::Float32, {0}}));
    }
}

}  // namespace trivet::hugging_face
