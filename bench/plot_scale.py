#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plots tables of bench/scale (docs/scaling.md): step times, messages, memory and start-up by ranks.

    bench/scale 8 64 512 4096 > after.txt
    bench/plot_scale.py scale.svg after.txt [before.txt ...]

Lines of the first table are solid, those of the others dashed, dotted ...
"""
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

PANELS = {
    "milliseconds of a step": ["weak_ms", "strong_ms"],
    "messages of a rank in a step": ["messages", "rounds"],
    "MiB of a rank": ["plan_MiB", "tab_MiB"],
    "frames that rank 0 sends until the engine is built": ["frames"],
}
STYLES = ["-", "--", ":", "-."]


def read_table(path):
    """Columns by name."""
    with open(path, encoding="utf-8") as table:
        head, *lines = [line.split() for line in table if line.strip()]
    return {name: [float(line[i]) for line in lines] for i, name in enumerate(head)}


def main(target, *paths):
    tables = [read_table(path) for path in paths]
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for axis, (title, names) in zip(axes.flat, PANELS.items()):
        for i, name in enumerate(names):
            for table, path, style in zip(tables, paths, STYLES):
                axis.plot(table["ranks"], table[name], style, color=f"C{i}", marker=".", label=f"{name}, {path}")
        axis.set(title=title, xlabel="ranks", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.savefig(target)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
