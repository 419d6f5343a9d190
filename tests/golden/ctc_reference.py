#!/usr/bin/env python3
"""Writes ctc.jsonl: losses and gradients of PyTorch's ctc_loss in float64. tests/kernels/ctc_test.cpp compares Trivet's with them.
Needs PyTorch: pip install torch
"""
import json
import pathlib

import torch

# Steps, classes, and the targets of a batch; targets have different lengths, repeat characters, are empty or just fit.
CASES = [
    (1, 2, [[1], []]),
    (6, 4, [[1, 2, 3], [1, 1], [], [3], [2, 2, 2]]),
    (9, 3, [[1, 1, 1, 1, 1], [1, 2, 1, 2, 1, 2, 1, 2, 1], [2, 2, 1, 1], [2]]),
    (15, 12, [[8, 5, 11, 11, 3], [1, 1, 3, 3, 3, 7, 9, 11], [4]]),
]


def case(steps, classes, targets, generator):
    logits = 2 * torch.randn(len(targets), steps, classes, dtype=torch.float64, generator=generator)
    logits = (logits * 64).round().div(64).requires_grad_()  # exact in float32
    lengths = torch.tensor([len(target) for target in targets])
    losses = torch.nn.functional.ctc_loss(
        logits.log_softmax(2).transpose(0, 1), torch.tensor(sum(targets, []), dtype=torch.long),
        torch.full((len(targets),), steps), lengths, blank=0, reduction="none")
    losses.sum().backward()
    return {"steps": steps, "classes": classes, "targets": targets, "logits": logits.flatten().tolist(),
            "losses": losses.tolist(), "gradient": [float(f"{g:.14g}") for g in logits.grad.flatten().tolist()]}


def main():
    generator = torch.Generator().manual_seed(15)
    path = pathlib.Path(__file__).with_name("ctc.jsonl")
    path.write_text("".join(json.dumps(case(*arguments, generator)) + "\n" for arguments in CASES))


if __name__ == "__main__":
    main()
