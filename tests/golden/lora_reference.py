#!/usr/bin/env python3
"""Writes tests/golden/lora: training runs of PyTorch and PEFT with low-rank adapters on the models of tests/golden/hf.

    python3 tests/golden/lora_reference.py tests/golden/hf tests/golden/lora

Each file holds tokens and targets of every step [steps + 1, batch, sequence] (the last batch is for the evaluation), the adapters
before ("first.") and after ("last.") the run under PEFT's names, the loss of each step, the norms of the gradients and the loss of
the evaluation. All is computed in float64 from float32 weights. Needs torch, transformers and peft.
"""

import os
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

VOCABULARY, STEPS, BATCH, SEQUENCE = 97, 8, 4, 12

# name of the model -> targets; tests/engine/lora_golden_test.cpp has the same
RUNS = {
    "llama": ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
    "gpt2": ["attn.c_attn", "c_fc", "mlp.c_proj"],
}


def run(folder, targets):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    torch.manual_seed(22)
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                             fan_in_fan_out=os.path.basename(folder) == "gpt2")
    model = peft.get_peft_model(model, config).double().eval()  # eval: no dropout
    with torch.no_grad():  # float32 values, as Trivet stores them
        for parameter in model.parameters():
            parameter.copy_(parameter.float().double())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)
    generator = torch.Generator().manual_seed(23)
    tokens = torch.randint(VOCABULARY, (STEPS + 1, BATCH, SEQUENCE), generator=generator)
    targets_of = (tokens * 5 + 3) % VOCABULARY  # something to learn
    targets_of[:, 0, :4] = -1  # a prompt, which does not count

    def state(prefix):
        return {prefix + name: value.clone().contiguous() for name, value in peft.get_peft_model_state_dict(model).items()}

    def loss_of(step):
        logits = model(input_ids=tokens[step]).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets_of[step].reshape(-1), ignore_index=-1)

    tensors = state("first.")
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        norms.append(torch.sqrt(sum((p.grad ** 2).sum() for p in trained)).item())
        losses.append(loss.item())
        optimizer.step()
    tensors |= state("last.")
    with torch.no_grad():
        evaluation = loss_of(STEPS).item()
    tensors |= {"tokens": tokens.int(), "targets": targets_of.int(), "losses": torch.tensor(losses, dtype=torch.float64),
                "norms": torch.tensor(norms, dtype=torch.float64), "evaluation": torch.tensor([evaluation], dtype=torch.float64)}
    print(f"{folder}: losses {losses[0]:.6f} ... {losses[-1]:.6f}, evaluation {evaluation:.6f}, {len(trained)} tensors trained")
    return tensors


def main(models, target):
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
    os.makedirs(target, exist_ok=True)
    for name, targets in RUNS.items():
        save_file(run(os.path.join(models, name), targets), os.path.join(target, name + ".safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
