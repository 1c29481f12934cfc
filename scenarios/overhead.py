"""What the probe costs on real GPUs, measured within one process a rank.

The same AllReduce on the same communicator, called in turns through the probe (as a preloaded library
it is what the global scope gives) and straight in NCCL (by a handle of the library itself). Blocks of
both alternate, so that whatever drifts drifts for both. Prints on rank 0 one JSON object: for each size
the median microseconds a call of both, from the first launch to the end of the last on the GPU, their
ratio block by block, and the nanoseconds more that a call takes to return.
"""

import ctypes
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
DEVICE = torch.device("cuda", RANK)
# Bytes: calls a block.
SIZES = {4: 1500, 4096: 1500, 65536: 1000, 1 << 20: 1000, 4 << 20: 500, 16 << 20: 200, 64 << 20: 60}
BLOCKS = 16


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def function(library, name, types):
    found = getattr(library, name)
    found.argtypes = types
    return found


def loaded_nccl():
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libnccl.so.2" in line}
    assert len(paths) == 1, paths
    return paths.pop()


def main():
    torch.cuda.set_device(DEVICE)
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, RANK == 0)
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    reduce_types = [pointer, pointer, size, number, number, pointer, pointer]
    everyone, nccl = ctypes.CDLL(None), ctypes.CDLL(loaded_nccl())
    probed = function(everyone, "ncclAllReduce", reduce_types)
    plain = function(nccl, "ncclAllReduce", reduce_types)
    address = lambda f: ctypes.cast(f, pointer).value
    assert address(probed) != address(plain), "the probe is not preloaded"
    init = function(everyone, "ncclCommInitRank", [ctypes.POINTER(pointer), number, UniqueId, number])
    unique, comm = UniqueId(), pointer()
    if RANK == 0:
        assert everyone.ncclGetUniqueId(ctypes.byref(unique)) == 0
        store.set("id", bytes(unique))
    unique = UniqueId.from_buffer_copy(store.get("id"))
    assert init(ctypes.byref(comm), 2, unique, RANK) == 0
    stream = torch.cuda.current_stream().cuda_stream
    result = {}
    for bytes_, calls in SIZES.items():
        value = torch.zeros(bytes_ // 4, device=DEVICE)
        arguments = (value.data_ptr(), value.data_ptr(), bytes_ // 4, 7, 0, comm, stream)

        def block(call):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call(*arguments)
            launched = time.perf_counter()
            torch.cuda.synchronize()
            return (time.perf_counter() - start) / calls, (launched - start) / calls

        def alone(call, repeat=300):
            """Time until a call returns when the GPU is idle."""
            times = []
            for _ in range(repeat):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call(*arguments)
                times.append(time.perf_counter() - start)
            return statistics.median(times)

        block(plain), block(probed)
        with_probe, without = [], []
        for _ in range(BLOCKS):
            without.append(block(plain))
            with_probe.append(block(probed))
        whole = lambda blocks: statistics.median(b[0] for b in blocks)
        ratios = [a[0] / b[0] for a, b in zip(with_probe, without)]
        result[bytes_] = {
            "plain_us": round(1e6 * whole(without), 3),
            "probe_us": round(1e6 * whole(with_probe), 3),
            "ratio": round(statistics.median(ratios), 4),
            "ratios": [round(min(ratios), 4), round(max(ratios), 4)],
            "alone_plain_us": round(1e6 * alone(plain), 3),
            "alone_probe_us": round(1e6 * alone(probed), 3),
        }
    if RANK == 0:
        print("overhead", json.dumps(result), flush=True)


main()
