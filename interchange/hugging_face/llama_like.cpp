#include "interchange/hugging_face/llama_like.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace trivet::hugging_face {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

// The lengths that the keys of rotary scaling refer to.
struct Lengths {
  int64_t positions;
  std::optional<int64_t> original;  // in the first training, if the file states it outside of these keys
};

// 0 has the same meaning as null.
double number_or(ConfigFile& object, const std::string& key, double fallback) {
  const double number = object.number(key, 0.0);
  return number == 0 ? fallback : number;
}

// Yarn's magnitude, 1 + m ln(factor) / 10.
double yarn_magnitude(double factor, double m) { return factor <= 1 ? 1 : 1 + m * std::log(factor) / 10; }

void read_attention_factor(ConfigFile& scaling, OrderedJson& read) {
  if (!scaling.has("attention_factor")) return scaling.ignore({"attention_factor"});
  const double factor = scaling.number("attention_factor");
  scaling.require(factor > 0, "attention_factor", "use more than 0");
  read["attention_factor"] = factor;
}

void read_llama3(ConfigFile& scaling, OrderedJson& read) {
  read["low_frequency_factor"] = scaling.number("low_freq_factor");
  read["high_frequency_factor"] = scaling.number("high_freq_factor");
}

void read_yarn(ConfigFile& scaling, OrderedJson& read) {
  read["low_frequency_factor"] = number_or(scaling, "beta_slow", 1);
  read["high_frequency_factor"] = number_or(scaling, "beta_fast", 32);
  read["whole_pairs"] = scaling.flag("truncate", true);
  const double factor = read["factor"].get<double>();
  const double some = scaling.number("mscale", 0.0), all = scaling.number("mscale_all_dim", 0.0);
  if (some != 0 && all != 0) read["attention_factor"] = yarn_magnitude(factor, some) / yarn_magnitude(factor, all);
  read_attention_factor(scaling, read);
}

void read_longrope(ConfigFile& scaling, OrderedJson& read) {
  read["short_factors"] = scaling.positive_numbers("short_factor");
  read["long_factors"] = scaling.positive_numbers("long_factor");
  read_attention_factor(scaling, read);
}

std::string type_of_scaling(ConfigFile& scaling, bool only_longrope) {
  const char* const type_key = scaling.has("rope_type") ? "rope_type" : "type";
  scaling.ignore({"rope_type", "type"});
  const std::string type = scaling.text(type_key, "default");
  if (only_longrope) {
    if (type == "su" || type == "yarn") return "longrope";  // its former names
    scaling.require(type == "default" || type == "longrope", type_key, "use \"default\" or \"longrope\"");
    return type;
  }
  constexpr std::array<std::string_view, 5> kTypes{"default", "linear", "llama3", "yarn", "longrope"};
  scaling.require(std::ranges::find(kTypes, type) != kTypes.end(), type_key,
                  "use \"default\", \"linear\", \"llama3\", \"yarn\" or \"longrope\"");
  return type;
}

OrderedJson read_scaling(ConfigFile& scaling, const Lengths& lengths, bool only_longrope) {
  const std::string type = type_of_scaling(scaling, only_longrope);
  OrderedJson read{{"type", type}};
  if (type == "default") return {};
  if (type == "linear" || type == "llama3" || scaling.has("factor")) {
    read["factor"] = scaling.number("factor");
    scaling.require(read["factor"] >= 1, "factor", "use at least 1");
  }
  if (type == "linear") return read;
  const int64_t stated = scaling.count(kOriginal, lengths.positions);
  const int64_t original = lengths.original.value_or(stated);
  scaling.require(
      !scaling.has(kOriginal) || stated == original, kOriginal,
      fmt::format("the class of this model takes {}, unless {} is at the top of the file: put it there", original, kOriginal));
  scaling.require(original > 1, kOriginal, "use at least 2");
  read["original_length"] = original;
  if (!read.contains("factor")) {
    scaling.ignore({"factor"});
    read["factor"] = std::max(1.0, static_cast<double>(lengths.positions) / static_cast<double>(original));
  }
  if (type == "llama3") read_llama3(scaling, read);
  if (type == "yarn") read_yarn(scaling, read);
  if (type == "longrope") read_longrope(scaling, read);
  return read;
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

constexpr const char* kShare = "partial_rotary_factor";

// Most classes do not read it, and rotate whole heads. With scaled frequencies they fail.
double read_share(ConfigFile& object, double fallback, const LlamaDefaults& defaults, bool scaled) {
  if (defaults.rotary_share) return object.number(kShare, fallback);
  const bool says_whole = !object.has(kShare) || object.is(kShare, 1);
  object.require(says_whole || !scaled, kShare, "use 1: only whole heads of such a model are rotated");
  if (says_whole) object.ignore({kShare});
  return 1;
}

struct RotaryKeys {
  double base, share;
  OrderedJson scaling;
  double temperature = 0;
  int64_t temperature_length = 0;

  void read(ConfigFile& object, const Lengths& lengths, const LlamaDefaults& defaults) {
    base = object.number("rope_theta", base);
    if (OrderedJson given = read_scaling(object, lengths, defaults.only_longrope); !given.empty()) scaling = std::move(given);
    share = read_share(object, share, defaults, !scaling.empty());
    if (defaults.query_temperature) read_temperature(object);
  }
  void read_temperature(ConfigFile& object) {
    temperature = object.number("llama_4_scaling_beta");
    object.require(temperature >= 0, "llama_4_scaling_beta", "use at least 0");
    temperature_length = object.size(kOriginal);
    object.ignore({"max_position_embeddings"});
  }
};

// Returns the keys transformers reads: rope_scaling if given; with two bases both, one of them for some layers alone.
std::vector<const char*> keys_of_rotary(const ConfigFile& file, bool two_bases) {
  if (two_bases) return {"rope_parameters", "rope_scaling"};
  return {file.is_off("rope_scaling") ? "rope_parameters" : "rope_scaling"};
}

// Refuses two objects of rotary keys that contradict each other.
void require_one_rotary(ConfigFile file) {
  if (file.is_off("rope_scaling") || file.is_off("rope_parameters")) return;
  const std::optional<ConfigFile> older = file.object("rope_scaling"), newer = file.object("rope_parameters");
  newer->require_agreement(*older);
}

// transformers 4 has rope_theta, rope_scaling and partial_rotary_factor, transformers 5 has all of them in rope_parameters. If
// layers with a window have a base of their own, transformers 4 has it in rope_local_base_freq, and transformers 5 has an
// object for each kind of layer in rope_parameters.
void read_rotary(ConfigFile& file, const LlamaDefaults& defaults, OrderedJson& model) {
  Lengths lengths{model["sequence_length"].get<int64_t>(), {}};
  const int64_t original = file.count(kOriginal, defaults.original_positions);
  file.require(!file.has(kOriginal) || original > 1, kOriginal, "use at least 2");
  if (original > 0) lengths.original = original;
  const bool two_bases = defaults.window_rotary_base > 0;
  RotaryKeys all{file.number("rope_theta", defaults.rotary_base), read_share(file, defaults.usual_share, defaults, false), {}};
  RotaryKeys of_windows{two_bases ? file.number("rope_local_base_freq", defaults.window_rotary_base) : 0, 1, {}};
  require_one_rotary(file);
  for (const char* key : keys_of_rotary(file, two_bases)) {
    std::optional<ConfigFile> rotary = file.object(key);
    if (!rotary) continue;
    const bool for_each_kind = rotary->has(kFull) || rotary->has(kSliding);
    // transformers takes its defaults then, and not these keys.
    file.require(!two_bases || for_each_kind || key != std::string_view("rope_parameters"), key,
                 "use an object for full_attention and one for sliding_attention");
    if (!for_each_kind) {
      file.require_agreement(*rotary);
      all.read(*rotary, lengths, defaults);
      file.leave_unread(*rotary);
      continue;
    }
    if (std::optional<ConfigFile> full = rotary->object(kFull)) {
      file.require_agreement(*full);
      all.read(*full, lengths, defaults);
      file.leave_unread(*full);
    }
    if (std::optional<ConfigFile> sliding = rotary->object(kSliding)) {
      file.require_same("rope_local_base_freq", *sliding, "rope_theta");
      of_windows.read(*sliding, lengths, defaults);
      rotary->require(of_windows.scaling.empty() && of_windows.share == 1, kSliding, "use the rope_type \"default\"");
      file.leave_unread(*sliding);
    }
    file.leave_unread(*rotary);
  }
  read_share(file, 1, defaults, !all.scaling.empty());
  model["rotary_base"] = all.base;
  if (two_bases) model["window_rotary_base"] = of_windows.base;
  if (all.share != 1) model["rotary_share"] = all.share;
  if (!all.scaling.empty()) model["rotary_scaling"] = all.scaling;
  if (all.temperature == 0) return;
  model["query_temperature"] = all.temperature;
  model["query_temperature_length"] = all.temperature_length;
}

void write_scaling(const model::RotaryScaling& scaling, OrderedJson& json) {
  using model::RotaryScalingType;
  if (scaling.type == RotaryScalingType::None) return;
  OrderedJson& written = json["rope_scaling"] = {{"rope_type", name_of(scaling.type)}, {"factor", scaling.factor}};
  if (scaling.type == RotaryScalingType::Linear) return;
  const bool yarn = scaling.type == RotaryScalingType::Yarn;
  if (scaling.type == RotaryScalingType::LongRope) {
    written["short_factor"] = scaling.short_factors;
    written["long_factor"] = scaling.long_factors;
  } else {
    written[yarn ? "beta_slow" : "low_freq_factor"] = scaling.low_frequency_factor;
    written[yarn ? "beta_fast" : "high_freq_factor"] = scaling.high_frequency_factor;
  }
  written["original_max_position_embeddings"] = scaling.original_length;
  if (yarn && !scaling.whole_pairs) written["truncate"] = false;
  if (scaling.type != RotaryScalingType::Llama3 && scaling.attention_factor > 0)
    written["attention_factor"] = scaling.attention_factor;
}

}  // namespace

bool layers_slide(ConfigFile& file, int64_t layers, bool window) {
  const std::vector<std::string> types = file.texts("layer_types");
  if (types.empty()) {
    const int64_t full = file.count("max_window_layers", 28);
    file.require(!window || full == 0 || full >= layers, "max_window_layers",
                 fmt::format("use 0 or at least num_hidden_layers {}: all layers must have the same window", layers));
    return window && full == 0;
  }
  file.ignore({"max_window_layers"});
  const bool all_alike = types.size() == static_cast<size_t>(layers) && std::ranges::count(types, types.front()) == layers;
  file.require(all_alike && (types.front() == kFull || (window && types.front() == kSliding)), "layer_types",
               fmt::format("use \"{}\" for all {} layers{}", kFull, layers,
                           window ? fmt::format(", or \"{}\" for all of them", kSliding) : ", as the model has no window"));
  return types.front() == kSliding;
}

void read_window(ConfigFile& file, std::optional<int64_t> fallback, OrderedJson& model) {
  if (file.is_null("sliding_window")) return;
  const int64_t window = file.count("sliding_window", fallback);
  file.require(!file.has("sliding_window") || window > 0, "sliding_window", "use at least 1, or null for no window");
  if (window > 0) model["attention_window"] = window;
}

void read_only_window(ConfigFile& file, bool window, std::optional<int64_t> fallback, OrderedJson& model) {
  // The class knows no layer_types, but what makes masks for generation does.
  const bool all = file.has("layer_types") ? layers_slide(file, model["layers"].get<int64_t>(), window) : window;
  file.require(
      all || !window || !file.has("sliding_window") || file.is_null("sliding_window"), "sliding_window",
      "use null, as layer_types says that no layer has a window; transformers has one in training, and none in generation");
  if (all)
    read_window(file, fallback, model);
  else
    file.ignore({"sliding_window"});
}

void read_windows_of_layers(ConfigFile& file, OrderedJson& model) {
  const bool window = file.flag("use_sliding_window", false) && !file.is_null("sliding_window");
  if (layers_slide(file, model["layers"].get<int64_t>(), window))
    read_window(file, 4096, model);
  else
    file.ignore({"sliding_window"});
}

void write_windows_of_layers(const model::Description& d, OrderedJson& json) {
  json["use_sliding_window"] = d.attention_window > 0;
  if (d.attention_window == 0) return;
  json["sliding_window"] = d.attention_window;
  json["max_window_layers"] = 0;
}

void note_dropout(ConfigFile& file, std::initializer_list<const char*> keys, double fallback) {
  std::string stated;
  for (const char* key : keys)
    if (const double rate = file.number(key, fallback); rate != 0)
      stated += fmt::format("{}{} {}", stated.empty() ? "" : " and ", key, rate);
  if (!stated.empty())
    file.note(
        fmt::format("{}: training has no dropout unless model.dropout of Trivet's config sets one, which drops embeddings, "
                    "probabilities of attention and residuals",
                    stated));
}

void read_attention_bias(ConfigFile& file, OrderedJson& model) {
  if (file.flag("attention_bias", false)) model["qkv_bias"] = model["out_bias"] = true;
}

model::Description without_attention_bias(model::Description d) {
  if (d.qkv_bias && d.out_bias) d.qkv_bias = d.out_bias = false;
  return d;
}

OrderedJson read_llama_like(ConfigFile& file, const LlamaDefaults& defaults) {
  const int64_t hidden = file.size("hidden_size", defaults.hidden);
  const int64_t heads = file.size("num_attention_heads", defaults.heads);
  const bool as_many = defaults.key_value_heads == 0 || file.is_null("num_key_value_heads");
  const int64_t key_value_heads = as_many ? heads : defaults.key_value_heads;
  const int64_t head_size = file.size("head_dim", defaults.head_size > 0 ? defaults.head_size : hidden / heads);
  file.require(head_size > 0, "head_dim", "use at least 1");
  const char* const activation = defaults.activation;
  file.require(file.text(defaults.activation_key, activation) == activation, defaults.activation_key,
               fmt::format("use \"{}\"", activation));
  OrderedJson model{{"type", "llama"},
                    {"layers", file.size("num_hidden_layers", defaults.layers)},
                    {"hidden_size", hidden},
                    {"heads", heads},
                    {"key_value_heads", file.size("num_key_value_heads", key_value_heads)},
                    {"feed_forward_size", file.size("intermediate_size", defaults.feed_forward)},
                    {"sequence_length", file.size("max_position_embeddings", defaults.positions)},
                    {"vocabulary", file.size("vocab_size", defaults.vocabulary)},
                    {"dropout", defaults.notes_dropout ? 0.0 : file.number("attention_dropout", 0.0)},
                    {"tied_embedding", file.flag("tie_word_embeddings", defaults.tied_embedding)},
                    {"norm_epsilon", file.number("rms_norm_eps", defaults.norm_epsilon)},
                    {"initializer_range", file.number("initializer_range", 0.02)}};
  // Their dropout acts on the probabilities of attention only.
  file.require(model["dropout"] == 0.0, "attention_dropout", "use 0; model.dropout of Trivet's config also drops residuals");
  if (head_size * heads != hidden) model["head_size"] = head_size;
  read_rotary(file, defaults, model);
  return model;
}

std::string llama_like_obstacle(const model::Description& d, const LlamaFeatures& features) {
  if (d.type != model::Type::Llama) return fmt::format("model.type is \"{}\"", name_of(d.type));
  if (d.qkv_bias != features.qkv_bias) return fmt::format("model.qkv_bias is {}", d.qkv_bias);
  if (d.out_bias) return "model.out_bias is true";
  if (d.qk_norm != features.qk_norm) return fmt::format("model.qk_norm is {}", d.qk_norm);
  if (d.qk_norm && d.qk_norm_over != model::QkNormSpan::Head)
    return fmt::format("model.qk_norm_over is \"{}\"", name_of(d.qk_norm_over));
  if (!d.pre_norm) return "model.pre_norm is false";
  if (d.post_norm) return "model.post_norm is true";
  if (d.query_scale_size != 0) return fmt::format("model.query_scale_size is {}", d.query_scale_size);
  if (d.attention_sinks) return "model.attention_sinks is true";
  if (d.attention_soft_cap != 0) return fmt::format("model.attention_soft_cap is {}", d.attention_soft_cap);
  if (d.logits_soft_cap != 0) return fmt::format("model.logits_soft_cap is {}", d.logits_soft_cap);
  if (d.embedding_scale != 1) return fmt::format("model.embedding_scale is {}", d.embedding_scale);
  if (d.residual_scale != 1) return fmt::format("model.residual_scale is {}", d.residual_scale);
  if (d.logits_scaling != 1) return fmt::format("model.logits_scaling is {}", d.logits_scaling);
  if (d.query_temperature != 0) return fmt::format("model.query_temperature is {}", d.query_temperature);
  if (d.no_rotary_every != 0) return fmt::format("model.no_rotary_every is {}", d.no_rotary_every);
  if (d.gate_activation != model::GateActivation::Silu)
    return fmt::format("model.gate_activation is \"{}\"", name_of(d.gate_activation));
  if (d.attention_window > 0 && (d.full_attention_every > 0 || d.window_rotary_base > 0))
    return "its layers have different windows or rotary bases";
  if (d.experts.enabled() && !features.experts) return fmt::format("model.experts.count is {}", d.experts.count);
  if (d.latent_attention.enabled() && !features.latent_attention)
    return fmt::format("model.latent_attention.key_value_rank is {}", d.latent_attention.key_value_rank);
  if (d.attention_window > 0 && !features.window) return fmt::format("model.attention_window is {}", d.attention_window);
  if (d.rotary_share != 1 && !features.rotary_share) return fmt::format("model.rotary_share is {}", d.rotary_share);
  const bool longrope = d.rotary_scaling.type == model::RotaryScalingType::LongRope;
  if (features.only_longrope && !longrope && d.rotary_scaling.type != model::RotaryScalingType::None)
    return fmt::format("model.rotary_scaling.type is \"{}\"", name_of(d.rotary_scaling.type));
  return "";
}

void write_llama_like(const model::Description& d, OrderedJson& json) {
  json["vocab_size"] = d.vocabulary_size;
  json["hidden_size"] = d.hidden_size;
  json["intermediate_size"] = d.feed_forward_size;
  json["num_hidden_layers"] = d.layers;
  json["num_attention_heads"] = d.heads;
  json["num_key_value_heads"] = d.key_value_heads;
  json["head_dim"] = d.head_size;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = d.sequence_length;
  json["initializer_range"] = d.initializer_range;
  json["rms_norm_eps"] = d.norm_epsilon;
  json["tie_word_embeddings"] = d.tied_embedding;
  json["rope_theta"] = d.rotary_base;
  write_scaling(d.rotary_scaling, json);
  json["attention_dropout"] = 0.0;
}

checkpoint::MappedSource::Table llama_like_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table{{"embedding.tokens.weight", {{"model.embed_tokens.weight"}}},
                                        {"head.norm.gain", {{"model.norm.weight"}}}};
  if (!d.tied_embedding) table["head.weight"] = {{"lm_head.weight"}};
  const int64_t queries = d.heads * d.head_size, keys = d.key_value_heads * d.head_size;
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    table[ours + "norm1.gain"] = {{theirs + "input_layernorm.weight"}};
    for (const char* kind : {"weight", "bias"})
      if (!d.latent_attention.enabled() && (kind == std::string_view("weight") || d.qkv_bias))
        table[ours + "attention.qkv." + kind] = {{theirs + "self_attn.q_proj." + kind, 0, queries},
                                                 {theirs + "self_attn.k_proj." + kind, 0, keys},
                                                 {theirs + "self_attn.v_proj." + kind, 0, keys}};
    if (d.qk_norm) {
      table[ours + "attention.query_norm.gain"] = {{theirs + "self_attn.q_norm.weight"}};
      table[ours + "attention.key_norm.gain"] = {{theirs + "self_attn.k_norm.weight"}};
    }
    table[ours + "attention.out.weight"] = {{theirs + "self_attn.o_proj.weight"}};
    if (d.out_bias) table[ours + "attention.out.bias"] = {{theirs + "self_attn.o_proj.bias"}};
    table[ours + "norm2.gain"] = {{theirs + "post_attention_layernorm.weight"}};
    if (model::has_experts(d, i)) continue;
    table[ours + "mlp.gate_up.weight"] = {{theirs + "mlp.gate_proj.weight", 0, d.feed_forward_size},
                                          {theirs + "mlp.up_proj.weight", 0, d.feed_forward_size}};
    table[ours + "mlp.down.weight"] = {{theirs + "mlp.down_proj.weight"}};
  }
  return table;
}

}  // namespace trivet::hugging_face
