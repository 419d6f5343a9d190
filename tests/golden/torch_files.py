#!/usr/bin/env python3
"""Writes tests/golden/torch_files: weights of tests/golden/hf/llama-tied as torch.save writes them.

    python3 tests/golden/torch_files.py tests/golden/hf/llama-tied tests/golden/torch_files

    whole/pytorch_model.bin      a state dict; the tied head is there as a second view of the embedding
    shards/                      two files and an index; the tensors of the first are views of one flat storage
    refused/NAME.bin             files that must be refused: one that would run a command, a transposed view, pickle protocol 4
    wrapped/NAME.bin             small state dicts inside of a checkpoint, and with the names that wrappers of a model add

The fuzzer's first inputs are written, too. Needs torch and safetensors. Files of other versions of torch are as good.
"""
import json
import os
import shutil
import sys
import zipfile

import torch
from safetensors.torch import load_file

SEEDS = os.path.join(os.path.dirname(__file__), "..", "fuzz", "seeds")


class RunsACommand:
    def __reduce__(self):
        return os.system, ("touch executed",)


def save(value, *path, **options):
    path = os.path.join(*path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(value, path, **options)
    return path


def flattened(weights):
    flat = torch.cat([torch.zeros(3)] + [tensor.reshape(-1) for tensor in weights.values()])
    views, at = {}, 3
    for name, tensor in weights.items():
        views[name] = flat[at:at + tensor.numel()].view(tensor.shape)
        at += tensor.numel()
    return views


def main():
    source, output = sys.argv[1:]
    weights = load_file(os.path.join(source, "model.safetensors"))
    for folder in ("whole", "shards"):
        os.makedirs(os.path.join(output, folder), exist_ok=True)
        shutil.copy(os.path.join(source, "config.json"), os.path.join(output, folder))
    save(dict(weights, **{"lm_head.weight": weights["model.embed_tokens.weight"]}), output, "whole", "pytorch_model.bin")

    names = sorted(weights)
    parts = {"pytorch_model-00001-of-00002.bin": flattened({name: weights[name] for name in names[::2]}),
             "pytorch_model-00002-of-00002.bin": {name: weights[name] for name in names[1::2]}}
    for file, part in parts.items():
        save(part, output, "shards", file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    with open(os.path.join(output, "shards", "pytorch_model.bin.index.json"), "w") as file:
        json.dump(index, file, indent=2, sort_keys=True)

    save({"x": RunsACommand()}, output, "refused", "command.bin")
    save({"x": torch.zeros(2, 3).t()}, output, "refused", "transposed.bin")
    save({"x": torch.zeros(2)}, output, "refused", "protocol.bin", pickle_protocol=4)
    one, other = torch.ones(2), torch.zeros(3)
    save({"model_state_dict": {"x": one, "y": other}, "epoch": 3}, output, "wrapped", "inside.bin")
    save({"module.x": one, "module.y": other}, output, "wrapped", "distributed.bin")
    save({"_orig_mod.module.x": one, "_orig_mod.module.y": other}, output, "wrapped", "compiled.bin")
    save({"module.x": one, "y": other}, output, "wrapped", "partly.bin")
    seeds = {"small": {"state_dict": {"x": torch.ones(2, 3), "y": torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))},
                       "step": 7, "rate": 0.5, "names": ["a"], "size": torch.Size([2])},
             "command": {"x": RunsACommand()}}
    os.makedirs(os.path.join(SEEDS, "pickle"), exist_ok=True)
    for name, value in seeds.items():
        path = save(value, SEEDS, "torch_file", name)
        with zipfile.ZipFile(path) as archive, open(os.path.join(SEEDS, "pickle", name), "wb") as file:
            file.write(archive.read(f"{name}/data.pkl"))


if __name__ == "__main__":
    main()
