#!/usr/bin/env python3
"""Trains a config of this folder or of 11_handwriting in PyTorch, for comparison: compare_pytorch.py CONFIG [--seed 1234] [--threads 2]

Reads the layers, the batch size, the optimizer, the schedule and the number of epochs or steps from the config, and the images from the
folder that it names: IDX files, or words that example_11_handwriting drew. Prints the test accuracy whenever the config evaluates, and how
many images per second were trained; with --time-steps N, only the milliseconds of N steps, as JSON. Needs PyTorch and NumPy.
"""
import argparse
import gzip
import json
import math
import pathlib
import time
import zlib

import numpy
import torch


def read_idx(folder, name):
    path = folder / name
    data = gzip.open(f"{path}.gz").read() if pathlib.Path(f"{path}.gz").exists() else path.read_bytes()
    dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(dims)).reshape(dims).copy())


def read_mnist(folder):
    """Images and classes, for training and for tests."""
    return [(read_idx(folder, f"{part}-images-idx3-ubyte").unsqueeze(1).float() / 255, read_idx(folder, f"{part}-labels-idx1-ubyte").long())
            for part in ("train", "t10k")]


def normalised(images, data):
    """Images as the config's mean and std make them, which are single numbers here."""
    return (images - data.get("mean", [0])[0]) / data.get("std", [1])[0]


def read_png(path):
    """A gray image with 8 bits and no filters, as example_11_handwriting writes it."""
    data, at, packed = path.read_bytes(), 8, b""
    width, height = (int.from_bytes(data[begin:begin + 4], "big") for begin in (16, 20))
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        packed += data[at + 8:at + 8 + size] if data[at + 4:at + 8] == b"IDAT" else b""
        at += 12 + size
    rows = numpy.frombuffer(zlib.decompress(packed), numpy.uint8)
    if data[24:29] != b"\x08\0\0\0\0" or rows.size != height * (width + 1) or rows.reshape(height, -1)[:, 0].any():
        raise SystemExit(f"{path}: is no image that example_11_handwriting drew")
    return torch.from_numpy(rows.reshape(height, -1)[:, 1:].copy())


def read_words(folder):
    """Images and texts as rows of characters, numbered from 1 as in Trivet and filled with 0, for training and for tests."""
    parts = [[line.split("\t") for line in (folder / part / "labels.txt").read_text().splitlines()] for part in ("train", "test")]
    characters = sorted({character for _, text in parts[0] for character in text})
    longest = max(len(text) for lines in parts for _, text in lines)
    read = []
    for part, lines in zip(("train", "test"), parts):
        images = torch.stack([read_png(folder / part / name) for name, _ in lines]).unsqueeze(1).float() / 255
        numbers = [[characters.index(character) + 1 for character in text] + [0] * (longest - len(text)) for _, text in lines]
        read.append((images, torch.tensor(numbers)))
    return read


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


class Columns(torch.nn.Module):
    def forward(self, images):
        return images.flatten(1, 2).transpose(1, 2)


class Mean(torch.nn.Module):
    def forward(self, tokens):
        return tokens.mean(1)


def make_block(width, heads, options):
    """A transformer block that starts as Trivet's does, with dropout of attention and of both sums."""
    block = torch.nn.TransformerEncoderLayer(
        width, heads, int(options.get("feed_forward", 4 * width)), options.get("dropout", 0.0), norm_first=True, batch_first=True,
        activation=lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    for name, parameter in block.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    block.dropout = torch.nn.Identity()  # PyTorch would also drop what comes from the GELU
    return block


def make_layer_of_sequence(kind, words, shape):
    if kind == "patches":
        size = int(options_of(words[1:]).get("size", 4))
        return Patches(shape[0], int(words[0]), size, size)
    if kind == "positions":
        return Positions(*shape)
    if kind == "block":
        return make_block(shape[1], int(words[0]), options_of(words[1:]))
    return torch.nn.LayerNorm(shape[-1]) if kind == "layer_norm" else {"columns": Columns, "mean": Mean}[kind]()


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
    for text in [text for text in config["model"]["network"] if not text.startswith("ctc")]:
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
    """DeepSpeed's WarmupCosineLR: linear warm-up, whose first two steps have the learning rate 0, then half a cosine. Constant without a
    scheduler."""
    params = config.get("scheduler", {}).get("params")
    if params is None:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1)
    warm, total, least = params["warmup_num_steps"], params["total_num_steps"], params["cos_min_ratio"]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, step - 1) / warm if step <= warm else least + (
        1 - least) * (1 + math.cos(math.pi * min(1, (step - warm) / (total - warm)))) / 2)


def ctc_loss(outputs, texts):
    """The mean over images, however long their texts are."""
    steps = torch.full((len(texts),), outputs.shape[1])
    paths = outputs.log_softmax(2).transpose(0, 1)
    return torch.nn.functional.ctc_loss(paths, texts, steps, (texts > 0).sum(1), reduction="sum") / len(texts)


def right_classes(outputs, classes):
    return int((outputs.argmax(1) == classes).sum())


def right_texts(outputs, texts):
    """How many texts the most probable characters spell, when equal neighbours are merged and blanks (0) are removed."""
    spelled = [[character for character in torch.unique_consecutive(row).tolist() if character] for row in outputs.argmax(2)]
    return sum(row == [character for character in text if character] for row, text in zip(spelled, texts.tolist()))


def accuracy(model, images, targets, right_of):
    model.eval()
    with torch.no_grad():
        right = sum(right_of(model(x), y) for x, y in zip(images.split(500), targets.split(500)))
    model.train()
    return right / len(targets)


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
    spells = config["model"]["network"][-1].startswith("ctc")
    (images, targets), (tests, test_targets) = read_words(folder) if spells else read_mnist(folder)
    loss_of, right_of = (ctc_loss, right_texts) if spells else (torch.nn.functional.cross_entropy, right_classes)
    images, tests = (normalised(part, config["data"]) for part in (images, tests))
    model = make_model(config)
    optimizer = make_optimizer(config, model)
    scheduler = make_scheduler(config, optimizer)
    batch, training = config.get("train_micro_batch_size_per_gpu") or config["train_batch_size"], config["training"]
    steps = args.time_steps or training.get("steps", 0) or math.ceil(training["epochs"] * len(images) / batch)
    order = torch.cat([torch.randperm(len(images)) for _ in range(math.ceil(steps * batch / len(images)))])  # a step may span two epochs
    spent = []
    for step in range(steps):
        begin = time.perf_counter()
        chosen = order[step * batch:(step + 1) * batch]
        optimizer.zero_grad()
        loss = loss_of(model(images[chosen]), targets[chosen])
        loss.backward()
        if config.get("gradient_clipping", 0) > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        scheduler.step()
        spent.append(time.perf_counter() - begin)
        if not args.time_steps and ((step + 1) % training["evaluate_every"] == 0 or step + 1 == steps):
            print(f"step {step + 1}: loss {loss.item():.4f}, accuracy {100 * accuracy(model, tests, test_targets, right_of):.2f} %, "
                  f"{(step + 1) * batch / sum(spent):.0f} images/s", flush=True)
    if args.time_steps:
        print(json.dumps({"step_ms": [1000 * seconds for seconds in spent]}))


if __name__ == "__main__":
    main()
