// model.*
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "engine/config/section_builder.h"
#include "engine/config/tables.h"
#include "model/family.h"

namespace trivet::config {
namespace {

// With sizes up to this limit and 2^31 tokens in a microbatch, byte counts cannot overflow 64 bits.
constexpr double kLargestWidth = 1 << 18;

constexpr const char* kLoraTargets = R"(use a regular expression, or a list of them, such as ["q_proj", "v_proj"])";

// A size is also the number of rows of the embedding; with other vocabularies model.vocabulary_rows may state it.
void set_size_and_rows(Config& config, int64_t number, const char* other_key) {
  int64_t& stated = config.model.vocabulary_size;
  if (stated > 0 && stated != number)
    throw std::invalid_argument(
        fmt::format("{} is {}, and both are the number of rows of the embedding; leave one out (beside --init-from, the one "
                    "that you wrote)",
                    other_key, stated));
  stated = number;
}

// A name without a dot or slash must exist: otherwise it is a mistyped word. From then on it has a slash, wherever it is read.
std::string tokenizer_path(const std::string& text) {
  if (text.find_first_of("./") != std::string::npos) return text;
  return !text.empty() && std::filesystem::exists(text) ? "./" + text : "";
}

void set_vocabulary(Config& config, const JsonNode& node) {
  VocabularyConfig& vocabulary = config.vocabulary;
  vocabulary.tokenizer_file.clear();
  if (node.kind == JsonKind::Number && node.is_integer && node.integer > 0 &&
      node.integer <= std::numeric_limits<int32_t>::max()) {
    vocabulary.kind = VocabularyKind::Size;
    set_size_and_rows(config, node.integer, "model.vocabulary_rows");
  } else if (node.kind == JsonKind::String && node.text == "bytes") {
    vocabulary.kind = VocabularyKind::Bytes;
  } else if (node.kind == JsonKind::String && node.text == "characters") {
    vocabulary.kind = VocabularyKind::Characters;
  } else if (node.kind == JsonKind::String && !tokenizer_path(node.text).empty()) {
    vocabulary.kind = VocabularyKind::Tokenizer;
    vocabulary.tokenizer_file = tokenizer_path(node.text);
  } else {
    throw std::invalid_argument(
        R"(use "bytes", "characters", the path of a tokenizer file or its folder (with a "." or "/", or that exists) or a size from )"
        "1 to 2147483647");
  }
}

void set_vocabulary_rows(Config& config, const JsonNode& node) {
  if (node.kind != JsonKind::Number || !node.is_integer || node.integer < 0 ||
      node.integer > std::numeric_limits<int32_t>::max())
    throw std::invalid_argument("use a number from 0 to 2147483647");
  if (config.vocabulary.kind != VocabularyKind::Size)
    config.model.vocabulary_size = node.integer;
  else if (node.integer > 0)
    set_size_and_rows(config, node.integer, "model.vocabulary");
}

std::string get_vocabulary_rows(const Config& config) {
  return std::to_string(config.vocabulary.kind == VocabularyKind::Size ? 0 : config.model.vocabulary_size);
}

std::string get_vocabulary(const Config& config) {
  switch (config.vocabulary.kind) {
    case VocabularyKind::Bytes: return "\"bytes\"";
    case VocabularyKind::Characters: return "\"characters\"";
    case VocabularyKind::Tokenizer: return quoted(config.vocabulary.tokenizer_file);
    case VocabularyKind::Size: return std::to_string(config.model.vocabulary_size);
  }
  return "";
}

void set_input(Config& config, const JsonNode& node) {
  config.model.input.clear();
  for (const JsonNode& item : node.items) {
    if (!item.is_integer) throw std::invalid_argument("use [channels, rows, columns], such as [1, 28, 28]");
    config.model.input.push_back(item.integer);
  }
}

std::string get_input(const Config& config) { return fmt::format("[{}]", fmt::join(config.model.input, ", ")); }

void set_network(Config& config, const JsonNode& node) {
  config.model.network.clear();
  for (const JsonNode& item : node.items) {
    if (item.kind != JsonKind::String) throw std::invalid_argument("use a list of texts, one for each layer");
    config.model.network.push_back(item.text);
  }
}

std::string get_network(const Config& config) {
  std::string text;
  for (const std::string& layer : config.model.network) text += (text.empty() ? "" : ", ") + quoted(layer);
  return "[" + text + "]";
}

void set_lora_targets(Config& config, const JsonNode& node) {
  config.model.lora.targets.clear();
  if (node.kind == JsonKind::String) config.model.lora.targets.push_back(node.text);
  for (const JsonNode& item : node.items) {
    if (item.kind != JsonKind::String) throw std::invalid_argument(kLoraTargets);
    config.model.lora.targets.push_back(item.text);
  }
  if (node.kind != JsonKind::String && node.kind != JsonKind::List) throw std::invalid_argument(kLoraTargets);
}

void refuse_lora_dropout(Config&, const JsonNode& node) {
  if (node.number != 0) throw std::invalid_argument("use 0.0: adapters have no dropout in this version");
}

std::string get_lora_targets(const Config& config) {
  std::string text;
  for (const std::string& target : config.model.lora.targets) text += (text.empty() ? "" : ", ") + quoted(target);
  return "[" + text + "]";
}

std::vector<double> positive_numbers(const JsonNode& node) {
  std::vector<double> numbers;
  for (const JsonNode& item : node.items) {
    if (item.kind != JsonKind::Number || !(item.number > 0))
      throw std::invalid_argument("use a list of numbers greater than 0");
    numbers.push_back(item.number);
  }
  return numbers;
}

// "gpt: learned positions, LayerNorm, GELU; llama: rotary, RMSNorm, SwiGLU", with another member for other facts.
std::string for_each_family(const std::string& separator, std::string (*text_of)(const model::Family&)) {
  std::string text;
  for (const model::Family& family : model::families()) {
    const std::string part = text_of(family);
    if (!part.empty()) text += (text.empty() ? "" : separator) + part;
  }
  return text;
}

bool has_key(const model::Family& family, std::string_view name) {
  return std::ranges::find(family.keys, name) != family.keys.end();
}

// `model.type is "gpt" or "llama"`: the families that have the key.
std::string families_with(const std::string& name) {
  std::string condition;
  for (const model::Family& family : model::families())
    if (has_key(family, name))
      condition += (condition.empty() ? "model.type is " : " or ") + quoted(std::string(name_of(family.type)));
  return condition;
}

// A key that only some families have has no effect with the others.
void limit_to_its_families(KeyRefiner key, const std::string& name) {
  key.active_when(families_with(name), [name](const Config& c) { return has_key(model::family_of(c.model.type), name); });
}

void add_rotary_scaling_keys(KeyTable& table) {
  using model::RotaryScaling, model::RotaryScalingType;
  Section<RotaryScaling> scaling(table, "model.rotary_scaling",
                                 [](Config& c) -> RotaryScaling& { return c.model.rotary_scaling; });
  scaling.own();
  KeyRefiner type =
      scaling.key("type", &RotaryScaling::type,
                  "slower rotation for longer sequences; linear: by factor; llama3, yarn: by factor where a turn is "
                  "longer than the original sequences; longrope: each pair by a factor of its own");
  type.selects();
  limit_to_its_families(type, "rotary_scaling");
  using Types = std::vector<RotaryScalingType>;
  const Types turning{RotaryScalingType::Llama3, RotaryScalingType::Yarn},
      all_but_linear = {RotaryScalingType::Llama3, RotaryScalingType::Yarn, RotaryScalingType::LongRope};
  const auto with_types = [](KeyRefiner key, const Types& types) {
    std::string condition;
    for (const RotaryScalingType chosen : types)
      condition += (condition.empty() ? "model.rotary_scaling.type is " : " or ") + quoted(std::string(name_of(chosen)));
    return key.active_when(
        condition, [types](const Config& c) { return std::ranges::find(types, c.model.rotary_scaling.type) != types.end(); });
  };
  scaling.key("factor", &RotaryScaling::factor, "how many times slower; with longrope: how many times longer the sequences are")
      .at_least(1)
      .active_when("model.rotary_scaling.type is not \"none\"",
                   [](const Config& c) { return c.model.rotary_scaling.type != RotaryScalingType::None; });
  const auto key = [&](const std::string& name, auto member, const std::string& meaning, const Types& types) {
    return with_types(scaling.key(name, member, meaning), types);
  };
  key("low_frequency_factor", &RotaryScaling::low_frequency_factor,
      "pairs that turn less often than this within original_length are slowed down", turning)
      .more_than(0);
  key("high_frequency_factor", &RotaryScaling::high_frequency_factor,
      "pairs that turn more often than this within original_length are kept as they are", turning)
      .more_than(0)
      .default_note("yarn: 32");
  key("original_length", &RotaryScaling::original_length, "sequence length of the first training", all_but_linear)
      .between(1, 1 << 24);
  key("whole_pairs", &RotaryScaling::whole_pairs, "yarn interpolates from a whole pair to a whole pair",
      {RotaryScalingType::Yarn});
  key("attention_factor", &RotaryScaling::attention_factor,
      "factor of rotated queries and keys; 0: 1 + ln(factor) / 10 with yarn, sqrt(1 + ln(factor) / ln(original_length)) with "
      "longrope",
      {RotaryScalingType::Yarn, RotaryScalingType::LongRope})
      .at_least(0);
  const auto factors = [&](const std::string& name, std::vector<double> RotaryScaling::*member, const std::string& meaning) {
    with_types(scaling.custom(
                   name, KeyType::List, meaning,
                   [member](Config& c, const JsonNode& node) { c.model.rotary_scaling.*member = positive_numbers(node); },
                   [member](const Config& c) { return numbers_json(c.model.rotary_scaling.*member); }),
               {RotaryScalingType::LongRope});
  };
  factors("short_factors", &RotaryScaling::short_factors,
          "how many times slower each pair turns in sequences of at most original_length");
  factors("long_factors", &RotaryScaling::long_factors, "how many times slower each pair turns in longer sequences");
}

void set_dense_blocks(Config& config, const JsonNode& node) {
  config.model.experts.dense_blocks.clear();
  for (const JsonNode& item : node.items) {
    if (!item.is_integer || item.integer < 0)
      throw std::invalid_argument("use a list of numbers of blocks, from 0 on, such as [0, 1]");
    config.model.experts.dense_blocks.push_back(item.integer);
  }
}

std::string get_dense_blocks(const Config& config) {
  return fmt::format("[{}]", fmt::join(config.model.experts.dense_blocks, ", "));
}

void add_latent_attention_keys(KeyTable& table) {
  using model::LatentAttention;
  Section<LatentAttention> latent(table, "model.latent_attention",
                                  [](Config& c) -> LatentAttention& { return c.model.latent_attention; });
  latent.own();
  KeyRefiner rank = latent.key("key_value_rank", &LatentAttention::key_value_rank,
                               "width of the vector that a token's keys and values come from (docs/models.md); 0: they come "
                               "from the token itself");
  rank.between(0, kLargestWidth).selects();
  limit_to_its_families(rank, "latent_attention");
  const auto key = [&](const std::string& name, auto member, const std::string& meaning) {
    return latent.key(name, member, meaning)
        .active_when("model.latent_attention.key_value_rank is more than 0",
                     [](const Config& c) { return c.model.latent_attention.enabled(); });
  };
  key("query_rank", &LatentAttention::query_rank, "the same for queries; 0: they come from the token itself")
      .between(0, kLargestWidth);
  key("rotary_size", &LatentAttention::rotary_size,
      "elements of a head that rotate; those of its key are the same for all heads")
      .between(0, 1 << 12);
  key("value_size", &LatentAttention::value_size, "width of the values of a head; 0: model.head_size").between(0, 1 << 12);
  key("norm_epsilon", &LatentAttention::norm_epsilon, "added to the variance in the norms of these vectors").more_than(0);
}

void add_experts_keys(KeyTable& table) {
  using kernels::ExpertRule, kernels::SwiGluRule;
  using model::Experts;
  Section<Experts> experts(table, "model.experts", [](Config& c) -> Experts& { return c.model.experts; });
  Section<ExpertRule> rule(table, "model.experts", [](Config& c) -> ExpertRule& { return c.model.experts.rule; });
  Section<SwiGluRule> swiglu(table, "model.experts", [](Config& c) -> SwiGluRule& { return c.model.experts.swiglu; });
  experts.own();
  rule.own();
  swiglu.own();
  const auto if_enabled = [](KeyRefiner key) {
    return key.active_when("model.experts.count is more than 0", [](const Config& c) { return c.model.experts.enabled(); });
  };
  KeyRefiner count =
      experts.key("count", &Experts::count, "experts of each block, in place of its MLP (docs/experts.md); 0: MLPs");
  count.between(0, 1 << 14);
  limit_to_its_families(count, "experts");
  if_enabled(experts.key("per_token", &Experts::per_token, "experts that compute each token").between(1, 1 << 10));
  if_enabled(experts.key("feed_forward_size", &Experts::feed_forward_size, "width inside an expert; 0: model.feed_forward_size")
                 .between(0, 4 * kLargestWidth));
  if_enabled(experts
                 .key("shared_feed_forward_size", &Experts::shared_feed_forward_size,
                      "width of an MLP that computes every token beside the experts; 0: none")
                 .between(0, 4 * kLargestWidth));
  experts
      .key("shared_gate", &Experts::shared_gate, "the output of that MLP is multiplied by a sigmoid, a number for each token")
      .active_when("model.experts.shared_feed_forward_size is more than 0",
                   [](const Config& c) { return c.model.experts.enabled() && c.model.experts.shared_feed_forward_size > 0; });
  if_enabled(experts.custom("dense_blocks", KeyType::List, "the blocks, from 0, that have an MLP and no experts",
                            set_dense_blocks, get_dense_blocks));
  if_enabled(rule.key("score", &ExpertRule::score, "how a router's logits become scores of experts"));
  if_enabled(rule.key("normalize", &ExpertRule::normalize, "scores of a token's experts are divided by their sum"));
  if_enabled(rule.key("scale", &ExpertRule::scale, "factor of the weights of experts").more_than(0));
  if_enabled(rule.key("groups", &ExpertRule::groups, "groups of experts, of which a token uses only some").between(1, 1 << 14));
  if_enabled(
      rule.key("groups_per_token", &ExpertRule::groups_per_token, "groups from which a token chooses").between(1, 1 << 14));
  if_enabled(experts.key("bias", &Experts::bias, "the router and the experts have biases"));
  if_enabled(
      swiglu
          .key("swiglu_limit", &SwiGluRule::limit,
               "limit of what goes into the SwiGLU of experts: the gate's is at most this, the other is cut on both sides; "
               "0: none")
          .at_least(0));
  if_enabled(swiglu
                 .key("swiglu_alpha", &SwiGluRule::alpha,
                      "factor within the sigmoid of this SwiGLU, gate x sigmoid(alpha gate) x (up + offset)")
                 .more_than(0));
  if_enabled(swiglu.key("swiglu_offset", &SwiGluRule::offset, "offset in it"));
  if_enabled(experts.key("correction_bias", &Experts::correction_bias,
                         "each expert has a bias, which is added to its scores when experts are chosen, but not to weights"));
  experts
      .key("bias_update_rate", &Experts::bias_update_rate,
           "change of these biases in each step, up for experts with few tokens and down for those with many; 0: none")
      .at_least(0)
      .active_when("model.experts.correction_bias is true and model.lora.rank is 0", [](const Config& c) {
        return c.model.experts.enabled() && c.model.experts.correction_bias && !c.model.lora.enabled();
      });
  if_enabled(experts
                 .key("balance_loss", &Experts::balance_loss,
                      "coefficient of a loss that is least when experts compute equally many tokens; 0: none")
                 .at_least(0));
  if_enabled(
      experts.key("z_loss", &Experts::z_loss, "coefficient of a loss that keeps a router's logits small; 0: none").at_least(0));
}

void add_lora_keys(KeyTable& table) {
  using model::Lora;
  Section<Lora> lora(table, "model.lora", [](Config& c) -> Lora& { return c.model.lora; });
  lora.own();
  KeyRefiner rank = lora.key("rank", &Lora::rank,
                             "rank of low-rank adapters; the rest of the model is then frozen (docs/hugging_face.md); "
                             "0: no adapters");
  rank.between(0, 1 << 14);
  limit_to_its_families(rank, "lora");
  const auto if_adapted = [](KeyRefiner key) {
    key.active_when("model.lora.rank is more than 0", [](const Config& c) { return c.model.lora.enabled(); });
  };
  if_adapted(lora.key("alpha", &Lora::alpha, "what an adapter adds is multiplied by alpha / rank").between(1e-6, 1e6));
  if_adapted(
      lora.custom("targets", KeyType::Any,
                  "the linear layers that get an adapter: regular expressions for their names or the ends of these, such "
                  "as \"q_proj\"; or \"all-linear\", which is all but experts",
                  set_lora_targets, get_lora_targets));
  if_adapted(lora.custom("dropout", KeyType::Number,
                         "dropout of what goes into an adapter (lora_dropout of PEFT): there is none", refuse_lora_dropout,
                         [](const Config&) { return std::string("0.0"); }));
}

}  // namespace

void add_model_keys(KeyTable& table) {
  using model::Description, model::Family;
  Section<Description> model(table, "model", [](Config& c) -> Description& { return c.model; });
  model.own();
  const std::string kinds = for_each_family(
      "; ", [](const Family& family) { return std::string(name_of(family.type)) + ": " + std::string(family.meaning); });
  model.key("type", &Description::type, kinds).selects();
  model.custom(
      "from", KeyType::String,
      "the folder of a model in Hugging Face's format, or a checkpoint: the run begins with its weights, and takes from "
      "it the keys of this section that are left out, and the tokenizer; empty: random weights",
      [](Config& c, const JsonNode& node) { c.model_from = node.text; }, [](const Config& c) { return quoted(c.model_from); });
  const auto key = [&](const std::string& name, auto member, const std::string& meaning) {
    KeyRefiner refiner = model.key(name, member, meaning);
    limit_to_its_families(refiner, name);
    return refiner;
  };
  key("layers", &Description::layers, "transformer blocks").between(1, 1 << 16);
  key("hidden_size", &Description::hidden_size, "width of the residual stream").between(1, kLargestWidth);
  key("heads", &Description::heads, "attention heads; must divide hidden_size unless head_size is given")
      .between(1, kLargestWidth);
  key("key_value_heads", &Description::key_value_heads, "key/value heads; must divide heads; 0: as many as heads")
      .between(0, kLargestWidth);
  key("head_size", &Description::head_size, "width of a head; 0: hidden_size / heads").between(0, 1 << 12);
  const std::string widths = for_each_family(", ", [](const Family& family) {
    if (family.feed_forward_note.empty()) return std::string();
    return std::string(family.feed_forward_note) + " for " + std::string(name_of(family.type));
  });
  key("feed_forward_size", &Description::feed_forward_size, "width inside the MLP; 0: " + widths).between(0, 4 * kLargestWidth);
  key("sequence_length", &Description::sequence_length, "tokens per training sequence").between(1, 1 << 24);
  key("attention_window", &Description::attention_window,
      "tokens that a token sees at most, itself and those before it; 0: all before it")
      .between(0, 1 << 24);
  key("full_attention_every", &Description::full_attention_every,
      "every n-th layer has no window, such as each second one; 0: all layers have it")
      .between(0, 1 << 16)
      .active_when("model.attention_window is more than 0", [](const Config& c) { return c.model.attention_window > 0; });
  limit_to_its_families(model.custom("vocabulary", KeyType::Any,
                                     "\"bytes\", \"characters\", a tokenizer file, the folder of a model or a number of tokens",
                                     set_vocabulary, get_vocabulary),
                        "vocabulary");
  limit_to_its_families(
      model.custom("vocabulary_rows", KeyType::Integer,
                   "rows of the embedding, of which the vocabulary may use fewer; 0: as many as it has tokens",
                   set_vocabulary_rows, get_vocabulary_rows),
      "vocabulary");
  key("dropout", &Description::dropout, "dropout probability on embeddings, attention probabilities and residuals")
      .between(0, 0.99);
  const std::string untied = for_each_family(", ", [](const Family& family) {
    return family.tied_embedding || !has_key(family, "tied_embedding") ? std::string()
                                                                       : std::string(name_of(family.type)) + ": false";
  });
  key("tied_embedding", &Description::tied_embedding, "input and output embedding are one matrix").default_note(untied);
  key("bias", &Description::bias, "biases in projections and norms");
  key("qkv_bias", &Description::qkv_bias, "biases in the projections to queries, keys and values");
  key("out_bias", &Description::out_bias, "biases in the output projection of attention");
  key("pre_norm", &Description::pre_norm, "RMSNorm of what attention and MLP read from the residual stream");
  key("post_norm", &Description::post_norm, "RMSNorm of what attention and MLP add to the residual stream");
  key("embedding_scale", &Description::embedding_scale, "factor of the input embedding").more_than(0);
  key("residual_scale", &Description::residual_scale, "factor of what attention and MLP add to the residual stream")
      .more_than(0);
  key("gate_activation", &Description::gate_activation, "activation of the gate in the MLP");
  key("qk_norm", &Description::qk_norm, "RMSNorm of queries and keys");
  key("qk_norm_over", &Description::qk_norm_over,
      "what this norm takes together: each head by itself, or the whole projection, all heads of a token")
      .active_when("model.qk_norm is true", [](const Config& c) { return c.model.qk_norm; });
  key("query_temperature", &Description::query_temperature,
      "queries at position p are multiplied by 1 + query_temperature ln(1 + floor(p / query_temperature_length)); 0: they are "
      "not")
      .at_least(0);
  key("query_temperature_length", &Description::query_temperature_length, "positions that have the same factor")
      .between(1, 1 << 24)
      .active_when("model.query_temperature is more than 0", [](const Config& c) { return c.model.query_temperature > 0; });
  key("query_scale_size", &Description::query_scale_size,
      "scores of attention are divided by the square root of this number; 0: head_size")
      .at_least(0);
  key("attention_sinks", &Description::attention_sinks,
      "each head has one more score in its softmax, a parameter that belongs to no token");
  key("attention_soft_cap", &Description::attention_soft_cap,
      "limit of the scores of attention: they become cap tanh(score / cap); 0: none")
      .at_least(0);
  key("logits_soft_cap", &Description::logits_soft_cap, "limit of the logits: they become cap tanh(logit / cap); 0: none")
      .at_least(0);
  key("logits_scaling", &Description::logits_scaling, "logits are divided by this number").more_than(0);
  key("norm_epsilon", &Description::norm_epsilon, "added to the variance in norms").more_than(0);
  key("rotary_base", &Description::rotary_base, "base of the rotary frequencies").more_than(0);
  key("window_rotary_base", &Description::window_rotary_base,
      "base of the rotary frequencies in layers with a window, which then are not scaled; 0: rotary_base")
      .at_least(0)
      .active_when("model.attention_window is more than 0", [](const Config& c) { return c.model.attention_window > 0; });
  key("rotary_share", &Description::rotary_share, "share of a head's elements that is rotated, from the first on")
      .more_than(0)
      .between(0, 1);
  key("no_rotary_every", &Description::no_rotary_every,
      "every n-th layer does not rotate queries and keys, so that it knows no positions; 0: all layers rotate them")
      .between(0, 1 << 16);
  key("initializer_range", &Description::initializer_range, "standard deviation of initial weights")
      .more_than(0)
      .active_when(
          families_with("initializer_range") + ", and the weights are not those of model.from or --init-from",
          [](const Config& c) { return has_key(model::family_of(c.model.type), "initializer_range") && c.model_from.empty(); });
  limit_to_its_families(model.custom("input", KeyType::List, "channels, rows and columns of an image", set_input, get_input),
                        "input");
  limit_to_its_families(model.custom("network", KeyType::List,
                                     "the layers, each a text such as \"conv 32 kernel 3\", \"max_pool 2\" or \"relu\" "
                                     "(docs/models.md); the last one gives a number for each class",
                                     set_network, get_network),
                        "network");
  add_rotary_scaling_keys(table);
  add_latent_attention_keys(table);
  add_experts_keys(table);
  add_lora_keys(table);
}

}  // namespace trivet::config
