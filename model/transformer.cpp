#include "model/transformer.h"

#include <fmt/format.h>

#include <cmath>

#include "model/embedding.h"
#include "model/lm_head.h"
#include "model/transformer_block.h"

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
    append(model, name, std::make_unique<TransformerBlock>(name, block));
  }
  append(model, "head",
         std::make_unique<LmHead>(head_options(d), make_norm(block.norm, d.hidden_size, d.norm_epsilon, block.norm_bias)));
  model.stated_flops_per_sample = flops_of_sample(model, d);
  return model;
}

std::optional<Problem> no_problem(const Description&) { return {}; }

std::optional<Problem> odd_head_size(const Description& d) {
  if (d.hidden_size / d.heads % 2 == 0) return {};
  return Problem{"heads", fmt::format("{} heads with model.hidden_size {} have the odd size {}, but rotary positions rotate "
                                      "elements in pairs; make hidden_size / heads even",
                                      d.heads, d.hidden_size, d.hidden_size / d.heads)};
}

int64_t four_times(int64_t hidden) { return 4 * hidden; }
int64_t two_thirds_of_four_times(int64_t hidden) { return (8 * hidden / 3 + 31) / 32 * 32; }

constexpr std::string_view kGptKeys[] = {"bias"}, kLlamaKeys[] = {"rotary_base"};

}  // namespace

Family gpt_family() {
  return {.type = Type::Gpt,
          .meaning = "learned positions, LayerNorm, GELU",
          .own_keys = kGptKeys,
          .feed_forward_size = four_times,
          .feed_forward_note = "4 x hidden_size",
          .tied_embedding = true,
          .find_problem = no_problem,
          .build = build_transformer};
}

Family llama_family() {
  return {.type = Type::Llama,
          .meaning = "rotary, RMSNorm, SwiGLU",
          .own_keys = kLlamaKeys,
          .feed_forward_size = two_thirds_of_four_times,
          .feed_forward_note = "8/3 x hidden_size rounded up to a multiple of 32",
          .tied_embedding = false,
          .find_problem = odd_head_size,
          .build = build_transformer};
}

}  // namespace trivet::model
