"""A second implementation of the Normal-mode diagnosis, straight from its specification.

It is slow on purpose: lists, dictionaries and sorting, a loop for each sentence of the text. It
shares no code with the Rust crate, whose results are compared with its results, finding by finding.
"""

import math
from statistics import median

NOTIFY = ["notify_dispatch", "cached_notify_dispatch", "cached_notify_combine"]
COMPLETION = ["dispatch_final", "dispatch_rdma_recv", "combine_logical_recv"]

DEFAULT_POLICY = {
    "notify_ratio": 0.25,
    "axis_ratio": 1.25,
    "point_ratio": 2.0,
    "global_ratio": 1.3,
    "load_adjust": True,
    "notify_min_share": 0.0,
}


def mad(values):
    centre = median(values)
    return median([abs(v - centre) for v in values])


def floored(denominator):
    return max(denominator, 1e-6)


class Group:
    """The ranks and nodes of an EP group."""

    def __init__(self, n, per_node):
        self.n, self.per_node = n, per_node
        self.nodes = (n + per_node - 1) // per_node

    def node(self, rank):
        return rank // self.per_node

    def local(self, rank):
        return rank % self.per_node

    def ranks(self, node):
        return [r for r in range(self.n) if self.node(r) == node]


class History:
    """Section 4, step 7."""

    def __init__(self):
        self.scalars, self.lowest, self.x0, self.only_global = [], None, None, 0

    def learn(self, scalar, x_medians):
        self.only_global = 0
        if self.x0 is None:
            self.x0 = dict(x_medians)
        self.scalars = (self.scalars + [scalar])[-16:]
        if len(self.scalars) >= 3:
            now = median(self.scalars)
            self.lowest = now if self.lowest is None else min(self.lowest, now)


class Diagnoser:
    def __init__(self, n, per_node, policy=None):
        self.group = Group(n, per_node)
        self.policy = {**DEFAULT_POLICY, **(policy or {})}
        self.history = {probe: History() for probe in COMPLETION}
        self.followed = []

    # Section 2 ----------------------------------------------------------------------------------

    def diagnose(self, index, older, newer, length_ns):
        """`older` and `newer` are (vectors, present); a vector is a list of 6 + 9N integers."""
        n = self.group.n
        present = [a and b for a, b in zip(older[1], newer[1])]
        report = {
            "window_index": index,
            "state": "diagnosed",
            "reason": None,
            "missing_ranks": [r for r in range(n) if not present[r]],
            "tracker": [],
            "probes": {},
            "incidents": [],
        }
        delta = []
        for r in range(n):
            row = [int(b) - int(a) for a, b in zip(older[0][r], newer[0][r])]
            if not present[r]:
                row = [0] * len(row)
            if any(d < 0 for d in row):
                report["state"] = "refused"
            delta.append(row)
        if report["state"] == "refused":
            return report
        samples = [d for row in delta for d in self.sample_counters(row)]
        if not any(s > 0 for s in samples):
            report["state"] = "idle"
            return report

        probes = report["probes"]
        for i, name in enumerate(NOTIFY):
            durations = [row[2 * i] for row in delta]
            counts = [row[2 * i + 1] for row in delta]
            probes[name] = self.notify(durations, counts, present, length_ns)
        self.cells = {}
        for i, name in enumerate(COMPLETION):
            at = 6 + 3 * n * i
            # The gathered rows are destinations; a matrix is [source][destination].
            matrix = [
                [[delta[d][at + k * n + s] for d in range(n)] for s in range(n)] for k in range(3)
            ]
            probes[name] = self.completion(name, *matrix, present)
            self.cells[name] = {
                (s, d): (matrix[0][s][d], matrix[1][s][d])
                for s in range(n)
                for d in range(n)
                if s != d and present[s] and present[d] and matrix[0][s][d] > 0 < matrix[1][s][d]
            }
        for i, name in enumerate(NOTIFY):
            for f in probes[name]["findings"]:
                counts = delta[f["rank"]][2 * i + 1]
                f["lateness"] = f["excess_ns"] / counts
        self.correlate(report)
        return report

    def sample_counters(self, row):
        n = self.group.n
        counts = [row[1], row[3], row[5]]
        for i in range(3):
            counts += row[6 + 3 * n * i + n : 6 + 3 * n * i + 2 * n]
        return counts

    # Section 3 ----------------------------------------------------------------------------------

    def notify(self, durations, counts, present, length_ns):
        average = {
            r: durations[r] / counts[r]
            for r in range(self.group.n)
            if present[r] and counts[r] > 0
        }
        if len(average) < 2:
            return {"status": "insufficient", "findings": []}
        findings = []
        for r, own in average.items():
            others = median([average[q] for q in average if q != r])
            if others == 0:
                continue
            ratio = own / others
            excess = (others - own) * counts[r]
            share = self.policy["notify_min_share"]
            if ratio <= self.policy["notify_ratio"] and not (excess < share * length_ns):
                findings.append(
                    {"kind": "late_rank", "rank": r, "ratio": ratio, "excess_ns": excess}
                )
        findings.sort(key=lambda f: (-round(f["excess_ns"]), f["rank"]))
        return {"status": "anomalous" if findings else "ok", "findings": findings}

    # Section 4 ----------------------------------------------------------------------------------

    def completion(self, probe, cost, samples, tokens, present):
        g, policy = self.group, self.policy
        gateway = probe == "dispatch_rdma_recv"
        nothing = {
            "status": "insufficient",
            "scalar": None,
            "global_ratio": None,
            "best_ratio": None,
            "findings": [],
        }
        if gateway and g.nodes == 1:
            return {**nothing, "status": "not_applicable"}
        a = {}
        for s in range(g.n):
            for d in range(g.n):
                left_out = g.node(s) == g.node(d) if gateway else s == d
                if left_out or not (present[s] and present[d]):
                    continue
                if samples[s][d] > 0 and cost[s][d] > 0:
                    a[s, d] = cost[s][d] / samples[s][d]
        if len(a) < 3:
            return nothing

        def class_of(cell):
            if gateway:
                return "edge"
            return "intra_node" if g.node(cell[0]) == g.node(cell[1]) else "inter_node"

        classes = ["edge"] if gateway else ["intra_node", "inter_node"]
        cells_of = {c: [cell for cell in a if class_of(cell) == c] for c in classes}

        # Step 1.
        history = self.history[probe]
        x_medians = {}
        if policy["load_adjust"]:
            for c in classes:
                x = {
                    cell: math.log(tokens[cell[0]][cell[1]] / samples[cell[0]][cell[1]])
                    for cell in cells_of[c]
                    if tokens[cell[0]][cell[1]] > 0
                }
                if not x:
                    continue
                x_medians[c] = median(x.values())
                line = self.line(x, {cell: math.log(a[cell]) for cell in x})
                x0 = x_medians[c]
                if history.x0 is not None and c in history.x0:
                    x0 = history.x0[c]
                for cell in x:
                    a[cell] *= math.exp(line(x0) - line(x[cell]))

        # Step 2.
        blocks = {}
        for cell in a:
            blocks.setdefault((g.node(cell[0]), g.node(cell[1])), []).append(a[cell])
        block_median = {b: median(values) for b, values in blocks.items()}
        class_median = {c: median([a[x] for x in cells_of[c]]) for c in classes if cells_of[c]}
        reference = {}
        for cell in a:
            block = g.node(cell[0]), g.node(cell[1])
            if gateway or len(blocks[block]) < 9:
                reference[cell] = class_median[class_of(cell)]
            else:
                reference[cell] = block_median[block]

        # Step 3.
        level = {cell: math.log(a[cell] / reference[cell]) for cell in a}
        centre = median(level.values())
        level = {cell: value - centre for cell, value in level.items()}
        sigma = 1.4826 * mad(list(level.values()))

        findings = []

        # Step 4, rows and columns.
        had_effect = set()
        present_classes = [c for c in classes if cells_of[c]]
        for axis, kind in enumerate(
            ["source_gateway", "destination_gateway"]
            if gateway
            else ["source_row", "destination_column"]
        ):
            found = {}
            for c in classes:
                groups = {r: [x for x in cells_of[c] if x[axis] == r] for r in range(g.n)}
                judged, effects = self.effects(level, groups, sigma)
                for r in effects:
                    had_effect.add((axis, r))
                for r, (ratio, score) in judged.items():
                    if ratio >= policy["axis_ratio"] and score >= 3.5:
                        found.setdefault(r, {})[c] = (ratio, score)
            for r in sorted(found):
                by_class = found[r]
                everywhere = all(c in by_class for c in present_classes)
                findings.append(
                    {
                        "kind": kind,
                        "rank": r,
                        "path": "all" if everywhere else next(iter(by_class)),
                        "ratio": max(ratio for ratio, _ in by_class.values()),
                        "score": max(score for _, score in by_class.values()),
                    }
                )

        # Step 4, rails.
        if not gateway and g.nodes >= 3:
            rails = {}
            for s, d in cells_of["inter_node"]:
                on_rail = s if probe == "dispatch_final" else d
                rail = g.local(on_rail), g.node(s), g.node(d)
                rails.setdefault(rail, []).append((s, d))
            judged, _ = self.effects(level, rails, sigma)
            for rail in sorted(judged):
                ratio, score = judged[rail]
                if ratio >= policy["axis_ratio"] and score >= 3.5:
                    findings.append(
                        {
                            "kind": "rail",
                            "local_index": rail[0],
                            "src_node": rail[1],
                            "dst_node": rail[2],
                            "ratio": ratio,
                            "score": score,
                        }
                    )

        # Step 5.
        rest = list(level.values())
        rest_centre, rest_scale = median(rest), floored(max(1.4826 * mad(rest), sigma))
        for s, d in sorted(level):
            ratio = math.exp(level[s, d])
            score = (level[s, d] - rest_centre) / rest_scale
            needed = policy["point_ratio"]
            if gateway and (0, s) not in had_effect and (1, d) not in had_effect:
                needed = math.sqrt(policy["axis_ratio"] * policy["point_ratio"])
            if ratio >= needed and score >= 3.5:
                kind = "gateway_edge" if gateway else "point"
                findings.append({"kind": kind, "src": s, "dst": d, "ratio": ratio, "score": score})

        # Step 6.
        if not gateway:
            for b in sorted(blocks):
                if len(blocks[b]) < 9:
                    continue
                others = [
                    block_median[o]
                    for o in blocks
                    if o != b and len(blocks[o]) >= 9 and (o[0] == o[1]) == (b[0] == b[1])
                ]
                if not others:
                    continue
                ratio = block_median[b] / median(others)
                error = 1.2533 * sigma / math.sqrt(len(blocks[b]))
                score = math.log(ratio) / floored(error)
                if ratio >= policy["axis_ratio"] and score >= 3.5:
                    findings.append(
                        {
                            "kind": "node_block",
                            "src_node": b[0],
                            "dst_node": b[1],
                            "ratio": ratio,
                            "score": score,
                        }
                    )

        # Step 7.
        if gateway:
            scalar = median(a.values())
        else:
            scalar = sum(block_median[b] * len(blocks[b]) for b in sorted(blocks)) / len(a)
        result = {**nothing, "scalar": scalar, "findings": findings}
        if len(history.scalars) >= 3:
            recent = scalar / median(history.scalars)
            best = scalar / min(median(history.scalars), history.lowest)
            result["global_ratio"], result["best_ratio"] = recent, best
            if best >= policy["global_ratio"]:
                against = "recent" if recent >= policy["global_ratio"] else "best"
                findings.append({"kind": "global", "ratio": best, "against": against})

        for f in findings:
            share = 1 - 1 / f["ratio"]
            f["excess_cycles"] = sum(cost[s][d] * share for s, d in a if self.within(f, probe, s, d))
        order = [
            "source_row",
            "destination_column",
            "source_gateway",
            "destination_gateway",
            "rail",
            "point",
            "gateway_edge",
            "node_block",
            "global",
        ]
        findings.sort(key=lambda f: (-round(f["excess_cycles"]), order.index(f["kind"])))

        result["status"] = "anomalous" if findings else "ok"
        if not findings:
            history.learn(scalar, x_medians)
        elif [f["kind"] for f in findings] == ["global"]:
            history.only_global += 1
            if history.only_global == 16:
                result["level_shift"] = True
                self.history[probe] = History()
        else:
            history.only_global = 0
        return result

    @staticmethod
    def line(x, y):
        """`ln` cost as a function of `ln` load; with "Costs that turn upwards with load" in the
        docs of the crate."""

        def within_0_and_1(slope):
            return min(max(slope, 0.0), 1.0)

        m = len(x)
        if m < 15:
            return lambda at: 0.0
        ordered = sorted(x.values())
        q1, q2 = ordered[m // 3 - 1], ordered[m - m // 3]
        thirds = [
            [cell for cell in x if x[cell] <= q1],
            [cell for cell in x if q1 < x[cell] < q2],
            [cell for cell in x if x[cell] >= q2],
        ]
        xs = [median([x[c] for c in third]) if third else None for third in thirds]
        ys = [median([y[c] for c in third]) if third else None for third in thirds]
        if not xs[2] - xs[0] > 0.05:
            return lambda at: 0.0
        beta = within_0_and_1((ys[2] - ys[0]) / (xs[2] - xs[0]))
        if not thirds[1] or not (xs[1] - xs[0] > 0.025 and xs[2] - xs[1] > 0.025):
            return lambda at: beta * at
        b1 = within_0_and_1((ys[1] - ys[0]) / (xs[1] - xs[0]))
        b2 = within_0_and_1((ys[2] - ys[1]) / (xs[2] - xs[1]))
        if not b1 < b2:
            return lambda at: beta * at
        b3 = min(2 * b2 - b1, 1.0)

        def bent(at):
            if at < xs[1]:
                return b1 * (at - xs[1])
            if at < xs[2]:
                return b2 * (at - xs[1])
            return b2 * (xs[2] - xs[1]) + b3 * (at - xs[2])

        return bent

    @staticmethod
    def effects(level, groups, sigma):
        """Takes the effects away from `level`; returns ratio and score of each judged group, and
        the effects."""
        effects = {}
        for key, cells in groups.items():
            if len(cells) >= 3:
                effects[key] = median([level[c] for c in cells])
        for key, effect in effects.items():
            for c in groups[key]:
                level[c] -= effect
        judged = {}
        if len(effects) >= 3:
            centre, spread = median(effects.values()), mad(list(effects.values()))
            for key, effect in effects.items():
                error = 1.2533 * sigma / math.sqrt(len(groups[key]))
                score = (effect - centre) / floored(max(1.4826 * spread, error))
                judged[key] = (math.exp(effect - centre), score)
        return judged, effects

    def within(self, f, probe, s, d):
        """Whether a cell of the matrix belongs to a finding."""
        g, kind = self.group, f["kind"]
        if kind == "global":
            return True
        if kind in ("source_row", "source_gateway", "destination_column", "destination_gateway"):
            if (s if kind.startswith("source") else d) != f["rank"]:
                return False
            same = g.node(s) == g.node(d)
            return f["path"] == "all" or same == (f["path"] == "intra_node")
        if kind in ("point", "gateway_edge"):
            return (s, d) == (f["src"], f["dst"])
        if (g.node(s), g.node(d)) != (f["src_node"], f["dst_node"]):
            return False
        if kind == "node_block":
            return True
        return g.local(s if probe == "dispatch_final" else d) == f["local_index"]

    # Section 5 ----------------------------------------------------------------------------------

    def correlate(self, report):
        g, probes, incidents = self.group, report["probes"], report["incidents"]
        dispatch, combine = probes["dispatch_final"], probes["combine_logical_recv"]
        rdma = probes["dispatch_rdma_recv"]

        for name in NOTIFY:
            upstream = "combine_logical_recv" if "combine" not in name else "dispatch_final"
            for f in probes[name]["findings"]:
                if 2 * self.took_longer(upstream, f["rank"]) >= f.pop("lateness"):
                    f["explained_by"] = upstream

        for name in NOTIFY:
            downstream = [combine] if "combine" in name else [dispatch, rdma]
            healthy = all(p["status"] in ("ok", "not_applicable") for p in downstream)
            if probes[name]["status"] == "anomalous" and healthy:
                left = [f["rank"] for f in probes[name]["findings"] if "explained_by" not in f]
                if left:
                    incidents.append(
                        {"kind": "pre_stage_arrival_skew", "probe": name, "ranks": sorted(left)}
                    )

        def index_of_global(probe):
            for i, f in enumerate(probes[probe]["findings"]):
                if f["kind"] == "global":
                    return i
            return None

        data_path = False
        at = {p: index_of_global(p) for p in COMPLETION}
        if at["dispatch_final"] is not None and at["combine_logical_recv"] is not None:
            evidence = [{"probe": p, "index": at[p]} for p in COMPLETION if at[p] is not None]
            incidents.append({"kind": "global_data_path_slowdown", "evidence": evidence})
            data_path = True

        cells = set()
        localized = self.localized(probes, cells)
        if localized:
            incidents.append(localized)
            data_path = True

        if not data_path:
            evidence = [
                {"probe": p, "index": i} for p in COMPLETION for i in range(len(probes[p]["findings"]))
            ]
            if evidence:
                incidents.append({"kind": "unclassified", "evidence": evidence})
        self.track(report, cells)

    def took_longer(self, probe, rank):
        """How many cycles the stage took a rank longer than the others ("Late because of the stage
        before" in the docs of the crate)."""
        g, cells = self.group, self.cells[probe]
        within, between = {}, {}
        for r in range(g.n):
            for node in range(g.nodes):
                arriving = [cells[s, r] for s in g.ranks(node) if (s, r) in cells]
                if not arriving:
                    continue
                sample = sum(c for c, _ in arriving) / sum(n for _, n in arriving)
                if node == g.node(r):
                    within[r] = sample
                else:
                    between[r] = max(sample, between.get(r, 0))
        longer = [-math.inf]
        for times in (within, between):
            others = [t for r, t in times.items() if r != rank]
            if rank in times and others:
                longer.append(times[rank] - median(others))
        return max(longer)

    def scope(self, f, probe):
        """The cells (owner, expert) of a finding, and its rails."""
        g = self.group
        cells = set()
        for s in range(g.n):
            for d in range(g.n):
                if self.within(f, probe, s, d):
                    cells.add((s, d) if probe == "dispatch_final" else (d, s))
        rails = set()
        kind = f["kind"]
        if kind == "source_row" and probe == "dispatch_final" and f["path"] != "intra_node":
            own = g.node(f["rank"])
            rails = {(g.local(f["rank"]), own, b) for b in range(g.nodes) if b != own}
        if kind == "destination_column" and probe == "combine_logical_recv":
            if f["path"] != "intra_node":
                own = g.node(f["rank"])
                rails = {(g.local(f["rank"]), a, own) for a in range(g.nodes) if a != own}
        if kind == "node_block" and f["src_node"] != f["dst_node"]:
            locals_ = range(min(g.per_node, g.n))
            rails = {(l, f["src_node"], f["dst_node"]) for l in locals_}
        if kind == "rail":
            rails = {(f["local_index"], f["src_node"], f["dst_node"])}
        return cells, rails

    def localized(self, probes, incident_cells):
        g = self.group
        scopes = {}
        for p in ("dispatch_final", "combine_logical_recv"):
            scopes[p] = [
                (i, f, *self.scope(f, p))
                for i, f in enumerate(probes[p]["findings"])
                if f["kind"] != "global"
            ]
        matched, by_cells, rails = set(), [], set()
        for i, f, cells, own_rails in scopes["dispatch_final"]:
            for j, h, other_cells, other_rails in scopes["combine_logical_recv"]:
                if intersects(cells, other_cells):
                    by_cells += [("dispatch_final", f), ("combine_logical_recv", h)]
                    incident_cells |= cells | other_cells
                    matched |= {(0, i), (2, j)}
                if intersects(own_rails, other_rails):
                    rails |= own_rails & other_rails
                    matched |= {(0, i), (2, j)}
        if not matched:
            return None
        owners, experts, pairs, edges = set(), set(), set(), set()
        for p, f in by_cells:
            forward = p == "dispatch_final"
            if f["kind"] == "source_row":
                (owners if forward else experts).add(f["rank"])
            elif f["kind"] == "destination_column":
                (experts if forward else owners).add(f["rank"])
            elif f["kind"] == "node_block":
                pair = (f["src_node"], f["dst_node"])
                pairs.add(pair if forward else pair[::-1])
            elif f["kind"] == "point":
                edge = (f["src"], f["dst"])
                edges.add(edge if forward else edge[::-1])
        node_pairs = {(g.node(o), g.node(e)) for o, e in incident_cells}
        node_pairs |= {(a, b) for _, a, b in rails}
        for i, f in enumerate(probes["dispatch_rdma_recv"]["findings"]):
            if f["kind"] == "gateway_edge":
                inside = (g.node(f["src"]), g.node(f["dst"])) in node_pairs
            elif f["kind"] == "source_gateway":
                inside = g.node(f["rank"]) in {a for a, _ in node_pairs}
            elif f["kind"] == "destination_gateway":
                inside = g.node(f["rank"]) in {b for _, b in node_pairs}
            else:
                inside = False
            if inside:
                matched.add((1, i))
        return {
            "kind": "localized_data_path_slowdown",
            "owners": sorted(owners),
            "experts": sorted(experts),
            "node_pairs": [list(p) for p in sorted(pairs)],
            "edges": [list(e) for e in sorted(edges)],
            "rails": [list(r) for r in sorted(rails)],
            "evidence": [{"probe": COMPLETION[p], "index": i} for p, i in sorted(matched)],
        }

    # Section 6 ----------------------------------------------------------------------------------

    def track(self, report, cells):
        for entry in self.followed:
            entry["seen"] = entry["seen"][1:] + [False]
        for incident in report["incidents"]:
            ranks = incident.get("ranks", [])
            rails = {tuple(r) for r in incident.get("rails", [])}
            place = {"ranks": set(ranks), "cells": set(cells), "rails": rails}
            key = incident["kind"], incident.get("probe")
            same = [e for e in self.followed if e["key"] == key and meets(key[0], e["place"], place)]
            if same:
                entry = same[0]
                for other in same[1:]:
                    entry["seen"] = [a or b for a, b in zip(entry["seen"], other["seen"])]
                    if other["state"] == "confirmed":
                        entry["state"] = "confirmed"
                    self.followed.remove(other)
            else:
                entry = {"key": key, "seen": [False] * 3, "state": None}
                self.followed.append(entry)
            entry["place"], entry["seen"][2] = place, True
            if entry["state"] is None:
                self.change(report, entry, "suspected")
            elif entry["state"] == "suspected" and sum(entry["seen"]) >= 2:
                self.change(report, entry, "confirmed")
        for entry in list(self.followed):
            if not any(entry["seen"]):
                self.change(report, entry, "cleared")
                self.followed.remove(entry)

    @staticmethod
    def change(report, entry, state):
        entry["state"] = state
        change = {"kind": entry["key"][0], "state": state}
        if entry["key"][1] is not None:
            change["probe"] = entry["key"][1]
        if entry["place"]["ranks"]:
            change["ranks"] = sorted(entry["place"]["ranks"])
        report["tracker"].append(change)


def intersects(a, b):
    return bool(a) and bool(b) and len(a & b) / min(len(a), len(b)) > 0.5


def meets(kind, a, b):
    if kind == "pre_stage_arrival_skew":
        return bool(a["ranks"] & b["ranks"])
    if kind == "localized_data_path_slowdown":
        return intersects(a["cells"], b["cells"]) or intersects(a["rails"], b["rails"])
    return True
