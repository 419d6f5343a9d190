#!/usr/bin/env python3
"""Compares Trivet with PyTorch on one GPU: the models of bench/cuda/configs, alternating, medians of rounds of medians of steps.

  bench/cuda/compare_pytorch.py --trivet build/gpu_check/trivet [--models gpt2_124m,gpt2_1.5b,llama_1b] [--rounds 3] [--seconds 600]
                                [--python PYTHON] [--json FILE] [--output FILE.md]

PyTorch runs pytorch_model.py: compiled (the 124 M model as a whole, the others block by block), with flash attention, fused
AdamW and bf16 autocast. Trivet runs the unchanged config. Both use the same batch, microbatch and clipping. Each run is a
separate process, so that it has all of the memory; compiled code is kept between rounds. Runs that do not fit into --seconds
are left out. To try the program without a GPU, use --device cpu with small --set values.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))
from gpu_parts.report import cell  # noqa: E402
from gpu_parts.speed import UTILIZATION, utilization  # noqa: E402
from gpu_parts.training import Run, read_config, read_metrics, write_tokens  # noqa: E402

COMPILED = {"gpt2_124m": "whole"}  # all other models: blocks
WARM_UP = 3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trivet", default="build/gpu_check/trivet")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--models", default="gpt2_124m,gpt2_1.5b,llama_1b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--steps", type=int, default=10, help="steps per round, after the warm-up")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", choices=["whole", "blocks", "none"], help="how to compile all models in PyTorch")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="replaces a key of the configs; may be repeated")
    parser.add_argument("--library-path", help="LD_LIBRARY_PATH for Trivet; PyTorch brings its own libraries")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--output", help="append a table to this file")
    return parser.parse_args()


def config_of(name, args, folder):
    """Returns the config to run and its file; also writes its tokens."""
    config = read_config(HERE / "configs" / f"{name}.json")
    config["device"] = args.device
    config["training"]["steps"] = WARM_UP + args.steps
    for assignment in args.set:
        key, value = assignment.split("=", 1)
        section = config
        *path, last = key.split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[last] = json.loads(value)
    tokens = folder / f"{name}.bin"
    write_tokens(tokens, config["model"]["vocabulary"], 500_000)
    config["data"]["train"] = str(tokens)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(config))
    return config, file


def checked(command, seconds, **options):
    """Returns what a command prints; raises RuntimeError if it fails or takes longer than `seconds`."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=max(seconds, 1), **options)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: not done in time") from None
    if done.returncode != 0:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def run_trivet(args, file, folder, seconds):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    output = checked([args.trivet, "train", file, "--metrics", metrics], seconds, env=trivet_environment(args))
    run = Run(read_metrics(metrics), output)
    return {"tokens_per_second": run.tokens_per_second(WARM_UP), "peak_mib": run.memory()[1], "loss": run.losses[-1]}


def run_pytorch(args, name, file, folder, seconds):
    # The result is the last line: PyTorch may print other lines before it.
    compiled = args.compile or COMPILED.get(name, "blocks")
    command = [args.python, HERE / "pytorch_model.py", file, "--steps", args.steps, "--warmup", WARM_UP, "--device", args.device,
               "--compile", compiled]
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"), TRITON_CACHE_DIR=str(folder / "triton"))
    return json.loads(checked(command, seconds, env=environment).strip().splitlines()[-1])


def trivet_environment(args):
    return dict(os.environ, LD_LIBRARY_PATH=args.library_path) if args.library_path else None


def plan_of(args, file):
    return json.loads(checked([args.trivet, "plan", file, "--json"], 60, env=trivet_environment(args)))


def compare(name, args, folder, end):
    config, file = config_of(name, args, folder)
    planned = plan_of(args, file)
    runs = {"trivet": [], "pytorch": []}
    problems = []
    for _ in range(args.rounds):
        for system, run in (("trivet", lambda s: run_trivet(args, file, folder, s)), ("pytorch", lambda s: run_pytorch(args, name, file, folder, s))):
            if end - time.monotonic() < 5:
                problems.append(f"{system}: no time left")
                continue
            try:
                runs[system].append(run(end - time.monotonic()))
                print(f"{name}: {system}: {runs[system][-1]['tokens_per_second']:,.0f} tokens/s", flush=True)
            except RuntimeError as problem:
                problems.append(str(problem))
                print(f"{name}: {problem}", flush=True)
    return row_of(name, config, planned, runs, problems)


def row_of(name, config, planned, runs, problems):
    row = {"model": name}
    for system, done in runs.items():
        speeds = [run["tokens_per_second"] for run in done]
        row[f"{system} tokens/s"] = statistics.median(speeds) if speeds else None
        row[f"{system} peak MiB"] = done[0]["peak_mib"] if done else None
        row[f"{system} rounds"] = ", ".join(f"{speed:,.0f}" for speed in speeds)
        if speeds:
            row[f"{system} utilization"] = utilization(statistics.median(speeds), planned, config)
    if runs["pytorch"]:
        row.update({"parameters": runs["pytorch"][0]["parameters"], "torch": runs["pytorch"][0]["torch"], "compiled": runs["pytorch"][0]["compile"]})
        if runs["trivet"]:
            row["ratio"] = row["trivet tokens/s"] / row["pytorch tokens/s"]
    if problems:
        row["not done"] = "; ".join(dict.fromkeys(problems))[:300]
    return row


def main():
    args = parse_arguments()
    end = time.monotonic() + args.seconds
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models.split(","):
            rows.append(compare(name, args, pathlib.Path(folder), end))
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1) + "\n")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"## {datetime.date.today()}: `{' '.join(sys.argv)}`", "", UTILIZATION, "", f"| {' | '.join(keys)} |", "|---" * len(keys) + "|"]
    lines += [f"| {' | '.join(cell(row.get(key, '')) for key in keys)} |" for row in rows]
    print("\n".join(lines))
    if args.output:
        with open(args.output, "a") as file:
            file.write("\n".join(lines) + "\n\n")
    failed = [row["model"] for row in rows if not row["trivet tokens/s"] and "exit code" in row.get("not done", "")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
