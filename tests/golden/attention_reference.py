"""Writes attention.jsonl: attention of 24 random cases, by PyTorch in float64.

  python3 -m venv venv && venv/bin/pip install torch
  venv/bin/python tests/golden/attention_reference.py > tests/golden/attention.jsonl

A line has the sizes of a case, and for each token [B S] the dot product of its row of a result with weights: element e of a row of `out`,
`dq`, `dk` and `dv` has the weight sin(0.9 e + 1). Element e of qkv [B, S, (N + 2G) D] is 2 sin(0.7 e + 0.01 e^2 + case), and of dout
[B, S, N D] it is cos(1.3 e + 0.02 e^2 + case). Rows of padding, which see nothing, have results of 0.

Gradients come from autograd: through scaled_dot_product_attention with a mask or, where scores are capped, which it cannot do, through the
same formula written out. FlexAttention with a block mask, which has no backward on a CPU, must give the same results in all cases. So must
PyTorch's ring attention on two processes over gloo in the causal cases without anything else, forward and backward. context_parallel()
itself does not run on a CPU (2.15: "Operator aten._scaled_dot_product_flash_attention_for_cpu.default does not have a sharding strategy
registered"), so its ring is called directly, with this operator.
"""
import json
import os
import random
import sys
import tempfile

import torch
import torch.distributed
import torch.distributed.tensor.experimental._context_parallel._attention as context_parallel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

CASES, RING = 24, 2
KINDS = ("causal", "all", "window", "cap", "documents", "everything")  # in turn


def wave(function, shape, factor, square, case):
    e = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return function(factor * e + square * e * e + case).view(shape)


def draw_documents(r, tokens):
    documents, left = [], tokens - r.choice((0, r.randint(0, tokens // 2)))
    while left > 0:
        documents.append(r.randint(1, left))
        left -= documents[-1]
    return documents


# Numbers of tokens and heads that 2 and 4 context ranks divide, and the tokens once more in two chunks of each.
def draw(r, case):
    kind, tokens = KINDS[case % len(KINDS)], r.choice((8, 16, 24, 40, 72, 104))
    heads, sequences = r.choice((4, 8)), r.choice((1, 2))
    groups = r.choice([g for g in (1, 2, 4, 8) if heads % g == 0])
    has = lambda what: kind in (what, "everything")
    return {"sequences": sequences, "tokens": tokens, "heads": heads, "key_value_heads": groups, "head_size": r.choice((2, 3, 4, 8)),
            "causal": kind != "all", "window": r.randint(1, tokens - 1) if has("window") else 0,
            "scale": round(r.uniform(0.2, 1), 3) if r.random() < 0.5 else 0, "soft_cap": round(r.uniform(0.3, 3), 3) if has("cap") else 0,
            "documents": [draw_documents(r, tokens) for _ in range(sequences)] if has("documents") else []}


# [B, S]: the number of each token's document, and -1 for padding.
def document_numbers(c):
    rows = [[n for n, length in enumerate(row) for _ in range(length)] for row in c["documents"] or [[c["tokens"]]] * c["sequences"]]
    return torch.tensor([row + [-1] * (c["tokens"] - len(row)) for row in rows])


def sees(c):
    of = document_numbers(c)

    def mask(b, _, i, j):
        seen = (of[b, i] == of[b, j]) & (of[b, i] >= 0)
        seen = seen & (j <= i) if c["causal"] else seen
        return seen & (j > i - c["window"]) if c["window"] else seen
    return mask


def capped(c, score):
    return c["soft_cap"] * torch.tanh(score / c["soft_cap"]) if c["soft_cap"] else score


def attention(c, q, k, v, mask, scale):
    if not c["soft_cap"]:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return capped(c, q @ k.transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf).softmax(-1) @ v


def expect_equal(a, b, what):
    assert (a - b).abs().max() < 1e-12, f"{what}: {(a - b).abs().max()}"


def compute(c, case):
    b, s, n, g, d = (c[name] for name in ("sequences", "tokens", "heads", "key_value_heads", "head_size"))
    qkv = (2 * wave(torch.sin, (b, s, n + 2 * g, d), 0.7, 0.01, case)).requires_grad_()
    dout = wave(torch.cos, (b, s, n, d), 1.3, 0.02, case)
    q, k, v = (part.transpose(1, 2) for part in qkv.split((n, g, g), 2))
    k, v = (part.repeat_interleave(n // g, 1) for part in (k, v))
    tokens, scale = torch.arange(s), c["scale"] or d ** -0.5
    mask = sees(c)(torch.arange(b)[:, None, None, None], 0, tokens[:, None], tokens[None, :])
    padding = document_numbers(c)[:, None, :, None] < 0
    # A row of padding would be 0 / 0: it sees itself instead, and its result is dropped.
    out = attention(c, q, k, v, mask | (padding & torch.eye(s, dtype=torch.bool)), scale).masked_fill(padding, 0)
    out.backward(dout.transpose(1, 2))
    with torch.no_grad():
        block_mask = create_block_mask(sees(c), b, None, s, s, device="cpu", BLOCK_SIZE=16)
        torch.compiler.reset()  # else sizes and scales of earlier cases make these ones variables, which FlexAttention refuses
        flex = flex_attention(*(part.detach() for part in (q, k, v)), score_mod=lambda score, *_: capped(c, score), block_mask=block_mask, scale=scale)
        expect_equal(flex.masked_fill(padding, 0), out, f"FlexAttention, case {case}")
    dq, dk, dv = qkv.grad.split((n, g, g), 2)
    return {"out": out.detach().transpose(1, 2), "dq": dq, "dk": dk, "dv": dv}


# The chunks of a rank, along dim 2: r and 2 RING - 1 - r of 2 RING if the ring balances work, else the r-th of RING.
def own(tensor, rank, balanced):
    if not balanced:
        return tensor.chunk(RING, 2)[rank]
    chunks = tensor.chunk(2 * RING, 2)
    return torch.cat((chunks[rank], chunks[2 * RING - 1 - rank]), 2)


def check_ring(rank, folder):
    torch.set_default_dtype(torch.float64)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RING, init_method=f"file://{folder}/meeting")
    context_parallel._cp_options.convert_to_f32 = False
    ops = torch.ops.aten

    def forward(q, k, v, is_causal, scale):
        return ops._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, scale=scale)

    def backward(query, key, value, out, logsumexp, is_causal, dout, scale):
        return ops._scaled_dot_product_flash_attention_for_cpu_backward(dout, query, key, value, out, logsumexp, 0.0, is_causal, scale=scale)

    r = random.Random(41)
    for case, c in enumerate([draw(r, case) for case in range(CASES)]):
        if c["window"] or c["soft_cap"] or c["documents"] or not c["causal"]:
            continue
        b, s, n, d, scale = c["sequences"], c["tokens"], c["heads"], c["head_size"], c["scale"] or c["head_size"] ** -0.5
        q, k, v = ((2 * wave(torch.sin, (b, n, s, d), 0.7, 0.01, case + part)).requires_grad_() for part in range(3))
        dout = wave(torch.cos, (b, n, s, d), 1.3, 0.02, case)
        whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        whole.backward(dout)
        for balanced in (True, False):
            context_parallel._cp_options.enable_load_balance = balanced
            with torch.no_grad():
                parts = [own(tensor, rank, balanced) for tensor in (q, k, v)]
                out, sums = context_parallel._templated_ring_attention(
                    torch.distributed.group.WORLD, 2, forward, *parts, is_causal=True, scale=scale)[:2]
                gradients = context_parallel._templated_ring_attention_backward(
                    torch.distributed.group.WORLD, 2, backward, own(dout, rank, balanced), "dout", *parts, out, sums, is_causal=True,
                    scale=scale)
                expect_equal(out, own(whole, rank, balanced), f"ring, case {case}")
                for gradient, tensor in zip(gradients, (q, k, v)):
                    expect_equal(gradient, own(tensor.grad, rank, balanced), f"gradients of the ring, case {case}")
        print(f"case {case}: rank {rank} of PyTorch's ring has the results of one process", file=sys.stderr)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(check_ring, args=(folder,), nprocs=RING)
    r = random.Random(41)
    for case in range(CASES):
        c = draw(r, case)
        results = compute(c, case)
        for name, rows in results.items():
            rows = rows.flatten(2).flatten(0, 1)
            c[name] = [float(f"{x:.13g}") for x in rows @ torch.sin(0.9 * torch.arange(rows.shape[1]) + 1)]
        print(json.dumps(c, separators=(",", ":")))
