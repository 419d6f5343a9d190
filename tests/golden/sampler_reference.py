#!/usr/bin/env python3
"""Writes sampler.jsonl: what PyTorch's DistributedSampler and DataLoader give to each rank of a job, and permutations of
torch.randperm. tests/data/distributed_sampler_test.cpp compares Trivet's sampler with it. Needs PyTorch: pip install torch
"""
import itertools
import json
import pathlib

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def batches_of(rank, epoch, case):
    """The batches of a rank in an epoch, each a list of samples."""
    data = Numbers(case["samples"])
    sampler = DistributedSampler(
        data, num_replicas=case["ranks"], rank=rank, shuffle=case["shuffle"], seed=case["seed"], drop_last=case["drop_last"])
    sampler.set_epoch(epoch)
    loader = DataLoader(data, batch_size=case["micro_batch"], sampler=sampler, drop_last=case["drop_last_batch"])
    return [batch.tolist() for batch in loader]


def sampler_cases():
    sizes = [(10, 4, 2), (10, 1, 3), (7, 2, 4), (12, 3, 2), (3, 8, 2), (1, 2, 1), (257, 4, 8)]
    for (samples, ranks, micro_batch), drop_last, drop_last_batch in itertools.product(sizes, [False, True], [False, True]):
        per_rank = samples // ranks if drop_last else -(-samples // ranks)
        if per_rank == 0 or (drop_last_batch and per_rank < micro_batch):
            continue  # Trivet refuses a run without a step
        for seed, shuffle in [(1234, True), (2**40 + 5, True), (0, False)]:
            yield {"samples": samples, "ranks": ranks, "micro_batch": micro_batch, "seed": seed, "shuffle": shuffle,
                   "drop_last": drop_last, "drop_last_batch": drop_last_batch}


def permutation(count, seed):
    """Its ends, and a sum over all of it that depends on the order."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    weighted = int((order * torch.arange(1, count + 1)).sum()) if count > 0 else 0  # modulo 2^64
    return {"permutation": count, "seed": seed, "first": order[:8].tolist(), "last": order[-8:].tolist(), "weighted_sum": weighted}


def main():
    lines = []
    for case in sampler_cases():
        for epoch in (0, 1, 3):
            lines.append({**case, "epoch": epoch, "batches": [batches_of(rank, epoch, case) for rank in range(case["ranks"])]})
    for count, seed in itertools.product([0, 1, 2, 3, 10, 623, 624, 625, 1000, 65537, 1000003], [0, 1, 1234, 2**32 - 1, 2**32 + 5]):
        lines.append(permutation(count, seed))
    path = pathlib.Path(__file__).with_name("sampler.jsonl")
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


if __name__ == "__main__":
    main()
