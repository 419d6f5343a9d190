#!/usr/bin/env python3
"""Makes the golden of tests/data/folder_tokens_test.cpp: folders whose files beside tokenizer.json name added tokens, tokenizers whose
normalizer drops the beginning of a text, and the ids that transformers' AutoTokenizer gives.

  pip install transformers==5.24.0
  tests/golden/folder_tokens.py tests/golden/folder_tokens.jsonl

A line for each folder: {"what", "files": {name: content}, "texts": {text: ids}}.
"""
import json
import os
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

PIECES = ["<unk>", "\u2581", "a", "b", "<", "X", "Y", ">", " ", "\u0301"]
lines = []


def flagged(content, id=None, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}
    return token if id is None else {"id": id, **token}


def folder(what, added=(), config=None, others=None, normalizer=None, scheme="never", texts=("a <X> b<Y>", "<X>", "<unk>"), unigram=False):
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in PIECES], unk_id=0) if unigram else
                          models.BPE({piece: i for i, piece in enumerate(PIECES)}, [], unk_token="<unk>"))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = list(added)
    files = {"tokenizer.json": content, "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **(config or {})},
             **(others or {})}
    with tempfile.TemporaryDirectory() as path:
        for name, content in files.items():
            with open(path + "/" + name, "w") as file:
                json.dump(content, file)
        read = AutoTokenizer.from_pretrained(path)
        lines.append({"what": what, "files": files, "texts": {text: read(text, add_special_tokens=False)["input_ids"] for text in texts}})


X, Y = flagged("<X>", 10), flagged("<Y>", 11)
folder("no other file")
folder("a decoder with new tokens", config={"added_tokens_decoder": {"11": flagged("<Y>", special=False, normalized=True), "10": flagged("<X>")}})
folder("a decoder with another setting", [X], {"added_tokens_decoder": {"10": flagged("<X>", lstrip=True, rstrip=True)}})
folder("a decoder without a setting", [flagged("<X>", 10, lstrip=True)], {"added_tokens_decoder": {"10": flagged("<X>")}})
folder("a decoder with other ids", [X, Y], {"added_tokens_decoder": {"11": flagged("<X>"), "10": flagged("<Y>")}})
folder("a decoder of a token of the vocabulary", config={"added_tokens_decoder": {"2": flagged("a", single_word=True)}})
folder("added_tokens.json", others={"added_tokens.json": {"<Y>": 11, "<X>": 10}})
folder("added_tokens.json beside a decoder", config={"added_tokens_decoder": {"10": flagged("<Y>")}}, others={"added_tokens.json": {"<X>": 10}})
folder("extra tokens", [X], {"additional_special_tokens": ["<Y>", "<X>"]})
folder("extra tokens by name", config={"extra_special_tokens": {"image_token": "<Y>"}})
folder("extra tokens of an older file", others={"special_tokens_map.json": {"additional_special_tokens": ["<X>"]}})
folder("an extra token with settings", config={"extra_special_tokens": [{"__type": "AddedToken", **flagged("<X>", lstrip=True)}]})
folder("an older file beside a decoder", config={"added_tokens_decoder": {"10": flagged("<Y>")}},
       others={"special_tokens_map.json": {"additional_special_tokens": ["<X>"]}})
folder("a named token of added_tokens.json", config={"pad_token": "<X>"}, others={"added_tokens.json": {"<X>": 10}})

for unigram in (False, True):
    folder("a decoder of the first token" + " of a Unigram model" * unigram, unigram=unigram,
           config={"added_tokens_decoder": {"0": flagged("<unk>"), "10": flagged("<X>")}})

TEXTS = ("ab", " ab", "  ab", "\u0301ab", "aab", "   ")
for name, normalizer in {"Strip": normalizers.Strip(), "Strip on the left": normalizers.Strip(right=False),
                         "Strip on the right": normalizers.Strip(left=False), "StripAccents": normalizers.StripAccents(),
                         "Replace by nothing": normalizers.Replace("a", ""), "Replace runs": normalizers.Replace(Regex(" {2,}"), "\u2581"),
                         "Strip and Prepend": normalizers.Sequence([normalizers.Strip(), normalizers.Prepend("b")])}.items():
    folder("first after " + name, normalizer=normalizer, scheme="first", texts=TEXTS)

with open(sys.argv[1], "w") as out:
    for line in lines:
        out.write(json.dumps(line) + "\n")
