#!/usr/bin/env python3
"""Writes chat_tokens.jsonl: the ids that the library tokenizers gives conversations in their templates, and the tokens that
transformers' masks of what the assistant says (return_assistant_tokens_mask) count. Needs the package tokenizers."""
import json
import os

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
MARKS = {"chatml": ["<|im_start|>", "<|im_end|>"], "llama-2": []}
CONVERSATIONS = [
    [("user", "Why?"), ("assistant", "So it is.")],
    [("system", "Be good."), ("user", "hello world"), ("assistant", "A thing."), ("user", "Why?"), ("assistant", "12  \u6f22\U0001f642")],
    [("user", "\u6f22\U0001f642"), ("assistant", "\U0001f642 the king\n\nhello"), ("user", "x"), ("assistant", "the")],
]
LINE_BREAKS = [[("user", "x"), ("assistant", "\nthe king\n")]]  # of which one before an answer and its first one are a token
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "split": False}
CHANGES = {
    "llama2_converted": [{}] + [{"normalizer": None, "pre_tokenizer": dict(METASPACE, prepend_scheme=scheme)} for scheme in ("first", "always", "never")],
    "t5_converted": [{}], "roberta": [{}], "bert_cased": [{}], "llama3": [{}, {"joins": "\u010a"}], "gpt2": [{}],
}


def parts_of(template, messages):
    """The text in parts, with whether the loss counts each."""
    if template == "chatml":
        for role, content in messages:
            answer = role == "assistant"
            yield from ((f"<|im_start|>{role}\n", False), (content + "<|im_end|>", answer), ("\n", False))
        return
    system = ""
    for role, content in messages:
        if role == "system":
            system = f"<<SYS>>\n{content}\n<</SYS>>\n\n"
        elif role == "user":
            yield f"<s>[INST] {system}{content} [/INST]", False
            system = ""
        else:
            yield f" {content} </s>", True


def main():
    with open(os.path.join(HERE, "chat_tokens.jsonl"), "w", encoding="utf-8") as out:
        for name, changes in CHANGES.items():
            for change in changes:
                for template, marks in MARKS.items():
                    if "joins" in change and template == "llama-2":
                        continue  # which strips answers
                    with open(os.path.join(HERE, "tokenizers", name + ".json"), encoding="utf-8") as file:
                        described = json.load(file)
                    described.update({key: value for key, value in change.items() if key != "joins"})
                    for character in change.get("joins", ""):
                        described["model"]["vocab"][2 * character] = len(described["model"]["vocab"])
                        described["model"]["merges"].append([character, character])
                    ids = [token["id"] for token in described["added_tokens"]]
                    vocabulary = described["model"]["vocab"]
                    ids += range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
                    if template == "llama-2" and (name == "roberta" or not any(token["content"] == "</s>" for token in described["added_tokens"])):
                        continue  # without the mark, or with offsets that leave out spaces
                    added = [{"id": max(ids) + 1 + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for i, mark in enumerate(marks)]
                    described["added_tokens"] += added
                    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
                    for messages in LINE_BREAKS if "joins" in change else CONVERSATIONS:
                        parts = list(parts_of(template, messages))
                        encoding = tokenizer.encode("".join(text for text, _ in parts), add_special_tokens=False)
                        counted, place = set(), 0
                        for text, is_counted in parts:
                            if is_counted:
                                counted.update(range(encoding.char_to_token(place), encoding.char_to_token(place + len(text) - 1) + 1))
                            place += len(text)
                        out.write(json.dumps({
                            "tokenizer": name, "change": change, "added": added, "template": template,
                            "messages": [{"role": role, "content": content} for role, content in messages],
                            "ids": encoding.ids, "counted": sorted(counted)}) + "\n")


if __name__ == "__main__":
    main()
