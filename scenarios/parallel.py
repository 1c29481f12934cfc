"""Tensor, pipeline and data parallel groups at once: `parallel.py NAME`, started once for each rank.

SHAPE says how many ranks each kind has, `2x2x2` by default (tensor x pipeline x data; tensor ranks are
neighbours), so eight ranks: `RANKS=8 launch.py 60 parallel.py mismatch`. Other shapes run on other
machines; what a shape cannot show says that it was skipped. NAME: `healthy`, `mismatch` (one rank of one
tensor group sums another count), `missing` (one rank stays away from its data group), `wrong_peer` (a
pipeline stage receives from the neighbour of its predecessor). Hangs end as in `scenario.py`.
"""

import os
import sys

import torch
import torch.distributed as dist

from scenario import DEVICE, RANK, WORLD, begin, finish, hang_from_here, stay_away, tensor

TENSOR, PIPE, DATA = (int(part) for part in os.environ.get("SHAPE", "2x2x2").split("x"))
T, P, D = RANK % TENSOR, RANK // TENSOR % PIPE, RANK // (TENSOR * PIPE)
STEPS, WRONG = 10, 5


def rank_of(t, p, d):
    return (d * PIPE + p) * TENSOR + t


def groups():
    """The own tensor and data group; every rank makes all of them, in one order."""
    tensors = {
        (p, d): dist.new_group([rank_of(t, p, d) for t in range(TENSOR)])
        for d in range(DATA) for p in range(PIPE)
    }
    datas = {
        (t, p): dist.new_group([rank_of(t, p, d) for d in range(DATA)])
        for p in range(PIPE) for t in range(TENSOR)
    }
    return tensors[P, D], datas[T, P]


def run(fault=None):
    begin()
    tensor_group, data_group = groups()
    dist.all_reduce(tensor(), group=tensor_group)
    dist.all_reduce(tensor(), group=data_group)
    if fault:
        hang_from_here()
    for step in range(STEPS):
        wrong = fault if step == WRONG else None
        # Forward, then backward, through the stages.
        for way in (1, -1):
            first, last = (0, PIPE - 1) if way == 1 else (PIPE - 1, 0)
            if P != first:
                # The last rank of all is the one that takes its neighbour's data.
                lost = wrong == "wrong_peer" and way == 1 and RANK == WORLD - 1
                dist.recv(tensor(2048), src=rank_of(T - 1 if lost else T, P - way, D))
            odd = wrong == "mismatch" and way == 1 and RANK == rank_of(TENSOR - 1, 0, 0)
            for _ in range(2):
                dist.all_reduce(tensor(4096 if not odd else 4095), group=tensor_group)
            if P != last:
                dist.send(tensor(2048), dst=rank_of(T, P + way, D))
        if wrong == "missing" and RANK == rank_of(0, 0, DATA - 1):
            stay_away()
        dist.all_reduce(tensor(1 << 16), group=data_group)
        finish()
    dist.destroy_process_group()


def skip(reason):
    if RANK == 0:
        print(f"skipped: {reason}", flush=True)


def main():
    name = sys.argv[1]
    needs = {"healthy": 1, "mismatch": TENSOR, "missing": DATA, "wrong_peer": min(TENSOR, PIPE)}
    if WORLD != TENSOR * PIPE * DATA:
        skip(f"{WORLD} ranks are not {TENSOR}x{PIPE}x{DATA}")
    elif torch.cuda.device_count() < WORLD:
        skip(f"{WORLD} ranks need as many GPUs, there are {torch.cuda.device_count()}")
    elif name != "healthy" and needs[name] < 2:
        skip(f"{name} cannot be shown with {TENSOR}x{PIPE}x{DATA}")
    else:
        run(None if name == "healthy" else name)


main()
