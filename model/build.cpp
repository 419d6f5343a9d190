// Builds GPT-2 and Llama style models from a description.
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "model/embedding.h"
#include "model/lm_head.h"
#include "model/model.h"
#include "model/transformer_block.h"

namespace trivet::model {
namespace {

int64_t default_feed_forward(const Description& d) {
  if (d.type == Type::Gpt) return 4 * d.hidden;
  return (8 * d.hidden / 3 + 31) / 32 * 32;
}

Description with_defaults(Description d) {
  if (d.key_value_heads == 0) d.key_value_heads = d.heads;
  if (d.feed_forward == 0) d.feed_forward = default_feed_forward(d);
  if (d.type == Type::Llama) d.bias = false;
  return d;
}

void require_positive(const char* key, int64_t value) {
  if (value < 1) throw ConfigError(fmt::format("model.{}: {} is not accepted; give a number of at least 1", key, value));
}

void check(const Description& d) {
  require_positive("layers", d.layers);
  require_positive("hidden_size", d.hidden);
  require_positive("heads", d.heads);
  require_positive("key_value_heads", d.key_value_heads);
  require_positive("feed_forward_size", d.feed_forward);
  require_positive("sequence_length", d.sequence_length);
  require_positive("vocabulary_size", d.vocabulary_size);
  if (d.hidden % d.heads != 0)
    throw ConfigError(
        fmt::format("model.heads: {} heads do not divide model.hidden_size {}; use a divisor", d.heads, d.hidden));
  if (d.heads % d.key_value_heads != 0)
    throw ConfigError(
        fmt::format("model.key_value_heads: {} does not divide model.heads {}; use a divisor", d.key_value_heads, d.heads));
  if (d.type == Type::Llama && d.hidden / d.heads % 2 != 0)
    throw ConfigError(
        fmt::format("model.heads: {} heads with model.hidden_size {} have the odd size {}, but rotary positions "
                    "rotate elements in pairs; make hidden_size / heads even",
                    d.heads, d.hidden, d.hidden / d.heads));
  if (!(d.dropout >= 0 && d.dropout < 1))
    throw ConfigError(fmt::format("model.dropout: {} is not accepted; give a number of at least 0 and less than 1", d.dropout));
}

TransformerBlock::Options block_options(const Description& d) {
  const double out_deviation = d.initializer_range / std::sqrt(2.0 * static_cast<double>(d.layers));
  const bool llama = d.type == Type::Llama;
  return {.attention = {.hidden = d.hidden,
                        .heads = d.heads,
                        .key_value_heads = d.key_value_heads,
                        .bias = d.bias,
                        .dropout = d.dropout,
                        .rotary_base = llama ? d.rotary_base : 0,
                        .init_deviation = d.initializer_range,
                        .init_deviation_out = out_deviation},
          .mlp = {.hidden = d.hidden,
                  .feed_forward = d.feed_forward,
                  .activation = llama ? Activation::SwiGlu : Activation::Gelu,
                  .bias = d.bias,
                  .init_deviation = d.initializer_range,
                  .init_deviation_out = out_deviation},
          .norm = llama ? NormKind::RmsNorm : NormKind::LayerNorm,
          .norm_epsilon = d.norm_epsilon,
          .norm_bias = d.bias,
          .dropout = d.dropout};
}

Embedding::Options embedding_options(const Description& d) {
  return {.vocabulary = d.vocabulary_size,
          .hidden = d.hidden,
          .positions = d.type == Type::Gpt ? d.sequence_length : 0,
          .dropout = d.dropout,
          .init_deviation = d.initializer_range};
}

LmHead::Options head_options(const Description& d) {
  return {.vocabulary = d.vocabulary_size,
          .hidden = d.hidden,
          .init_deviation = d.initializer_range,
          .tied_to = d.tied_embedding ? std::string("embedding.") + Embedding::kTable : ""};
}

void append(Model& model, const std::string& name, std::unique_ptr<Layer> layer) {
  model.names.push_back(name);
  model.layers.push_back(std::move(layer));
}

}  // namespace

Model build(const Description& description) {
  const Description d = with_defaults(description);
  check(d);
  Model model;
  model.description = d;
  model.sample = {.input = {d.sequence_length},
                  .targets = {d.sequence_length},
                  .input_values = d.vocabulary_size,
                  .classes = d.vocabulary_size};
  model.attention_flops_per_token = 6.0 * static_cast<double>(d.layers * d.hidden * d.sequence_length);
  const TransformerBlock::Options block = block_options(d);
  append(model, "embedding", std::make_unique<Embedding>("embedding", embedding_options(d)));
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    append(model, name, std::make_unique<TransformerBlock>(name, block));
  }
  append(model, "head",
         std::make_unique<LmHead>(head_options(d), make_norm(block.norm, d.hidden, d.norm_epsilon, block.norm_bias)));
  return model;
}

}  // namespace trivet::model
