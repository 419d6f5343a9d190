"""Runs of `trivet train`: configs, tokens, metrics."""
import array
import itertools
import json
import os
import random
import re
import statistics
import sys

from gpu_parts.report import Failure, Skipped
from gpu_parts.session import last_lines

LLMC_MAGIC, LLMC_VERSION, LLMC_HEADER = 20240520, 1, 256  # llm.c's token file: a header of 256 int32, then uint16


def write_tokens(path, vocabulary, count):
    """Writes random tokens that follow a simple rule half of the time, so that there is something to learn."""
    rng = random.Random(1234)
    tokens = array.array("H", [0])
    for _ in range(count - 1):
        tokens.append((tokens[-1] * 31 + 7) % vocabulary if rng.random() < 0.5 else rng.randrange(vocabulary))
    header = array.array("i", [LLMC_MAGIC, LLMC_VERSION, count] + [0] * (LLMC_HEADER - 3))
    if sys.byteorder == "big":
        tokens.byteswap()
        header.byteswap()
    path.write_bytes(header.tobytes() + tokens.tobytes())


def tokens_file(session, vocabulary, count):
    path = session.work / f"tokens-{vocabulary}-{count}.bin"
    if not path.exists():
        write_tokens(path, vocabulary, count)
    return path


def small_config(session, kind, **changes):
    """Returns the config of a model that even the CPU trains in seconds; on the fake device it is much smaller."""
    sizes = dict(layers=2, hidden_size=64, heads=4, sequence_length=32) if session.shim else \
        dict(layers=4, hidden_size=256, heads=4, sequence_length=256)
    sizes["vocabulary"] = 96 if session.shim else 1024
    if kind == "llama":
        sizes["key_value_heads"] = sizes["heads"] // 2
    config = {
        "device": "cuda", "model": {"type": kind, **sizes},
        "data": {"train": str(tokens_file(session, sizes["vocabulary"], 4000 if session.shim else 200_000))},
        "training": {"steps": 3 if session.shim else 20, "seed": 7}, "train_batch_size": 4 if session.shim else 16,
        "train_micro_batch_size_per_gpu": 1 if session.shim else 4, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "zero_optimization": {"stage": 0},
    }
    return with_changes(config, changes)


def with_changes(config, changes):
    """Returns a copy with keys replaced: with_changes(config, {"zero_optimization__stage": 2}), where __ is the dot of the key."""
    config = json.loads(json.dumps(config))
    for key, value in changes.items():
        section = config
        *path, last = key.split("__")
        for name in path:
            section = section.setdefault(name, {})
        section[last] = value
    return config


def read_config(path):
    """Reads a file of bench/cuda/configs: JSON with // lines."""
    return json.loads("\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("//")))


class Run:
    """A completed run."""

    def __init__(self, steps, output):
        self.steps = steps  # lines of --metrics
        self.output = output

    @property
    def bits(self):
        return [step["loss_bits"] for step in self.steps]

    @property
    def losses(self):
        return [step["loss"] for step in self.steps]

    def seconds(self, warm_up):
        return [step["step_ms"] / 1e3 for step in self.steps[warm_up:]]

    def tokens_per_second(self, warm_up=3):
        return self.steps[-1]["tokens"] / statistics.median(self.seconds(min(warm_up, len(self.steps) - 1)))

    def memory(self):
        """Returns planned and measured total in MiB, from the last lines of the run."""
        found = re.search(r"total ([\d.]+) MiB planned / ([\d.]+) measured", self.output)
        return (float(found[1]), float(found[2])) if found else (None, None)


# The environment of ranks that share one GPU as processes. Otherwise a kernel that is loaded at its first launch, or that
# shares a hardware queue with another stream's kernel, could wait for an operation that waits for another rank.
SHARED_GPU = {"TRIVET_SHARE_GPU": 1, "CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": 32}

_numbers = itertools.count(1)


def prepare(session, config, ranks=1):
    """Writes the config; returns (command, environment, metrics file). On the fake device ranks are threads, each with its own GPU."""
    number = next(_numbers)
    file, metrics = session.work / f"{number}.json", session.work / f"{number}.jsonl"
    file.write_text(json.dumps(config))
    command = [session.trivet, "train", file, "--metrics", metrics]
    environment = {}
    if ranks > 1 and session.shim:
        command += ["--ranks", ranks]
        environment["CUDA_SHIM_DEVICES"] = ranks
    elif ranks > 1:
        command = [session.trivet, "launch", "--num_gpus", ranks, *command]
        environment.update(SHARED_GPU, OMP_NUM_THREADS=max(1, len(os.sched_getaffinity(0)) // ranks))
    return command, environment, metrics


def read_metrics(metrics):
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def train(session, config, name, ranks=1, limit=None, **environment):
    """Trains to the end; if that fails, raises Failure with the program's message."""
    command, own, metrics = prepare(session, config, ranks)
    code, output = session.run(command, name, limit, **{**own, **environment})
    if refused(code, output):
        raise Skipped(refused(code, output))
    if code != 0:
        raise Failure(f"{name}: exit code {code}: {last_lines(output)}")
    steps = read_metrics(metrics)
    if len(steps) != config["training"]["steps"]:
        raise Failure(f"{name}: {len(steps)} of {config['training']['steps']} steps are in the metrics")
    return Run(steps, output)


def refused(code, output):
    """Returns the program's message, without the file name, if it refused a feature that this build lacks; otherwise None."""
    if code != 2 or "not implemented" not in output:
        return None
    return re.sub(r"^.*\.json:\d+:\d+: ", "", last_lines(output, 1))


def first_difference(a, b):
    """Compares the losses of two runs bit by bit; returns the first step that differs, or None."""
    if len(a.bits) != len(b.bits):
        return min(len(a.bits), len(b.bits)) + 1
    return next((step + 1 for step, (x, y) in enumerate(zip(a.bits, b.bits)) if x != y), None)
