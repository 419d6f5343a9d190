// DeepSeek-V3 and models of its class, such as Moonlight: latent attention, and experts with biases for the choice; and GLM 4.7
// Flash, whose class differs from it in keys alone. The published files may have one more layer, which predicts a further token
// and is left out here.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "interchange/hugging_face/deepseek_experts.h"
#include "interchange/hugging_face/latent_weights.h"

namespace trivet::hugging_face {
namespace {

constexpr const char* kInterleave = "rope_interleave";
constexpr const char* kMlpTypes = "mlp_layer_types";

// Keys that both classes have, and those of the code that came with the models, which the classes do not read.
void read_common_keys(ConfigFile& file) {
  file.require(!file.is_null(kInterleave) && file.flag(kInterleave, true), kInterleave, "use true");
  file.require(file.text("scoring_func", "sigmoid") == "sigmoid", "scoring_func", "use \"sigmoid\"");
  file.require(file.text("topk_method", "noaux_tc") == "noaux_tc", "topk_method", "use \"noaux_tc\"");
  file.require(file.size("moe_layer_freq", 1) == 1, "moe_layer_freq", "use 1");
  file.ignore({"aux_loss_alpha", "seq_aux", "ep_size", "pretraining_tp", "num_nextn_predict_layers", "num_mtp_layers"});
}

OrderedJson read_deepseek_v3(ConfigFile& file) {
  OrderedJson model = read_llama_like(file, {.vocabulary = 129280,
                                             .hidden = 7168,
                                             .feed_forward = 18432,
                                             .layers = 61,
                                             .heads = 128,
                                             .key_value_heads = 128,
                                             .positions = 4096,
                                             .norm_epsilon = 1e-6,
                                             .rotary_base = 1e4});
  read_latent_attention(
      file, {.query_rank = 1536, .key_value_rank = 512, .plain_size = 128, .rotary_size = 64, .value_size = 128}, model);
  read_deepseek_experts(file,
                        {.experts = 256,
                         .chosen = 8,
                         .shared = 1,
                         .feed_forward = 2048,
                         .dense = 3,
                         .normalize = true,
                         .scale = 2.5,
                         .groups = 8,
                         .groups_per_token = 4},
                        model);
  read_common_keys(file);
  return model;
}

// The class takes this list, and without it only the first layer has no experts.
void read_types_of_layers(ConfigFile& file, OrderedJson& model) {
  const std::vector<std::string> types = file.texts(kMlpTypes);
  const auto layers = model["layers"].get<size_t>();
  if (types.empty()) {
    file.require(!file.has("first_k_dense_replace") || file.is("first_k_dense_replace", 1), "first_k_dense_replace",
                 "state mlp_layer_types: transformers' class does not read this key");
    return;
  }
  std::vector<int64_t> dense;
  for (size_t i = 0; i < types.size(); ++i)
    if (types[i] == "dense") dense.push_back(static_cast<int64_t>(i));
  const auto sparse = static_cast<size_t>(std::ranges::count(types, "sparse"));
  file.require(types.size() == layers && sparse > 0 && sparse + dense.size() == layers, kMlpTypes,
               "use \"dense\" or \"sparse\" for each layer, \"sparse\" for at least one");
  model["experts"]["dense_blocks"] = dense;
}

// Unlike DeepSeek's class, this one rotates a part of the rotary elements if the file says so.
void require_whole_rotation(ConfigFile& file) {
  constexpr const char* kShare = "partial_rotary_factor";
  const auto check = [](const ConfigFile& object) {
    object.require(!object.has(kShare) || object.is(kShare, 1), kShare, "use 1");
  };
  check(file);
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const std::optional<ConfigFile> rotary = file.object(key)) check(*rotary);
}

OrderedJson read_glm4_moe_lite(ConfigFile& file) {
  require_whole_rotation(file);
  OrderedJson model = read_llama_like(file, {.vocabulary = 154880,
                                             .hidden = 2048,
                                             .feed_forward = 10240,
                                             .layers = 47,
                                             .heads = 20,
                                             .key_value_heads = 20,
                                             .positions = 202752,
                                             .norm_epsilon = 1e-5,
                                             .rotary_base = 1e4});
  read_latent_attention(
      file, {.query_rank = 768, .key_value_rank = 512, .plain_size = 192, .rotary_size = 64, .value_size = 256}, model);
  const int64_t dense = file.has(kMlpTypes) ? 0 : 1;
  read_deepseek_experts(
      file, {.experts = 64, .chosen = 4, .shared = 1, .feed_forward = 1536, .dense = dense, .normalize = true, .scale = 1.8},
      model);
  read_types_of_layers(file, model);
  read_common_keys(file);
  return model;
}

std::string obstacle_of(const model::Description& d) {
  std::string obstacle = latent_attention_obstacle(d);
  return obstacle.empty() ? deepseek_experts_obstacle(d) : obstacle;
}

// Its list says of each layer whether it has experts.
std::string obstacle_of_lite(const model::Description& d) {
  model::Description rest = d;
  rest.experts.dense_blocks.clear();
  return obstacle_of(rest);
}

void write_deepseek_v3(const model::Description& d, OrderedJson& json) {
  write_llama_like(d, json);
  write_latent_attention(d, json);
  write_deepseek_experts(d, json);
  json[kInterleave] = true;
  json["scoring_func"] = "sigmoid";  // for other programs than transformers
  json["topk_method"] = "noaux_tc";
  json["num_nextn_predict_layers"] = 0;
}

void write_glm4_moe_lite(const model::Description& d, OrderedJson& json) {
  write_deepseek_v3(d, json);
  json.erase("first_k_dense_replace");
  json[kMlpTypes] = OrderedJson::array();
  for (int64_t i = 0; i < d.layers; ++i) json[kMlpTypes].push_back(model::has_experts(d, i) ? "sparse" : "dense");
}

checkpoint::MappedSource::Table weights_of(const model::Description& d) { return with_latent_weights(d, deepseek_weights(d)); }
checkpoint::MappedSource::Table fused_weights_of(const model::Description& d) {
  return with_latent_weights(d, fused_deepseek_weights(d));
}

}  // namespace

Architecture deepseek_v3() {
  return {.model_type = "deepseek_v3",
          .class_name = "DeepseekV3ForCausalLM",
          .prefix = "model.",
          .read = read_deepseek_v3,
          .obstacle = obstacle_of,
          .write = write_deepseek_v3,
          .weights = weights_of,
          .fused_weights = fused_weights_of,
          .why_left_out = why_further_layer_is_left_out};
}

Architecture glm4_moe_lite() {
  Architecture lite = deepseek_v3();
  lite.model_type = "glm4_moe_lite";
  lite.class_name = "Glm4MoeLiteForCausalLM";
  lite.read = read_glm4_moe_lite;
  lite.obstacle = obstacle_of_lite;
  lite.write = write_glm4_moe_lite;
  return lite;
}

}  // namespace trivet::hugging_face
