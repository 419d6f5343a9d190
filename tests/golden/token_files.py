#!/usr/bin/env python3
"""Writes token_files/: small files as Megatron's indexed_dataset.py, llm.c's data_common.py and numpy.save write them, and
expected.jsonl, what each holds: its ids and where its documents
end (none if the file does not say). tests/data/foreign_tokens_test.cpp reads them. Needs NumPy: pip install numpy
"""
import json
import pathlib
import struct

import numpy

folder = pathlib.Path(__file__).parent / "token_files"
folder.mkdir(exist_ok=True)
expected = []


def add(name, documents):
    """documents: a list of lists of ids; the file says where they end."""
    ids = [token for document in documents for token in document]
    ends = numpy.cumsum([len(document) for document in documents]).tolist()
    expected.append({"file": name, "ids": ids, "ends": sorted(set(ends))})


# Two documents: the first is two sequences, the second one. The arrays of the index are not aligned.
for name, code, letter in (("two", 8, "H"), ("wide", 4, "i"), ("bytes", 1, "B")):
    sequences, first_of_document = [[1, 2, 3], [4, 5], [6, 7, 8, 9]], [0, 2, 3]
    ids = [token for sequence in sequences for token in sequence]
    size = struct.calcsize(letter)
    (folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(ids)}{letter}", *ids))
    lengths = [len(sequence) for sequence in sequences]
    pointers = [size * sum(lengths[:i]) for i in range(len(lengths))]
    (folder / f"{name}.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sequences), len(first_of_document)) +
        struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(pointers)}q", *pointers) +
        struct.pack(f"<{len(first_of_document)}q", *first_of_document))
    add(f"{name}.idx", [[1, 2, 3, 4, 5], [6, 7, 8, 9]])


def llm_c(name, magic, version, type_name, documents):
    ids = numpy.array([token for document in documents for token in document], dtype=type_name)
    header = numpy.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(ids)
    (folder / name).write_bytes(header.tobytes() + ids.tobytes())
    add(name, documents)


llm_c("shard_train_000001.bin", 20240520, 1, "<u2", [[50256, 1, 2, 3], [50256, 4], [50256, 5, 6]])
llm_c("shard_train_000002.bin", 20240520, 1, "<u2", [[7, 8], [50256, 9]])
llm_c("llama3.bin", 20240801, 7, "<u4", [[128000, 100000, 2], [128000, 127999]])

for type_name in ("u1", "<u2", "<i4", "<u4", "<i8", "<u8"):
    name = "flat_" + type_name.strip("<") + ".npy"
    numpy.save(folder / name, numpy.array([1, 2, 3, 200, 5], dtype=type_name))
    expected.append({"file": name, "ids": [1, 2, 3, 200, 5], "ends": []})
rows = numpy.arange(12, dtype="<u2").reshape(3, 4)
numpy.save(folder / "rows.npy", rows)
add("rows.npy", rows.tolist())
for version in ((2, 0), (3, 0)):
    name = f"version{version[0]}.npy"
    with open(folder / name, "wb") as file:
        numpy.lib.format.write_array(file, numpy.array([3, 1, 4], dtype="<u2"), version=version)
    expected.append({"file": name, "ids": [3, 1, 4], "ends": []})

with open(folder / "expected.jsonl", "w") as file:
    for line in expected:
        print(json.dumps(line), file=file)
