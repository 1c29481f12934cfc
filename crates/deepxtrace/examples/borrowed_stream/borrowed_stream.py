"""PyTorch owns stream, kernels and communicator; deepxtrace collects: one process a GPU.

`launch.py 60 borrowed_stream.py LIBRARY FOLDER`, or alone for a group of one. LIBRARY is the built
example (`libborrowed_stream.so`), FOLDER takes the log. The counters are torch tensors over the device
addresses that the library tells; what is added to them on the current stream, behind a kernel that
spins, must be in the window of the next step, and what is added after the step must not. Prints
`borrowed_stream: ok` at the end.
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = torch.device("cuda", RANK)
# Places of the parts, see dx_parts: duration and launches of the dispatch Notify; cost, samples and
# tokens of dispatch_final, one for each source rank.
NOTIFY_NS, NOTIFY_LAUNCHES, COST, SAMPLES, TOKENS = 0, 1, 4, 5, 6


class OnDevice:
    """Device memory as torch takes it from other libraries."""

    def __init__(self, address, length):
        self.__cuda_array_interface__ = {
            "shape": (length,), "typestr": "<i8", "data": (address, False), "version": 3,
        }


class Library:
    def __init__(self, path):
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self.c = ctypes.CDLL(path)
        self.c.dx_open.restype = pointer
        self.c.dx_error.restype = ctypes.c_char_p
        self.c.dx_open.argtypes = [number, pointer, pointer, number, number, ctypes.c_char_p]
        self.c.dx_parts.argtypes = [pointer, pointer, pointer]
        self.c.dx_step.argtypes = self.c.dx_close.argtypes = [pointer]
        self.c.dx_window.argtypes = [pointer, pointer, pointer]
        self.c.dx_window.restype = ctypes.c_int64

    def fine(self, answer):
        """The answer, unless it says that the call failed."""
        if answer is None or answer < 0:
            raise RuntimeError(self.c.dx_error().decode())
        return answer


def communicator():
    """PyTorch's own, made with the group because that is bound to the device; none when alone."""
    if SIZE == 1:
        return None
    dist.init_process_group("nccl", device_id=DEVICE)
    dist.all_reduce(torch.ones(1, device=DEVICE))
    backend = dist.group.WORLD._get_backend(DEVICE)
    if not hasattr(backend, "_comm_ptr"):
        print("skipped: this PyTorch does not tell its communicator", flush=True)
        sys.exit(0)
    return backend._comm_ptr()


def main():
    torch.cuda.set_device(DEVICE)
    library = Library(sys.argv[1])
    comm = communicator()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        handle = library.fine(library.c.dx_open(
            RANK, stream.cuda_stream, comm, RANK, SIZE, sys.argv[2].encode()))
        addresses, lengths = (ctypes.c_uint64 * 15)(), (ctypes.c_uint64 * 15)()
        assert library.fine(library.c.dx_parts(handle, addresses, lengths)) == 15
        assert [lengths[0], lengths[4], lengths[14]] == [1, SIZE, SIZE], list(lengths)
        parts = [
            torch.as_tensor(OnDevice(address, length), device=DEVICE)
            for address, length in zip(addresses, lengths)
        ]
        assert all(int(part.abs().sum()) == 0 for part in parts), "counters begin with 0"

        def count(tokens):
            """What a dispatch of `tokens` tokens from every rank would count, 30 ms late."""
            torch.cuda._sleep(60_000_000)
            parts[NOTIFY_NS].add_(1_000)
            parts[NOTIFY_LAUNCHES].add_(1)
            parts[COST].add_(500)
            parts[SAMPLES].add_(1)
            parts[TOKENS].add_(tokens)

        assert library.fine(library.c.dx_step(handle)) == 1, "the boundary"
        launches, tokens = (ctypes.c_int64 * SIZE)(), (ctypes.c_int64 * (SIZE * SIZE))()
        for step in range(1, 6):
            for _ in range(step):
                count(100 * step + RANK)
            assert library.fine(library.c.dx_step(handle)) == 1
            if RANK == 0:
                index = library.fine(library.c.dx_window(handle, launches, tokens))
                # Rank d as the destination has counted step * (100 * step + d) for each source.
                expected = [step * (100 * step + d) for _ in range(SIZE) for d in range(SIZE)]
                found = (index, list(launches), list(tokens))
                assert found == (step, [step] * SIZE, expected), (found, expected)
        stream.synchronize()
        library.c.dx_close(handle)
    # The communicator is still the program's, and works.
    if SIZE > 1:
        value = torch.ones(4, device=DEVICE)
        dist.all_reduce(value)
        assert value.tolist() == [SIZE] * 4
        torch.cuda.synchronize()
        dist.destroy_process_group()
    print(f"borrowed_stream: ok, rank {RANK} of {SIZE}", flush=True)


main()
