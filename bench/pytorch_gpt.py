#!/usr/bin/env python3
"""Trains the same GPT in PyTorch, as its users write it: one process, DDP or FSDP over gloo, or DeepSpeed; eager or compiled; fp32 or
bf16 (autocast; with FSDP and DeepSpeed bf16 weights and messages, float32 master weights).

Prints one JSON object with the median tokens per second over the steps after the warm-up. bench/compare_pytorch and
bench/compare_network run this program.
"""
import argparse
import json
import os
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, required=True)
parser.add_argument("--hidden", type=int, required=True)
parser.add_argument("--heads", type=int, required=True)
parser.add_argument("--vocabulary", type=int, required=True)
parser.add_argument("--sequence", type=int, default=256)
parser.add_argument("--batch", type=int, required=True, help="global batch")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--warmup", type=int, default=3)
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--ddp", action="store_true", help="rank and world size come from the environment")
parser.add_argument("--fsdp", action="store_true", help="likewise: FSDP2, each block sharded by itself")
parser.add_argument("--deepspeed", type=int, help="likewise: DeepSpeed with this ZeRO stage")
parser.add_argument("--bf16-messages", action="store_true", help="DDP: gradients are sent in bf16")
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(args.threads)

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(args.threads)
torch.manual_seed(1234)


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, h)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(args.vocabulary, args.hidden)
        self.positions = nn.Embedding(args.sequence, args.hidden)
        self.blocks = nn.ModuleList(Block(args.hidden, args.heads) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.hidden)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def with_fsdp(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) if args.bf16 else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def with_deepspeed(model):
    import deepspeed

    deepspeed.init_distributed("gloo")
    config = {"train_batch_size": args.batch, "train_micro_batch_size_per_gpu": args.batch // world, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": True}},
              "zero_optimization": {"stage": args.deepspeed}, "bf16": {"enabled": args.bf16}, "zero_allow_untested_optimizer": True}
    return deepspeed.initialize(model=model, config=config)[0]


rank, world = 0, 1
if args.ddp or args.fsdp or args.deepspeed is not None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
model = Gpt()
parameters = sum(p.numel() for p in model.parameters())
if args.ddp:
    model = nn.parallel.DistributedDataParallel(model)
    if args.bf16_messages:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
elif args.fsdp:
    model = with_fsdp(model)
elif args.deepspeed is not None:
    model = with_deepspeed(model)
run = torch.compile(model) if args.compile else model
if args.deepspeed is None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=not args.fsdp)
batch = args.batch // world
tokens = torch.randint(args.vocabulary, (batch, args.sequence))
targets = torch.randint(args.vocabulary, (batch, args.sequence))


def step():
    if args.deepspeed is not None:
        loss = run(tokens, targets)
        model.backward(loss)
        model.step()
        return loss.item()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16 and not args.fsdp):
        loss = run(tokens, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


seconds = []
for i in range(args.warmup + args.steps):
    begin = time.perf_counter()
    step()
    if i >= args.warmup:
        seconds.append(time.perf_counter() - begin)
if rank == 0:
    tokens_per_step = args.batch * args.sequence
    print(json.dumps({"torch": torch.__version__, "parameters": parameters,
                      "tokens_per_second": tokens_per_step / statistics.median(seconds)}))
