#!/usr/bin/env python3
"""Writes tests/golden/hf: a tiny random model of each architecture, saved by transformers, with what transformers computes from it.

    python3 tests/golden/hf_reference.py tests/golden/hf [ARCHITECTURE...]
    python3 tests/golden/hf_reference.py --adapters tests/golden/adapters [NAME...]      models with a low-rank adapter, saved by PEFT

Each folder holds config.json and model.safetensors as transformers saves them (in several files for one of them), and
golden.safetensors: tokens, targets (-1 does not count), logits, loss, the norm of the loss's gradient and that of each parameter's
gradient (not in older files), computed in float64 from the float32 weights. Needs torch and transformers. The numbers depend on the version of torch's random generator, so a new run may
write other models; it is as good.
"""

import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

VOCABULARY, BATCH, SEQUENCE = 97, 2, 13

LLAMA_LIKE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=32, attention_dropout=0.0, bos_token_id=1, eos_token_id=2,
                  pad_token_id=None)

SMALL = dict(LLAMA_LIKE, hidden_size=16, intermediate_size=24, num_hidden_layers=1)

# name of the folder -> (class of the config, class of the model, arguments, other)
MODELS = {
    "gpt2": ("GPT2Config", dict(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
                                embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "llama": ("LlamaConfig", LLAMA_LIKE),
    "llama-tied": ("LlamaConfig", dict(LLAMA_LIKE, tie_word_embeddings=True, rope_theta=500000.0)),
    # Of the 4 pairs of a head, the first is kept, the second is in between, and the others are slowed down.
    "llama3": ("LlamaConfig", dict(LLAMA_LIKE, rope_parameters={"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0,
                                                                 "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                                 "original_max_position_embeddings": 32})),
    "mistral": ("MistralConfig", dict(LLAMA_LIKE, head_dim=12, sliding_window=5)),
    "qwen2": ("Qwen2Config", dict(LLAMA_LIKE, tie_word_embeddings=True,
                                  rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5})),
    "qwen3": ("Qwen3Config", dict(LLAMA_LIKE, head_dim=12)),
    "phi3": ("Phi3Config", dict(LLAMA_LIKE, sliding_window=7, partial_rotary_factor=0.75,
                                original_max_position_embeddings=32)),
    "gemma3": ("Gemma3TextConfig", dict(LLAMA_LIKE, num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=12, sliding_window=5,
                                        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
}
MODELS.update({
    # Limits and scores of the same size. query_pre_attn_scalar is not the head size, as in the largest Gemma 2.
    "gemma2": ("Gemma2Config", dict(SMALL, num_hidden_layers=3, head_dim=6, query_pre_attn_scalar=3, sliding_window=5,
                                    attn_logit_softcapping=0.5, final_logit_softcapping=1.5)),
    # Of the 4 pairs of a head, the first is kept, the last is slowed down, and two are in between.
    "qwen2-yarn": ("Qwen2Config", dict(SMALL, max_position_embeddings=256, num_attention_heads=2,
                                       rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                                                        "original_max_position_embeddings": 64})),
    # The keys of DeepSeek's models.
    "llama-yarn": ("LlamaConfig", dict(SMALL, max_position_embeddings=256, num_attention_heads=2,
                                       rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0, "beta_fast": 4,
                                                        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False,
                                                        "original_max_position_embeddings": 32})),
    # Sequences of 13 tokens are longer than the original 8, so the long factors hold.
    "phi3-longrope": ("Phi3Config", dict(SMALL, num_attention_heads=2, partial_rotary_factor=0.75, max_position_embeddings=32,
                                         original_max_position_embeddings=8,
                                         rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0,
                                                          "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.5, 4.0, 20.0]})),
})
# In the last one, only the fourth layer has experts: the first and third lack them by one key, the second by the other.
MODELS.update({
    "mixtral": ("MixtralConfig", dict(SMALL, num_hidden_layers=2, num_attention_heads=2, num_local_experts=4, num_experts_per_tok=2,
                                      sliding_window=5)),
    "qwen3-moe": ("Qwen3MoeConfig", dict(SMALL, num_hidden_layers=4, num_attention_heads=2, head_dim=12, num_experts=6,
                                         num_experts_per_tok=3, moe_intermediate_size=10, decoder_sparse_step=2,
                                         mlp_only_layers=[1], norm_topk_prob=False)),
})
# Groups of two and of four experts; the last rotates half of each head.
DEEPSEEK = dict(SMALL, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, head_dim=12, n_routed_experts=8,
                num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=6, first_k_dense_replace=1, norm_topk_prob=True,
                routed_scaling_factor=1.5)
LATENT = dict(DEEPSEEK, head_dim=4, num_key_value_heads=2, kv_lora_rank=6, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7)
MODELS.update({
    "qwen2-moe": ("Qwen2MoeConfig", dict(SMALL, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_experts=6,
                                         num_experts_per_tok=3, moe_intermediate_size=6, shared_expert_intermediate_size=10,
                                         decoder_sparse_step=2)),
    "dots1": ("Dots1Config", dict(DEEPSEEK, n_group=4, topk_group=2)),
    "deepseek-v2": ("DeepseekV2Config", dict(LATENT, q_lora_rank=9, norm_topk_prob=False, topk_method="greedy")),
    "glm4-moe-lite": ("Glm4MoeLiteConfig", dict(LATENT, q_lora_rank=9, num_hidden_layers=3,
                                                mlp_layer_types=["sparse", "dense", "sparse"])),
    # Its scores have a factor of their own, by mscale_all_dim.
    "deepseek-v3": ("DeepseekV3Config", dict(LATENT, n_group=2, topk_group=1, num_mtp_layers=0, q_lora_rank=None,
                                             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                                              "original_max_position_embeddings": 16, "beta_fast": 32.0,
                                                              "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.7})),
    "glm4-moe": ("Glm4MoeConfig", dict(DEEPSEEK, n_group=2, topk_group=1, attention_bias=True, use_qk_norm=True, num_mtp_layers=0)),
})
# Windows in every second layer. Limits of the SwiGLU are so low that they cut.
MODELS.update({
    "gpt-oss": ("GptOssConfig", dict(SMALL, hidden_size=8, intermediate_size=6, num_hidden_layers=3, num_attention_heads=2, head_dim=6,
                                     num_local_experts=4, num_experts_per_tok=2, sliding_window=5, swiglu_limit=0.3,
                                     rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 32.0,
                                                      "beta_slow": 1.0, "truncate": False,
                                                      "original_max_position_embeddings": 16})),
})
# The same with weights of experts in MXFP4, as published. Both matrices are square or twice that, like those of the 20B and 120B.
MXFP4 = {
    "gpt-oss-mxfp4": ("GptOssConfig", dict(SMALL, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                           head_dim=6, num_local_experts=3, num_experts_per_tok=2,
                                           rope_parameters={"rope_type": "default", "rope_theta": 150000.0})),
}
# Every third layer of SmolLM3 does not rotate. Norms of OLMo's projections are over 24 queries and 12 keys; biases of attention
# are in one of the two.
TINY = dict(SMALL, intermediate_size=10)
MODELS.update({
    "smollm3": ("SmolLM3Config", dict(TINY, num_hidden_layers=3, num_attention_heads=2, no_rope_layer_interval=3,
                                      use_sliding_window=False)),
    "seed-oss": ("SeedOssConfig", dict(TINY, head_dim=12, attention_bias=True, attention_out_bias=True, residual_dropout=0.0)),
    "granite": ("GraniteConfig", dict(TINY, num_hidden_layers=2, embedding_multiplier=3.0, attention_multiplier=0.7,
                                      residual_multiplier=0.3, logits_scaling=0.4)),
    "olmo2": ("Olmo2Config", dict(TINY, num_hidden_layers=2, num_attention_heads=4, head_dim=6, num_key_value_heads=2,
                                  attention_bias=True)),
    "olmo3": ("Olmo3Config", dict(TINY, num_hidden_layers=3, sliding_window=5, layer_types=["sliding_attention"] * 2 + ["full_attention"],
                                  rope_parameters={
                                      "full_attention": {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                                                         "original_max_position_embeddings": 16},
                                      "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})),
    "olmoe": ("OlmoeConfig", dict(TINY, num_hidden_layers=2, num_experts=4, num_experts_per_tok=2)),
    "exaone4": ("Exaone4Config", dict(TINY, num_hidden_layers=3, head_dim=6, sliding_window=5, sliding_window_pattern=2)),
    # Positions from 4 on have larger queries: there are four steps in 13 tokens.
    "ministral3": ("Ministral3Config", dict(TINY, head_dim=8, max_position_embeddings=16, rope_parameters={
        "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 4, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4})),
})
SHARD_BYTES = {"llama": 60_000}  # the others are one file


def randomize(model):
    """A wider spread than a real initialization, so that every weight matters to the logits."""
    generator = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.2 * noise)  # a norm's weight starts as 1 or, in Gemma, as 0; a bias as 0
            else:
                parameter.copy_(0.2 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))


def random_model(config_class, arguments):
    config = getattr(transformers, config_class)(**arguments)
    config._attn_implementation = "eager"
    if hasattr(config, "num_local_experts") or hasattr(config, "num_experts"):
        config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomize(model)
    return model


def write(folder, config_class, arguments):
    model = random_model(config_class, arguments)
    shutil.rmtree(folder, ignore_errors=True)
    limit = SHARD_BYTES.get(os.path.basename(folder))
    model.save_pretrained(folder, **({"max_shard_size": limit} if limit else {}))
    write_golden(folder, model)


def write_mxfp4(folder, config_class, arguments):
    """Random bytes as weights of experts. What they mean is transformers' to say, which makes float32 of them."""
    model = random_model(config_class, arguments)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(23)
    tensors = {}
    for name, value in model.state_dict().items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = value.bfloat16()
            continue
        experts, inputs, outputs = value.shape
        shape = (experts, outputs, inputs // 32)
        tensors[name + "_blocks"] = torch.randint(256, (*shape, 16), generator=generator, dtype=torch.uint8)
        tensors[name + "_scales"] = torch.randint(120, 124, shape, generator=generator, dtype=torch.uint8)
    model.config.dtype = torch.bfloat16
    model.config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    model.config.save_pretrained(folder)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    read = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        quantization_config=transformers.Mxfp4Config(dequantize=True))
    write_golden(folder, read)


EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# name of the folder -> (class of the config, arguments, arguments of LoraConfig)
ADAPTERS = {
    "llama": ("LlamaConfig", SMALL, dict(r=4, lora_alpha=8, target_modules="all-linear", use_rslora=True)),
    "gpt2": ("GPT2Config", dict(vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0,
                                embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0),
             dict(r=2, lora_alpha=3, target_modules=["c_attn", "c_proj"], rank_pattern={"c_attn": 3}, fan_in_fan_out=True)),
    "phi3": ("Phi3Config", SMALL, dict(r=3, lora_alpha=5, target_modules=["qkv_proj", "down_proj"])),
    # Files have Mixtral's experts one by one.
    "mixtral": ("MixtralConfig", dict(SMALL, num_attention_heads=2, num_local_experts=3, num_experts_per_tok=2),
                dict(r=2, lora_alpha=3, target_modules=["q_proj"], target_parameters=EXPERTS)),
    "gpt-oss": ("GptOssConfig", MODELS["gpt-oss"][1], dict(r=2, lora_alpha=3, target_modules=[], target_parameters=EXPERTS[:1])),
}


def write_adapted(folder, config_class, arguments, adapter):
    import peft

    shutil.rmtree(folder, ignore_errors=True)
    model = random_model(config_class, arguments)
    model.save_pretrained(folder)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **adapter))
    generator = torch.Generator().manual_seed(22)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.peft_config["default"].base_model_name_or_path = None
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    write_golden(folder, model.merge_and_unload())


def write_golden(folder, model):
    model = model.double().eval().requires_grad_(True)
    generator = torch.Generator().manual_seed(21)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets[0, 3] = targets[1, 0] = targets[1, SEQUENCE - 1] = -1
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1)
    loss.backward()
    norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
    norms = {f"gradient_norm {name}": p.grad.norm().detach().double() for name, p in model.named_parameters()}
    save_file({"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach().float(), "loss": loss.detach().double(),
               "gradient_norm": norm.detach().double(), **norms}, os.path.join(folder, "golden.safetensors"))
    print(f"{folder}: loss {loss.item():.6f}, gradient {norm.item():.6f}, largest logit {logits.abs().max().item():.3f}")


def main(target, names):
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    if target == "--adapters":
        for name in names[1:] or ADAPTERS:
            write_adapted(os.path.join(names[0], name), *ADAPTERS[name])
        return
    for name in names or [*MODELS, *MXFP4]:
        folder = os.path.join(target, name)
        write_mxfp4(folder, *MXFP4[name]) if name in MXFP4 else write(folder, *MODELS[name])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
