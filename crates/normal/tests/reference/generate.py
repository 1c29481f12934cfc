"""Writes cases.json, cases.varint and expected.jsonl, the input and output of the comparison."""

import json
import random
from pathlib import Path

from reference import Diagnoser

HERE = Path(__file__).parent

# EP size, ranks a node, windows, what happens, policy.
CASES = [
    (1, 8, 3, "faults", {}),
    (2, 8, 4, "faults", {}),
    (2, 1, 4, "faults", {}),
    (3, 8, 4, "faults", {}),
    (4, 2, 6, "faults", {}),
    (5, 2, 8, "faults", {}),
    (6, 1, 8, "faults", {}),
    (6, 3, 42, "shift", {}),
    (7, 3, 12, "faults", {"load_adjust": False}),
    (8, 4, 26, "ramp", {}),
    (8, 8, 10, "faults", {}),
    (9, 3, 12, "faults", {}),
    (9, 3, 10, "wild", {}),
    (10, 5, 10, "ties", {}),
    (11, 4, 14, "faults", {"notify_min_share": 0.05}),
    (12, 3, 14, "pairs", {}),
    (12, 4, 12, "pairs", {}),
    (15, 5, 12, "rails", {}),
    (12, 8, 10, "faults", {"axis_ratio": 1.1, "point_ratio": 1.5, "notify_ratio": 0.5}),
    (13, 1, 8, "faults", {}),
    (16, 4, 10, "rails", {}),
    (16, 8, 10, "pairs", {}),
    (20, 8, 7, "faults", {}),
    (24, 8, 6, "rails", {}),
    (8, 8, 6, "full", {}),
    (12, 4, 8, "full", {}),
]


def matrix_factors(rng, n, per_node, faults):
    """Cost factors [source][destination] of a list of faults."""
    f = [[1.0] * n for _ in range(n)]
    for kind, where, factor in faults:
        for s in range(n):
            for d in range(n):
                a, b = s // per_node, d // per_node
                hit = {
                    "row": s == where[0],
                    "row_inter": s == where[0] and a != b,
                    "row_intra": s == where[0] and a == b,
                    "column": d == where[1],
                    "column_inter": d == where[1] and a != b,
                    "block": (a, b) == (where[0] // per_node, where[1] // per_node),
                    "point": (s, d) == where,
                    "src_rail": s == where[0] and b == where[1] // per_node != a,
                    "dst_rail": d == where[1] and a == where[0] // per_node != b,
                    "all": True,
                }[kind]
                if hit:
                    f[s][d] *= factor
    return f


def transposed(kind):
    swap = {"row": "column", "row_inter": "column_inter", "column": "row"}
    swap |= {"column_inter": "row_inter", "src_rail": "dst_rail", "dst_rail": "src_rail"}
    return swap.get(kind, kind)


def random_faults(rng, n, how_many):
    kinds = ["row", "row_inter", "row_intra", "column", "column_inter", "block", "point"]
    kinds += ["src_rail", "dst_rail"]
    faults = []
    for _ in range(how_many):
        where = (rng.randrange(n), rng.randrange(n))
        faults.append((rng.choice(kinds), where, rng.uniform(1.1, 4.0)))
    return faults


def deltas(rng, n, per_node, window, what, base):
    """The new counts of one window, a vector a rank."""
    rows = [[0] * (6 + 9 * n) for _ in range(n)]
    if what == "wild":
        for row in rows:
            for i in range(len(row)):
                if rng.random() < 0.8:
                    row[i] = int(2 ** rng.uniform(0, 58))
        return rows
    noise = rng.choice([0.0, 0.02, 0.05, 0.15]) if what != "ties" else 0.0
    if what in ("shift", "ramp"):
        noise = 0.02
    faults = {"dispatch": [], "combine": []}
    late = set()
    if what == "faults":
        quiet = window <= 4 or rng.random() < 0.2
        faults["dispatch"] = [] if quiet else random_faults(rng, n, rng.randrange(3))
        faults["combine"] = [] if quiet else random_faults(rng, n, rng.randrange(3))
        late = {r for r in range(n) if rng.random() < 0.04}
    if what == "pairs" and window > 3:
        for kind, where, factor in random_faults(rng, n, rng.randrange(1, 4)):
            factor = rng.uniform(1.5, 4.0)
            faults["dispatch"].append((kind, where, factor))
            back = (where[1], where[0])
            if rng.random() < 0.3:
                # The same physical rail: combine leaves the same node by the same local index.
                back = where
            faults["combine"].append((transposed(kind), back, factor))
        late = {r for r in range(n) if rng.random() < 0.05}
    if what == "rails" and window > 3:
        for _ in range(rng.randrange(1, 3)):
            a, b = rng.sample(range((n + per_node - 1) // per_node), 2)
            local = rng.randrange(min(per_node, n - max(a, b) * per_node))
            src, dst = a * per_node + local, b * per_node + local
            factor = rng.uniform(1.6, 3.0)
            # A whole row makes a rail too, when the other side says which.
            kind = rng.choice(["src_rail", "src_rail", "row_inter"])
            faults["dispatch"].append((kind, (src, dst), factor))
            faults["combine"].append((rng.choice(["dst_rail", "block"]), (src, dst), factor))
    if what == "ties" and window > 2:
        where = (rng.randrange(n), rng.randrange(n))
        faults["dispatch"] = [("point", where, 4.5), ("row", where, 1.75)]
    if what == "shift":
        if 5 < window <= 27:
            faults["dispatch"].append(("all", (0, 0), 1.6))
            faults["combine"].append(("all", (0, 0), 1.6))
        if window in (9, 30):
            faults["combine"].append(("point", (1, 2), 5.0))
    if what == "ramp":
        faults["dispatch"].append(("all", (0, 0), 1.03**window))
        faults["combine"].append(("all", (0, 0), 1.5 if window % 5 == 0 else 1.0))

    for r in range(n):
        for i in range(3):
            count = rng.choice([0, 64]) if rng.random() < 0.05 else 64
            mean = 20_000 if r in late and rng.random() < 0.8 else 400_000
            rows[r][2 * i] = int(count * mean * rng.uniform(0.8, 1.2))
            rows[r][2 * i + 1] = count
    exponent = rng.choice([0.0, 0.4, 1.0, -0.3])
    hot = [rng.choice([1, 1, 1, 3.7, 13]) for _ in range(n)]
    empty = 0.0 if rng.random() < 0.7 else 0.3
    if what in ("shift", "ramp"):
        exponent, hot, empty = 0.0, [1] * n, 0.0
    if what == "full":
        # Receivers are flat up to a load, and then full.
        exponent, empty = rng.choice([1.0, 1.5, 0.5]), 0.0
        hot = [2 ** rng.uniform(-1.0, 2.0) for _ in range(n)]
    for i in range(3):
        factors = matrix_factors(rng, n, per_node, faults["combine" if i == 2 else "dispatch"])
        for d in range(n):
            for s in range(n):
                if s == d and rng.random() < 0.5:
                    continue
                if i == 1 and (s - d) % per_node and rng.random() < 0.98:
                    continue
                if rng.random() < empty:
                    continue
                at = 6 + 3 * n * i + s
                samples = rng.randrange(8, 64) if what != "ties" else 16
                # On the receiving side of dispatch, or the sending side of combine, an expert.
                expert = s if i == 2 else d
                load = 32 * hot[expert] * (rng.uniform(0.9, 1.1) if what != "ties" else 1.0)
                tokens = int(samples * load)
                inter = s // per_node != d // per_node
                cost = base * (5.0 if inter else 1.0) * factors[s][d]
                growth = max(load / 32, 1.4) if what == "full" else load / 32
                cost *= growth**exponent * rng.lognormvariate(0.0, noise)
                rows[d][at] = 0 if rng.random() < 0.01 else int(cost * samples)
                rows[d][at + n] = samples
                rows[d][at + 2 * n] = 0 if rng.random() < 0.02 else tokens
    return rows


def varint(value):
    """Seven bits a byte, the lowest first, the high bit set on all but the last; the sign is the
    lowest bit of the whole."""
    value = 2 * value if value >= 0 else -2 * value - 1
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return out


def case(number, n, per_node, windows, what, policy, blob, expected):
    rng = random.Random(1000 + number)
    base = rng.choice([900.0, 20_000.0])
    vectors = [[0] * (6 + 9 * n) for _ in range(n)]
    series = [([row[:] for row in vectors], [True] * n)]
    for window in range(1, windows + 1):
        special = rng.random() if what == "faults" and window > 2 else 1.0
        if special >= 0.06:  # below: an idle window
            new = deltas(rng, n, per_node, window, what, base)
            vectors = [[a + b for a, b in zip(old, d)] for old, d in zip(vectors, new)]
        if 0.06 <= special < 0.12:  # a rank restarts
            vectors[rng.randrange(n)] = [0] * (6 + 9 * n)
        present = [True] * n
        if special > 0.85 and what == "faults" and n > 1:
            present[rng.randrange(n)] = False
        series.append(([row[:] for row in vectors], present))

    diagnoser = Diagnoser(n, per_node, policy)
    timestamps = [i * 250_000_000 for i in range(len(series))]
    for i in range(1, len(series)):
        length = timestamps[i] - timestamps[i - 1]
        report = diagnoser.diagnose(i, series[i - 1], series[i], length)
        expected.append(json.dumps(report, separators=(",", ":")))
    before = [[0] * (6 + 9 * n) for _ in range(n)]
    for rows, _ in series:
        for old, new in zip(before, rows):
            for a, b in zip(old, new):
                blob += varint(b - a)
        before = rows
    return {
        "name": f"{number}: EP{n}, {per_node} a node, {what}",
        "ep_size": n,
        "ranks_per_node": per_node,
        "policy": policy,
        "timestamps_unix_ns": timestamps,
        "present": [present for _, present in series],
    }


def main():
    blob, expected, cases = bytearray(), [], []
    for number, arguments in enumerate(CASES):
        cases.append(case(number, *arguments, blob, expected))
    (HERE / "cases.json").write_text("".join(json.dumps(c) + "\n" for c in cases))
    (HERE / "cases.varint").write_bytes(blob)
    (HERE / "expected.jsonl").write_text("".join(line + "\n" for line in expected))


if __name__ == "__main__":
    main()
