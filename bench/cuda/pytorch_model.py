#!/usr/bin/env python3
"""Trains a config's GPT or Llama in PyTorch, as its users write it: compiled, flash attention, fused AdamW, bf16 autocast, float32 weights.

  pytorch_model.py CONFIG.json [--steps 10] [--warmup 3] [--compile whole|blocks|none] [--device cuda]

Shapes, microbatches, accumulation, optimizer and clipping are those of the config. Prints one JSON object with the median
tokens per second over the steps after the warm-up and the allocator's peak. `blocks` compiles one transformer block and uses it
for all, so that a deep model compiles in seconds instead of minutes. compare_pytorch.py runs this program.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def read_config(path):
    with open(path) as file:
        return json.loads("\n".join(line for line in file.read().splitlines() if not line.lstrip().startswith("//")))


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class GptBlock(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden = model["hidden_size"]
        self.heads = model["heads"]
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, size = model["hidden_size"], model["feed_forward_size"]
        self.heads, self.groups = model["heads"], model.get("key_value_heads") or model["heads"]
        head = hidden // self.heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key, self.value = (nn.Linear(hidden, self.groups * head, bias=False) for _ in range(2))
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, size, bias=False) for _ in range(2))
        self.down = nn.Linear(size, hidden, bias=False)
        angles = torch.outer(torch.arange(model["sequence_length"]), 10000.0 ** (-torch.arange(0, head, 2) / head))
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([-angles.sin(), angles.sin()], -1), persistent=False)

    def rotate(self, x):
        return (x * self.cos + torch.roll(x, x.shape[-1] // 2, -1) * self.sin).to(x.dtype)

    def forward(self, x):
        h = self.norm1(x)
        q, k = self.rotate(split_heads(self.query(h), self.heads)), self.rotate(split_heads(self.key(h), self.groups))
        v = split_heads(self.value(h), self.groups)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.heads)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Transformer(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, gpt = model["hidden_size"], model["type"] == "gpt"
        self.table = nn.Embedding(model["vocabulary"], hidden)
        self.positions = nn.Embedding(model["sequence_length"], hidden) if gpt else None
        self.blocks = nn.ModuleList((GptBlock if gpt else LlamaBlock)(model) for _ in range(model["layers"]))
        self.norm = nn.LayerNorm(hidden) if gpt else nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, model["vocabulary"], bias=False)
        if gpt:
            self.head.weight = self.table.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--compile", choices=["whole", "blocks", "none"], default="whole")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    config = read_config(args.config)
    torch.manual_seed(1234)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_math_sdp(False)  # use flash attention or fail
    torch.backends.cuda.enable_mem_efficient_sdp(False)

    micro = config["train_micro_batch_size_per_gpu"]
    accumulation = config["train_batch_size"] // micro
    length, vocabulary = config["model"]["sequence_length"], config["model"]["vocabulary"]
    with torch.device(args.device):
        model = Transformer(config["model"])
    parameters = sum(p.numel() for p in model.parameters())
    if args.compile == "blocks":
        for block in model.blocks:
            block.compile()
    run = torch.compile(model) if args.compile == "whole" else model
    options = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=options["lr"], betas=options["betas"], weight_decay=options["weight_decay"], fused=True)
    data = torch.randint(vocabulary, (accumulation, 2, micro, length), device=args.device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        total = 0
        for tokens, targets in data:
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = run(tokens, targets) / accumulation
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.get("gradient_clipping", 1.0))
        optimizer.step()
        return total.item()  # waits for the device, as a step of Trivet does

    seconds = []
    for i in range(args.warmup + args.steps):
        begin = time.perf_counter()
        loss = step()
        if i >= args.warmup:
            seconds.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() / 2**20 if args.device == "cuda" else None
    print(json.dumps({"torch": torch.__version__, "parameters": parameters, "loss": loss, "peak_mib": peak, "compile": args.compile,
                      "tokens_per_second": config["train_batch_size"] * length / statistics.median(seconds)}))


if __name__ == "__main__":
    main()
