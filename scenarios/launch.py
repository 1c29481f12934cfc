"""Starts the ranks of a program and waits: `launch.py SECONDS PROGRAM ARGUMENTS...`.

RANKS is their number, 2 by default; each has the GPU of its number.

Unlike torchrun it lets the other ranks hang when one ends, so that there is something to record. What
is left after SECONDS is killed. Prints how each rank ended.
"""

import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    end = time.monotonic() + float(sys.argv[1])
    size = int(os.environ.get("RANKS", "2"))
    common = {
        **os.environ,
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        # NVLink multicast stays off: hosts share it.
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv[2:]],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(size)
    ]
    for rank in ranks:
        try:
            rank.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
    codes = [rank.returncode for rank in ranks]
    print("ranks ended with", *codes, flush=True)
    # A rank that its alarm or a scenario ended is what was asked for.
    return 0 if all(code in (0, -9, -14) for code in codes) else 1


if __name__ == "__main__":
    sys.exit(main())
