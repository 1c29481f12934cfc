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
    from torch.distributed.distributed_c10d import _make_nccl_premul_sum

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


SCENARIOS = {
    function.__name__: function
    for function in (
        healthy, split, api, count, datatype, root, reduction, missing, delayed, skipped, extra,
        opposite, loader, lone_send, p2p_count, premul, graph, killed,
    )
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
