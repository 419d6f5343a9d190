// Seed-OSS: Llama with biases in the projections to queries, keys and values, and perhaps in that of attention's output.
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {
namespace {

OrderedJson read_seed_oss(ConfigFile& file) {
  file.ignore({"pretraining_tp"});
  file.require(!file.flag("mlp_bias", false), "mlp_bias", "use false");
  note_dropout(file, {"attention_dropout", "residual_dropout"}, 0.1);
  OrderedJson model = read_llama_like(file, {.vocabulary = 155136,
                                             .hidden = 4096,
                                             .feed_forward = 27648,
                                             .layers = 64,
                                             .heads = 80,
                                             .key_value_heads = 8,
                                             .head_size = file.is_null("head_dim") ? 0 : 128,
                                             .positions = 524288,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4,
                                             .notes_dropout = true});
  if (file.flag("attention_bias", true)) model["qkv_bias"] = true;
  if (file.flag("attention_out_bias", false)) model["out_bias"] = true;
  return model;
}

std::string seed_oss_obstacle(const model::Description& d) {
  model::Description rest = d;
  rest.qkv_bias = rest.out_bias = false;
  return llama_like_obstacle(rest, {});
}

void write_seed_oss(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["attention_bias"] = d.qkv_bias;
  json["attention_out_bias"] = d.out_bias;
  json["mlp_bias"] = false;
  json["residual_dropout"] = 0.0;
  json["pad_token_id"] = nullptr;
}

}  // namespace

Architecture seed_oss() {
  return {.model_type = "seed_oss",
          .class_name = "SeedOssForCausalLM",
          .prefix = "model.",
          .read = read_seed_oss,
          .obstacle = seed_oss_obstacle,
          .write = write_seed_oss,
          .weights = llama_like_weights};
}

}  // namespace trivet::hugging_face
