#!/usr/bin/env python3
"""Writes the golden files of tests/engine/training_reference_test.cpp: training runs of tiny models, by PyTorch in float64.

    python3 tests/golden/training_reference.py tests/golden/training

The runs are an independent witness for the numbers that an engine reports. Models, losses and optimizers are written here from papers
and from the documented meaning of the config keys (DeepSpeed's, PyTorch's), not from Trivet's code. If PyTorch has an optimizer,
torch.optim runs it. A run is described by the config that Trivet reads; this script reads the same keys.

    AdamW, Adam with adam_w_mode   torch.optim.AdamW              (Loshchilov & Hutter 2019)
    Adam without adam_w_mode       torch.optim.Adam               (Kingma & Ba 2015, L2)
    SGD, Adagrad                   torch.optim.SGD, .Adagrad
    Lion                           Chen et al. 2023, algorithm 2
    LAMB                           You et al. 2020, algorithm 2, with DeepSpeed's min_coeff and max_coeff
    Muon                           Jordan et al. 2024; all but the matrices of hidden blocks get AdamW

Each run is made twice, in float64 and in the precision of its config (float32, or 16 bits with float32 master weights). Their difference
shows how far rounding alone moves a correct implementation; the test's tolerances are multiples of it. Runs whose outcome depends on
the sign of a rounding error are refused.

It writes models.safetensors (initial weights, float32), data.safetensors (tokens and targets), weights.safetensors (weights after the
last step) and runs.json (config, losses, norms, learning rates of each run; learning rates of longer schedules).
"""

import json
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from llama_reference import packed, write_safetensors  # noqa: E402

STEPS, BATCH, SEQUENCE, VOCABULARY = 10, 8, 8, 29
GPT = {"type": "gpt", "layers": 2, "hidden_size": 16, "heads": 2, "sequence_length": SEQUENCE, "vocabulary": VOCABULARY}
LLAMA = {"type": "llama", "layers": 2, "hidden_size": 16, "heads": 4, "key_value_heads": 2, "feed_forward_size": 24,
         "rotary_base": 500.0, "sequence_length": SEQUENCE, "vocabulary": VOCABULARY}
MODELS = {"gpt": GPT, "gpt_untied": GPT | {"tied_embedding": False}, "llama": LLAMA, "llama_tied": LLAMA | {"tied_embedding": True}}


# ---- models


def is_tied(model):
    return model.get("tied_embedding", model["type"] == "gpt")


def draw_weights(model, seed):
    """Wider than a real initialization, so that few gradients are near zero."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, spread=0.3, center=0.0):
        return (torch.randn(*shape, generator=generator) * spread + center).float().double()

    hidden, head = model["hidden_size"], model["hidden_size"] // model["heads"]
    rows = (model["heads"] + 2 * model.get("key_value_heads", model["heads"])) * head
    gpt = model["type"] == "gpt"
    weights = {"embedding.tokens.weight": normal(VOCABULARY, hidden, spread=0.5)}
    if gpt:
        weights["embedding.positions.weight"] = normal(SEQUENCE, hidden)

    def linear(name, outputs, inputs):
        weights[name + ".weight"] = normal(outputs, inputs)
        if gpt:
            weights[name + ".bias"] = normal(outputs)

    def norm(name):
        weights[name + ".gain"] = normal(hidden, center=1.0)
        if gpt:
            weights[name + ".bias"] = normal(hidden)

    for i in range(model["layers"]):
        norm(f"blocks.{i}.norm1")
        linear(f"blocks.{i}.attention.qkv", rows, hidden)
        linear(f"blocks.{i}.attention.out", hidden, hidden)
        norm(f"blocks.{i}.norm2")
        if gpt:
            linear(f"blocks.{i}.mlp.up", 4 * hidden, hidden)
            linear(f"blocks.{i}.mlp.down", hidden, 4 * hidden)
        else:
            linear(f"blocks.{i}.mlp.gate_up", 2 * model["feed_forward_size"], hidden)
            linear(f"blocks.{i}.mlp.down", hidden, model["feed_forward_size"])
    norm("head.norm")
    if not is_tied(model):
        weights["head.weight"] = normal(VOCABULARY, hidden)
    return weights


def norm_of(model, w, name, x):
    if model["type"] == "gpt":
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".gain"], w[name + ".bias"], 1e-5)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w[name + ".gain"]


def linear_of(w, name, x):
    return torch.nn.functional.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def rotate(x, base):
    """x[B, heads, S, D]: the pair (i, i + D/2) turns by position * base^(-2i/D) (Su et al. 2021, on halves as Llama has it)."""
    length, size = x.shape[-2:]
    frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., : size // 2], x[..., size // 2:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attention(model, w, name, x):
    batch, length, hidden = x.shape
    heads = model["heads"]
    groups, size = model.get("key_value_heads", heads), hidden // heads
    q, k, v = linear_of(w, name + ".qkv", x).split([heads * size, groups * size, groups * size], -1)
    q, k, v = (t.view(batch, length, -1, size).transpose(1, 2) for t in (q, k, v))
    if model["type"] == "llama":
        q, k = rotate(q, model["rotary_base"]), rotate(k, model["rotary_base"])
    k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(size)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return linear_of(w, name + ".out", mixed.transpose(1, 2).reshape(batch, length, hidden))


def mlp(model, w, name, x):
    if model["type"] == "gpt":
        return linear_of(w, name + ".down", torch.nn.functional.gelu(linear_of(w, name + ".up", x), approximate="tanh"))
    gate, up = linear_of(w, name + ".gate_up", x).chunk(2, -1)
    return linear_of(w, name + ".down", torch.nn.functional.silu(gate) * up)


def sum_of_losses(model, w, tokens, targets):
    x = w["embedding.tokens.weight"][tokens]
    if model["type"] == "gpt":
        x = x + w["embedding.positions.weight"]
    for i in range(model["layers"]):
        block = f"blocks.{i}."
        x = x + attention(model, w, block + "attention", norm_of(model, w, block + "norm1", x))
        x = x + mlp(model, w, block + "mlp", norm_of(model, w, block + "norm2", x))
    x = norm_of(model, w, "head.norm", x)
    logits = x @ w["embedding.tokens.weight" if is_tied(model) else "head.weight"].T
    logits = logits.reshape(-1, VOCABULARY).to(torch.promote_types(logits.dtype, torch.float32))
    return torch.nn.functional.cross_entropy(logits, targets.reshape(-1), ignore_index=-1, reduction="sum")


# ---- optimizers that PyTorch does not have


class Lion(torch.optim.Optimizer):
    """c = b1 m + (1 - b1) g;  w -= lr (sign(c) + decay w);  m = b2 m + (1 - b2) g."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                blend = first * m + (1 - first) * p.grad
                refuse_near_zero(blend, p.certain)
                p -= group["lr"] * (blend.sign() + group["weight_decay"] * p)
                m.copy_(second * m + (1 - second) * p.grad)


def refuse_near_zero(blend, certain):
    """Refuses a run in which rounding in float32 may flip a sign, because nothing can be compared with it."""
    values = blend[certain]
    close = (values != 0) & (values.abs() < 2e-6 * values.abs().max())
    if blend.dtype == torch.float64 and close.any():
        raise SystemExit(f"a sign is uncertain: {values[close].tolist()} of {values.abs().max()}; draw other weights (SEED)")


class Lamb(torch.optim.Optimizer):
    """u = m^ / (sqrt(v^) + eps) + decay w;  w -= lr clamp(|w| / |u|) u, the norms over a tensor; a ratio of 1 where a norm is 0."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                m, v = (state.setdefault(name, torch.zeros_like(p)) for name in ("m", "v"))
                state["t"] = state.get("t", 0) + 1
                m.copy_(first * m + (1 - first) * p.grad)
                v.copy_(second * v + (1 - second) * p.grad ** 2)
                corrected = group["bias_correction"]
                m_hat = m / (1 - first ** state["t"]) if corrected else m
                v_hat = v / (1 - second ** state["t"]) if corrected else v
                u = m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * p
                ratio = 1.0
                if p.norm() > 0 and u.norm() > 0:
                    ratio = float(p.norm() / u.norm())
                    ratios.append(ratio)
                    ratio = min(max(ratio, group["min_coeff"]), group["max_coeff"])
                p -= group["lr"] * ratio * u


ratios = []  # LAMB's trust ratios, before they are bounded


class UncorrectedAdamW(torch.optim.Optimizer):
    """AdamW with bias_correction false, which PyTorch does not have."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m, v = (self.state[p].setdefault(name, torch.zeros_like(p)) for name in ("m", "v"))
                m.copy_(first * m + (1 - first) * p.grad)
                v.copy_(second * v + (1 - second) * p.grad ** 2)
                p -= group["lr"] * (m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p)


class Muon(torch.optim.Optimizer):
    """b = mu b + g;  w = (1 - lr decay) w - lr sqrt(max(1, rows / cols)) orthogonal(g + mu b, or b without Nesterov)."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                b = self.state[p].setdefault("b", torch.zeros_like(p))
                b.copy_(group["momentum"] * b + p.grad)
                update = orthogonal(p.grad + group["momentum"] * b if group["nesterov"] else b)
                p *= 1 - group["lr"] * group["weight_decay"]
                p -= group["lr"] * math.sqrt(max(1, p.shape[0] / p.shape[1])) * update


def orthogonal(matrix):
    """Five steps of the quintic Newton-Schulz iteration on the wide form of the matrix."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Several:
    def __init__(self, *optimizers):
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def make_optimizer(config, weights):
    kind, params = config["optimizer"]["type"], config["optimizer"]["params"]
    decay, lr = params.get("weight_decay", 0.0), params["lr"]
    betas, eps = tuple(params.get("betas", (0.9, 0.999))), params.get("eps", 1e-10 if kind == "Adagrad" else 1e-8)
    all_decay = config["optimizer"].get("decay_all", False)

    def groups(names, **settings):
        """Only matrices get weight decay: biases and norms have one dimension."""
        split = {True: [], False: []}
        for name in names:
            split[all_decay or weights[name].dim() > 1].append(weights[name])
        return [{"params": chosen, "weight_decay": decay * decays, **settings} for decays, chosen in split.items() if chosen]

    names = list(weights)
    if kind == "AdamW" or (kind == "Adam" and params.get("adam_w_mode", True)):
        if not params.get("bias_correction", True):
            return UncorrectedAdamW(groups(names), {"lr": lr, "betas": betas, "eps": eps})
        return torch.optim.AdamW(groups(names), lr=lr, betas=betas, eps=eps)
    if kind == "Adam":
        return torch.optim.Adam(groups(names), lr=lr, betas=betas, eps=eps)
    if kind == "SGD":
        return torch.optim.SGD(groups(names), lr=lr, momentum=params.get("momentum", 0.0), dampening=params.get("dampening", 0.0),
                               nesterov=params.get("nesterov", False))
    if kind == "Adagrad":
        return torch.optim.Adagrad(groups(names), lr=lr, eps=eps)
    if kind == "Lion":
        return Lion(groups(names), {"lr": lr, "betas": betas})
    if kind == "Lamb":
        return Lamb(groups(names), {"lr": lr, "betas": betas, "eps": eps, "min_coeff": params.get("min_coeff", 0.01),
                                    "max_coeff": params.get("max_coeff", 10.0),
                                    "bias_correction": params.get("bias_correction", True)})
    if kind == "Muon":
        matrices = [name for name in names if name.startswith("blocks.") and weights[name].dim() == 2]
        others = [name for name in names if name not in matrices]
        muon_lr, adam_lr = (params.get(key, 0.0) or lr for key in ("muon_lr", "adam_lr"))
        muon = Muon(groups(matrices, share=muon_lr / lr),
                    {"lr": muon_lr, "momentum": params.get("momentum", 0.95), "nesterov": params.get("nesterov", True)})
        return Several(muon, torch.optim.AdamW(groups(others, share=adam_lr / lr), lr=adam_lr, betas=betas, eps=eps))
    raise ValueError(kind)


# ---- schedules: the learning rate of update number `step` (from 0), before lr_scaling


def warmup_share(params, n):
    """How far DeepSpeed's warm-up is after n updates. It takes at least two steps, and is logarithmic unless it is linear."""
    steps = max(2, params.get("warmup_num_steps", 1000))
    if n >= steps:
        return None
    return n / steps if params.get("warmup_type", "log") == "linear" else math.log(n + 1) / math.log(steps)


def cycle_height(params, n):
    """The height of OneCycle is 0 at both ends of the cycle and 1 at its top; with stairs it is that of the stair."""
    first = params["cycle_first_step_size"]
    second = params.get("cycle_second_step_size", first)
    stairs_up = params.get("cycle_first_stair_count", 0)
    stairs_down = params.get("cycle_second_stair_count", stairs_up)
    up = n <= first
    distance, size, stairs = (n, first, stairs_up) if up else (first + second - n, second, stairs_down)
    return distance / size if stairs == 0 else distance * stairs // size / stairs


def one_cycle(params, step):
    """Returns (learning rate, beta1). DeepSpeed counts iterations from -1, so its first update has the lower bound of both."""
    low, high = params["cycle_min_lr"], params["cycle_max_lr"]
    calm, fast = params.get("cycle_max_mom", 0.9), params.get("cycle_min_mom", 0.8)
    length = params["cycle_first_step_size"] + params.get("cycle_second_step_size", params["cycle_first_step_size"])
    if step == 0:
        return low, fast
    if step <= length:
        height = cycle_height(params, step) if step < length else 0.0
        return low + (high - low) * height, calm - (calm - fast) * height
    if params.get("decay_step_size", 0) == 0:
        return low, calm
    intervals = (step - length) / params["decay_step_size"]
    return low / (1 + params.get("decay_lr_rate", 0.0) * intervals), calm * (1 + params.get("decay_mom_rate", 0.0) * intervals)


def scheduled_lr(config, step):
    scheduler = config.get("scheduler", {"type": "Constant"})
    kind, params, base = scheduler["type"], scheduler.get("params", {}), config["optimizer"]["params"]["lr"]
    total = params.get("total_num_steps", 0) or config["training"]["steps"]
    if kind in ("WarmupLR", "WarmupDecayLR"):
        low = params.get("warmup_min_lr", 0.0)
        high = params.get("warmup_max_lr", base if kind == "WarmupLR" else 0.001)
        if step == 0:
            return low
        share = warmup_share(params, step - 1)
        if share is None:
            decay = max(0.0, (total - (step - 1)) / max(1.0, total - max(2, params["warmup_num_steps"])))
            share = 1.0 if kind == "WarmupLR" else decay
        return low + (high - low) * share
    if kind == "WarmupCosineLR":
        if step == 0:
            return 0.0
        share = warmup_share(params, step - 1)
        if share is not None:
            start = params.get("warmup_min_ratio", 0.0)
            return base * (start + (1 - start) * share)
        warmup, end = max(2, params["warmup_num_steps"]), params.get("cos_min_ratio", 1e-4)
        done = min(1.0, (step - warmup) / max(1, total - warmup))
        return base * (end + (1 - end) * (1 + math.cos(math.pi * done)) / 2)
    if kind == "LRRangeTest":
        intervals = step / params["lr_range_test_step_size"]
        if params.get("lr_range_test_staircase", False):
            intervals = math.floor(intervals)
        return params["lr_range_test_min_lr"] * (1 + params["lr_range_test_step_rate"] * intervals)
    if kind == "OneCycle":
        return one_cycle(params, step)[0]
    warmup, end = params.get("warmup_num_steps", 0), params.get("end_ratio", 0.0)
    if step < warmup:
        return base * (step + 1) / warmup
    if kind == "Constant":
        return base
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return base * (end + (1 - end) * (1 - done if kind == "Linear" else (1 + math.cos(math.pi * done)) / 2))


def lr_of(config, step):
    scaling = config["optimizer"].get("lr_scaling", {"rule": "none"})
    ratio = config["train_batch_size"] / scaling.get("base_batch_size", config["train_batch_size"])
    return scheduled_lr(config, step) * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scaling["rule"]]


def set_rates(config, optimizer, update):
    lr = lr_of(config, update)
    params = config.get("scheduler", {}).get("params", {})
    cycles = config.get("scheduler", {}).get("type") == "OneCycle" and params.get("cycle_momentum", True)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("share", 1.0)
        if cycles and "betas" in group:
            group["betas"] = (one_cycle(params, update)[1], 0.99)
    return lr


# ---- runs


def adamw(**further):
    return {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1} | further}


def sgd(**further):
    return {"type": "SGD", "params": {"lr": 0.1, "weight_decay": 0.02} | further}


def lamb(**further):
    return {"type": "Lamb", "params": {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1, "min_coeff": 0.3,
                                       "max_coeff": 0.6} | further}


OPTIMIZERS = {
    "adamw": adamw(),
    "adam": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1}},
    "adam_l2": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1,
                                           "adam_w_mode": False}},
    "sgd": sgd(),
    "sgd_dampening": sgd(momentum=0.9, dampening=0.4),
    "sgd_nesterov": sgd(momentum=0.9, nesterov=True),
    "lion": {"type": "Lion", "params": {"lr": 0.003, "betas": [0.6, 0.95], "weight_decay": 0.3}},
    "lamb": lamb(),
    "adagrad": {"type": "Adagrad", "params": {"lr": 0.03, "eps": 0.05, "weight_decay": 0.02}},
    "muon": {"type": "Muon", "params": {"lr": 0.01, "muon_lr": 0.02, "adam_lr": 0.005, "momentum": 0.9, "betas": [0.8, 0.95],
                                        "eps": 1e-4, "weight_decay": 0.1}},
    "muon_plain": {"type": "Muon", "params": {"lr": 0.01, "momentum": 0.9, "nesterov": False, "eps": 1e-4}},
}

WARMUP = {"warmup_num_steps": 4}
CYCLE = {"cycle_min_lr": 0.002, "cycle_max_lr": 0.02, "cycle_first_step_size": 3, "cycle_second_step_size": 4}
SCHEDULES = {
    "warmup_log": ("WarmupLR", WARMUP | {"warmup_min_lr": 0.001}),
    "warmup_linear": ("WarmupLR", WARMUP | {"warmup_max_lr": 0.02, "warmup_type": "linear"}),
    "warmup_decay": ("WarmupDecayLR", WARMUP | {"warmup_max_lr": 0.02, "total_num_steps": 9}),
    "warmup_decay_linear": ("WarmupDecayLR", {"warmup_num_steps": 3, "warmup_type": "linear"}),
    "warmup_cosine": ("WarmupCosineLR", WARMUP | {"warmup_min_ratio": 0.2, "cos_min_ratio": 0.05, "total_num_steps": 8}),
    "warmup_cosine_linear": ("WarmupCosineLR", {"warmup_num_steps": 1, "warmup_type": "linear"}),
    "one_cycle": ("OneCycle", CYCLE | {"decay_step_size": 2, "decay_lr_rate": 0.5, "decay_mom_rate": 0.02}),
    "one_cycle_stairs": ("OneCycle", CYCLE | {"cycle_first_stair_count": 2, "cycle_second_stair_count": 3, "cycle_momentum": False}),
    "range_test": ("LRRangeTest", {"lr_range_test_min_lr": 0.001, "lr_range_test_step_size": 3, "lr_range_test_step_rate": 2.0}),
    "range_test_stairs": ("LRRangeTest", {"lr_range_test_min_lr": 0.001, "lr_range_test_step_size": 3,
                                          "lr_range_test_step_rate": 2.0, "lr_range_test_staircase": True}),
    "constant": ("Constant", WARMUP),
    "linear": ("Linear", WARMUP | {"end_ratio": 0.1, "total_num_steps": 8}),
    "cosine": ("Cosine", {"warmup_num_steps": 2, "end_ratio": 0.1}),
}


def run(name, model, optimizer, skipped=(), weights=True, micro=2, **keys):
    """weights: whether the weights after the last step are kept; if not, the loss of the evaluation stands for them."""
    config = {"model": MODELS[model], "train_batch_size": BATCH, "train_micro_batch_size_per_gpu": micro, "optimizer": optimizer,
              "training": {"steps": STEPS}, "gradient_clipping": 0.0} | keys
    return {"name": name, "model": model, "config": config, "skipped": list(skipped), "weights": weights}


def all_runs():
    runs = [run(f"{model}_{name}", model, optimizer) for name, optimizer in OPTIMIZERS.items() for model in ("gpt", "llama")]
    runs += [run("gpt_untied_adamw", "gpt_untied", adamw()), run("llama_tied_adamw", "llama_tied", adamw())]
    runs += [run("llama_tied_sgd", "llama_tied", sgd(), weights=False), run("gpt_untied_sgd", "gpt_untied", sgd(), weights=False)]
    for model in ("gpt", "llama"):
        small = {"weights": False}
        runs += [
            run(f"{model}_sgd_clipped", model, sgd(momentum=0.9), gradient_clipping=0.3, **small),
            run(f"{model}_sgd_sometimes_clipped", model, sgd(momentum=0.9), gradient_clipping=3.0, **small),
            run(f"{model}_adamw_clipped", model, adamw(), gradient_clipping=0.2, **small),
            run(f"{model}_muon_clipped", model, OPTIMIZERS["muon"], gradient_clipping=0.2, **small),
            run(f"{model}_adamw_decay_all", model, adamw() | {"decay_all": True}, **small),
            run(f"{model}_lamb_decay_all", model, lamb() | {"decay_all": True}, **small),
            run(f"{model}_adamw_uncorrected", model, adamw(bias_correction=False), **small),
            run(f"{model}_lamb_uncorrected", model, lamb(bias_correction=False, min_coeff=0.0, max_coeff=1e9), **small),
            run(f"{model}_lamb_unbounded", model, lamb(min_coeff=0.0, max_coeff=1e9), **small),
            run(f"{model}_sgd_bf16", model, sgd(momentum=0.9), bf16={"enabled": True}, **small),
            run(f"{model}_sgd_fp16", model, sgd(momentum=0.9), fp16={"enabled": True, "loss_scale": 256.0}, **small),
            run(f"{model}_adamw_skipped", model, adamw(), skipped=[0, 3, 4, 8],
                scheduler={"type": "WarmupLR", "params": WARMUP}, **small),
            run(f"{model}_lamb_skipped", model, lamb(), skipped=[1, 2, 6], **small),
            run(f"{model}_sgd_skipped", model, sgd(momentum=0.9, dampening=0.4), skipped=[0, 1, 5], **small),
            run(f"{model}_adamw_larger_microbatches", model, adamw(), micro=4, **small),
            run(f"{model}_sgd_smaller_microbatches", model, sgd(), micro=1, **small),
            run(f"{model}_one_microbatch", model, adamw(), micro=BATCH, **small),
            run(f"{model}_lr_linear", model, adamw() | {"lr_scaling": {"rule": "linear", "base_batch_size": 16}}, **small),
            run(f"{model}_lr_square_root", model, adamw() | {"lr_scaling": {"rule": "sqrt", "base_batch_size": 2}}, **small),
        ]
    for name, (kind, params) in SCHEDULES.items():
        runs.append(run(f"schedule_{name}", "llama", adamw(), weights=False, scheduler={"type": kind, "params": params}))
    runs.append(run("schedule_one_cycle_lamb", "gpt", lamb(), weights=False,
                    scheduler={"type": "OneCycle", "params": SCHEDULES["one_cycle"][1]}))
    runs.append(run("schedule_linear_muon", "gpt", OPTIMIZERS["muon"], weights=False,
                    scheduler={"type": "Linear", "params": SCHEDULES["linear"][1]}))
    runs.append(run("schedule_linear_lr_scaled", "gpt", adamw() | {"lr_scaling": {"rule": "linear", "base_batch_size": 16}},
                    weights=False, scheduler={"type": "Linear", "params": SCHEDULES["linear"][1]}))
    return runs


def draw_data(seed):
    """Draws tokens that follow a rule with exceptions. Some targets do not count; they are uneven over the microbatches."""
    generator = torch.Generator().manual_seed(seed)
    shape = (STEPS + 1, BATCH, SEQUENCE + 1)
    start = torch.randint(VOCABULARY, shape[:2], generator=generator)[..., None]
    text = (start + 5 * torch.arange(SEQUENCE + 1)) % VOCABULARY
    noise = torch.rand(shape, generator=generator) < 0.3
    text = torch.where(noise, torch.randint(VOCABULARY, shape, generator=generator), text)
    tokens, targets = text[..., :-1].contiguous(), text[..., 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < 0.1] = -1
    targets[:, 0, :6] = targets[:, 5, 3:] = -1
    return tokens, targets


# Softmax does not change when all scores of a query change by the same amount, so the gradient of a key's bias is zero except
# for rounding. An optimizer that divides by the gradient's size can turn it into anything. No loss depends on it either.
def certain_part(model, name, weight):
    certain = torch.ones_like(weight, dtype=torch.bool)
    if name.endswith("attention.qkv.bias"):
        certain[model["hidden_size"]: 2 * model["hidden_size"]] = False
    return certain


def train(described, initial, data, dtype, compute=None):
    """`compute` is the type of the model's weights and gradients, if it is not that of the weights that are updated."""
    config, model = described["config"], described["config"]["model"]
    weights = {name: weight.to(dtype, copy=True).requires_grad_() for name, weight in initial.items()}
    for name, weight in weights.items():
        weight.certain = certain_part(model, name, weight)
    optimizer = make_optimizer(config, weights)
    tokens, targets = data
    trace = {"loss": [], "grad_norm": [], "lr": []}
    updates = 0
    for step in range(STEPS):
        trace["lr"].append(set_rates(config, optimizer, updates))
        used = {name: weight.to(compute) for name, weight in weights.items()} if compute else weights
        loss = sum_of_losses(model, used, tokens[step], targets[step]) / (targets[step] >= 0).sum()
        trace["loss"].append(loss.item())
        for weight in weights.values():
            weight.grad = None
        scale = config.get("fp16", {}).get("loss_scale", 1.0) if compute else 1.0
        (loss * scale).backward()
        for weight in weights.values():
            weight.grad /= scale
        norm = math.sqrt(sum(weight.grad.double().pow(2).sum().item() for weight in weights.values()))
        trace["grad_norm"].append(norm)
        if step in described["skipped"]:
            continue
        if config["gradient_clipping"] > 0:
            torch.nn.utils.clip_grad_norm_(list(weights.values()), config["gradient_clipping"])
        optimizer.step()
        updates += 1
    with torch.no_grad():
        trace["evaluation"] = (sum_of_losses(model, weights, tokens[STEPS], targets[STEPS]) / (targets[STEPS] >= 0).sum()).item()
    return trace, {name: weight.detach() for name, weight in weights.items()}


def difference_of_weights(model, weights, reference, initial):
    """The largest difference of an element, relative to the furthest that any element of its tensor moved."""
    largest = 0.0
    for name, exact in reference.items():
        certain = certain_part(model, name, exact)
        distance = (exact - initial[name])[certain].abs().max().item()
        largest = max(largest, (weights[name].double() - exact)[certain].abs().max().item() / distance)
    return largest


def relative(values, reference):
    return max(abs(a - b) / abs(b) for a, b in zip(values, reference))


def check_what_a_run_is_for(described, exact):
    """A bound that never binds tests nothing."""
    clipping = described["config"]["gradient_clipping"]
    if clipping > 0:
        always = not described["name"].endswith("sometimes_clipped")
        assert max(exact["grad_norm"]) > clipping and (min(exact["grad_norm"]) > clipping) == always, described["name"]
    if described["config"]["optimizer"]["type"] == "Lamb" and described["config"]["optimizer"]["params"]["max_coeff"] < 1e9:
        assert min(ratios) < 0.3 < max(r for r in ratios if r < 0.6) and max(ratios) > 0.6, described["name"]


def main(folder):
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    models = {name: draw_weights(model, SEED + i) for i, (name, model) in enumerate(MODELS.items())}
    data = draw_data(SEED)
    results, kept = [], {}
    for described in all_runs():
        initial = models[described["model"]]
        ratios.clear()
        exact, weights = train(described, initial, data, torch.float64)
        check_what_a_run_is_for(described, exact)
        compute = {"fp16": torch.float16, "bf16": torch.bfloat16}
        half = next((compute[key] for key in compute if key in described["config"]), None)
        rounded, rounded_weights = train(described, initial, data, torch.float32, half)
        rounding = {key: relative(rounded[key], exact[key]) for key in ("loss", "grad_norm")}
        rounding["evaluation"] = relative([rounded["evaluation"]], [exact["evaluation"]])
        rounding["weights"] = difference_of_weights(described["config"]["model"], rounded_weights, weights, initial)
        for step in described["skipped"]:
            exact["grad_norm"][step] = None
        results.append(described | exact | {"rounding": {key: float(f"{value:.2e}") for key, value in rounding.items()}})
        if described["weights"]:
            kept |= {f"{described['name']}.{name}": packed(weight, "F32") for name, weight in weights.items()}
        print(f"{described['name']:34} loss {exact['loss'][0]:.4f} .. {exact['loss'][-1]:.4f}, norm {exact['grad_norm'][-1] or 0:.3f}; "
              + "rounding: " + ", ".join(f"{key} {value:.1e}" for key, value in rounding.items()))
    schedules = [{"name": name, "config": {"optimizer": adamw(), "training": {"steps": 40}, "train_batch_size": BATCH,
                                           "scheduler": {"type": kind, "params": params}}}
                 for name, (kind, params) in SCHEDULES.items()]
    for schedule in schedules:
        schedule["lr"] = [lr_of(schedule["config"], step) for step in range(40)]
    write_safetensors(folder / "models.safetensors", {f"{model}.{name}": packed(weight, "F32") for model, weights in models.items()
                                                      for name, weight in weights.items()})
    write_safetensors(folder / "data.safetensors", {"tokens": packed(data[0], "I32"), "targets": packed(data[1], "I32")})
    write_safetensors(folder / "weights.safetensors", kept)
    evaluated = int((data[1][STEPS] >= 0).sum())
    with open(folder / "runs.json", "w") as file:
        file.write('{"torch": "%s", "evaluated_targets": %d,\n"runs": [\n' % (torch.__version__, evaluated))
        file.write(",\n".join(json.dumps(result) for result in results))
        file.write('],\n"schedules": [\n' + ",\n".join(json.dumps(schedule) for schedule in schedules) + "]}\n")


SEED = 20

if __name__ == "__main__":
    main(sys.argv[1])
