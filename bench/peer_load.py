#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Seconds of loading a folder of Hugging Face compared with safetensors' Python loader, in one run.

N ranks each load their rows of every tensor: ours is bench/bench_load under shardrun with zero3, whose memory
tests/tools/test_load_memory_long.sh checks; Python has safe_open() and get_slice() in one process a rank, which keep
the rows as tensors of PyTorch. One process that loads all of every file by load_file() is measured, too. The three
alternate; the program prints medians over the rounds of the slowest rank, with the lowest and the highest.

    python3 bench/peer_load.py [--build DIR] [--ranks 4] [--rounds 5] [--drop] FOLDER

Loads read from the page cache, or with --drop from the disk: the files leave the cache first (on tmpfs
they do not). Exit status 77 with the reason where safetensors, PyTorch or the programs are missing.
"""
import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import time

from peers import drop_files, need_programs, run_torch_ranks, skip


def worker(args):
    import torch.distributed as dist
    from safetensors import safe_open
    from safetensors.torch import load_file

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    files = sorted(glob.glob(os.path.join(args.folder, "*.safetensors")))
    dist.init_process_group("gloo")
    dist.barrier()
    start, tensors = time.monotonic(), {}
    for path in files:
        if args.whole:
            tensors.update(load_file(path))
            continue
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                part = file.get_slice(name)
                if not part.get_shape():  # a scalar has no rows
                    tensors[name] = file.get_tensor(name)
                    continue
                rows = -(-part.get_shape()[0] // world)
                tensors[name] = part[rank * rows : (rank + 1) * rows]
    print(json.dumps({"load": time.monotonic() - start}), flush=True)
    dist.destroy_process_group()


def slowest(out, ranks):
    seconds = [json.loads(line)["load"] for line in re.findall(r"\{.*\}", out)]
    if len(seconds) != ranks:
        sys.exit(f"peer_load: {len(seconds)} of {ranks} ranks have printed their times")
    return max(seconds)


def run_python(args, ranks, *options):
    command = [os.path.abspath(__file__), "--worker", *options, args.folder]
    return slowest("".join(run_torch_ranks(command, ranks, args.verbose)), ranks)


def run_ours(args):
    command = [os.path.join(args.build, "shardrun"), "-n", str(args.ranks)]
    command += [os.path.join(args.build, "bench", "bench_load"), args.folder]
    run = subprocess.run(command, env=dict(os.environ, SHARDRT_THREADS="1"), capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"peer_load: bench_load failed: {run.stderr}")
    return slowest(run.stdout, args.ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", help="of Hugging Face, with weights in safetensors files")
    parser.add_argument("--build", default=".", help="folder of shardrun and bench/bench_load")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side, alternating")
    parser.add_argument("--drop", action="store_true", help="drop the files from the page cache before loads")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    probe = "import safetensors.torch, torch.distributed"
    if subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).returncode:
        skip("no safetensors, or no PyTorch")
    need_programs(args.build, "shardrun", "bench/bench_load")
    sides = {"ours": lambda: run_ours(args), "get_slice": lambda: run_python(args, args.ranks),
             "load_file of all in one process": lambda: run_python(args, 1, "--whole")}
    seconds = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, run in sides.items():
            if args.drop:
                drop_files(args.folder)
            seconds[side].append(run())
    nbytes = sum(os.path.getsize(path) for path in glob.glob(os.path.join(args.folder, "*.safetensors")))
    print(f"{args.ranks} ranks, {nbytes} bytes, seconds, medians of {args.rounds}")
    ours = statistics.median(seconds["ours"])
    for side, all_of_it in seconds.items():
        median = statistics.median(all_of_it)
        print(f"{side:32} {median:7.3f} ({min(all_of_it):.3f} to {max(all_of_it):.3f})  /ours {median / ours:.2f}")


if __name__ == "__main__":
    main()
