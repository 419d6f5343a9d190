#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/dropped_tokens.h"
#include "model/embedding.h"
#include "model/experts_problem.h"
#include "model/lm_head.h"
#include "model/lora.h"
#include "model/transformer_block.h"
#include "tensor_parallel/cuts.h"

namespace trivet::model {
namespace {

// The elements of a head that are rotated.
int64_t rotated_elements(const Description& d) {
  if (d.latent_attention.enabled()) return d.latent_attention.rotary_size;
  return static_cast<int64_t>(d.rotary_share * static_cast<double>(d.head_size));
}

bool has_window(const Description& d, int64_t layer) {
  return d.attention_window > 0 && (d.full_attention_every == 0 || (layer + 1) % d.full_attention_every != 0);
}

bool rotates(const Description& d, int64_t layer) { return d.no_rotary_every == 0 || (layer + 1) % d.no_rotary_every != 0; }

Activation activation_of(const Description& d) {
  if (d.type != Type::Llama) return Activation::Gelu;
  return d.gate_activation == GateActivation::Gelu ? Activation::GeGlu : Activation::SwiGlu;
}

std::optional<ExpertMlp::Options> expert_options(const Description& d, int64_t layer, double out_deviation) {
  if (!has_experts(d, layer)) return {};
  return ExpertMlp::Options{.hidden = d.hidden_size,
                            .experts = d.experts.count,
                            .chosen = d.experts.per_token,
                            .feed_forward = d.experts.feed_forward_size,
                            .shared_feed_forward = d.experts.shared_feed_forward_size,
                            .shared_gate = d.experts.shared_gate,
                            .rule = d.experts.rule,
                            .swiglu = d.experts.swiglu,
                            .bias = d.experts.bias,
                            .correction_bias = d.experts.correction_bias,
                            .bias_update_rate = d.experts.bias_update_rate,
                            .balance = d.experts.balance_loss,
                            .z_loss = d.experts.z_loss,
                            .init_deviation = d.initializer_range,
                            .init_deviation_out = out_deviation};
}

TransformerBlock::Options block_options(const Description& d, int64_t layer) {
  const double out_deviation = d.initializer_range / std::sqrt(2.0 * static_cast<double>(d.layers));
  const bool llama = d.type == Type::Llama, bias = d.bias && !llama, qk_norm = llama && d.qk_norm;
  const bool window = has_window(d, layer), own_base = window && d.window_rotary_base > 0;
  const double base = own_base ? d.window_rotary_base : d.rotary_base;
  return {.attention = {.hidden = d.hidden_size,
                        .heads = d.heads,
                        .key_value_heads = d.key_value_heads,
                        .head_size = d.head_size,
                        .bias = bias,
                        .qkv_bias = llama && d.qkv_bias,
                        .out_bias = llama && d.out_bias,
                        .dropout = d.dropout,
                        .window = window ? d.attention_window : 0,
                        .rotary_base = llama && rotates(d, layer) ? base : 0,
                        .rotated = llama ? rotated_elements(d) : 0,
                        .rotary_scaling = own_base ? RotaryScaling{} : d.rotary_scaling,
                        .query_growth = llama ? d.query_temperature : 0,
                        .query_step = d.query_temperature_length,
                        .score_scale = d.query_scale_size > 0 ? 1 / std::sqrt(d.query_scale_size) : 0,
                        .soft_cap = d.attention_soft_cap,
                        .sinks = llama && d.attention_sinks,
                        .qk_norm = qk_norm && d.qk_norm_over == QkNormSpan::Head,
                        .whole_norm = qk_norm && d.qk_norm_over == QkNormSpan::Projection,
                        .norm_epsilon = d.norm_epsilon,
                        .latent = d.latent_attention,
                        .init_deviation = d.initializer_range,
                        .init_deviation_out = out_deviation},
          .mlp = {.hidden = d.hidden_size,
                  .feed_forward = d.feed_forward_size,
                  .activation = activation_of(d),
                  .bias = bias,
                  .init_deviation = d.initializer_range,
                  .init_deviation_out = out_deviation},
          .experts = expert_options(d, layer, out_deviation),
          .norm = llama ? NormKind::RmsNorm : NormKind::LayerNorm,
          .norm_epsilon = d.norm_epsilon,
          .norm_bias = bias,
          .pre_norm = !llama || d.pre_norm,
          .post_norm = llama && d.post_norm,
          .residual_scale = llama ? d.residual_scale : 1,
          .dropout = d.dropout,
          .frozen = d.lora.enabled()};
}

TransformerBlock::Options with_adapters(TransformerBlock::Options block, const Description& d, const AdaptedPlaces& places,
                                        int64_t layer) {
  block.attention.qkv_adapters = adapters_of(d, places, layer, "attention.qkv");
  block.attention.out_adapters = adapters_of(d, places, layer, "attention.out");
  block.attention.latent_adapters = {.query = adapters_of(d, places, layer, "attention.query"),
                                     .query_down = adapters_of(d, places, layer, "attention.query_down"),
                                     .query_up = adapters_of(d, places, layer, "attention.query_up"),
                                     .key_value_down = adapters_of(d, places, layer, "attention.key_value_down"),
                                     .key_value_up = adapters_of(d, places, layer, "attention.key_value_up")};
  block.mlp.up_adapters = adapters_of(d, places, layer, d.type == Type::Gpt ? "mlp.up" : "mlp.gate_up");
  block.mlp.down_adapters = adapters_of(d, places, layer, "mlp.down");
  if (block.experts) {
    block.experts->gate_up_adapters = adapters_of(d, places, layer, "mlp.experts.gate_up");
    block.experts->down_adapters = adapters_of(d, places, layer, "mlp.experts.down");
    block.experts->shared_up_adapters = adapters_of(d, places, layer, "mlp.shared.gate_up");
    block.experts->shared_down_adapters = adapters_of(d, places, layer, "mlp.shared.down");
  }
  return block;
}

Embedding::Options embedding_options(const Description& d) {
  return {.vocabulary = d.vocabulary_size,
          .hidden = d.hidden_size,
          .positions = d.type == Type::Gpt ? d.sequence_length : 0,
          .scale = d.type == Type::Llama ? d.embedding_scale : 1,
          .dropout = d.dropout,
          .init_deviation = d.initializer_range,
          .frozen = d.lora.enabled()};
}

LmHead::Options head_options(const Description& d) {
  return {.vocabulary = d.vocabulary_size,
          .hidden = d.hidden_size,
          .init_deviation = d.initializer_range,
          .tied_to = d.tied_embedding ? std::string("embedding.") + Embedding::kTable : "",
          .frozen = d.lora.enabled(),
          .scaling = d.type == Type::Llama ? d.logits_scaling : 1,
          .soft_cap = d.logits_soft_cap,
          .preference = d.objective == Objective::Dpo ? std::optional(d.preference) : std::nullopt};
}

void append(Model& model, const std::string& name, std::unique_ptr<Layer> layer) {
  model.names.push_back(name);
  model.layers.push_back(std::move(layer));
}

// A frozen matrix takes 4 operations per element and token: it has no product for its gradient.
double flops_of_sample(const Model& model, const Description& d) {
  double products = 0;  // FLOPs per token
  for (const auto& layer : model.layers)
    for (const ParameterSpec& parameter : layer->parameters())
      if (layer->role() != LayerRole::Input && parameter.shape.dims() >= 2)
        products += (parameter.trainable ? 6.0 : 4.0) * static_cast<double>(elements_of_token(parameter));
  // A token sees half of its sequence, or of a window the whole, which the first tokens of a sequence lack.
  const double sequence = static_cast<double>(d.sequence_length);
  const double window = std::min(static_cast<double>(d.attention_window), sequence);
  double seen = 0;  // in all layers
  for (int64_t layer = 0; layer < d.layers; ++layer)
    seen += has_window(d, layer) ? window - window * window / (2 * sequence) : sequence / 2;
  const int64_t of_head = d.head_size + d.latent_attention.value_size_of(d.head_size);
  const double attention = 6.0 * static_cast<double>(d.heads * of_head) * seen;  // per token
  return (products + attention) * static_cast<double>(d.sequence_length * model.sample.rows());
}

Model build_transformer(const Description& d) {
  Model model;
  model.description = d;
  model.sample = {.input = {d.sequence_length},
                  .targets = {d.sequence_length},
                  .input_values = d.vocabulary_size,
                  .classes = d.vocabulary_size,
                  .documents = d.isolated_documents,
                  .pairs = d.objective == Objective::Dpo};
  const AdaptedPlaces adapted = adapted_places(d);
  append(model, "embedding", std::make_unique<Embedding>("embedding", embedding_options(d)));
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    std::unique_ptr<Layer> layer = std::make_unique<TransformerBlock>(name, with_adapters(block_options(d, i), d, adapted, i));
    if (d.token_drop.enabled && std::ranges::find(d.token_drop.blocks, i) != d.token_drop.blocks.end())
      layer = std::make_unique<DroppedTokens>(name, d.token_drop, std::move(layer));
    append(model, name, std::move(layer));
  }
  const TransformerBlock::Options block = block_options(d, 0);
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
  if (d.head_size == 0)
    return Problem{"heads", fmt::format("{} heads do not divide model.hidden_size {}; use a divisor", d.heads, d.hidden_size)};
  if (d.heads % d.key_value_heads != 0)
    return Problem{"key_value_heads",
                   fmt::format("{} does not divide model.heads {}; use a divisor", d.key_value_heads, d.heads)};
  if (!(d.dropout >= 0 && d.dropout < 1))
    return Problem{"dropout", fmt::format("{} is not accepted; give a number of at least 0 and less than 1", d.dropout)};
  return find_lora_problem(d);
}

// Each pair has a factor of its own.
std::optional<Problem> find_factors_problem(const std::string& key, const std::vector<double>& factors, int64_t pairs) {
  if (static_cast<int64_t>(factors.size()) == pairs) return {};
  return Problem{"rotary_scaling." + key,
                 fmt::format("has {} numbers, but {} pairs of a head rotate; give a number for each", factors.size(), pairs)};
}

std::optional<Problem> find_scaling_problem(const Description& d) {
  const RotaryScaling& scaling = d.rotary_scaling;
  const bool yarn = scaling.type == RotaryScalingType::Yarn;
  if (scaling.type == RotaryScalingType::LongRope) {
    if (scaling.original_length < 2)
      return Problem{"rotary_scaling.original_length", fmt::format("{} is not accepted with the type \"longrope\"; use at "
                                                                   "least 2",
                                                                   scaling.original_length)};
    const int64_t pairs = rotated_elements(d) / 2;
    if (const auto problem = find_factors_problem("short_factors", scaling.short_factors, pairs)) return problem;
    return find_factors_problem("long_factors", scaling.long_factors, pairs);
  }
  if (yarn && d.rotary_base <= 1)
    return Problem{"rotary_base", fmt::format("{} is too small for rotary_scaling.type \"yarn\", which divides pairs by their "
                                              "frequencies; use more than 1",
                                              d.rotary_base)};
  if ((!yarn && scaling.type != RotaryScalingType::Llama3) || scaling.low_frequency_factor < scaling.high_frequency_factor)
    return {};
  return Problem{"rotary_scaling.low_frequency_factor",
                 fmt::format("{} is not less than high_frequency_factor {}; use a smaller number", scaling.low_frequency_factor,
                             scaling.high_frequency_factor)};
}

std::optional<Problem> find_rotary_problem(const Description& d) {
  if (d.rotary_share < 1) {
    if (rotated_elements(d) > 0 && rotated_elements(d) % 2 == 0) return {};
    return Problem{
        "rotary_share",
        fmt::format("{} of the head size {} are {} elements, but rotary positions rotate elements in pairs; choose a "
                    "share that gives an even number",
                    d.rotary_share, d.head_size, rotated_elements(d))};
  }
  if (d.latent_attention.enabled() || d.head_size % 2 == 0) return {};
  if (d.head_size * d.heads != d.hidden_size)
    return Problem{"head_size",
                   fmt::format("{} is odd, but rotary positions rotate elements in pairs; use an even number", d.head_size)};
  return Problem{"heads", fmt::format("{} heads with model.hidden_size {} have the odd size {}, but rotary positions rotate "
                                      "elements in pairs; make hidden_size / heads even",
                                      d.heads, d.hidden_size, d.head_size)};
}

// Returns a problem if a key is given that attention with latents does not have.
std::optional<Problem> find_key_beside_latents(const Description& d) {
  if (d.key_value_heads != d.heads)
    return Problem{"key_value_heads",
                   fmt::format("{} is not accepted with model.latent_attention, where it must be model.heads {}; leave it out",
                               d.key_value_heads, d.heads)};
  const char* const latent = "is not accepted with model.latent_attention; leave it out";
  if (d.qkv_bias) return Problem{"qkv_bias", fmt::format("true {}", latent)};
  if (d.qk_norm) return Problem{"qk_norm", fmt::format("true {}", latent)};
  if (d.rotary_share != 1) return Problem{"rotary_share", fmt::format("{} {}", d.rotary_share, latent)};
  return {};
}

std::optional<Problem> find_latent_problem(const Description& d) {
  const LatentAttention& latent = d.latent_attention;
  if (!latent.enabled()) return {};
  if (const auto problem = find_key_beside_latents(d)) return problem;
  if (latent.rotary_size < 2 || latent.rotary_size % 2 != 0 || latent.rotary_size >= d.head_size)
    return Problem{
        "latent_attention.rotary_size",
        fmt::format("{} is not accepted with heads of {} elements (model.head_size); use an even number of at least 2 "
                    "that leaves some of them",
                    latent.rotary_size, d.head_size)};
  if (latent.value_size > d.head_size)
    return Problem{"latent_attention.value_size",
                   fmt::format("{} is more than the {} elements of a head (model.head_size); use at most that many",
                               latent.value_size, d.head_size)};
  return {};
}

std::optional<Problem> find_llama_problem(const Description& d) {
  if (const auto problem = find_size_problem(d)) return problem;
  if (!d.pre_norm && !d.post_norm)
    return Problem{"pre_norm",
                   "false is not accepted with model.post_norm false: blocks would have no norm; make one of them true"};
  if (d.query_temperature > 0 && d.no_rotary_every > 0)
    return Problem{"query_temperature",
                   fmt::format("{} is not accepted with model.no_rotary_every {}: queries are scaled where they are rotated; "
                               "make one of them 0",
                               d.query_temperature, d.no_rotary_every)};
  if (const auto problem = find_latent_problem(d)) return problem;
  if (const auto problem = find_rotary_problem(d)) return problem;
  if (const auto problem = find_experts_problem(d)) return problem;
  return find_scaling_problem(d);
}

Description with_feed_forward(Description d, int64_t size) {
  if (d.key_value_heads == 0) d.key_value_heads = d.heads;
  // Heads that do not divide are a problem, which find_size_problem names.
  if (d.head_size == 0 && d.heads > 0 && d.hidden_size % d.heads == 0) d.head_size = d.hidden_size / d.heads;
  if (d.latent_attention.enabled()) d.latent_attention.value_size = d.latent_attention.value_size_of(d.head_size);
  if (d.feed_forward_size == 0) d.feed_forward_size = size;
  if (d.experts.feed_forward_size == 0) d.experts.feed_forward_size = d.feed_forward_size;
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
  return fmt::format("{} layers x {}, vocabulary {}{}{}", d.layers, d.hidden_size, d.vocabulary_size,
                     d.experts.enabled() ? fmt::format(", {} of {} experts", d.experts.per_token, d.experts.count) : "",
                     d.lora.enabled() ? ", LoRA of " + lora_in_words(d) : "");
}

std::string transformer_tensor_problem(const Description& given, int64_t ranks, bool fixed_sums) {
  const Description d = with_defaults(given);
  if (d.heads % ranks != 0) return fmt::format("does not divide model.heads {}", d.heads);
  if (d.key_value_heads % ranks != 0 && ranks % d.key_value_heads != 0)
    return fmt::format("neither divides model.key_value_heads {} nor is a multiple of it", d.key_value_heads);
  if (d.feed_forward_size % ranks != 0)
    return fmt::format("does not divide model.feed_forward_size {}{}", d.feed_forward_size,
                       given.feed_forward_size > 0 ? "" : fmt::format(", the default for hidden_size {}", d.hidden_size));
  if (const std::string problem = experts_tensor_problem(d, ranks); !problem.empty()) return problem;
  if (d.type == Type::Llama && d.qk_norm && d.qk_norm_over == QkNormSpan::Projection && d.key_value_heads % ranks != 0)
    return fmt::format("does not divide model.key_value_heads {}, as model.qk_norm_over \"projection\" requires",
                       d.key_value_heads);
  if (d.lora.enabled() && d.key_value_heads % ranks != 0)
    return fmt::format("does not divide model.key_value_heads {}, as model.lora requires", d.key_value_heads);
  if (d.vocabulary_size > 0 && d.vocabulary_size < ranks)
    return fmt::format("is more than model.vocabulary_size {}", d.vocabulary_size);
  if (!fixed_sums) return "";
  if (tensor_parallel::kSumChunks % ranks != 0) return tensor_parallel::kNoDivisorOfSumChunks;
  if (d.key_value_heads % ranks != 0)
    return fmt::format("does not divide model.key_value_heads {}, as reproducible \"layout\" requires", d.key_value_heads);
  return "";
}

// The keys of every transformer, and those of a family.
template <typename... Own>
constexpr auto keys_with(Own... own) {
  return std::to_array<std::string_view>({"layers", "hidden_size", "heads", "key_value_heads", "head_size", "feed_forward_size",
                                          "sequence_length", "attention_window", "full_attention_every", "vocabulary",
                                          "dropout", "tied_embedding", "norm_epsilon", "initializer_range", "lora", own...});
}
constexpr auto kGptKeys = keys_with("bias");
constexpr auto kLlamaKeys =
    keys_with("qkv_bias", "out_bias", "qk_norm", "qk_norm_over", "query_temperature", "query_temperature_length",
              "query_scale_size", "attention_sinks", "attention_soft_cap", "logits_soft_cap", "logits_scaling", "pre_norm",
              "post_norm", "embedding_scale", "residual_scale", "gate_activation", "rotary_base", "window_rotary_base",
              "rotary_share", "no_rotary_every", "rotary_scaling", "experts", "latent_attention");

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
