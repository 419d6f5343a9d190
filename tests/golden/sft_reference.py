#!/usr/bin/env python3
"""Writes the golden files of tests/engine/sft_reference_test.cpp: one step of supervised fine-tuning, by PyTorch in float64.

    python3 tests/golden/sft_reference.py tests/golden/sft

From conversations to gradients, everything is written here a second time: the ChatML text, its bytes as tokens, the bytes that count,
whole documents packed into samples, and the mean loss over the counted targets of all samples. The model is that of
training_reference.py.

It writes chats.jsonl (the conversations), sft.safetensors ("weight.NAME", float32, and
"gradient.NAME", float64) and sft.json (config, loss, norm of the gradient, and the counted targets of each sample).
"""

import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training_reference as reference  # noqa: E402
from llama_reference import packed, write_safetensors  # noqa: E402

SEQUENCE, VOCABULARY, SEED = 112, 256, 20
MODEL = {"type": "gpt", "layers": 2, "hidden_size": 8, "heads": 2, "sequence_length": SEQUENCE, "vocabulary": "bytes"}
# Answers of very different lengths, so that a mean of means is another number. The first two share a sample.
CHATS = [[("user", "a"), ("assistant", "b")],
         [("assistant", "c?")],
         [("user", "and then?"), ("assistant", "One two three, four five six.")],
         [("system", "Short."), ("user", "Why"), ("assistant", "")],
         [("user", "x"), ("assistant", "y"), ("user", "z")],
         [("user", "A question far longer than what is said of it"), ("assistant", "no")],
         [("assistant", "All of this is an answer, but for the words in front of it.")]]


def tokens_of(chat):
    """The bytes of a conversation, and for each whether the loss counts it: what the assistant says, and the mark after it."""
    ids, counted = [], []
    for role, content in chat:
        for text, counts in ((f"<|im_start|>{role}\n", False), (f"{content}<|im_end|>", role == "assistant"), ("\n", False)):
            ids += text.encode()
            counted += [counts] * len(text.encode())
    return ids, counted


def pack(documents):
    """Rows of inputs and targets. A row holds as many whole documents as fit into SEQUENCE + 1 tokens."""
    rows = []
    for ids, counted in documents:
        assert len(ids) <= SEQUENCE + 1, len(ids)
        # No document is asked for the first token of the next one.
        document = list(zip(ids, [False, *counted[1:]]))
        if rows and len(rows[-1]) + len(document) <= SEQUENCE + 1:
            rows[-1] += document
        else:
            rows.append(document)
    inputs = torch.zeros(len(rows), SEQUENCE, dtype=torch.int64)
    targets = torch.full((len(rows), SEQUENCE), -1)
    for row, document in enumerate(rows):
        for place in range(len(document) - 1):
            inputs[row, place] = document[place][0]
            if document[place + 1][1]:
                targets[row, place] = document[place + 1][0]
    return inputs, targets


def main(folder):
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    reference.SEQUENCE, reference.VOCABULARY = SEQUENCE, VOCABULARY
    inputs, targets = pack([tokens_of(chat) for chat in CHATS])
    weights = reference.draw_weights(MODEL, SEED)
    for weight in weights.values():
        weight.requires_grad_()
    counted = (targets >= 0).sum(1)
    loss = reference.sum_of_losses(MODEL, weights, inputs, targets) / counted.sum()
    loss.backward()
    norm = torch.sqrt(sum((weight.grad ** 2).sum() for weight in weights.values()))
    config = {"model": MODEL, "train_batch_size": len(inputs), "training": {"steps": 1, "seed": SEED},
              "data": {"train": "chats.jsonl", "validation_fraction": 0, "chat_template": "chatml", "packing": "whole",
                       "shuffle": False}}
    with open(folder / "chats.jsonl", "w") as file:
        for chat in CHATS:
            file.write(json.dumps({"messages": [{"role": role, "content": content} for role, content in chat]}) + "\n")
    write_safetensors(folder / "sft.safetensors",
                      {f"weight.{name}": packed(weight, "F32") for name, weight in weights.items()}
                      | {f"gradient.{name}": packed(weight.grad, "F64") for name, weight in weights.items()})
    with open(folder / "sft.json", "w") as file:
        json.dump({"torch": torch.__version__, "config": config, "loss": loss.item(), "grad_norm": norm.item(),
                   "counted": counted.tolist()}, file, indent=1)
        file.write("\n")
    print(f"{len(inputs)} samples, counted {counted.tolist()}, loss {loss.item():.6f}, norm {norm.item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1])
