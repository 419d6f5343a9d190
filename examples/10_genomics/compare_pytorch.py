#!/usr/bin/env python3
"""Trains genomics.json in PyTorch, for comparison: compare_pytorch.py GENOME.txt [--seed 1234] [--threads 2] [--time-steps N]

GENOME.txt is the text that fasta_to_text wrote. Layers, batch, optimizer, schedule and steps are those of the config; initial values, the order
of the samples and sums differ. Prints bits per base of the same validation samples whenever the config evaluates, and with --time-steps only
the milliseconds of N steps, as JSON. Needs PyTorch and NumPy.
"""
import argparse
import json
import math
import pathlib
import time

import numpy
import torch
from torch.nn import functional as F


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.output = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        rows, tokens, width = x.shape
        q, k, v = (part.view(rows, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, tokens, width)
        x = x + self.output(attended)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        for name, parameter in self.named_parameters():  # GPT-2's initial values
            if parameter.dim() == 2:
                into_sum = name.endswith(("output.weight", "down.weight"))
                torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if into_sum else 0.02)
            elif name.endswith("bias"):
                torch.nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)

    def loss(self, samples):
        return F.cross_entropy(self(samples[:, :-1]).flatten(0, 1), samples[:, 1:].flatten())


def read_samples(path, length, fraction):
    """Samples of `length` tokens and the one that follows, for training and for validation: the last `fraction` of the genome."""
    letters = numpy.frombuffer(path.read_bytes(), numpy.uint8)
    alphabet, tokens = numpy.unique(letters, return_inverse=True)
    tokens = torch.from_numpy(tokens.astype(numpy.int64))
    border = len(tokens) - int(len(tokens) * fraction)
    return len(alphabet), [part.unfold(0, length + 1, length) for part in (tokens[:border], tokens[border:])]


def make_optimizer(config, model):
    params = config["optimizer"]["params"]
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": params["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}]
    return torch.optim.AdamW(groups, lr=params["lr"], betas=params["betas"])


def rate_factor(config, step):
    """DeepSpeed's WarmupCosineLR, whose first two steps have the learning rate 0."""
    warm, total = config["scheduler"]["params"]["warmup_num_steps"], config["training"]["steps"]
    least = config["scheduler"]["params"]["cos_min_ratio"]
    if step <= warm:
        return max(0, step - 1) / warm
    return least + (1 - least) * (1 + math.cos(math.pi * min(1, (step - warm) / (total - warm)))) / 2


def bits_per_base(model, samples):
    with torch.no_grad():
        losses = [model.loss(part) * len(part) for part in samples.split(32)]
    return float(sum(losses)) / len(samples) / math.log(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("genome", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time-steps", type=int, default=0, metavar="N")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    config = json.loads((pathlib.Path(__file__).parent / "genomics.json").read_text())
    shape, training, batch = config["model"], config["training"], config["train_batch_size"]
    vocabulary, (samples, tests) = read_samples(args.genome, shape["sequence_length"], config["data"]["validation_fraction"])
    model = Gpt(shape["layers"], shape["hidden_size"], shape["heads"], shape["sequence_length"], vocabulary)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(samples)} samples", flush=True)
    optimizer = make_optimizer(config, model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(config, step))
    steps = args.time_steps or training["steps"]
    order = torch.cat([torch.randperm(len(samples)) for _ in range(math.ceil(steps * batch / len(samples)))])
    spent = []
    for step in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model.loss(samples[order[step * batch:(step + 1) * batch]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        scheduler.step()
        spent.append(1000 * (time.perf_counter() - begin))
        if not args.time_steps and (step + 1) % training["evaluate_every"] == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}, {bits_per_base(model, tests[:training['evaluate_samples']]):.4f} bits per base",
                  flush=True)
    if args.time_steps:
        print(json.dumps({"step_ms": spent}))


if __name__ == "__main__":
    main()
