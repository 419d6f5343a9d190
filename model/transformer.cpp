#include "model/transformer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/dropped_layer.h"
#include "model/embedding.h"
#include "model/lm_head.h"
#include "model/transformer_block.h"
#include "tensor_parallel/cuts.h"

namespace trivet::model {
namespace {

TransformerBlock::Options block_options(const Description& d) {
  const double out_deviation = d.initializer_range / std::sqrt(2.0 * static_cast<double>(d.layers));
  const bool llama = d.type == Type::Llama, bias = d.bias && !llama;
  return {.attention = {.hidden = d.hidden_size,
                        .heads = d.heads,
                        .key_value_heads = d.key_value_heads,
                        .bias = bias,
                        .dropout = d.dropout,
                        .rotary_base = llama ? d.rotary_base : 0,
                        .init_deviation = d.initializer_range,
                        .init_deviation_out = out_deviation},
          .mlp = {.hidden = d.hidden_size,
                  .feed_forward = d.feed_forward_size,
                  .activation = llama ? Activation::SwiGlu : Activation::Gelu,
                  .bias = bias,
                  .init_deviation = d.initializer_range,
                  .init_deviation_out = out_deviation},
          .norm = llama ? NormKind::RmsNorm : NormKind::LayerNorm,
          .norm_epsilon = d.norm_epsilon,
          .norm_bias = bias,
          .dropout = d.dropout};
}

Embedding::Options embedding_options(const Description& d) {
  return {.vocabulary = d.vocabulary_size,
          .hidden = d.hidden_size,
          .positions = d.type == Type::Gpt ? d.sequence_length : 0,
          .dropout = d.dropout,
          .init_deviation = d.initializer_range};
}

LmHead::Options head_options(const Description& d) {
  return {.vocabulary = d.vocabulary_size,
          .hidden = d.hidden_size,
          .init_deviation = d.initializer_range,
          .tied_to = d.tied_embedding ? std::string("embedding.") + Embedding::kTable : ""};
}

void append(Model& model, const std::string& name, std::unique_ptr<Layer> layer) {
  model.names.push_back(name);
  model.layers.push_back(std::move(layer));
}

double flops_of_sample(const Model& model, const Description& d) {
  int64_t multiplied = 0;
  for (const auto& layer : model.layers)
    for (const ParameterSpec& parameter : layer->parameters())
      if (layer->role() != LayerRole::Input && parameter.shape.dims() >= 2) multiplied += parameter.shape.elements();
  const double attention = 6.0 * static_cast<double>(d.layers * d.hidden_size * d.sequence_length);  // of a token
  return (6.0 * static_cast<double>(multiplied) + attention) * static_cast<double>(d.sequence_length);
}

Model build_transformer(const Description& d) {
  Model model;
  model.description = d;
  model.sample = {.input = {d.sequence_length},
                  .targets = {d.sequence_length},
                  .input_values = d.vocabulary_size,
                  .classes = d.vocabulary_size};
  const TransformerBlock::Options block = block_options(d);
  append(model, "embedding", std::make_unique<Embedding>("embedding", embedding_options(d)));
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    auto layer = std::make_unique<TransformerBlock>(name, block);
    if (d.layer_drop.enabled)
      append(
          model, name,
          std::make_unique<DroppedLayer>(
              DroppedLayer::Options{.name = name, .drop = d.layer_drop, .block = i + 1, .blocks = d.layers}, std::move(layer)));
    else
      append(model, name, std::move(layer));
  }
  append(model, "head",
         std::make_unique<LmHead>(head_options(d), make_norm(block.norm, d.hidden_size, d.norm_epsilon, block.norm_bias)));
  model.stated_flops_per_sample = flops_of_sample(model, d);
  return model;
}

std::optional<Problem> not_positive(const Description& d) {
  const std::pair<const char*, int64_t> sizes[] = {{"layers", d.layers},
                                                   {"hidden_size", d.hidden_size},
                                                   {"heads", d.heads},
                                                   {"key_value_heads", d.key_value_heads},
                                                   {"feed_forward_size", d.feed_forward_size},
                                                   {"sequence_length", d.sequence_length}};
  for (const auto& [key, value] : sizes)
    if (value < 1) return Problem{key, fmt::format("{} is not accepted; give a number of at least 1", value)};
  return {};
}

std::optional<Problem> find_size_problem(const Description& d) {
  if (const auto problem = not_positive(d)) return problem;
  if (d.hidden_size % d.heads != 0)
    return Problem{"heads", fmt::format("{} heads do not divide model.hidden_size {}; use a divisor", d.heads, d.hidden_size)};
  if (d.heads % d.key_value_heads != 0)
    return Problem{"key_value_heads",
                   fmt::format("{} does not divide model.heads {}; use a divisor", d.key_value_heads, d.heads)};
  if (!(d.dropout >= 0 && d.dropout < 1))
    return Problem{"dropout", fmt::format("{} is not accepted; give a number of at least 0 and less than 1", d.dropout)};
  return {};
}

std::optional<Problem> find_llama_problem(const Description& d) {
  if (const auto problem = find_size_problem(d)) return problem;
  if (d.hidden_size / d.heads % 2 == 0) return {};
  return Problem{"heads", fmt::format("{} heads with model.hidden_size {} have the odd size {}, but rotary positions rotate "
                                      "elements in pairs; make hidden_size / heads even",
                                      d.heads, d.hidden_size, d.hidden_size / d.heads)};
}

Description with_feed_forward(Description d, int64_t size) {
  if (d.key_value_heads == 0) d.key_value_heads = d.heads;
  if (d.feed_forward_size == 0) d.feed_forward_size = size;
  return d;
}

int64_t two_thirds_of_four_times(int64_t hidden) { return (8 * hidden / 3 + 31) / 32 * 32; }

Description with_gpt_defaults(const Description& d) { return with_feed_forward(d, 4 * d.hidden_size); }
Description with_llama_defaults(const Description& d) { return with_feed_forward(d, two_thirds_of_four_times(d.hidden_size)); }

int64_t transformer_block_count(const Description& d) { return d.layers + 2; }

std::string transformer_blocks_in_words(const Description& d) {
  return fmt::format("embedding, {} layer{}, head", d.layers, d.layers == 1 ? "" : "s");
}

std::string transformer_in_words(const Description& d) {
  return fmt::format("{} layers x {}, vocabulary {}", d.layers, d.hidden_size, d.vocabulary_size);
}

std::string transformer_tensor_problem(const Description& given, int64_t ranks, bool fixed_sums) {
  const Description d = with_defaults(given);
  if (d.heads % ranks != 0) return fmt::format("does not divide model.heads {}", d.heads);
  if (d.key_value_heads % ranks != 0 && ranks % d.key_value_heads != 0)
    return fmt::format("neither divides model.key_value_heads {} nor is a multiple of it", d.key_value_heads);
  if (d.feed_forward_size % ranks != 0)
    return fmt::format("does not divide model.feed_forward_size {}{}", d.feed_forward_size,
                       given.feed_forward_size > 0 ? "" : fmt::format(", the default for hidden_size {}", d.hidden_size));
  if (d.vocabulary_size > 0 && d.vocabulary_size < ranks)
    return fmt::format("is more than model.vocabulary_size {}", d.vocabulary_size);
  if (!fixed_sums) return "";
  if (tensor_parallel::kSumChunks % ranks != 0) return tensor_parallel::kNoDivisorOfSumChunks;
  if (d.key_value_heads % ranks != 0)
    return fmt::format("does not divide model.key_value_heads {}, as reproducible \"layout\" requires", d.key_value_heads);
  return "";
}

constexpr size_t kCommonKeys = 11;
// The keys of every transformer, and one of a family.
constexpr std::array<std::string_view, kCommonKeys + 1> keys_with(std::string_view own) {
  return {"layers",     "hidden_size", "heads",          "key_value_heads", "feed_forward_size", "sequence_length",
          "vocabulary", "dropout",     "tied_embedding", "norm_epsilon",    "initializer_range", own};
}
constexpr auto kGptKeys = keys_with("bias"), kLlamaKeys = keys_with("rotary_base");

}  // namespace

Family gpt_family() {
  return {.type = Type::Gpt,
          .meaning = "learned positions, LayerNorm, GELU",
          .keys = kGptKeys,
          .feed_forward_note = "4 x hidden_size",
          .tied_embedding = true,
          .with_defaults = with_gpt_defaults,
          .block_count = transformer_block_count,
          .blocks_in_words = transformer_blocks_in_words,
          .in_words = transformer_in_words,
          .find_problem = find_size_problem,
          .build = build_transformer,
          .tensor_problem = transformer_tensor_problem};
}

Family llama_family() {
  return {.type = Type::Llama,
          .meaning = "rotary, RMSNorm, SwiGLU",
          .keys = kLlamaKeys,
          .feed_forward_note = "8/3 x hidden_size rounded up to a multiple of 32",
          .with_defaults = with_llama_defaults,
          .block_count = transformer_block_count,
          .blocks_in_words = transformer_blocks_in_words,
          .in_words = transformer_in_words,
          .find_problem = find_llama_problem,
          .build = build_transformer,
          .tensor_problem = transformer_tensor_problem};
}

}  // namespace trivet::model
