// Reads the keys of config.json as the models of each family are published, in the spelling of several versions of transformers
// and of other programs that save models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "interchange/hugging_face/pretrained_model.h"

namespace trivet::hugging_face {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Published {
  std::string name, config;
  std::string ignored;  // the keys of its only note; "": it has none
};
void PrintTo(const Published& published, std::ostream* out) { *out << published.name; }

const std::string kRopeLlama3 =
    R"("rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
       "rope_type": "llama3"}, "rope_theta": 500000.0)";
const std::string kGpt2 =
    R"("activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
       "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
       "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
       "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
       "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
       "vocab_size": 50257)";
// What the descendants of Llama share, in small.
const std::string kBlock =
    R"("attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 512,
       "num_attention_heads": 4, "num_hidden_layers": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "use_cache": true,
       "vocab_size": 1000, "bos_token_id": 1, "eos_token_id": 2)";
const std::string kOfVersion4 = R"(, "torch_dtype": "bfloat16", "transformers_version": "4.45.0")";
const std::string kPhi3 =
    kBlock + R"(, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": false, "embd_pdrop": 0.0,
       "resid_pdrop": 0.0, "original_max_position_embeddings": 4096, "pad_token_id": 32000, "rope_theta": 10000.0,
       "tie_word_embeddings": false, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"})" +
    kOfVersion4;
const std::string kGemma =
    R"("attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": [1, 106], "head_dim": 64,
       "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 512,
       "max_position_embeddings": 8192, "num_attention_heads": 4, "num_hidden_layers": 6, "num_key_value_heads": 1,
       "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "use_cache": true, "vocab_size": 1000,
       "cache_implementation": "hybrid", "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0")";

// In latent attention each head has its own key.
std::string with_all_keys(std::string block) {
  const std::string key = "\"num_key_value_heads\": ";
  return block.replace(block.find(key) + key.size(), 1, "4");
}

std::vector<Published> published() {
  const std::string llama = kBlock + R"(, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "pretraining_tp": 1,
      "max_position_embeddings": 131072, "tie_word_embeddings": false)";
  const std::string qwen = kBlock + R"(, "max_position_embeddings": 32768, "rope_theta": 1000000.0, "sliding_window": 32768,
      "use_sliding_window": false, "tie_word_embeddings": true)" +
                           kOfVersion4;
  const auto longrope = [](int pairs) {
    std::string factors = "1.5";
    for (int i = 1; i < pairs; ++i) factors += ", 1.5";
    return R"(, "rope_scaling": {"type": "longrope", "long_factor": [)" + factors + "], \"short_factor\": [" + factors + "]}";
  };
  return {
      {"gpt2", kGpt2, ""},
      {"gpt2-medium", kGpt2 + R"(, "n_special": 0, "predict_special_tokens": true)", "2 keys"},
      {"distilgpt2", kGpt2 + R"(, "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0})", "1 key"},
      {"gpt2 with two names of a key", kGpt2 + R"(, "hidden_size": 768, "n_inner": null, "gradient_checkpointing": false)", ""},
      {"Llama 1 and 2", kBlock + R"(, "model_type": "llama", "max_position_embeddings": 4096, "pretraining_tp": 1,
          "rope_scaling": null, "_name_or_path": "x", "max_sequence_length": 2048)",
       "max_sequence_length"},
      {"Llama 3.2", llama + R"(, "head_dim": 64, "mlp_bias": false, "attention_bias": false, )" + kRopeLlama3 + kOfVersion4,
       ""},
      {"TinyLlama",
       llama + R"(, "rope_scaling": null, "rope_theta": 10000.0, "torch_dtype": "float32", "attention_bias": false)", ""},
      {"SmolLM2",
       llama + R"(, "is_llama_config": true, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
          "transformers.js_config": {"dtype": "q4", "kv_cache_dtype": {"q4f16": "float16"}})" +
           kOfVersion4,
       "2 keys change no result of transformers' LlamaForCausalLM and were ignored: is_llama_config, transformers.js_config"},
      {"a share that Llama does not read", llama + R"(, "partial_rotary_factor": 0.5)" + kOfVersion4, "partial_rotary_factor"},
      {"Falcon 3", llama + R"(, "activation": "swiglu", "head_dim": 256)", "activation"},
      {"saved by unsloth",
       llama + R"(, "unsloth_fixed": true, "unsloth_version": "2025.3.1", "pad_token_id": 128004)" + kOfVersion4,
       "unsloth_fixed, unsloth_version"},
      {"saved by axolotl", llama + R"(, "_attn_implementation_autoset": true, "neftune_noise_alpha": 5)" + kOfVersion4,
       "_attn_implementation_autoset, neftune_noise_alpha"},
      {"LongChat", llama + R"(, "rope_scaling": {"type": "linear", "factor": 8.0, "original_max_position_embeddings": 4096})",
       "rope_scaling.original_max_position_embeddings"},
      {"Llama of transformers 5",
       kBlock + R"(, "model_type": "llama", "dtype": "bfloat16", "head_dim": 64, "transformers_version": "5.24.0",
          "layer_types": null, "pad_token_id": null, "max_position_embeddings": 64,
          "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"})",
       ""},
      {"Mistral v0.1", kBlock + R"(, "model_type": "mistral", "max_position_embeddings": 32768, "sliding_window": 4096,
          "rope_theta": 10000.0, "tie_word_embeddings": false, "transformers_version": "4.34.0.dev0")",
       ""},
      {"Mistral v0.3",
       kBlock + R"(, "model_type": "mistral", "max_position_embeddings": 32768, "sliding_window": null, "head_dim": 64,
          "rope_theta": 1000000.0, "tie_word_embeddings": false, "attention_bias": false)" +
           kOfVersion4,
       ""},
      {"Qwen 2.5",
       qwen + R"(, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_window_layers": 70, "use_mrope": false)",
       ""},
      {"Qwen 2.5 with default rotary keys", qwen + R"(, "model_type": "qwen2", "max_window_layers": 70,
          "rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]})",
       "rope_scaling.mrope_section"},
      {"Qwen 2.5 with yarn", qwen + R"(, "model_type": "qwen2", "max_window_layers": 70,
          "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn", "finetuned": true})",
       "rope_scaling.finetuned"},
      {"Qwen 3",
       qwen + R"(, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "max_window_layers": 36, "head_dim": 128,
          "attention_bias": false, "rope_scaling": null, "decoder_sparse_step": 1)",
       "decoder_sparse_step"},
      {"Mixtral 8x7B", kBlock + R"(, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_experts_per_tok": 2,
          "max_position_embeddings": 32768, "num_local_experts": 8, "output_router_logits": false, "rope_theta": 1000000.0,
          "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "transformers_version": "4.36.0.dev0")",
       "router_aux_loss_coef 0.02 was ignored: transformers trains with it only if output_router_logits is true"},
      {"Mixtral 8x22B of transformers 5", kBlock + R"(, "model_type": "mixtral", "max_position_embeddings": 65536,
          "head_dim": 64, "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": false,
          "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "sliding_window": null, "tie_word_embeddings": false,
          "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}, "transformers_version": "5.30.0")",
       "router_aux_loss_coef 0.001"},
      {"Qwen3-30B-A3B",
       kBlock + R"(, "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "model_type": "qwen3_moe",
          "decoder_sparse_step": 1, "head_dim": 128, "max_position_embeddings": 40960, "max_window_layers": 48,
          "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true, "num_experts": 128,
          "num_experts_per_tok": 8, "output_router_logits": false, "rope_scaling": null, "rope_theta": 1000000.0,
          "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false)" +
           kOfVersion4,
       "router_aux_loss_coef 0.001"},
      {"SmolLM3",
       kBlock + R"(, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias": false,
          "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention"], "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false,
          "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1], "pretraining_tp": 2, "rope_scaling": null,
          "rope_theta": 5000000.0, "sliding_window": null, "use_sliding_window": false)" +
           kOfVersion4,
       ""},
      {"Seed-OSS",
       kBlock.substr(kBlock.find("\"hidden_act\"")) + R"(, "model_type": "seed_oss", "attention_bias": true,
          "attention_dropout": 0.1, "attention_out_bias": false, "head_dim": 128, "max_position_embeddings": 524288,
          "mlp_bias": false, "residual_dropout": 0.1, "rope_scaling": {"rope_type": "default"}, "rope_theta": 10000000.0,
          "tie_word_embeddings": false)" +
           kOfVersion4,
       "attention_dropout 0.1 and residual_dropout 0.1: training has no dropout unless model.dropout"},
      {"Granite 3.3",
       kBlock + R"(, "model_type": "granite", "attention_bias": false, "attention_multiplier": 0.015625,
          "embedding_multiplier": 12.0, "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": false,
          "residual_multiplier": 0.22, "rope_scaling": null, "rope_theta": 10000000.0, "tie_word_embeddings": true)" +
           kOfVersion4,
       ""},
      {"OLMo 2",
       kBlock + R"(, "model_type": "olmo2", "attention_bias": false, "max_position_embeddings": 4096,
          "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false, "pad_token_id": 100277)" +
           kOfVersion4,
       ""},
      {"OLMo 3",
       kBlock + R"(, "model_type": "olmo3", "attention_bias": false, "max_position_embeddings": 65536,
          "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention"], "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0,
          "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"},
          "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": false)" +
           kOfVersion4,
       ""},
      {"OLMoE",
       kBlock + R"(, "model_type": "olmoe", "attention_bias": false, "clip_qkv": null, "max_position_embeddings": 4096,
          "norm_topk_prob": false, "num_experts": 64, "num_experts_per_tok": 8, "output_router_logits": false,
          "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false)" +
           kOfVersion4,
       "router_aux_loss_coef 0.01"},
      {"EXAONE 4",
       kBlock + R"(, "model_type": "exaone4", "head_dim": 128, "max_position_embeddings": 131072,
          "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
          "sliding_attention", "sliding_attention"], "sliding_window": 4096, "sliding_window_pattern": "LLLG",
          "tie_word_embeddings": false, )" +
           kRopeLlama3 + kOfVersion4,
       ""},
      {"EXAONE 4 without windows",
       kBlock + R"(, "model_type": "exaone4", "head_dim": 64, "max_position_embeddings": 65536,
          "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
          "full_attention"], "sliding_window": null, "sliding_window_pattern": null, "tie_word_embeddings": true, )" +
           kRopeLlama3 + kOfVersion4,
       ""},
      {"Ministral 3", kBlock + R"(, "model_type": "ministral3", "head_dim": 128, "max_position_embeddings": 262144,
          "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
          "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0, "rope_type": "yarn",
          "type": "yarn"}, "sliding_window": null, "tie_word_embeddings": true, "transformers_version": "5.0.0")",
       ""},
      {"Qwen1.5-MoE-A2.7B",
       kBlock + R"(, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
          "decoder_sparse_step": 1, "max_position_embeddings": 8192, "max_window_layers": 21, "moe_intermediate_size": 1408,
          "norm_topk_prob": false, "num_experts": 60, "num_experts_per_tok": 4, "output_router_logits": false,
          "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632,
          "sliding_window": 32768, "tie_word_embeddings": false, "use_sliding_window": false)" +
           kOfVersion4,
       "router_aux_loss_coef 0.001"},
      {"GLM-4.5",
       kBlock + R"(, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "attention_bias": true,
          "first_k_dense_replace": 3, "head_dim": 128, "max_position_embeddings": 131072, "moe_intermediate_size": 1536,
          "n_group": 1, "n_routed_experts": 160, "n_shared_experts": 1, "norm_topk_prob": true, "num_experts_per_tok": 8,
          "num_nextn_predict_layers": 1, "pad_token_id": 151329, "partial_rotary_factor": 0.5, "rope_scaling": null,
          "rope_theta": 1000000, "routed_scaling_factor": 2.5, "tie_word_embeddings": false, "topk_group": 1,
          "use_qk_norm": true)" +
           kOfVersion4,
       ""},
      {"DeepSeek-V3",
       with_all_keys(kBlock) + R"(, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
          "attention_bias": false, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "ep_size": 1,
          "first_k_dense_replace": 3, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048,
          "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
          "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
          "qk_rope_head_dim": 64, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "rope_theta": 10000,
          "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
          "original_max_position_embeddings": 4096, "type": "yarn"}, "tie_word_embeddings": false, "topk_group": 4,
          "topk_method": "noaux_tc", "v_head_dim": 128)" +
           kOfVersion4,
       "auto_map"},
      {"Moonlight",
       with_all_keys(kBlock) + R"(, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
          "attention_bias": false, "aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 1, "kv_lora_rank": 512,
          "max_position_embeddings": 8192, "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
          "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": true, "num_experts_per_tok": 6,
          "num_nextn_predict_layers": 0, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
          "qk_rope_head_dim": 64, "rope_scaling": null, "rope_theta": 50000.0, "routed_scaling_factor": 2.446,
          "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc",
          "v_head_dim": 128)" +
           kOfVersion4,
       ""},
      {"DeepSeek-V2-Lite",
       with_all_keys(kBlock) + R"(, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
          "attention_bias": false, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"}, "aux_loss_alpha": 0.001,
          "ep_size": 1, "first_k_dense_replace": 1, "kv_lora_rank": 512, "max_position_embeddings": 163840,
          "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
          "norm_topk_prob": false, "num_experts_per_tok": 6, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
          "qk_rope_head_dim": 64, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
          "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
          "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1,
          "topk_method": "greedy", "v_head_dim": 128)" +
           kOfVersion4,
       "auto_map"},
      {"GLM-4.7-Flash",
       with_all_keys(kBlock) + R"(, "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
          "attention_bias": false, "pad_token_id": 154820, "partial_rotary_factor": 1.0, "max_position_embeddings": 202752,
          "moe_intermediate_size": 1536, "topk_method": "noaux_tc", "norm_topk_prob": true, "n_group": 1, "topk_group": 1,
          "n_routed_experts": 64, "n_shared_experts": 1, "routed_scaling_factor": 1.8, "num_experts_per_tok": 4,
          "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "rope_scaling": null, "rope_theta": 1000000,
          "tie_word_embeddings": false, "kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192,
          "qk_rope_head_dim": 64, "v_head_dim": 256)" +
           kOfVersion4,
       ""},
      {"gpt-oss-20b",
       kBlock + R"(, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
          "attention_bias": true, "experts_per_token": 4, "head_dim": 64, "initial_context_length": 4096,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
          "full_attention"], "max_position_embeddings": 131072, "num_experts_per_tok": 4, "num_local_experts": 32,
          "output_router_logits": false, "pad_token_id": 199999, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
          "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
          "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
          "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
          "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
          "tie_word_embeddings": false)" +
           kOfVersion4,
       "router_aux_loss_coef 0.9"},
      {"dots.llm1",
       kBlock + R"(, "architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "attention_bias": false,
          "first_k_dense_replace": 1, "max_position_embeddings": 32768, "max_window_layers": 62, "moe_intermediate_size": 1408,
          "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 2, "norm_topk_prob": true, "num_experts_per_tok": 6,
          "rope_scaling": null, "rope_theta": 10000000, "routed_scaling_factor": 2.5, "scoring_func": "noaux_tc",
          "sliding_window": null, "tie_word_embeddings": false, "topk_group": 1)" +
           kOfVersion4,
       "scoring_func"},
      {"Phi-3-mini-4k", kPhi3 + R"(, "max_position_embeddings": 4096, "sliding_window": 2047, "rope_scaling": null)",
       "1 key changes no result of transformers' Phi3ForCausalLM and was ignored: auto_map"},
      {"Phi-3.5-mini", kPhi3 + R"(, "max_position_embeddings": 131072, "sliding_window": 262144)" + longrope(32), "auto_map"},
      {"Phi-4-mini",
       kPhi3 + R"(, "max_position_embeddings": 131072, "sliding_window": 262144, "partial_rotary_factor": 0.75,
          "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false, "mlp_bias": false)" +
           longrope(24),
       "auto_map, full_attn_mod, interpolate_factor"},
      {"Gemma 2", kGemma + R"(, "model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
          "final_logit_softcapping": 30.0, "rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096)",
       "sliding_window_size"},
      {"Gemma 3 1B", kGemma + R"(, "model_type": "gemma3_text", "attn_logit_softcapping": null, "final_logit_softcapping": null,
          "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
          "sliding_window_pattern": 6)",
       "cache_implementation"},
      {"Gemma 3 270M",
       kGemma + R"(, "model_type": "gemma3_text", "_sliding_window_pattern": 6, "use_bidirectional_attention": false,
          "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
          "full_attention"], "rope_local_base_freq": 10000, "rope_theta": 1000000, "sliding_window": 512)",
       "cache_implementation"},
  };
}

class PublishedConfig : public testing::TestWithParam<Published> {};

TEST_P(PublishedConfig, IsReadWithAtMostOneShortNote) {
  const DescribedModel described = describe_model("{" + GetParam().config + "}", "config.json");
  if (GetParam().ignored.empty()) {
    EXPECT_THAT(described.notes, testing::IsEmpty());
    return;
  }
  ASSERT_THAT(described.notes, testing::SizeIs(1));
  EXPECT_THAT(described.notes[0], HasSubstr(GetParam().ignored));
  EXPECT_LT(described.notes[0].size(), 250u);
}

INSTANTIATE_TEST_SUITE_P(OfEveryFamily, PublishedConfig, testing::ValuesIn(published()), [](const auto& model) {
  std::string name = model.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

TEST(PublishedConfigs, WhatTheClassOfALatentModelDoesNotReadChangesNothing) {
  const auto described = [](const std::string& members) {
    return describe_model(
               "{" + with_all_keys(kBlock) + R"(, "num_experts_per_tok": 2, "model_type": "deepseek_v2")" + members + "}", "c")
        .config.model;
  };
  EXPECT_EQ(described("").experts.count, 64);
  EXPECT_EQ(described(R"(, "num_experts": 8)").experts.count, 8);
  EXPECT_EQ(described(R"(, "num_local_experts": 8)").experts.count, 64);
  EXPECT_EQ(described(R"(, "rope_scaling": {"type": "default", "factor": 40, "mscale_all_dim": 1.0})").query_scale_size, 0);
  // 192 / (1 + 0.0707 ln 40)^4
  EXPECT_NEAR(described(R"(, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
                           "original_max_position_embeddings": 64})")
                  .query_scale_size,
              192 / std::pow(1 + 0.0707 * std::log(40), 4), 1e-9);
}

TEST(PublishedConfigs, AMultiplierOfScoresIsAWholeSizeIfItIsNextToOne) {
  const auto size = [](const std::string& multiplier) {
    const std::string config = kBlock + R"(, "model_type": "granite", "attention_multiplier": )" + multiplier;
    return describe_model("{" + config + "}", "c").config.model.query_scale_size;
  };
  EXPECT_EQ(size("0.1"), 100);  // 1 / (0.1 x 0.1) is 99.99999999999999 in double
  EXPECT_EQ(size("0.3"), 1 / (0.3 * 0.3));
}

TEST(PublishedConfigs, AHeadSizeThatIsNullFollowsFromTheOtherSizes) {
  for (const std::string type : {"seed_oss", "ministral3"})
    for (const auto& [head_dim, size] : {std::pair{"", 128}, {R"("head_dim": null, )", 64}, {R"("head_dim": 32, )", 32}}) {
      const std::string config = kBlock + ", " + head_dim + R"("model_type": ")" + type +
                                 R"(", "rope_scaling": {"rope_type": "default", "llama_4_scaling_beta": 0.1,
                                     "original_max_position_embeddings": 64})";
      EXPECT_EQ(describe_model("{" + config + "}", "c").config.model.head_size, size) << type;
    }
}

// Keys that change what transformers computes, each in a config that is accepted without it.
TEST(PublishedConfigs, WhatChangesAResultIsRefusedByName) {
  struct Case {
    std::string config, key;
  };
  const std::string llama = kBlock + R"(, "model_type": "llama", "max_position_embeddings": 64)";
  const std::string qwen = kBlock + R"(, "model_type": "qwen2", "max_position_embeddings": 64)";
  const std::string latent = with_all_keys(kBlock) + R"(, "model_type": "deepseek_v3")";
  const std::string flash = with_all_keys(kBlock) + R"(, "model_type": "glm4_moe_lite")";
  const std::string lite = with_all_keys(kBlock) + R"(, "model_type": "deepseek_v2", "num_experts_per_tok": 2)";
  const std::string oss = kBlock + R"(, "model_type": "gpt_oss", "rope_scaling": {"rope_type": "default"})";
  const auto as = [](const std::string& type) { return kBlock + R"(, "model_type": ")" + type + "\""; };
  for (const Case& wrong :
       {Case{llama + R"(, "quantization_config": {"bits": 4, "quant_method": "gptq"})", "quantization_config"},
        Case{llama + R"(, "compression_config": {"format": "int-quantized"})", "compression_config"},
        Case{llama + R"(, "quantization": {"bits": 4, "group_size": 64})", "quantization"},
        Case{llama + R"(, "transformers_weights": "other.safetensors")", "transformers_weights"},
        Case{llama + R"(, "mlp_bias": true)", "mlp_bias"},
        Case{llama + R"(, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2})",
             "partial_rotary_factor"},
        Case{llama + R"(, "rope_parameters": {"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5})",
             "rope_parameters.partial_rotary_factor"},
        Case{llama + R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0})", "rope_scaling.type"},
        Case{llama + R"(, "new_key": 1, "transformers_version": "6.0.0")", "new_key"},
        Case{kGpt2 + R"(, "pruned_heads": {"0": [1]})", "pruned_heads"},
        Case{kGpt2 + R"(, "hidden_size": 64)", "hidden_size"},
        Case{kGpt2 + R"(, "scale_attn_by_inverse_layer_idx": true)", "scale_attn_by_inverse_layer_idx"},
        Case{qwen + R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2)", "max_window_layers"},
        Case{qwen + R"(, "rope_scaling": {"type": "mrope", "mrope_section": [8]})", "rope_scaling.type"},
        Case{as("smollm3") + R"(, "no_rope_layers": [1, 1, 0, 1, 1, 1])", "no_rope_layers"},
        Case{as("smollm3") + R"(, "no_rope_layers": [1, 1, 0])", "no_rope_layers"},
        Case{as("smollm3") + R"(, "no_rope_layer_interval": 0)", "no_rope_layer_interval"},
        Case{as("smollm3") + R"(, "use_sliding_window": true, "sliding_window": 8)", "use_sliding_window"},
        Case{as("seed_oss") + R"(, "mlp_bias": true)", "mlp_bias"},
        Case{as("granite") + R"(, "residual_multiplier": 0)", "residual_multiplier"},
        Case{as("gpt_oss"), "rope_parameters"},
        Case{as("gpt_oss") + R"(, "rope_scaling": {})", "rope_parameters"},
        Case{oss + R"(, "quantization_config": {"quant_method": "fp8"})", "quantization_config"},
        Case{oss + R"(, "quantization_config": {"quant_method": "mxfp4", "group_size": 16})", "quantization_config.group_size"},
        Case{llama + R"(, "quantization_config": {"quant_method": "mxfp4"})", "quantization_config"},
        Case{oss + R"(, "sliding_window": null)", "sliding_window"},
        Case{oss + R"(, "swiglu_limit": 0)", "swiglu_limit"},
        Case{as("granite") + R"(, "attention_multiplier": -1)", "attention_multiplier"},
        Case{as("olmo3") + R"(, "rope_theta": 10000)", "rope_theta"},
        Case{as("deepseek_v3"), "num_key_value_heads"},
        Case{latent + R"(, "rope_interleave": false)", "rope_interleave"},
        Case{latent + R"(, "rope_interleave": null)", "rope_interleave"},
        Case{latent + R"(, "rope_scaling": {"type": "linear", "factor": 2, "mscale_all_dim": 1.0})",
             "rope_scaling.mscale_all_dim"},
        Case{latent + R"(, "qk_head_dim": 128)", "qk_head_dim"},
        Case{latent + R"(, "head_dim": 192)", "head_dim"},
        Case{latent + R"(, "attention_bias": true)", "attention_bias"},
        Case{latent + R"(, "topk_method": "greedy")", "topk_method"},
        Case{latent + R"(, "scoring_func": "softmax")", "scoring_func"},
        Case{latent + R"(, "moe_layer_freq": 2)", "moe_layer_freq"},
        Case{flash + R"(, "first_k_dense_replace": 2)", "first_k_dense_replace"},
        Case{flash + R"(, "partial_rotary_factor": 0.5)", "partial_rotary_factor"},
        Case{lite + R"(, "n_routed_experts": 64, "num_experts": 8)", "n_routed_experts"},
        Case{flash + R"(, "mlp_layer_types": ["dense", "sparse"])", "mlp_layer_types"},
        Case{lite + R"(, "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3)", "topk_method"},
        Case{lite + R"(, "topk_method": "noaux_tc")", "topk_method"},
        Case{lite + R"(, "norm_topk_prob": true)", "norm_topk_prob"},
        Case{lite + R"(, "scoring_func": "sigmoid")", "scoring_func"},
        Case{as("olmo3") + R"(, "rope_local_base_freq": 10000)", "rope_local_base_freq"},
        Case{as("olmo3") + R"(, "sliding_window": null)", "sliding_window"},
        Case{as("olmo3") + R"(, "rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2}})",
             "rope_parameters.sliding_attention"},
        Case{as("olmoe") + R"(, "clip_qkv": 8.0)", "clip_qkv"},
        Case{as("olmoe") + R"(, "head_dim": 32)", "head_dim"},
        Case{as("olmoe") + R"(, "sliding_window": 8)", "sliding_window"},
        Case{as("exaone4") + R"(, "sliding_window": null)", "layer_types"},
        Case{as("exaone4") + R"(, "sliding_window_pattern": "LLLG")", "sliding_window_pattern"},
        Case{as("ministral3"), "rope_parameters"},
        Case{as("ministral3") + R"(, "rope_parameters": {"rope_type": "default", "original_max_position_embeddings": 8})",
             "rope_parameters.llama_4_scaling_beta"},
        Case{as("ministral3") + R"(, "rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1})",
             "rope_parameters.original_max_position_embeddings"},
        Case{kPhi3 +
                 R"(, "max_position_embeddings": 64, "hidden_dropout": 0.5, "rope_scaling": {"type": "linear", "factor": 2})",
             "rope_scaling.type"}})
    EXPECT_THAT([&] { describe_model("{" + wrong.config + "}", "c.json"); },
                ThrowsMessage<Error>(HasSubstr("c.json: " + wrong.key + ":")))
        << wrong.key;
}

}  // namespace
}  // namespace trivet::hugging_face
