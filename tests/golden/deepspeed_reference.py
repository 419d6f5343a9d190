#!/usr/bin/env python3
"""Writes tests/golden/deepspeed: checkpoints of a tiny Llama that DeepSpeed saved, and what its own script reads from them.

    python3 tests/golden/deepspeed_reference.py tests/golden/deepspeed

Each folder is what training with DeepSpeed on two CPU ranks leaves: config.json of the model, `latest`, a folder with the files of the
ranks, and expected.safetensors, which is what zero_to_fp32.py makes of the folder. `universal` is made from `zero1-bfloat16` by
ds_to_universal.py. The first norm of every model but one is frozen, so it is stored apart from the others. Needs torch, transformers
and deepspeed (DS_BUILD_OPS=0 pip install deepspeed). The numbers depend on the versions; a new run is as good.
"""

import json
import os
import shutil
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.multiprocessing
import transformers
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import save_file

RANKS = 2
MODEL = dict(vocab_size=23, hidden_size=12, intermediate_size=14, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1,
             max_position_embeddings=16, attention_dropout=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=None)

# name of the folder -> (ZeRO stage, other keys of DeepSpeed's config, arguments of the model)
RUNS = {
    "zero2": (2, {}, {}),
    "zero3": (3, {"zero_optimization": {"stage3_param_persistence_threshold": 0}}, {}),
    "zero1-bfloat16": (1, {"bf16": {"enabled": True}}, {"tie_word_embeddings": True}),
    "zero0": (0, {}, {}),
}


def make(rank, folder, name, port):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    stage, keys, arguments = RUNS[name]
    deepspeed.comm.torch.build_shm_op = lambda: None  # would compile something, which two processes do not need
    deepspeed.init_distributed("gloo")
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**dict(MODEL, **arguments)))
    if name != "zero0":
        model.model.layers[0].input_layernorm.weight.requires_grad = False
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
    for key, value in keys.items():
        config[key] = {**config.get(key, {}), **value}
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    tokens = (torch.arange(8) * 5 + rank)[None] % MODEL["vocab_size"]
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()
    engine.save_checkpoint(folder)
    deepspeed.comm.destroy_process_group()


def write(target, name, port):
    folder = os.path.join(target, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.multiprocessing.start_processes(make, (folder, name, port), nprocs=RANKS, start_method="fork")
    os.remove(os.path.join(folder, "zero_to_fp32.py"))
    transformers.LlamaConfig(**dict(MODEL, **RUNS[name][2])).save_pretrained(folder)
    if name == "zero0":
        tag = open(os.path.join(folder, "latest")).read()
        state = torch.load(os.path.join(folder, tag, "mp_rank_00_model_states.pt"), weights_only=False)["module"]
    else:
        state = get_fp32_state_dict_from_zero_checkpoint(folder)
    save_file({key: value.clone().contiguous().float() for key, value in state.items()}, os.path.join(folder, "expected.safetensors"))


def main(target):
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, deepspeed {deepspeed.__version__}")
    for number, name in enumerate(RUNS):
        write(target, name, 29650 + number)


if __name__ == "__main__":
    main(sys.argv[1])
