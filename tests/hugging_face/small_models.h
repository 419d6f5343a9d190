// Small models in Hugging Face's format, written by the tests themselves. The elements of a tensor count up from a number of
// its own.
#pragma once

#include <cstring>
#include <map>
#include <string>

#include "core/file_system.h"
#include "engine/checkpoint/safetensors.h"

namespace trivet::hugging_face {

// `like`: tensors with the values of another one.
inline std::string file_of(const std::map<std::string, Shape>& tensors, DType dtype = DType::Float32,
                           const std::map<std::string, std::string>& like = {}) {
  checkpoint::SafetensorsHeader header;
  for (const auto& [name, shape] : tensors) header.tensors.push_back({name, dtype, shape, 0, 0});
  std::string file = checkpoint::layout_safetensors(header);
  for (const auto& entry : header.tensors) {
    const auto other = like.find(entry.name);
    const auto number = std::distance(tensors.begin(), tensors.find(other == like.end() ? entry.name : other->second)) + 1;
    for (int64_t i = 0; i < entry.shape.elements(); ++i) {
      const float value = static_cast<float>(number) + static_cast<float>(i) / 64;
      const auto append = [&](auto element) {
        char bytes[sizeof element];
        std::memcpy(bytes, static_cast<const void*>(&element), sizeof element);
        file.append(bytes, sizeof element);
      };
      dtype == DType::Float32    ? append(value)
      : dtype == DType::BFloat16 ? append(bfloat16(value))
                                 : append(static_cast<float16>(value));
    }
  }
  return file;
}

inline const std::string kSmallGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 2})";

inline std::map<std::string, Shape> small_gpt2_tensors(const std::string& prefix = "transformer.") {
  std::map<std::string, Shape> tensors{{"wte.weight", {5, 4}},
                                       {"wpe.weight", {4, 4}},
                                       {"ln_f.weight", {4}},
                                       {"ln_f.bias", {4}},
                                       {"h.0.ln_1.weight", {4}},
                                       {"h.0.ln_1.bias", {4}},
                                       {"h.0.ln_2.weight", {4}},
                                       {"h.0.ln_2.bias", {4}},
                                       {"h.0.attn.c_attn.weight", {4, 12}},
                                       {"h.0.attn.c_attn.bias", {12}},
                                       {"h.0.attn.c_proj.weight", {4, 4}},
                                       {"h.0.attn.c_proj.bias", {4}},
                                       {"h.0.mlp.c_fc.weight", {4, 16}},
                                       {"h.0.mlp.c_fc.bias", {16}},
                                       {"h.0.mlp.c_proj.weight", {16, 4}},
                                       {"h.0.mlp.c_proj.bias", {4}}};
  std::map<std::string, Shape> named;
  for (const auto& [name, shape] : tensors) named[prefix + name] = shape;
  return named;
}

inline const std::string kSmallLlama =
    R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16})";

inline std::map<std::string, Shape> small_llama_tensors() {
  const std::string block = "model.layers.0.";
  return {{"model.embed_tokens.weight", {5, 8}},
          {"model.norm.weight", {8}},
          {"lm_head.weight", {5, 8}},
          {block + "input_layernorm.weight", {8}},
          {block + "post_attention_layernorm.weight", {8}},
          {block + "self_attn.q_proj.weight", {8, 8}},
          {block + "self_attn.k_proj.weight", {4, 8}},
          {block + "self_attn.v_proj.weight", {4, 8}},
          {block + "self_attn.o_proj.weight", {8, 8}},
          {block + "mlp.gate_proj.weight", {6, 8}},
          {block + "mlp.up_proj.weight", {6, 8}},
          {block + "mlp.down_proj.weight", {8, 6}}};
}

// Another type of model with the sizes of the small Llama.
inline std::string small_llama_as(const std::string& model_type, const std::string& members = "") {
  std::string config = kSmallLlama;
  config.replace(config.find("\"llama\""), 7, "\"" + model_type + "\"" + members);
  return config;
}

inline std::map<std::string, Shape> small_qwen2_tensors() {
  auto tensors = small_llama_tensors();
  const std::string attention = "model.layers.0.self_attn.";
  tensors[attention + "q_proj.bias"] = {8};
  tensors[attention + "k_proj.bias"] = tensors[attention + "v_proj.bias"] = {4};
  return tensors;
}

inline std::map<std::string, Shape> small_qwen3_tensors() {
  auto tensors = small_llama_tensors();
  for (const char* norm : {"q_norm", "k_norm"}) tensors[std::string("model.layers.0.self_attn.") + norm + ".weight"] = {4};
  return tensors;
}

inline std::map<std::string, Shape> without_mlp(std::map<std::string, Shape> tensors) {
  std::erase_if(tensors, [](const auto& tensor) { return tensor.first.find(".mlp.") != std::string::npos; });
  return tensors;
}

inline std::string small_mixtral() {
  return small_llama_as("mixtral", R"(, "num_local_experts": 2, "num_experts_per_tok": 1)");
}

inline std::map<std::string, Shape> small_mixtral_tensors() {
  auto tensors = without_mlp(small_llama_tensors());
  const std::string block = "model.layers.0.block_sparse_moe.";
  tensors[block + "gate.weight"] = {2, 8};
  for (const std::string expert : {"experts.0.", "experts.1."}) {
    tensors[block + expert + "w1.weight"] = tensors[block + expert + "w3.weight"] = {6, 8};
    tensors[block + expert + "w2.weight"] = {8, 6};
  }
  return tensors;
}

inline std::string small_qwen3_moe() {
  return small_llama_as("qwen3_moe", R"(, "head_dim": 4, "num_experts": 3, "num_experts_per_tok": 2,
                                         "moe_intermediate_size": 5, "norm_topk_prob": true)");
}

inline std::map<std::string, Shape> small_qwen3_moe_tensors() {
  auto tensors = without_mlp(small_qwen3_tensors());
  const std::string block = "model.layers.0.mlp.";
  tensors[block + "gate.weight"] = {3, 8};
  for (const std::string expert : {"experts.0.", "experts.1.", "experts.2."}) {
    tensors[block + expert + "gate_proj.weight"] = tensors[block + expert + "up_proj.weight"] = {5, 8};
    tensors[block + expert + "down_proj.weight"] = {8, 5};
  }
  return tensors;
}

// An MLP of all tokens beside `count` experts, all of width 5.
inline std::map<std::string, Shape> with_shared_expert(std::map<std::string, Shape> tensors, const std::string& shared,
                                                       int64_t count) {
  tensors = without_mlp(std::move(tensors));
  const std::string block = "model.layers.0.mlp.";
  tensors[block + "gate.weight"] = {count, 8};
  for (int64_t e = 0; e <= count; ++e) {
    const std::string mlp = block + (e < count ? "experts." + std::to_string(e) : shared);
    tensors[mlp + ".gate_proj.weight"] = tensors[mlp + ".up_proj.weight"] = {5, 8};
    tensors[mlp + ".down_proj.weight"] = {8, 5};
  }
  return tensors;
}

inline std::string small_qwen2_moe() {
  return small_llama_as("qwen2_moe", R"(, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5,
                                         "shared_expert_intermediate_size": 5)");
}

inline std::map<std::string, Shape> small_qwen2_moe_tensors() {
  auto tensors = with_shared_expert(small_qwen2_tensors(), "shared_expert", 3);
  tensors["model.layers.0.mlp.shared_expert_gate.weight"] = {1, 8};
  return tensors;
}

inline const std::string kSmallDeepSeekExperts =
    R"(, "head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 5,
       "n_group": 2, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "first_k_dense_replace": 0)";

inline std::string small_dots1() { return small_llama_as("dots1", kSmallDeepSeekExperts); }

inline std::map<std::string, Shape> small_dots1_tensors() {
  auto tensors = with_shared_expert(small_qwen3_tensors(), "shared_experts", 4);
  tensors["model.layers.0.mlp.gate.e_score_correction_bias"] = {4};
  return tensors;
}

inline std::string small_glm4_moe() {
  return small_llama_as("glm4_moe", kSmallDeepSeekExperts + R"(, "attention_bias": true, "num_nextn_predict_layers": 1)");
}

inline std::map<std::string, Shape> small_glm4_moe_tensors() {
  auto tensors = with_shared_expert(small_qwen2_tensors(), "shared_experts", 4);
  tensors["model.layers.0.mlp.gate.e_score_correction_bias"] = {4};
  return tensors;
}

// As transformers has them in memory.
inline std::map<std::string, Shape> small_fused_experts() {
  auto tensors = without_mlp(small_qwen3_tensors());
  const std::string block = "model.layers.0.mlp.";
  tensors[block + "gate.weight"] = {3, 8};
  tensors[block + "experts.gate_up_proj"] = {3, 10, 8};
  tensors[block + "experts.down_proj"] = {3, 8, 5};
  return tensors;
}

inline std::map<std::string, Shape> small_gemma3_tensors() {
  auto tensors = small_qwen3_tensors();
  tensors.erase("lm_head.weight");
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"})
    tensors[std::string("model.layers.0.") + norm + ".weight"] = {8};
  return tensors;
}

inline std::map<std::string, Shape> small_gemma2_tensors() {
  auto tensors = small_gemma3_tensors();
  for (const char* norm : {"q_norm", "k_norm"}) tensors.erase(std::string("model.layers.0.self_attn.") + norm + ".weight");
  return tensors;
}

// The keys beyond those of the small Llama, for types of which each has some of its own.
inline const std::map<std::string, std::string> kSmallLater{
    {"smollm3", R"(, "tie_word_embeddings": false, "no_rope_layers": [0])"},
    {"seed_oss", R"(, "head_dim": 4, "attention_bias": false, "attention_out_bias": true)"},
    {"gpt_oss", R"(, "head_dim": 4, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 3, "swiglu_limit": 7.0,
                     "layer_types": ["sliding_attention"], "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0,
                     "factor": 2.0, "truncate": false, "original_max_position_embeddings": 8})"},
    {"granite", R"(, "embedding_multiplier": 12.0, "attention_multiplier": 0.1, "residual_multiplier": 0.22,
                     "logits_scaling": 49.0, "attention_bias": true)"},
    {"olmo2", ""},
    {"olmo3", R"(, "sliding_window": 3, "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
                   "original_max_position_embeddings": 8})"},
    {"olmoe", R"(, "num_experts": 3, "num_experts_per_tok": 2)"},
    {"deepseek_v2", R"(, "head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
                    "moe_intermediate_size": 5, "first_k_dense_replace": 0, "qk_nope_head_dim": 2, "qk_rope_head_dim": 4, "v_head_dim": 3, "kv_lora_rank": 5, "q_lora_rank": null,
                    "routed_scaling_factor": 2.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
                    "original_max_position_embeddings": 8, "mscale": 0.707, "mscale_all_dim": 0.707})"},
    {"deepseek_v3", kSmallDeepSeekExperts + R"(, "qk_nope_head_dim": 2, "qk_rope_head_dim": 4, "v_head_dim": 3,
                    "kv_lora_rank": 5, "q_lora_rank": 7)"},
    {"exaone4", R"(, "sliding_window": 3, "layer_types": ["full_attention"])"},
    {"ministral3", R"(, "head_dim": 4, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0,
                        "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.1})"}};

// Two experts of 8 inputs and a width of 6, all together.
inline std::map<std::string, Shape> small_gpt_oss_tensors() {
  auto tensors = without_mlp(small_qwen2_tensors());
  const std::string block = "model.layers.0.";
  tensors[block + "self_attn.o_proj.bias"] = {8};
  tensors[block + "self_attn.sinks"] = {2};
  tensors[block + "mlp.router.weight"] = {3, 8};
  tensors[block + "mlp.router.bias"] = {3};
  tensors[block + "mlp.experts.gate_up_proj"] = {3, 8, 12};
  tensors[block + "mlp.experts.gate_up_proj_bias"] = {3, 12};
  tensors[block + "mlp.experts.down_proj"] = {3, 6, 8};
  tensors[block + "mlp.experts.down_proj_bias"] = {3, 8};
  return tensors;
}

inline bool has_latents(const std::string& type) { return type.starts_with("deepseek"); }

inline std::string small_later(const std::string& type) {
  std::string config = small_llama_as(type, kSmallLater.at(type));
  const std::string key = "\"num_key_value_heads\": 1";
  return has_latents(type) ? config.replace(config.find(key), key.size(), "\"num_key_value_heads\": 2") : config;
}

// Heads of 2 plain and 4 rotary elements, values of 3.
inline std::map<std::string, Shape> small_latent_tensors(const std::string& type) {
  auto tensors = with_shared_expert(small_llama_tensors(), "shared_experts", 4);
  const std::string attention = "model.layers.0.self_attn.";
  if (type == "deepseek_v3") {
    tensors["model.layers.0.mlp.gate.e_score_correction_bias"] = {4};
    tensors[attention + "q_a_proj.weight"] = {7, 8};
    tensors[attention + "q_a_layernorm.weight"] = {7};
    tensors[attention + "q_b_proj.weight"] = {2 * 6, 7};
  }
  for (const char* part : {"q", "k", "v"}) tensors.erase(attention + part + "_proj.weight");
  if (type == "deepseek_v2") tensors[attention + "q_proj.weight"] = {2 * 6, 8};
  tensors[attention + "kv_a_proj_with_mqa.weight"] = {5 + 4, 8};
  tensors[attention + "kv_a_layernorm.weight"] = {5};
  tensors[attention + "kv_b_proj.weight"] = {2 * (2 + 3), 5};
  tensors[attention + "o_proj.weight"] = {8, 2 * 3};
  return tensors;
}

inline std::map<std::string, Shape> small_later_tensors(const std::string& type) {
  if (has_latents(type)) return small_latent_tensors(type);
  if (type == "gpt_oss") return small_gpt_oss_tensors();
  auto tensors = small_llama_tensors();
  const std::string block = "model.layers.0.", attention = block + "self_attn.";
  if (type == "seed_oss" || type == "granite") tensors[attention + "o_proj.bias"] = {8};
  if (type == "granite") {
    tensors[attention + "q_proj.bias"] = {8};
    tensors[attention + "k_proj.bias"] = tensors[attention + "v_proj.bias"] = {4};
  }
  const bool olmo = type.starts_with("olmo");
  if (olmo || type == "exaone4") {
    tensors[attention + "q_norm.weight"] = {olmo ? 8 : 4};
    tensors[attention + "k_norm.weight"] = {4};
  }
  if (type == "olmo2" || type == "olmo3" || type == "exaone4") {
    tensors.erase(block + "input_layernorm.weight");
    tensors[block + "post_feedforward_layernorm.weight"] = {8};
  }
  if (type != "olmoe") return tensors;
  tensors = without_mlp(std::move(tensors));
  tensors[block + "mlp.gate.weight"] = {3, 8};
  for (const std::string expert : {"mlp.experts.0.", "mlp.experts.1.", "mlp.experts.2."}) {
    for (const std::string part : {"gate", "up"}) tensors[block + expert + part + "_proj.weight"] = {6, 8};
    tensors[block + expert + "down_proj.weight"] = {8, 6};
  }
  return tensors;
}

// The projections are fused.
inline std::map<std::string, Shape> small_phi3_tensors() {
  const std::string block = "model.layers.0.";
  return {{"model.embed_tokens.weight", {5, 8}},
          {"model.norm.weight", {8}},
          {"lm_head.weight", {5, 8}},
          {block + "input_layernorm.weight", {8}},
          {block + "post_attention_layernorm.weight", {8}},
          {block + "self_attn.qkv_proj.weight", {16, 8}},
          {block + "self_attn.o_proj.weight", {8, 8}},
          {block + "mlp.gate_up_proj.weight", {12, 8}},
          {block + "mlp.down_proj.weight", {8, 6}}};
}

inline void write_model(FileSystem& files, const std::string& directory, const std::string& config,
                        const std::string& weights) {
  create_directories(files, directory);
  write_text(files, directory + "/config.json", config);
  write_text(files, directory + "/model.safetensors", weights);
}

}  // namespace trivet::hugging_face
