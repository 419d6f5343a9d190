#!/usr/bin/env python3
"""Makes the golden of TiesOfUnigram in tests/data/tokenizers_test.cpp: texts that a unigram model can split in several ways of almost equal
scores, and what sentencepiece makes of them.

  pip install sentencepiece==0.2.3
  tests/golden/sentencepiece_ties.py tests/golden/sentencepiece_ties

The scores are about 1,000 times as large as those of other models, so that short texts reach sums at which floats are as coarse as in long
ones. NAME.model is the model, NAME.jsonl has a line {"text", "ids"} for each text.
"""
import json
import os
import random
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

SPACE = -2171.6766357421875
PIECES = {"\u2581": SPACE, "\u2581" * 2: 2 * SPACE, "\u2581" * 4: 4 * SPACE, "a": -3141.59, "b": -2718.28, "ab": -5859.87, "ba": -5859.869,
          "\u2581a": -5313.266, "c": -1618.03, "cab": -7477.9, "1": -3001.1, "12": -6002.3, "2": -3001.21, "21": -6002.3, "121": -9003.4}

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
model = sentencepiece_model_pb2.ModelProto()
model.trainer_spec.model_type = 1
model.trainer_spec.unk_id = 0
model.normalizer_spec.add_dummy_prefix = False
model.normalizer_spec.remove_extra_whitespaces = False
model.normalizer_spec.escape_whitespaces = True
kind = sentencepiece_model_pb2.ModelProto.SentencePiece
model.pieces.add(piece="<unk>", score=0, type=kind.UNKNOWN)
model.pieces.add(piece="bb1", score=0, type=kind.USER_DEFINED)
model.pieces.add(piece=",", score=-50, type=kind.USER_DEFINED)
for piece, score in PIECES.items():
    model.pieces.add(piece=piece, score=score, type=kind.NORMAL)
with open(folder + "/ties.model", "wb") as out:
    out.write(model.SerializeToString())

processor = sentencepiece.SentencePieceProcessor(model_file=folder + "/ties.model")
dice = random.Random(7)
with open(folder + "/ties.jsonl", "w") as out:
    for _ in range(30):
        text = "".join(dice.choice(["    ", " ", "abab", "ba", "121212", "21", "c", "bb1", ",", "cab", "z"]) for _ in range(dice.randrange(20, 120)))
        out.write(json.dumps({"text": text, "ids": processor.EncodeAsIds(text)}) + "\n")
