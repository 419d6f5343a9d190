#!/usr/bin/env python3
"""Writes elasticity.jsonl: the batches that DeepSpeed chooses for random sections "elasticity".

  python3 -m venv venv && venv/bin/pip install torch deepspeed==0.16.4 && venv/bin/python tests/golden/elasticity_reference.py

DeepSpeed 0.19 has no such section any more. Left out are cases in which DeepSpeed exceeds max_train_batch_size (the
least common multiple of the microbatches is larger) and those in which it changes the batch for a number of ranks outside its list.
"""
import contextlib
import io
import json
import logging
import os
import pathlib
import random

with contextlib.redirect_stdout(io.StringIO()):
    from deepspeed.elasticity import compute_elastic_config

logging.disable(logging.INFO)
chosen = random.Random(1)
lines = []
while len(lines) < 200:
    micros = chosen.sample(range(1, 33), chosen.randint(1, 5))
    section = {"enabled": True, "max_train_batch_size": chosen.choice([50, 100, 777, 2000, 10000, 1000000]), "micro_batch_sizes": micros,
               "min_gpus": chosen.choice([1, 1, 2, 8, 32]), "max_gpus": chosen.choice([32, 64, 200]),
               "version": chosen.choice([0.1, 0.2]), "prefer_larger_batch": chosen.random() < 0.7}
    if section["version"] == 0.2:
        section["num_gpus_per_node"] = chosen.choice([1, 2, 4, 8])
        section["model_parallel_size"] = chosen.choice([m for m in (1, 2, 4) if section["num_gpus_per_node"] % m == 0])
    # Version 0.2 changes the batch if the current number of ranks is not in its list: numbers of hosts are tried until one is.
    for hosts in range(1, 400):
        os.environ["WORLD_SIZE"] = str(hosts * section.get("num_gpus_per_node", 1))
        try:
            batch, sizes = compute_elastic_config({"elasticity": section}, "0.16.4")
        except Exception:  # no batch is small enough
            break
        if section["version"] == 0.1 or len(sizes) > 1:
            if sizes and batch <= section["max_train_batch_size"]:
                lines.append(json.dumps({"elasticity": section, "train_batch_size": int(batch), "data_parallel_sizes": [int(s) for s in sizes]}))
            break
pathlib.Path(__file__).with_name("elasticity.jsonl").write_text("\n".join(lines) + "\n")
