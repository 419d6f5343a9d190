#!/usr/bin/env python3
"""Measures PyTorch's attention on one GPU, causal, bfloat16: cuDNN's and flash attention, forward and backward, on the shapes of
attention_bench.cpp. Prints one JSON object a line, {"name": what, "value": TFLOP/s or text, "unit": unit}, as soon as it is known.

  pytorch_attention.py [--device cuda|cpu] [--tiny]

FLOPs are counted as in attention_bench: half of the scores, and 2.5 times as many in backward. "deterministic" means
torch.use_deterministic_algorithms(True); what PyTorch refuses then is printed with its reason.
"""
import argparse
import json
import statistics
import time
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CASES = [(32, 1024, 12, 12, 64), (8, 1024, 25, 25, 64), (8, 1024, 32, 4, 64), (8, 1024, 16, 16, 128), (4, 4096, 16, 16, 64), (4, 4096, 16, 16, 128)]
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
SAMPLES, CALLS = 7, 5


def say(name, value, unit=""):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


class Clock:
    def __init__(self, device):
        self.cuda = device == "cuda"

    def seconds(self, work):
        """Median of the mean seconds of some calls."""
        times = []
        for sample in range(SAMPLES + 1):
            if self.cuda:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(CALLS):
                    work()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e-3 / CALLS)
            else:
                began = time.perf_counter()
                work()
                times.append(time.perf_counter() - began)
        return statistics.median(times[1:])  # the first sample warms up


def measure(name, case, backend, deterministic, device, clock, repeat_keys=False):
    """Returns whether PyTorch did it; otherwise the reason was printed."""
    b, s, n, g, d = case
    torch.use_deterministic_algorithms(deterministic)
    q, k, v = (torch.randn(b, s, heads, d, device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for heads in (n, g, g))
    dy = torch.randn(b, n, s, d, device=device, dtype=torch.bfloat16)

    def forward():
        if repeat_keys:
            return F.scaled_dot_product_attention(q, k.repeat_interleave(n // g, 1), v.repeat_interleave(n // g, 1), is_causal=True)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=n != g)

    flops = 2.0 * b * n * s * s * d
    with warnings.catch_warnings(record=True) as told, sdpa_kernel([backend]):
        warnings.simplefilter("always")
        try:
            y = forward()
            say(f"{name}, forward", 1e-12 * flops / clock.seconds(forward), "TFLOP/s")
            backward = clock.seconds(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
            say(f"{name}, backward", 1e-12 * 2.5 * flops / backward, "TFLOP/s")
        except RuntimeError as problem:
            reasons = [str(warning.message).split("(Triggered")[0].strip() for warning in told]
            say(f"{name}, forward", "refused: " + "; ".join([str(problem).splitlines()[0], *reasons])[:300])
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, to try the program")
    args = parser.parse_args()
    clock = Clock(args.device)
    for case in CASES:
        b, s, n, g, d = case
        shape = (1, 32, n, g, d) if args.tiny else case
        for backend_name, backend in BACKENDS.items():
            for deterministic in (False, True):
                name = f"{backend_name}{', deterministic' if deterministic else ''}, B {b} S {s} N {n} G {g} D {d}"
                if not measure(name, shape, backend, deterministic, args.device, clock) and n != g:
                    measure(f"{name}, keys repeated", shape, backend, deterministic, args.device, clock, repeat_keys=True)


if __name__ == "__main__":
    main()
