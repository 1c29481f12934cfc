"""One scenario of two ranks on real GPUs: `scenario.py NAME`, started once for each rank.

Every scenario ends by itself: a rank that hangs is ended by its own alarm clock after HANG_S seconds.
`launch.py` starts both ranks.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
HANG_S = float(os.environ.get("HANG_S", "8"))
OTHER = 1 - RANK
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", RANK)))


def begin(bound=True, warm=True):
    """Joins the ranks. A bound group makes its communicators at once, children by split."""
    torch.cuda.set_device(DEVICE)
    bind = {"device_id": DEVICE} if bound else {}
    dist.init_process_group("nccl", timeout=timedelta(minutes=20), **bind)
    if warm:
        for _ in range(3):
            dist.all_reduce(torch.ones(4096, device=DEVICE))
        torch.cuda.synchronize()


def hang_from_here():
    """What follows may never return: the alarm ends the process, wherever it waits."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)


def tensor(count=4096, kind=torch.float32):
    return torch.ones(count, device=DEVICE, dtype=kind)


def finish():
    torch.cuda.synchronize()


def stay_away():
    """A rank that does something else until the end."""
    time.sleep(HANG_S + 5)


def healthy():
    begin()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    model = torch.nn.parallel.DistributedDataParallel(model.to(DEVICE), device_ids=[DEVICE])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        optimizer.zero_grad()
        loss = model(torch.randn(64, 512, device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())
    dist.barrier()
    finish()
    dist.destroy_process_group()


def split():
    begin()
    both = dist.new_group([0, 1])
    alone = [dist.new_group([rank]) for rank in range(WORLD)]
    for _ in range(10):
        dist.all_reduce(tensor(), group=both)
        dist.all_reduce(tensor(100), group=alone[RANK])
        gathered = [tensor(64) for _ in range(WORLD)]
        dist.all_gather(gathered, tensor(64), group=both)
        dist.broadcast(tensor(32), src=1, group=both)
    work = [dist.P2POp(dist.isend, tensor(10), OTHER), dist.P2POp(dist.irecv, tensor(10), OTHER)]
    for item in dist.batch_isend_irecv(work):
        item.wait()
    finish()
    dist.destroy_process_group()


def api():
    begin()
    hang_from_here()
    if RANK == 0:
        dist.all_reduce(tensor())
    else:
        dist.broadcast(tensor(), src=0)
    finish()


def count():
    begin()
    hang_from_here()
    dist.all_reduce(tensor(1 << 20 if RANK == 0 else 1 << 19))
    finish()


def datatype():
    begin()
    hang_from_here()
    dist.all_reduce(tensor(1 << 20, torch.float32 if RANK == 0 else torch.float16))
    finish()


def root():
    begin()
    hang_from_here()
    dist.broadcast(tensor(), src=RANK)
    finish()


def reduction():
    begin()
    hang_from_here()
    dist.all_reduce(tensor(), op=dist.ReduceOp.SUM if RANK == 0 else dist.ReduceOp.MAX)
    finish()


def missing():
    begin()
    hang_from_here()
    if RANK == 1:
        stay_away()
    dist.all_reduce(tensor())
    finish()


def delayed():
    begin()
    if RANK == 1:
        time.sleep(5)
    dist.all_reduce(tensor())
    finish()


def loop(skip=None, repeat=None):
    """Ten steps of four collectives; rank 1 skips or repeats one in step 5."""
    for step in range(10):
        for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
            at = (step, name)
            times = 1
            if RANK == 1 and at == skip:
                times = 0
            if RANK == 1 and at == repeat:
                times = 2
            for _ in range(times):
                if name == "all_reduce":
                    dist.all_reduce(tensor(1000))
                elif name == "all_gather":
                    dist.all_gather_into_tensor(tensor(2 * 512), tensor(512))
                elif name == "reduce_scatter":
                    dist.reduce_scatter_tensor(tensor(256), tensor(2 * 256))
                else:
                    dist.broadcast(tensor(128), src=0)


def skipped():
    begin()
    hang_from_here()
    loop(skip=(5, "all_gather"))
    finish()


def extra():
    begin()
    hang_from_here()
    loop(repeat=(5, "all_reduce"))
    finish()


def opposite():
    """Two groups, used in opposite order by the two ranks, each waiting for its own result."""
    begin()
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups:
        dist.all_reduce(tensor(), group=group)
    finish()
    hang_from_here()
    for group in groups if RANK == 0 else reversed(groups):
        dist.all_reduce(tensor(2048), group=group)
        finish()


def loader():
    """Rank 1 is stuck in loading data; rank 0 waits for it in three groups."""
    begin()
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    for group in groups:
        dist.all_reduce(tensor(), group=group)
    finish()
    hang_from_here()
    if RANK == 1:
        stay_away()
    for group in groups:
        dist.all_reduce(tensor(3000), group=group, async_op=True)
    finish()


def lone_send():
    """Nobody receives. The communicator of the pair is made at the first send, and that hangs."""
    begin(bound=False)
    hang_from_here()
    if RANK == 1:
        stay_away()
    dist.send(tensor(10), dst=1)
    finish()


def p2p_count():
    begin()
    if RANK == 0:
        dist.send(tensor(10), dst=1)
    else:
        dist.recv(tensor(10), src=0)
    finish()
    hang_from_here()
    if RANK == 0:
        dist.send(tensor(1 << 20), dst=1)
    else:
        dist.recv(tensor(1 << 21), src=0)
    finish()


def premul():
    begin()
    from torch._C._distributed_c10d import _make_nccl_premul_sum

    for step in range(10):
        dist.all_reduce(tensor(), op=_make_nccl_premul_sum(0.5 + RANK))
        if RANK == 1:
            # The handles of the two ranks drift apart, as they may.
            dist.all_reduce(tensor(), op=_make_nccl_premul_sum(0.25))
        else:
            dist.all_reduce(tensor(), op=_make_nccl_premul_sum(0.75))
    finish()
    dist.destroy_process_group()


def graph():
    begin()
    value = tensor()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            dist.all_reduce(value)
    finish()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(value)
        dist.all_gather_into_tensor(tensor(2 * 512), tensor(512))
    for _ in range(50):
        captured.replay()
    dist.all_reduce(value)
    finish()
    # Destroying a communicator with a captured graph alive is an error of its own.
    captured.reset()
    dist.barrier()
    finish()


def killed():
    """The kernel's out-of-memory killer, or an operator, ends a rank in the middle."""
    begin()
    hang_from_here()
    for step in range(100):
        dist.all_reduce(tensor())
        finish()
        if RANK == 1 and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)


def by_ctypes(path):
    """The way vLLM and SGLang call NCCL: every function by name from a handle."""
    import ctypes

    class UniqueId(ctypes.Structure):
        _fields_ = [("internal", ctypes.c_byte * 128)]

    torch.cuda.set_device(DEVICE)
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, 2, RANK == 0)
    nccl = ctypes.CDLL(path)
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), number, UniqueId, number]
    nccl.ncclAllReduce.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
    nccl.ncclCommDestroy.argtypes = [pointer]
    unique, comm = UniqueId(), pointer()
    if RANK == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        store.set("id", bytes(unique))
    unique = UniqueId.from_buffer_copy(store.get("id"))
    assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, unique, RANK) == 0
    value = tensor()
    stream = torch.cuda.current_stream().cuda_stream
    for _ in range(5):
        where = value.data_ptr()
        assert nccl.ncclGroupStart() == 0
        assert nccl.ncclAllReduce(where, where, value.numel(), 7, 0, comm, stream) == 0
        assert nccl.ncclGroupEnd() == 0
    finish()
    assert value[0].item() == 32
    assert nccl.ncclCommDestroy(comm) == 0


def shim():
    """`deepxtrace nccl run` names the probe as the library to load."""
    by_ctypes(os.environ["VLLM_NCCL_SO_PATH"])


def handle():
    """The library itself, by handle: recorded with `deepxtrace nccl run --wrap-dlsym`."""
    with open("/proc/self/maps") as maps:
        by_ctypes(next(line.split()[-1] for line in maps if "libnccl.so.2" in line))


SCENARIOS = {
    function.__name__: function
    for function in (
        healthy, split, api, count, datatype, root, reduction, missing, delayed, skipped, extra,
        opposite, loader, lone_send, p2p_count, premul, graph, killed, shim,
        handle,
    )
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
