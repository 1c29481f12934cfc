"""Checks that the arrays of two files are those of the schema, by name, dtype and shape.

The windows are those of tests/it/sample.rs: 11 ranks, four a node.
"""

import sys

import numpy

N = 11
COMMON = {
    "schema_version": ("int64", ()),
    "kind": ("text", ()),
    "instance_id": ("text", ()),
    "ep_size": ("int64", ()),
    "ranks_per_node": ("int64", ()),
    "window_index": ("int64", ()),
    "begin_unix_ns": ("int64", ()),
    "end_unix_ns": ("int64", ()),
    "valid": ("bool", (N,)),
    "policy_json": ("text", ()),
}
NORMAL = {"diagnosis_json": ("text", ())}
for probe in ("notify_dispatch", "cached_notify_dispatch", "cached_notify_combine"):
    NORMAL[probe + "_duration_ns"] = ("int64", (N,))
    NORMAL[probe + "_count"] = ("int64", (N,))
    NORMAL[probe + "_average_ns"] = ("float64", (N,))
for probe in ("dispatch_final", "dispatch_rdma_recv", "combine_logical_recv"):
    NORMAL[probe + "_cost"] = ("int64", (N, N))
    NORMAL[probe + "_sample_count"] = ("int64", (N, N))
    NORMAL[probe + "_token_count"] = ("int64", (N, N))
    NORMAL[probe + "_cost_per_sample"] = ("float64", (N, N))
LOW_LATENCY = {
    "dispatch_wait": ("int64", (N, N)),
    "combine_wait": ("int64", (N, N)),
    "mean_policy_json": ("text", ()),
    "dispatch_diagnosis_json": ("text", ()),
    "combine_diagnosis_json": ("text", ()),
}

for path, own in zip(sys.argv[1:], (NORMAL, LOW_LATENCY)):
    expected = COMMON | own
    with numpy.load(path, allow_pickle=False) as file:
        assert set(file.files) == set(expected), set(file.files) ^ set(expected)
        for key, (dtype, shape) in expected.items():
            array = file[key]
            found = "text" if array.dtype.kind == "U" else array.dtype.name
            assert (found, array.shape) == (dtype, shape), (key, array.dtype, array.shape)
        kind = str(file["kind"])
        if kind == "normal_window":
            # Cost of [source 3, destination 4] in the second probe: 2000 + 3 * N + 4, in 4 samples.
            assert file["dispatch_rdma_recv_cost"][3, 4] == 2037
            assert file["dispatch_rdma_recv_cost_per_sample"][3, 4] == 2037 / 4
            assert numpy.isnan(file["dispatch_final_cost_per_sample"][:, 2]).all()
            assert not file["valid"][2] and file["valid"].sum() == N - 1
            # Third Notify probe, rank 5: 30005 ns in 4 launches.
            assert file["cached_notify_combine_average_ns"][5] == 30005 / 4
        else:
            assert (file["dispatch_wait"][:, 1] == 100000).all()
        print(f"{kind}: {len(expected)} arrays as documented")
