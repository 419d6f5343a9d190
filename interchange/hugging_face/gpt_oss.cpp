// gpt-oss: sinks in attention, windows in every second layer, and experts with biases and a SwiGLU with limits. The published
// weights of experts are in MXFP4.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "interchange/hugging_face/layer_patterns.h"
#include "interchange/hugging_face/llama_with_experts.h"

namespace trivet::hugging_face {
namespace {

constexpr double kAlpha = 1.702, kLimit = 7;

OrderedJson read_gpt_oss(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 201088,
                                             .hidden = 2880,
                                             .feed_forward = 2880,
                                             .layers = 36,
                                             .heads = 64,
                                             .key_value_heads = 8,
                                             .head_size = 64,
                                             .positions = 131072,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 150000});
  file.require(!file.is_off("rope_scaling") || file.has("rope_parameters"), "rope_parameters",
               "state them: without them, transformers scales rotary positions all the same");
  model["qkv_bias"] = model["out_bias"] = file.flag("attention_bias", true);
  model["attention_sinks"] = true;
  const int64_t every = read_full_attention_every(file, model["layers"].get<int64_t>(), 2, false);
  if (every != 1) {
    read_window(file, 128, model);
    file.require(model.contains("attention_window"), "sliding_window", "use a number of at least 1");
    model["full_attention_every"] = every;
  } else {
    file.ignore({"sliding_window"});
  }
  file.ignore({"experts_per_token", "initial_context_length"});  // other names of keys that are read
  read_experts(file, 128, 4, model);
  OrderedJson& experts = model["experts"];
  experts["bias"] = true;
  experts["swiglu_limit"] = file.number("swiglu_limit", kLimit);
  experts["swiglu_alpha"] = file.number("swiglu_alpha", kAlpha);
  experts["swiglu_offset"] = 1.0;
  file.require(experts["swiglu_limit"] > 0, "swiglu_limit", "use more than 0");
  return model;
}

std::string gpt_oss_obstacle(const model::Description& d) {
  if (!d.attention_sinks) return "model.attention_sinks is false";
  if (!d.experts.bias) return "model.experts.bias is false";
  if (d.experts.swiglu.offset != 1) return fmt::format("model.experts.swiglu_offset is {}", d.experts.swiglu.offset);
  if (d.experts.swiglu.limit <= 0) return fmt::format("model.experts.swiglu_limit is {}", d.experts.swiglu.limit);
  if (!d.experts.rule.normalize) return "model.experts.normalize is false";
  if (!d.experts.dense_blocks.empty()) return "model.experts.dense_blocks are not empty";
  if (d.experts.feed_forward_size != d.feed_forward_size) return "model.experts.feed_forward_size is not feed_forward_size";
  if (d.qkv_bias != d.out_bias) return fmt::format("model.out_bias is {}", d.out_bias);
  model::Description rest = without_attention_bias(d);
  rest.attention_sinks = false;
  rest.full_attention_every = 0;
  rest.experts.bias = false;
  rest.experts.swiglu = {};
  std::string obstacle = llama_like_obstacle(rest, {.window = true, .experts = true});
  return obstacle.empty() ? experts_obstacle(rest) : obstacle;
}

void write_gpt_oss(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  json["attention_bias"] = d.qkv_bias;
  json["num_local_experts"] = d.experts.count;
  json["num_experts_per_tok"] = d.experts.per_token;
  json["swiglu_limit"] = d.experts.swiglu.limit;
  json["swiglu_alpha"] = d.experts.swiglu.alpha;
  json["layer_types"] = layer_types(d.layers, d.attention_window > 0 ? d.full_attention_every : 1);
  if (d.attention_window > 0)
    json["sliding_window"] = d.attention_window;
  else
    json["sliding_window"] = nullptr;
  if (!json.contains("rope_scaling")) {
    json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", d.rotary_base}};
    json.erase("rope_theta");
  }
}

checkpoint::MappedSource::Table gpt_oss_weights(const model::Description& d) {
  checkpoint::MappedSource::Table table = llama_like_weights(d);
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    table[ours + "attention.sinks"] = {{theirs + "self_attn.sinks"}};
    for (const char* kind : {"weight", "bias"}) {
      table[ours + "mlp.router." + kind] = {{theirs + "mlp.router." + kind}};
      const char* const ending = kind == std::string_view("bias") ? "_bias" : "";
      table[ours + "mlp.experts.gate_up." + kind] = {{theirs + "mlp.experts.gate_up_proj" + ending}};
      table[ours + "mlp.experts.down." + kind] = {{theirs + "mlp.experts.down_proj" + ending}};
    }
  }
  return table;
}

}  // namespace

Architecture gpt_oss() {
  return {.model_type = "gpt_oss",
          .class_name = "GptOssForCausalLM",
          .prefix = "model.",
          .read = read_gpt_oss,
          .obstacle = gpt_oss_obstacle,
          .write = write_gpt_oss,
          .weights = gpt_oss_weights,
          .transposed_experts = true,
          .may_be_mxfp4 = true};
}

}  // namespace trivet::hugging_face
