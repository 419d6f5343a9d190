// model.*
#include <limits>

#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

// With sizes up to this limit and 2^31 tokens in a microbatch, byte counts cannot overflow 64 bits.
constexpr double kLargestWidth = 1 << 18;

void set_vocabulary(Config& config, const JsonNode& node) {
  ModelConfig& model = config.model;
  model.tokenizer_file.clear();
  model.vocabulary_size = 0;
  if (node.kind == JsonKind::Number && node.is_integer && node.integer > 0 &&
      node.integer <= std::numeric_limits<int32_t>::max()) {
    model.vocabulary = VocabularyKind::Size;
    model.vocabulary_size = node.integer;
  } else if (node.kind == JsonKind::String && node.text == "bytes") {
    model.vocabulary = VocabularyKind::Bytes;
  } else if (node.kind == JsonKind::String && node.text == "characters") {
    model.vocabulary = VocabularyKind::Characters;
  } else if (node.kind == JsonKind::String && node.text.find_first_of("./") != std::string::npos) {
    model.vocabulary = VocabularyKind::Tokenizer;
    model.tokenizer_file = node.text;
  } else {
    throw std::invalid_argument(
        R"(use "bytes", "characters", the path of a tokenizer file (with a "." or "/") or a size from 1 to 2147483647)");
  }
}

std::string get_vocabulary(const Config& config) {
  switch (config.model.vocabulary) {
    case VocabularyKind::Bytes: return "\"bytes\"";
    case VocabularyKind::Characters: return "\"characters\"";
    case VocabularyKind::Tokenizer: return quoted(config.model.tokenizer_file);
    case VocabularyKind::Size: return std::to_string(config.model.vocabulary_size);
  }
  return "";
}

}  // namespace

void add_model_keys(KeyTable& table) {
  Section<ModelConfig> model(table, "model", [](Config& c) -> ModelConfig& { return c.model; });
  const auto is_llama = [](const Config& c) { return c.model.type == ModelType::Llama; };
  model.key("type", &ModelConfig::type, "gpt: learned positions, LayerNorm, GELU; llama: rotary, RMSNorm, SwiGLU").selects();
  model.key("layers", &ModelConfig::layers, "transformer blocks").between(1, 1 << 16);
  model.key("hidden_size", &ModelConfig::hidden_size, "width of the residual stream").between(1, kLargestWidth);
  model.key("heads", &ModelConfig::heads, "attention heads; must divide hidden_size").between(1, kLargestWidth);
  model.key("key_value_heads", &ModelConfig::key_value_heads, "key/value heads; must divide heads; 0: as many as heads")
      .between(0, kLargestWidth);
  model
      .key("feed_forward_size", &ModelConfig::feed_forward_size,
           "width inside the MLP; 0: 4 x hidden_size for gpt, 8/3 x hidden_size rounded up to a multiple of 32 for llama")
      .between(0, 4 * kLargestWidth);
  model.key("sequence_length", &ModelConfig::sequence_length, "tokens per training sequence").between(1, 1 << 24);
  model.custom("vocabulary", KeyType::Any, "\"bytes\", \"characters\", a tokenizer file or a number of tokens", set_vocabulary,
               get_vocabulary);
  model.key("dropout", &ModelConfig::dropout, "dropout probability on embeddings, attention probabilities and residuals")
      .between(0, 0.99);
  model.key("tied_embedding", &ModelConfig::tied_embedding, "input and output embedding are one matrix")
      .default_note("llama: false");
  model.key("bias", &ModelConfig::bias, "biases in projections and norms")
      .active_when("model.type is \"gpt\"", [=](const Config& c) { return !is_llama(c); });
  model.key("norm_epsilon", &ModelConfig::norm_epsilon, "added to the variance in norms").more_than(0);
  model.key("rotary_base", &ModelConfig::rotary_base, "base of the rotary frequencies")
      .more_than(0)
      .active_when("model.type is \"llama\"", is_llama);
  model.key("initializer_range", &ModelConfig::initializer_range, "standard deviation of initial weights").more_than(0);
}

}  // namespace trivet::config
