#!/usr/bin/env python3
"""Writes tests/golden/foreign: tiny random models in the formats of llama2.c, llm.c and Meta's Llama.

    python3 tests/golden/foreign_models.py tests/golden/foreign

    llama/golden.safetensors       what transformers computes from a Llama, as in hf_reference.py
    llama/v0.bin, v1.bin           the same model as a file of llama2.c
    llama/meta/                    the same model in Meta's format, as two files of two tensor-parallel ranks
    llama-untied/                  another one, whose head is not its embedding
    gpt2/golden.safetensors        what transformers computes from a GPT-2
    gpt2/fp32.bin, bf16.bin        the same model as a file of llm.c, with 3 rows of padding after the vocabulary

The fuzzer's first inputs are written, too. The weights are numbers that bfloat16 holds, so that all files hold the same. Besides, the Llama is computed here with the formula
of llama2.c, where neighbours are the pairs of a rotary position, and must agree with transformers. Needs torch, transformers.
"""
import io
import json
import math
import os
import shutil
import struct
import sys
import zipfile

import torch
import transformers
from safetensors.torch import save_file

V, C, F, L, N, K, T = 17, 16, 12, 2, 4, 2, 16  # vocabulary, hidden, feed-forward, layers, heads, their keys and values, positions
D = C // N
PADDED, GPT2_C, GPT2_N = 20, 8, 2


def make(model_class, config):
    config._attn_implementation = "eager"
    model = model_class(config).float()
    generator = torch.Generator().manual_seed(31)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = 0.2 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_((noise if parameter.dim() > 1 else parameter + noise).bfloat16().float())
    return model


def write_golden(folder, model):
    model = model.double().eval()
    generator = torch.Generator().manual_seed(32)
    tokens, targets = (torch.randint(V, (2, 9), generator=generator) for _ in range(2))
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, V), targets.view(-1))
    loss.backward()
    norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
    save_file({"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach(), "loss": loss.detach(),
               "gradient_norm": norm.detach()}, os.path.join(folder, "golden.safetensors"))
    return tokens, logits.detach()


def to_neighbours(weight, heads):
    """Rows of queries or keys: the halves of transformers become neighbours."""
    return weight.view(heads, 2, D // 2, C).transpose(1, 2).reshape(heads * D, C)


def llama_weights(model):
    """Under Meta's names."""
    state = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    weights = {"tok_embeddings.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"],
               "output.weight": state["lm_head.weight"]}
    for i in range(L):
        theirs = f"model.layers.{i}."
        for name, source in {"attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                             "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj",
                             "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj",
                             "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
                             "feed_forward.w3": "mlp.up_proj"}.items():
            weight = state[f"{theirs}{source}.weight"]
            heads = {"attention.wq": N, "attention.wk": K}.get(name)
            weights[f"layers.{i}.{name}.weight"] = to_neighbours(weight, heads) if heads else weight
    return weights


def turned(x, positions):
    """Element 2i and 2i + 1 of a head are turned by position / 10000^(2i / D)."""
    angle = positions[:, None] * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def llama2_c_logits(weights, tokens):
    w = {name: tensor.double() for name, tensor in weights.items()}

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w[name]

    rows = []
    for sequence in tokens:
        x, length = w["tok_embeddings.weight"][sequence], len(sequence)
        positions = torch.arange(length).double()
        for i in range(L):
            layer, h = f"layers.{i}.", norm(x, f"layers.{i}.attention_norm.weight")
            q = turned((h @ w[layer + "attention.wq.weight"].T).view(length, N, D), positions)
            k = turned((h @ w[layer + "attention.wk.weight"].T).view(length, K, D), positions).repeat_interleave(N // K, 1)
            v = (h @ w[layer + "attention.wv.weight"].T).view(length, K, D).repeat_interleave(N // K, 1)
            scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(D)
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1)
            x = x + torch.einsum("hij,jhd->ihd", scores, v).reshape(length, C) @ w[layer + "attention.wo.weight"].T
            h = norm(x, layer + "ffn_norm.weight")
            gate = torch.nn.functional.silu(h @ w[layer + "feed_forward.w1.weight"].T)
            x = x + (gate * (h @ w[layer + "feed_forward.w3.weight"].T)) @ w[layer + "feed_forward.w2.weight"].T
        rows.append(norm(x, "norm.weight") @ w["output.weight"].T)
    return torch.stack(rows)


def floats(*tensors):
    return b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)


def write_llama2_c(folder, weights, tied):
    def of_layers(name):
        return floats(*(weights[f"layers.{i}.{name}.weight"] for i in range(L)))

    attention = b"".join(of_layers(f"attention.{name}") for name in ("wq", "wk", "wv", "wo"))
    mlp = b"".join(of_layers(f"feed_forward.{name}") for name in ("w1", "w2", "w3"))
    head = b"" if tied else floats(weights["output.weight"])
    with open(os.path.join(folder, "v0.bin"), "wb") as file:
        file.write(struct.pack("7i", C, F, L, N, K, V if tied else -V, T))
        file.write(floats(weights["tok_embeddings.weight"]) + of_layers("attention_norm") + attention + of_layers("ffn_norm") + mlp)
        file.write(floats(weights["norm.weight"], torch.full((2, T, D // 2), 0.5)) + head)
    with open(os.path.join(folder, "v1.bin"), "wb") as file:
        file.write(struct.pack("Ii7iB", 0x616B3432, 1, C, F, L, N, K, V, T, tied).ljust(256, b"\0"))
        file.write(of_layers("attention_norm") + of_layers("ffn_norm"))
        file.write(floats(weights["norm.weight"], weights["tok_embeddings.weight"]) + attention + mlp + head)


def write_meta(folder, weights):
    """Two tensor-parallel ranks; the embedding is divided by columns, as in Llama 2."""
    os.makedirs(folder, exist_ok=True)
    by_columns = ("wo", "w2", "tok_embeddings")
    for rank in range(2):
        part = {}
        for name, weight in weights.items():
            if weight.dim() > 1:
                weight = weight.chunk(2, 1 if name.split(".")[-2] in by_columns else 0)[rank]
            part[name] = weight.bfloat16().clone()
        part["rope.freqs"] = torch.zeros(D // 2)
        torch.save(part, os.path.join(folder, f"consolidated.{rank:02}.pth"))
    with open(os.path.join(folder, "params.json"), "w") as file:
        json.dump({"dim": C, "multiple_of": 4, "n_heads": N, "n_kv_heads": K, "n_layers": L, "norm_eps": 1e-05,
                   "vocab_size": -1}, file)


def write_llama(folder, tied):
    os.makedirs(folder, exist_ok=True)
    model = make(transformers.LlamaForCausalLM,
                 transformers.LlamaConfig(vocab_size=V, hidden_size=C, intermediate_size=F, num_hidden_layers=L,
                                          num_attention_heads=N, num_key_value_heads=K, max_position_embeddings=T,
                                          rms_norm_eps=1e-5, tie_word_embeddings=tied))
    weights = llama_weights(model)
    write_llama2_c(folder, weights, tied)
    tokens, logits = write_golden(folder, model)
    difference = (llama2_c_logits(weights, tokens) - logits).abs().max().item()
    print(f"{folder}: the formula of llama2.c differs from transformers by {difference:.1e}")
    assert difference < 1e-6  # transformers computes norms and rotations in float32
    if not tied:
        write_meta(os.path.join(folder, "meta"), weights)


def write_gpt2(folder):
    os.makedirs(folder, exist_ok=True)
    model = make(transformers.GPT2LMHeadModel,
                 transformers.GPT2Config(vocab_size=V, n_positions=T, n_embd=GPT2_C, n_layer=L, n_head=GPT2_N, resid_pdrop=0.0,
                                         embd_pdrop=0.0, attn_pdrop=0.0))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    wte = torch.cat((state["transformer.wte.weight"], torch.full((PADDED - V, GPT2_C), 7.0)))
    tensors = [wte, state["transformer.wpe.weight"]]
    for kind in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for part in ("weight", "bias"):
            tensors += [state[f"transformer.h.{i}.{kind}.{part}"].t() for i in range(L)]
    tensors += [state["transformer.ln_f.weight"], state["transformer.ln_f.bias"]]
    for name, version in (("fp32", 3), ("bf16", 5)):
        with open(os.path.join(folder, f"{name}.bin"), "wb") as file:
            file.write(struct.pack("8i", 20240326, version, T, V, L, GPT2_N, GPT2_C, PADDED).ljust(1024, b"\0"))
            for tensor in tensors:
                if name == "bf16":
                    tensor = tensor.bfloat16().contiguous().view(torch.int16)
                file.write(floats(tensor))
    write_golden(folder, model)


def write_seeds():
    """The fuzzer's first inputs: tiny models of zeros, and one that is refused."""
    seeds = os.path.join(os.path.dirname(__file__), "..", "fuzz", "seeds")
    v, c, f, layers, heads, t = 3, 4, 2, 1, 1, 2
    matrices = v * c + layers * (2 * c + 4 * c * c + 3 * c * f) + c
    files = {"llama2_c/v0": struct.pack("7i", c, f, layers, heads, heads, v, t) + bytes(4 * (matrices + t * c)),
             "llama2_c/v0_untied": struct.pack("7i", c, f, layers, heads, heads, -v, t) + bytes(4 * (matrices + t * c + v * c)),
             "llama2_c/v1": struct.pack("Ii7iB", 0x616B3432, 1, c, f, layers, heads, heads, v, t, 1).ljust(256, b"\0")
             + bytes(4 * matrices),
             "llama2_c/v2": struct.pack("Ii7iB", 0x616B3432, 2, c, f, layers, heads, heads, v, t, 1).ljust(256, b"\0")}
    gpt2 = 4 * c + t * c + layers * (12 * c * c + 13 * c) + 2 * c
    for version, size in ((3, 4), (5, 2)):
        header = struct.pack("8i", 20240326, version, t, v, layers, heads, c, 4).ljust(1024, b"\0")
        files[f"llm_c/version_{version}"] = header + bytes(size * gpt2)
    files["llm_c/version_1"] = struct.pack("8i", 20240326, 1, t, v, layers, heads, c, 4).ljust(1024, b"\0")
    weights = {"tok_embeddings": (v, c), "output": (v, c), "norm": (c,), "layers.0.attention_norm": (c,), "layers.0.ffn_norm": (c,),
               **{f"layers.0.attention.{name}": (c, c) for name in ("wq", "wk", "wv", "wo")},
               **{f"layers.0.feed_forward.{name}": shape for name, shape in {"w1": (f, c), "w2": (c, f), "w3": (f, c)}.items()}}
    part = archive_seed({f"{name}.weight": torch.zeros(shape) for name, shape in weights.items()})
    for name, scaled in (("small", False), ("scaled", True)):
        params = json.dumps({"dim": c, "n_heads": heads, "n_layers": layers, "norm_eps": 1e-5, "vocab_size": -1,
                             "use_scaled_rope": scaled}).encode()
        files[f"meta_llama/{name}"] = struct.pack("H", len(params)) + params + part
    for name, content in files.items():
        os.makedirs(os.path.dirname(os.path.join(seeds, name)), exist_ok=True)
        with open(os.path.join(seeds, name), "wb") as file:
            file.write(content)


def archive_seed(value):
    """What the fuzz targets read of a file of torch.save: the pickle and the sizes of the storages."""
    memory = io.BytesIO()
    torch.save(value, memory)
    with zipfile.ZipFile(memory) as archive:
        entries = {info.filename.split("/", 1)[1]: info for info in archive.infolist()}
        pickle = archive.read(entries["data.pkl"])
    storages = sum(name.startswith("data/") for name in entries)
    sizes = [entries[f"data/{i}"].file_size for i in range(storages)]
    return struct.pack("H", len(pickle)) + pickle + struct.pack(f"<B{len(sizes)}H", len(sizes), *sizes)


def main(target):
    write_seeds()
    shutil.rmtree(target, ignore_errors=True)
    write_llama(os.path.join(target, "llama"), tied=True)
    write_llama(os.path.join(target, "llama-untied"), tied=False)
    write_gpt2(os.path.join(target, "gpt2"))


if __name__ == "__main__":
    main(sys.argv[1])
