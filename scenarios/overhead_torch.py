"""What a loop of `torch.distributed.all_reduce` takes; run it with and without the probe, in turns.

Prints on rank 0 one JSON object: for each size in bytes the median microseconds a call.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
DEVICE = torch.device("cuda", RANK)
SIZES = {4: 3000, 1 << 20: 3000, 4 << 20: 1500, 16 << 20: 500}


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE)
    result = {}
    for size, calls in SIZES.items():
        value = torch.zeros(size // 4, device=DEVICE)
        times = []
        for turn in range(12):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(value)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / calls)
        result[size] = round(1e6 * statistics.median(times[2:]), 3)
    if RANK == 0:
        print("torch", sys.argv[1], json.dumps(result), flush=True)
    dist.destroy_process_group()


main()
