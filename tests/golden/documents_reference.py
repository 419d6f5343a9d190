"""Writes documents.jsonl: attention of documents in one sequence, by PyTorch's scaled_dot_product_attention with a mask, in float64.

  python3 -m venv venv && venv/bin/pip install torch
  venv/bin/python tests/golden/documents_reference.py > tests/golden/documents.jsonl

A line has the sizes of a case, and of each result the sum of its elements times sin(0.9 e). Element e of qkv [S, (N + 2G) D] is
2 sin(0.7 e + 0.01 e^2 + case), and of dout [S, N D] it is cos(1.3 e + 0.02 e^2 + case). Rows of padding are left out of a mask that would
have nothing to see: their results are 0.
"""
import json
import random

import torch

torch.set_default_dtype(torch.float64)
r = random.Random(40)


def wave(function, count, factor, square, case):
    e = torch.arange(count, dtype=torch.float64)
    return function(factor * e + square * e * e + case)


def checked(tensor):
    return torch.dot(tensor.reshape(-1), torch.sin(0.9 * torch.arange(tensor.numel(), dtype=torch.float64))).item()


for case in range(20):
    tokens, groups, size = r.randint(1, 150), r.choice((1, 2)), r.choice((4, 8, 20))
    heads, window = groups * r.choice((1, 2, 3)), r.choice((0, 0, r.randint(1, tokens)))
    documents, left = [], tokens - r.choice((0, r.randint(0, tokens - 1)))
    while left > 0:
        documents.append(r.randint(1, left))
        left -= documents[-1]
    used = sum(documents)
    qkv = (2 * wave(torch.sin, tokens * (heads + 2 * groups) * size, 0.7, 0.01, case)).view(tokens, -1, size).requires_grad_()
    dout = wave(torch.cos, tokens * heads * size, 1.3, 0.02, case).view(tokens, heads, size)
    of = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents))
    i, j = torch.arange(used)[:, None], torch.arange(used)[None, :]
    mask = (of[:, None] == of[None, :]) & (j <= i) & ((j > i - window) if window else True)
    query = qkv[:used, :heads].transpose(0, 1)
    key, value = (qkv[:used, first:first + groups].transpose(0, 1).repeat_interleave(heads // groups, 0)
                  for first in (heads, heads + groups))
    out = torch.nn.functional.scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask)[0].transpose(0, 1)
    out = torch.cat((out, torch.zeros(tokens - used, heads, size)))
    out.backward(dout)
    print(json.dumps({"tokens": tokens, "heads": heads, "key_value_heads": groups, "head_size": size, "window": window,
                      "documents": documents, "out": checked(out.detach()), "dqkv": checked(qkv.grad)}))
