"""Writes a Normal and a low-latency window of three ranks by the documented schema."""

import json
import sys

import numpy

N = 3
LEVEL = {"scalar": None, "global_ratio": None, "best_ratio": None}


def common(kind):
    return {
        "schema_version": numpy.int64(1),
        "kind": kind,
        "instance_id": "numpy",
        "ep_size": numpy.int64(N),
        "ranks_per_node": numpy.int64(2),
        "window_index": numpy.int64(12),
        "begin_unix_ns": numpy.int64(-5),
        "end_unix_ns": numpy.int64(1000),
        "valid": numpy.array([True, True, False]),
        "policy_json": json.dumps({"point_ratio": 4.0}),
    }


def average(total, count, valid):
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.where(valid, total / count, numpy.nan)


normal = common("normal_window")
for p, probe in enumerate(("notify_dispatch", "cached_notify_dispatch", "cached_notify_combine")):
    duration = numpy.array([100 * (p + 1) + 2, 100 * (p + 1) + 3, 0], dtype=numpy.int64)
    count = numpy.array([p + 1, 0, 0], dtype=numpy.int64)
    normal[probe + "_duration_ns"] = duration
    normal[probe + "_count"] = count
    normal[probe + "_average_ns"] = average(duration, count, count > 0)
for p, probe in enumerate(("dispatch_final", "dispatch_rdma_recv", "combine_logical_recv")):
    cost = numpy.array([[1000 * p + 10 * s + d for d in range(N)] for s in range(N)])
    samples = numpy.full((N, N), 3)
    samples[2, 1] = numpy.iinfo(numpy.int64).max
    tokens = numpy.full((N, N), 7)
    for matrix in (cost, samples, tokens):
        matrix[:, 2] = 0
    normal[probe + "_cost"] = cost
    normal[probe + "_sample_count"] = samples
    normal[probe + "_token_count"] = tokens
    normal[probe + "_cost_per_sample"] = average(cost, samples, (cost > 0) & (samples > 0))
normal["diagnosis_json"] = json.dumps(
    {
        "window_index": 12,
        "state": "refused",
        "reason": "rank 1: a counter went back \u2192 reset",
        "missing_ranks": [2],
        "tracker": [],
        "probes": {},
        "incidents": [],
    },
    ensure_ascii=False,
)
numpy.savez_compressed(sys.argv[1], **normal)

low_latency = common("ll_window")
waits = numpy.array([[0, 20, 30], [10, 0, 30], [0, 0, 0]])
diagnosis = {
    "shape": [N, N],
    "mean_ratio": {"abnormal_cols": [], "abnormal_rows": [], "abnormal_points": []},
    "topology": {"findings": []},
}
low_latency |= {
    "dispatch_wait": waits,
    "combine_wait": waits + (waits > 0),
    "mean_policy_json": "{}",
    "dispatch_diagnosis_json": json.dumps(diagnosis),
    "combine_diagnosis_json": json.dumps(diagnosis),
}
numpy.savez_compressed(sys.argv[2], **low_latency)
