#!/usr/bin/env python3
"""Writes one_bit_lamb.json: weights that DeepSpeed's OnebitLamb makes in float64 on 2 ranks. tests/engine/one_bit_lamb_test.cpp
compares Trivet's with them.

  one_bit_lamb_reference.py FOLDER     FOLDER: DeepSpeed 0.14.5, unpacked (pip download --no-deps --no-binary :all: deepspeed==0.14.5)

Only the file of the optimizer is loaded; the modules that it imports are replaced, so that nothing is compiled or installed. The
ranks are threads. What differs from DeepSpeed is how signs are averaged: with a scale for every 256 elements of a parameter, their
mean magnitude, and without the element that never has a gradient.

Needs PyTorch: pip install torch
"""
import importlib.util
import json
import pathlib
import sys
import threading
import types

import torch

RANKS, BATCH, MICRO, STEPS, FREEZE, NEVER_USED, BLOCK = 2, 12, 2, 30, 6, 17, 256
SIZES = {"a": 300, "b": 5, "c": 600}  # a and c decay, and are 1 at first; b is 0
OPTIONS = {"lr": 0.02, "betas": [0.9, 0.9], "weight_decay": 0.1, "coeff_beta": 0.9, "max_coeff": 0.7, "min_coeff": 0.01}


def sample(step, number, weight):
    x = step * 1000003 + number * 8191 + weight * 127 + 12345
    for _ in range(3):
        x = (x * 1103515245 + 12345) % 2147483648 ^ x >> 9
    return x % 4093 / 1023.25 - 0.9997


class Ranks:
    """The average of momenta by signs, of threads that wait for each other."""

    def __init__(self):
        self.barrier = threading.Barrier(RANKS)
        self.values = [None] * RANKS
        self.errors = [0] * RANKS
        self.server_error = 0
        self.rank_of = threading.local()

    def take_signs(self, values):
        taken = torch.zeros_like(values)
        used = torch.arange(values.numel()) != NEVER_USED
        begin = 0
        for size in (SIZES["a"], SIZES["c"], SIZES["b"]):
            for first in range(begin, begin + size, BLOCK):
                part = slice(first, min(first + BLOCK, begin + size))
                counts = used[part]
                scale = values[part][counts].abs().mean()
                signs = torch.where(values[part] < 0, -scale, scale)
                taken[part] = torch.where(counts, signs, torch.zeros_like(signs))
            begin += size
        return taken, torch.where(used, values - taken, torch.zeros_like(values))

    def average(self, buffer):
        rank, count = self.rank_of.value, sum(SIZES.values())
        if not buffer.any():  # DeepSpeed's first call
            return
        sent, self.errors[rank] = self.take_signs(buffer[:count] + self.errors[rank])
        self.values[rank] = sent
        if self.barrier.wait() == 0:
            self.result, self.server_error = self.take_signs(sum(self.values) / RANKS + self.server_error)
        self.barrier.wait()
        buffer[:count] = self.result


def load_optimizer(folder, ranks):
    class Backend:
        size = RANKS

        def __init__(self, *_):
            pass

        def compressed_allreduce(self, buffer, *_):
            ranks.average(buffer)
            return buffer

    def module(name, **members):
        made = types.ModuleType(name)
        made.__dict__.update(members)
        sys.modules[name] = made
        return made

    nothing = types.SimpleNamespace(empty_cache=lambda: None)
    dist = module("deepspeed.comm", is_initialized=lambda: True, get_rank=lambda: ranks.rank_of.value)
    module("deepspeed", comm=dist)
    module("deepspeed.utils")
    module("deepspeed.utils.torch", required_torch_version=lambda **_: True)
    module("deepspeed.accelerator", get_accelerator=lambda: nothing)
    module("deepspeed.runtime")
    module("deepspeed.runtime.comm")
    module("deepspeed.runtime.comm.nccl", NcclBackend=Backend)
    path = pathlib.Path(folder) / "deepspeed/runtime/fp16/onebit/lamb.py"
    spec = importlib.util.spec_from_file_location("lamb", path)
    lamb = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lamb)
    return lamb.OnebitLamb


def gradients(weights, step):
    """Of each rank, of the mean distance over its samples."""
    count = weights.numel()
    all_ranks = [torch.zeros(count, dtype=torch.float64) for _ in range(RANKS)]
    for number in range(BATCH):
        x = torch.tensor([sample(step, number, w) for w in range(count)], dtype=torch.float64)
        all_ranks[number // MICRO % RANKS] += (weights - x) * RANKS / BATCH
    for gradient in all_ranks:
        gradient[NEVER_USED] = 0
    return all_ranks


def run_rank(rank, optimizer_type, ranks, kept):
    ranks.rank_of.value = rank
    weights = {name: torch.nn.Parameter(torch.full((size,), 0.0 if name == "b" else 1.0, dtype=torch.float64))
               for name, size in SIZES.items()}
    groups = [{"params": [weights["a"], weights["c"]]}, {"params": [weights["b"]], "weight_decay": 0.0}]
    deepspeed = types.SimpleNamespace(mpu=None, local_rank=rank, enable_backward_allreduce=True)
    # DeepSpeed counts its first call, which only prepares buffers.
    optimizer = optimizer_type(groups, deepspeed, freeze_step=FREEZE + 1, **OPTIONS)
    for step in range(-1, STEPS):
        whole = torch.cat([weights[name].detach() for name in SIZES])
        own = gradients(whole, max(step, 0))
        gradient = sum(own) / RANKS if deepspeed.enable_backward_allreduce else own[rank]
        for name, part in zip(SIZES, torch.split(gradient, list(SIZES.values()))):
            weights[name].grad = part.clone()
        optimizer.step()
        if rank == 0 and step + 1 in (FREEZE, FREEZE + 1, FREEZE + 8, STEPS):
            made = torch.cat([weights[name].detach() for name in SIZES]).tolist()
            kept[str(step + 1)] = [float(f"{value:.8g}") for value in made]


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    ranks, kept = Ranks(), {}
    optimizer_type = load_optimizer(sys.argv[1], ranks)
    threads = [threading.Thread(target=run_rank, args=(rank, optimizer_type, ranks, kept)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    golden = {"ranks": RANKS, "steps": STEPS, "freeze_step": FREEZE, **OPTIONS, "weights": kept}
    pathlib.Path(__file__).with_name("one_bit_lamb.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
