#!/usr/bin/env python3
"""Writes the golden files of tests/engine/dpo_reference_test.cpp: direct preference optimization, by PyTorch in float64.

    python3 tests/golden/dpo_reference.py tests/golden/dpo

From pairs of answers to gradients, everything is written here a second time: bytes as tokens, rows of a prompt with an answer, the
log-probabilities of answers, and the losses of the papers. If TRL is installed, its DPOTrainer computes losses and rewards of the same
log-probabilities, too, and they must be equal. The model is that of training_reference.py.

It writes pairs.jsonl, dpo.safetensors ("weight.NAME" and, for each loss, "gradient.LOSS.NAME", float32) and dpo.json:

    cases   one step of each loss; the reference model has other weights, so that margins are not 0
    run     several steps of SGD; the reference model has the weights that the run begins with
"""

import collections
import json
import math
import pathlib
import sys
import types

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training_reference as reference  # noqa: E402
from llama_reference import packed, write_safetensors  # noqa: E402

SEQUENCE, VOCABULARY, SEED, OTHER_SEED = 24, 256, 20, 21
MODEL = {"type": "gpt", "layers": 2, "hidden_size": 8, "heads": 2, "sequence_length": SEQUENCE, "vocabulary": "bytes"}
# Answers of different lengths; the last preferred one is longer than a row.
PAIRS = [("2+2=", "4", "five"), ("Say hi. ", "hello", "no"), ("", "ab", "ba!"), ("Q: why? A: ", "because", "so"),
         ("up ", "down", "up up up"), ("x", "the end of this answer is cut off", "short")]
CASES = {"sigmoid": {"loss_type": "sigmoid", "beta": 0.3}, "hinge": {"loss_type": "hinge", "beta": 0.5},
         "ipo": {"loss_type": "ipo", "beta": 0.3}, "robust": {"loss_type": "robust", "beta": 0.3, "label_smoothing": 0.2}}
STEPS, RATE, BETA = 6, 0.5, 0.5


def row_of(prompt, answer):
    tokens = (prompt + answer).encode()[:SEQUENCE + 1]
    inputs = torch.zeros(SEQUENCE, dtype=torch.int64)
    targets = torch.full((SEQUENCE,), -1)
    for place in range(len(tokens) - 1):
        inputs[place] = tokens[place]
        if place + 1 >= len(prompt.encode()):
            targets[place] = tokens[place + 1]
    return inputs, targets


def log_probabilities(weights, rows):
    """[pair][2]: of the preferred and of the rejected answer."""
    values = [-reference.sum_of_losses(MODEL, weights, inputs[None], targets[None]) for inputs, targets in rows]
    return torch.stack(values).reshape(-1, 2)


def losses_of(settings, ratios, lengths):
    beta, kind = settings["beta"], settings["loss_type"]
    margin = beta * (ratios[:, 0] - ratios[:, 1])
    log_sigmoid = torch.nn.functional.logsigmoid
    if kind == "sigmoid":
        return -log_sigmoid(margin)
    if kind == "hinge":
        return torch.relu(1 - margin)
    if kind == "ipo":
        by_token = ratios / lengths
        return (by_token[:, 0] - by_token[:, 1] - 1 / (2 * beta)) ** 2
    swapped = settings["label_smoothing"]
    return (-(1 - swapped) * log_sigmoid(margin) + swapped * log_sigmoid(-margin)) / (1 - 2 * swapped)


def rewards_of(beta, ratios):
    chosen, rejected = (beta * ratios.detach()).unbind(1)
    return {"chosen": chosen.mean().item(), "rejected": rejected.mean().item(), "correct": (chosen > rejected).sum().item()}


def norm_of(weights):
    return torch.sqrt(sum((weight.grad ** 2).sum() for weight in weights.values())).item()


def trl_results(settings, policy, of_reference, targets):
    """What DPOTrainer makes of these log-probabilities; None without TRL."""
    try:
        from trl.trainer.dpo_trainer import DPOTrainer
    except ImportError:
        return None
    order = [*range(0, len(targets), 2), *range(1, len(targets), 2)]  # TRL puts all rejected answers after all preferred ones
    mask = torch.cat([torch.zeros(len(targets), 1, dtype=torch.int64), (torch.stack(targets) >= 0).long()], 1)[order]
    of_tokens = torch.zeros(len(targets), SEQUENCE, dtype=torch.float64)
    of_tokens[:, 0] = policy.reshape(-1)[order]  # it only adds them up
    outputs = types.SimpleNamespace(log_probs=of_tokens, entropy=of_tokens * 0, mean_logits=of_tokens * 0, is_top1=of_tokens > 1)

    def model(**_):
        return outputs

    model.training = True
    same = types.SimpleNamespace(gather=lambda x: x, gather_for_metrics=lambda x: x, device="cpu")
    metrics = {"train": collections.defaultdict(list)}
    trainer = types.SimpleNamespace(
        model=model, accelerator=same, aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True, beta=settings["beta"],
        label_smoothing=settings.get("label_smoothing", 0), f_divergence_type="reverse_kl", loss_types=[settings["loss_type"]],
        loss_weights=[1.0], use_weighting=False, _metrics=metrics, _tp_size=1, _total_train_tokens=0)
    inputs = {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask,
              "ref_chosen_logps": of_reference[:, 0], "ref_rejected_logps": of_reference[:, 1]}
    loss = DPOTrainer._compute_loss(trainer, model, inputs, False)
    return loss.item(), {name: values[0] for name, values in metrics["train"].items() if name.startswith("rewards/")}


def compare_with_trl(name, settings, policy, of_reference, targets, loss, rewards):
    found = trl_results(settings, policy.detach(), of_reference, targets)
    if found is None:
        return "TRL is not installed"
    theirs, their_rewards = found
    ours = {"rewards/chosen": rewards["chosen"], "rewards/rejected": rewards["rejected"],
            "rewards/margins": rewards["chosen"] - rewards["rejected"], "rewards/accuracies": rewards["correct"] / len(policy)}
    assert math.isclose(theirs, loss, rel_tol=1e-12), (name, theirs, loss)
    for key, value in ours.items():
        # accuracies are float32 in TRL
        assert math.isclose(their_rewards[key], value, rel_tol=1e-6 if "accuracies" in key else 1e-12), (name, key, their_rewards, ours)
    return "equal to TRL"


def main(folder):
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    reference.SEQUENCE, reference.VOCABULARY = SEQUENCE, VOCABULARY
    rows = [row_of(prompt, answer) for prompt, chosen, rejected in PAIRS for answer in (chosen, rejected)]
    targets = [target for _, target in rows]
    lengths = torch.tensor([(target >= 0).sum() for target in targets]).reshape(-1, 2)
    initial = reference.draw_weights(MODEL, SEED)
    with torch.no_grad():
        other = log_probabilities(reference.draw_weights(MODEL, OTHER_SEED), rows)
        own = log_probabilities(initial, rows)
    tensors = {f"weight.{name}": packed(weight, "F32") for name, weight in initial.items()}
    cases = []
    for name, settings in CASES.items():
        weights = {key: weight.clone().requires_grad_() for key, weight in initial.items()}
        policy = log_probabilities(weights, rows)
        losses = losses_of(settings, policy - other, lengths)
        assert name != "hinge" or 0 < (losses == 0).sum() < len(PAIRS), losses
        loss = losses.mean()
        loss.backward()
        rewards = rewards_of(settings["beta"], policy - other)
        agreement = compare_with_trl(name, settings, policy, other, targets, loss.item(), rewards)
        tensors |= {f"gradient.{name}.{key}": packed(weight.grad, "F32") for key, weight in weights.items()}
        cases.append({"name": name, "dpo": settings, "loss": loss.item(), "grad_norm": norm_of(weights), "rewards": rewards})
        print(f"{name}: loss {loss.item():.6f}, norm {norm_of(weights):.6f}, rewards {rewards}; {agreement}")

    settings = {"loss_type": "sigmoid", "beta": BETA}
    weights = {key: weight.clone().requires_grad_() for key, weight in initial.items()}
    optimizer = torch.optim.SGD(weights.values(), lr=RATE)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        policy = log_probabilities(weights, rows)
        loss = losses_of(settings, policy - own, lengths).mean()
        loss.backward()
        steps.append({"loss": loss.item(), "grad_norm": norm_of(weights), "rewards": rewards_of(BETA, policy - own)})
        optimizer.step()
    print("run: " + ", ".join(f"{step['loss']:.4f}" for step in steps))
    run = {"dpo": settings, "optimizer": {"type": "SGD", "params": {"lr": RATE}}, "steps": steps}
    config = {"model": MODEL, "train_batch_size": len(PAIRS), "training": {"steps": STEPS, "seed": SEED, "objective": "dpo"},
              "data": {"train": "pairs.jsonl", "validation_fraction": 0, "shuffle": False}, "gradient_clipping": 0}
    with open(folder / "pairs.jsonl", "w") as file:
        for prompt, chosen, rejected in PAIRS:
            file.write(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n")
    write_safetensors(folder / "dpo.safetensors", tensors)
    with open(folder / "dpo.json", "w") as file:
        json.dump({"torch": torch.__version__, "config": config, "own": own.tolist(), "reference": other.tolist(), "cases": cases,
                   "run": run}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
