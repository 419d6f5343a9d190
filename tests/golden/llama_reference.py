#!/usr/bin/env python3
"""Writes llama_tiny.safetensors: weights, tokens, logits, loss and gradients of a tiny Llama-style model, computed by PyTorch in float64.

    python3 tests/golden/llama_reference.py tests/golden/llama_tiny.safetensors

The model is written out here in plain PyTorch (RMSNorm, rotary positions on half-split pairs, grouped-query causal attention, SwiGLU,
an LM head of its own), so that it is independent of Trivet's code. Weights are float32 numbers, so every precision starts from the
same ones. Targets of -1 do not count.
"""

import json
import math
import struct
import sys

import torch

LAYERS, HIDDEN, HEADS, KEY_VALUE_HEADS, FEED_FORWARD = 2, 24, 4, 2, 40
VOCABULARY, BATCH, SEQUENCE = 61, 2, 9
EPSILON, ROTARY_BASE = 1e-5, 10000.0


def draw_weights():
    """Draws weights with a wider spread than a real initialization, so that no gradient is near zero."""
    generator = torch.Generator().manual_seed(20)

    def normal(*shape, spread=0.3, center=0.0):
        return (torch.randn(*shape, generator=generator) * spread + center).float().double().requires_grad_()

    head = HIDDEN // HEADS
    weights = {"embedding.tokens.weight": normal(VOCABULARY, HIDDEN, spread=1.0)}
    for i in range(LAYERS):
        block = f"blocks.{i}."
        weights[block + "norm1.gain"] = normal(HIDDEN, center=1.0)
        weights[block + "attention.qkv.weight"] = normal((HEADS + 2 * KEY_VALUE_HEADS) * head, HIDDEN)
        weights[block + "attention.out.weight"] = normal(HIDDEN, HIDDEN)
        weights[block + "norm2.gain"] = normal(HIDDEN, center=1.0)
        weights[block + "mlp.gate_up.weight"] = normal(2 * FEED_FORWARD, HIDDEN)
        weights[block + "mlp.down.weight"] = normal(HIDDEN, FEED_FORWARD)
    weights["head.norm.gain"] = normal(HIDDEN, center=1.0)
    weights["head.weight"] = normal(VOCABULARY, HIDDEN)
    return weights


def rms_norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * gain


def rotate(x):
    """x[B, heads, S, D]: the pair (i, i + D/2) turns by position * base^(-2i/D)."""
    length, size = x.shape[-2:]
    frequency = ROTARY_BASE ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    first, second = x[..., : size // 2], x[..., size // 2 :]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def attention(x, qkv_weight, out_weight):
    batch, length, _ = x.shape
    head = HIDDEN // HEADS

    def heads(part, count):
        return part.view(batch, length, count, head).transpose(1, 2)

    q, k, v = (x @ qkv_weight.T).split([HEADS * head, KEY_VALUE_HEADS * head, KEY_VALUE_HEADS * head], -1)
    q, k, v = rotate(heads(q, HEADS)), rotate(heads(k, KEY_VALUE_HEADS)), heads(v, KEY_VALUE_HEADS)
    k, v = (t.repeat_interleave(HEADS // KEY_VALUE_HEADS, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(head)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(batch, length, HIDDEN) @ out_weight.T


def mlp(x, gate_up_weight, down_weight):
    gate, up = (x @ gate_up_weight.T).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up) @ down_weight.T


def logits_of(weights, tokens):
    x = weights["embedding.tokens.weight"][tokens]
    for i in range(LAYERS):
        w = {name: weights[f"blocks.{i}.{name}"] for name in ("norm1.gain", "attention.qkv.weight", "attention.out.weight",
                                                              "norm2.gain", "mlp.gate_up.weight", "mlp.down.weight")}
        x = x + attention(rms_norm(x, w["norm1.gain"]), w["attention.qkv.weight"], w["attention.out.weight"])
        x = x + mlp(rms_norm(x, w["norm2.gain"]), w["mlp.gate_up.weight"], w["mlp.down.weight"])
    return rms_norm(x, weights["head.norm.gain"]) @ weights["head.weight"].T


def write_safetensors(path, tensors):
    """tensors: name -> (dtype name, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def packed(tensor, dtype_name):
    letter = {"F32": "f", "F64": "d", "I32": "i"}[dtype_name]
    values = tensor.detach().reshape(-1).tolist()
    return dtype_name, tensor.shape, struct.pack(f"<{len(values)}{letter}", *values)


def main(path):
    weights = draw_weights()
    generator = torch.Generator().manual_seed(21)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets[0, 3] = targets[1, 0] = targets[1, 8] = -1
    logits = logits_of(weights, tokens)
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1)
    loss.backward()

    tensors = {"tokens": packed(tokens, "I32"), "targets": packed(targets, "I32"), "logits": packed(logits, "F64"),
               "loss": packed(loss, "F64")}
    for name, weight in weights.items():
        tensors["weight." + name] = packed(weight, "F32")
        tensors["gradient." + name] = packed(weight.grad, "F64")
    write_safetensors(path, tensors)
    print(f"torch {torch.__version__}: loss {loss.item():.15f}, {sum(w.numel() for w in weights.values())} parameters")


if __name__ == "__main__":
    main(sys.argv[1])
