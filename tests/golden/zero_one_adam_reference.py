#!/usr/bin/env python3
"""Writes zero_one_adam.json: weights that DeepSpeed's ZeroOneAdam makes in float64 on 2 ranks. tests/engine/zero_one_adam_test.cpp
compares Trivet's with them.

  zero_one_adam_reference.py FOLDER     FOLDER: DeepSpeed 0.14.5, unpacked (pip download --no-deps --no-binary :all: deepspeed==0.14.5)

Only the file of the optimizer is loaded; the modules that it imports are replaced, so that nothing is compiled or installed. The
ranks are threads. What differs from DeepSpeed is how signs are averaged: with a scale for every 256 elements of a parameter, their
mean magnitude, and without the element that never has a gradient. DeepSpeed's first call only prepares buffers; it is not counted
here. There are two runs, because DeepSpeed's decay gets into the momentum after var_freeze_step, and Trivet's does not: one with
decay until then, and a longer one without.

Needs PyTorch: pip install torch
"""
import importlib.util
import json
import pathlib
import sys
import threading
import types
import warnings

import torch

RANKS, BATCH, MICRO, FREEZE, LOCAL, NEVER_USED, BLOCK = 2, 12, 2, 13, 23, 17, 256
SIZES = {"a": 300, "b": 5, "c": 600}  # a and c decay, and are 1 at first; b is 0
POLICY = {"var_update_scaler": 2, "local_step_scaler": 4, "local_step_clipper": 4}
OPTIONS = {"lr": 0.01, "betas": [0.9, 0.999]}
RUNS = [{"weight_decay": 0.1, "steps": FREEZE, "kept": [2, 5, FREEZE]},  # after a refresh, after signs, at the end
        {"weight_decay": 0.0, "steps": 36, "kept": [14, 20, LOCAL, 36]}]  # synchronisations, but for LOCAL


def sample(step, number, weight):
    x = step * 1000003 + number * 8191 + weight * 127 + 12345
    for _ in range(3):
        x = (x * 1103515245 + 12345) % 2147483648 ^ x >> 9
    return x % 4093 / 1023.25 - 0.9997


class Ranks:
    """The average by signs, of threads that wait for each other. Errors are kept in DeepSpeed's tensors."""

    def __init__(self):
        self.barrier = threading.Barrier(RANKS)
        self.sent = [None] * RANKS
        self.server_errors = [None] * RANKS
        self.rank_of = threading.local()

    @staticmethod
    def take_signs(values):
        taken = torch.zeros_like(values)
        used = torch.ones(values.numel(), dtype=torch.bool)
        if values.numel() == SIZES["a"]:
            used[NEVER_USED] = False
        for first in range(0, values.numel(), BLOCK):
            part = slice(first, first + BLOCK)
            scale = values[part][used[part]].abs().mean()
            taken[part] = torch.where(used[part], torch.where(values[part] < 0, -scale, scale), torch.zeros(()))
        return taken, torch.where(used, values - taken, torch.zeros(()))

    def average(self, buffer, worker_error, server_error):
        rank, count = self.rank_of.value, buffer.numel()
        self.sent[rank], worker_error[:count] = self.take_signs(buffer + worker_error[:count])
        self.server_errors[rank] = server_error
        if self.barrier.wait() == 0:
            error = torch.cat(self.server_errors)
            self.result, error[:count] = self.take_signs(sum(self.sent) / RANKS + error[:count])
            for kept, part in zip(self.server_errors, torch.split(error, server_error.numel())):
                kept.copy_(part)
        self.barrier.wait()
        result = self.result.clone()
        self.barrier.wait()
        return result


def load_optimizer(folder, ranks):
    class Backend:
        size = RANKS

        def __init__(self, *_):
            pass

        def compressed_allreduce(self, buffer, worker_error, server_error, *_):
            return ranks.average(buffer, worker_error, server_error)

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
    path = pathlib.Path(folder) / "deepspeed/runtime/fp16/onebit/zoadam.py"
    spec = importlib.util.spec_from_file_location("zoadam", path)
    zoadam = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(zoadam)
    return zoadam.ZeroOneAdam


def own_gradient(weights, step, rank):
    """Of the mean distance over the rank's samples."""
    gradient = torch.zeros_like(weights)
    for number in range(BATCH):
        if number // MICRO % RANKS != rank:
            continue
        x = torch.tensor([sample(step, number, w) for w in range(weights.numel())])
        gradient += (weights - x) * RANKS / BATCH
    gradient[NEVER_USED] = 0
    return gradient


def run_rank(rank, optimizer_type, ranks, run, kept):
    ranks.rank_of.value = rank
    weights = {name: torch.nn.Parameter(torch.full((size,), 0.0 if name == "b" else 1.0)) for name, size in SIZES.items()}
    groups = [{"params": [weights["a"], weights["c"]], "weight_decay": run["weight_decay"]},
              {"params": [weights["b"]], "weight_decay": 0.0}]
    deepspeed = types.SimpleNamespace(mpu=None, local_rank=rank, enable_backward_allreduce=True)
    # DeepSpeed freezes the variance at the end of the first update whose number is more than var_freeze_step.
    optimizer = optimizer_type(groups, deepspeed, var_freeze_step=FREEZE - 1, **POLICY, **OPTIONS)
    for step in range(-1, run["steps"]):
        whole = torch.cat([weights[name].detach() for name in SIZES])
        if deepspeed.enable_backward_allreduce:  # all ranks have the same weights
            gradient = sum(own_gradient(whole, max(step, 0), other) for other in range(RANKS)) / RANKS
        else:
            gradient = own_gradient(whole, step, rank)
        for name, part in zip(SIZES, torch.split(gradient, list(SIZES.values()))):
            weights[name].grad = part.clone()
        optimizer.step()
        if step == -1:
            for name in SIZES:
                optimizer.state[weights[name]]["step"] = 0
        if step + 1 in run["kept"] and (rank == 0 or step + 1 == LOCAL):
            made = torch.cat([weights[name].detach() for name in SIZES]).tolist()
            kept.setdefault(str(step + 1), {})[str(rank)] = [float(f"{value:.8g}") for value in made]


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # an old signature of add_
    runs = []
    for run in RUNS:
        ranks, kept = Ranks(), {}
        optimizer_type = load_optimizer(sys.argv[1], ranks)
        threads = [threading.Thread(target=run_rank, args=(rank, optimizer_type, ranks, run, kept)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs.append({"weight_decay": run["weight_decay"], "steps": run["steps"], "weights": kept})
    golden = {"ranks": RANKS, "var_freeze_step": FREEZE, **POLICY, **OPTIONS, "runs": runs}
    pathlib.Path(__file__).with_name("zero_one_adam.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
