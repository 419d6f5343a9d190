#!/usr/bin/env python3
"""Trains a config of this folder in PyTorch, for comparison: compare_pytorch.py CONFIG [--seed 1234] [--threads 2]

Reads the layers, the batch size, the optimizer, the schedule and the number of epochs or steps from the config, and the images from the
folder that it names. Prints the test accuracy after each epoch, or at the end, and how many images per second were trained; with
--time-steps N, only the milliseconds of N steps, as JSON. Needs PyTorch and NumPy.
"""
import argparse
import gzip
import json
import math
import pathlib
import time

import numpy
import torch


def read_idx(folder, name):
    path = folder / name
    data = gzip.open(f"{path}.gz").read() if pathlib.Path(f"{path}.gz").exists() else path.read_bytes()
    dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(dims)).reshape(dims).copy())


def options_of(words):
    return {words[i]: float(words[i + 1]) for i in range(0, len(words) - 1, 2)}


class Patches(torch.nn.Conv2d):
    def forward(self, images):
        return super().forward(images).flatten(2).transpose(1, 2)


class Positions(torch.nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.table = torch.nn.Parameter(0.02 * torch.randn(tokens, width))

    def forward(self, tokens):
        return tokens + self.table


class Mean(torch.nn.Module):
    def forward(self, tokens):
        return tokens.mean(1)


def make_block(width, heads, options):
    """A transformer block that starts as Trivet's does. PyTorch's dropout also acts after the GELU."""
    block = torch.nn.TransformerEncoderLayer(
        width, heads, int(options.get("feed_forward", 4 * width)), options.get("dropout", 0.0), norm_first=True, batch_first=True,
        activation=lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    for name, parameter in block.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    return block


def make_layer_of_sequence(kind, words, shape):
    if kind == "patches":
        size = int(options_of(words[1:]).get("size", 4))
        return Patches(shape[0], int(words[0]), size, size)
    if kind == "positions":
        return Positions(*shape)
    if kind == "block":
        return make_block(shape[1], int(words[0]), options_of(words[1:]))
    return torch.nn.LayerNorm(shape[-1]) if kind == "layer_norm" else {"mean": Mean}[kind]()


def make_layer(text, shape):
    """A layer of model.network, and the shape of its output."""
    kind, *words = text.split()
    if kind == "conv":
        given = options_of(words[1:])
        kernel, stride, padding = (int(given.get(name, default)) for name, default in (("kernel", 3), ("stride", 1), ("padding", 0)))
        layer = torch.nn.Conv2d(shape[0], int(words[0]), kernel, stride, padding)
    elif kind == "max_pool":
        layer = torch.nn.MaxPool2d(int(words[0]))
    elif kind == "dense":
        layer = torch.nn.Linear(shape[-1], int(words[0]))
    elif kind == "dropout":
        layer = torch.nn.Dropout(float(words[0]))
    elif kind in ("relu", "flatten"):
        layer = {"relu": torch.nn.ReLU, "flatten": torch.nn.Flatten}[kind]()
    else:
        layer = make_layer_of_sequence(kind, words, shape)
    return layer, layer(torch.zeros(1, *shape)).shape[1:]


def make_model(config):
    shape, layers = config["model"]["input"], []
    for text in config["model"]["network"]:
        layer, shape = make_layer(text, shape)
        layers.append(layer)
    return torch.nn.Sequential(*layers)


def make_optimizer(config, model):
    kind, params = config["optimizer"]["type"], config["optimizer"]["params"]
    if kind == "Adam":
        return torch.optim.Adam(model.parameters(), lr=params["lr"], betas=params.get("betas", (0.9, 0.999)))
    if kind == "AdamW":
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        return torch.optim.AdamW([{"params": matrices, "weight_decay": params["weight_decay"]}, {"params": others, "weight_decay": 0}],
                                 lr=params["lr"], betas=params.get("betas", (0.9, 0.999)))
    return torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=params.get("momentum", 0))


def make_scheduler(config, optimizer):
    """Linear warm-up, then half a cosine; constant without a scheduler."""
    params = config.get("scheduler", {}).get("params")
    if params is None:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1)
    warm, total, least = params["warmup_num_steps"], params["total_num_steps"], params["cos_min_ratio"]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / warm if step < warm else least + (1 - least) * (
        1 + math.cos(math.pi * min(1, (step - warm) / (total - warm)))) / 2)


def accuracy(model, images, classes):
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), classes.split(500)))
    model.train()
    return right / len(classes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, help="instead of the folder that the config names")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time-steps", type=int, default=0, metavar="N")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    config = json.loads(args.config.read_text())
    folder = args.data or pathlib.Path(config["data"]["train"])
    images, classes = read_idx(folder, "train-images-idx3-ubyte"), read_idx(folder, "train-labels-idx1-ubyte").long()
    tests, test_classes = read_idx(folder, "t10k-images-idx3-ubyte"), read_idx(folder, "t10k-labels-idx1-ubyte").long()
    images, tests = images.unsqueeze(1).float() / 255, tests.unsqueeze(1).float() / 255
    model = make_model(config)
    optimizer = make_optimizer(config, model)
    scheduler = make_scheduler(config, optimizer)
    batch, training = config["train_micro_batch_size_per_gpu"], config["training"]
    steps = args.time_steps or training.get("steps", 0) or training["epochs"] * len(images) // batch
    per_epoch = len(images) // batch
    order, spent = None, []
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(images))
        begin = time.perf_counter()
        chosen = order[step % per_epoch * batch:(step % per_epoch + 1) * batch]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[chosen]), classes[chosen])
        loss.backward()
        if config.get("gradient_clipping", 0) > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        scheduler.step()
        spent.append(time.perf_counter() - begin)
        if not args.time_steps and ((step + 1) % per_epoch == 0 or step + 1 == steps):
            print(f"step {step + 1}: loss {loss.item():.4f}, accuracy {100 * accuracy(model, tests, test_classes):.2f} %, "
                  f"{(step + 1) * batch / sum(spent):.0f} images/s", flush=True)
    if args.time_steps:
        print(json.dumps({"step_ms": [1000 * seconds for seconds in spent]}))


if __name__ == "__main__":
    main()
