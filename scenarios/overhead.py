"""What the probe costs on real GPUs, measured within one process a rank.

The same AllReduce on the same communicator, called in turns through the probe (as a preloaded library
it is what the global scope gives) and straight in NCCL (by a handle of the library itself). Each round
has a block of plain calls, one of probed calls and one of plain calls again, in changing order, so that
whatever drifts drifts for all; the second plain block says what the measurement itself scatters.

Prints on rank 0 one JSON object a size: the median microseconds a call of plain and probe from the
first launch to the end of the last on the GPU; median and quartiles over the rounds of probe against
plain and of plain against plain, in percent; what share of that time the host needed to launch (1.0:
the host is the limit, and each nanosecond of the probe is seen); and the time in which one call on an
idle GPU returns. SIZES names other sizes in bytes.
"""

import ctypes
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK)
SIZES = [int(size) for size in os.environ.get("SIZES", "8 1048576 16777216 268435456").split()]
ROUNDS = int(os.environ.get("ROUNDS", "30"))
BLOCK_S = 0.08


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


def percent(ratios):
    """Median and quartiles of ratios, as percent above 1."""
    quarters = statistics.quantiles(ratios, n=4)
    return [round(100 * (value - 1), 3) for value in (quarters[1], quarters[0], quarters[2])]


def main():
    torch.cuda.set_device(DEVICE)
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, WORLD, RANK == 0)
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    reduce_types = [pointer, pointer, size, number, number, pointer, pointer]
    everyone, nccl = ctypes.CDLL(None), ctypes.CDLL(loaded_nccl())
    probed = function(everyone, "ncclAllReduce", reduce_types)
    plain = function(nccl, "ncclAllReduce", reduce_types)
    where = lambda f: ctypes.cast(f, pointer).value
    assert where(probed) != where(plain), "the probe is not preloaded"
    init = function(everyone, "ncclCommInitRank", [ctypes.POINTER(pointer), number, UniqueId, number])
    unique, comm = UniqueId(), pointer()
    if RANK == 0:
        assert everyone.ncclGetUniqueId(ctypes.byref(unique)) == 0
        store.set("id", bytes(unique))
    unique = UniqueId.from_buffer_copy(store.get("id"))
    assert init(ctypes.byref(comm), WORLD, unique, RANK) == 0
    stream = torch.cuda.current_stream().cuda_stream
    for bytes_ in SIZES:
        value = torch.zeros(bytes_ // 4, device=DEVICE)
        arguments = (value.data_ptr(), value.data_ptr(), bytes_ // 4, 7, 0, comm, stream)

        def block(call, calls):
            """Seconds a call until all is done, and until the last was launched."""
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call(*arguments)
            launched = time.perf_counter()
            torch.cuda.synchronize()
            return (time.perf_counter() - start) / calls, (launched - start) / calls

        def alone(call, repeat=400):
            """Time until a call returns when the GPU is idle."""
            times = []
            for _ in range(repeat):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call(*arguments)
                times.append(time.perf_counter() - start)
            return statistics.median(times)

        block(plain, 20), block(probed, 20)
        # The ranks call equally often.
        if RANK == 0:
            calls = max(10, int(BLOCK_S / block(plain, 20)[0]))
            store.set(f"calls {bytes_}", str(calls))
        else:
            block(plain, 20)
        calls = int(store.get(f"calls {bytes_}"))
        arms = {"plain": plain, "probe": probed, "again": plain}
        rounds = []
        for turn in range(ROUNDS):
            names = list(arms)
            names = names[turn % 3:] + names[:turn % 3]
            if turn % 2:
                names.reverse()
            rounds.append({name: block(arms[name], calls) for name in names})
        whole = lambda name: statistics.median(one[name][0] for one in rounds)
        host = statistics.median(one["plain"][1] / one["plain"][0] for one in rounds)
        both = lambda one: (one["plain"][0] + one["again"][0]) / 2
        result = {
            "bytes": bytes_,
            "calls a block": calls,
            "plain us": round(1e6 * whole("plain"), 3),
            "probe us": round(1e6 * whole("probe"), 3),
            "probe against plain %": percent([one["probe"][0] / both(one) for one in rounds]),
            "plain against plain %": percent([one["again"][0] / one["plain"][0] for one in rounds]),
            "host share": round(host, 3),
            "returns after us": [round(1e6 * alone(call), 3) for call in (plain, probed)],
        }
        if RANK == 0:
            print("overhead", json.dumps(result), flush=True)


main()
