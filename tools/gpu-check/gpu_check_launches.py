# SPDX-License-Identifier: BSD-3-Clause
"""Of gpu-check: the work of one training step on the GPU, from the rows that launches.c wrote.

    python3 gpu_check_launches.py ROWS.csv STEPS TABLE.csv

ROWS.csv: the launches of a run of STEPS steps. A kernel that was launched once a step shows where steps begin; the
step taken is from its third last launch to its second last. TABLE.csv: a row for each kernel, grid and block, those that took longest first.
Prints a sentence: the time of the step, the share of it in which the GPU worked, and its longest kernels.
"""
import collections
import csv
import sys


def steps_of(rows, steps):
    """Where steps begin: the launches of a kernel that each step has once."""
    launches = collections.defaultdict(list)
    for row in rows:
        launches[(row["name"], row["grid"])].append(int(row["start_ns"]))
    once = [starts for (name, grid), starts in launches.items() if len(starts) == steps and grid]
    if not once or steps < 3:
        raise SystemExit(f"no kernel was launched once in each of {steps} steps, of 3 at least")
    return max(once, key=lambda starts: starts[-1] - starts[0])  # one of the start has its launches together


def busy_ns(rows):
    """Time in which anything ran; rows in the order of their begin."""
    busy = end = 0
    for row in rows:
        start, stop = int(row["start_ns"]), int(row["start_ns"]) + int(row["duration_ns"])
        busy += max(0, stop - max(start, end))
        end = max(end, stop)
    return busy


def short(name):
    """A kernel of ours, or the end of a mangled name, which differs most."""
    return name if len(name) <= 60 else name[-60:]


def main():
    path, steps, table = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with open(path, encoding="utf-8", newline="") as f:
        rows = sorted(csv.DictReader(f), key=lambda row: int(row["start_ns"]))
    starts = steps_of(rows, steps)
    begin, end = starts[-3], starts[-2]
    step = [row for row in rows if begin <= int(row["start_ns"]) < end]
    groups = collections.OrderedDict()
    for row in step:
        key = (row["name"][:200], row["grid"], row["block"], row["registers"], row["bytes"] if row["grid"] else "")
        count, total = groups.get(key, (0, 0))
        groups[key] = (count + 1, total + int(row["duration_ns"]))
    with open(table, "w", encoding="utf-8", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["name", "grid", "block", "registers", "shared_bytes", "count", "total_us"])
        for key, (count, total) in sorted(groups.items(), key=lambda item: -item[1][1]):
            out.writerow([*key, count, f"{total / 1e3:.1f}"])
    names = collections.Counter()
    for key, (_, total) in groups.items():
        names[short(key[0])] += total
    total = end - begin
    longest = ", ".join(f"{name} {ns / 1e6:.2f}" for name, ns in names.most_common(12))
    print(f"step of {total / 1e6:.2f} ms, {100 * busy_ns(step) / total:.0f} % busy, {len(step)} launches; ms: {longest}")


if __name__ == "__main__":
    main()
