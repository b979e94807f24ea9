#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Saving and loading a sharded checkpoint of 400 MB compared with PyTorch's distributed checkpoints on
one machine, in one run.

The same 50 tensors of 2000 x 1000 floats on N ranks of one thread: ours is bench/bench_checkpoint under
shardrun with zero3, PyTorch has fully_shard on 10 modules of 5 parameters, gloo, and
torch.distributed.checkpoint's save() and load() of the model's state_dict() with their defaults, of which one is to
sync the files. Each program saves and loads twice and measures the second time. The two programs alternate
(A B A B), and so does the disk alone: as many bytes by dd with conv=fsync. The program prints medians over the rounds
of the slowest rank, with the lowest and the highest, and of the CPU seconds of the rank that used most.

    python3 bench/peer_checkpoint.py [--build DIR] [--ranks 2] [--rounds 5] [--drop] FOLDER...

Loads read from the page cache, or with --drop from the disk: the files leave the cache first (on tmpfs
they do not). Exit status 77 with the reason where PyTorch or the programs are missing.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from peers import drop_files, need_programs, run_torch_ranks, skip

UNITS, TENSORS, ROWS, COLUMNS = 10, 5, 2000, 1000
NBYTES = UNITS * TENSORS * ROWS * COLUMNS * 4


# ---- a rank of PyTorch ---------------------------------------------------------------------


def measure(call):
    """Seconds, and CPU seconds of all threads of this process."""
    start, cpu = time.monotonic(), time.process_time()
    call()
    return time.monotonic() - start, time.process_time() - cpu


def worker(args):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Module()
    for u in range(UNITS):
        unit = torch.nn.Module()
        for i in range(TENSORS):
            unit.register_parameter(f"tensor{i}", torch.nn.Parameter(torch.empty(ROWS, COLUMNS)))
        model.add_module(f"unit{u}", fully_shard(unit))
    fully_shard(model)
    state = model.state_dict()
    if len(state) != UNITS * TENSORS or not all(isinstance(t, DTensor) for t in state.values()):
        sys.exit("the state is not what ours is")
    folder = os.path.join(args.folders[0], "checkpoint")
    for _ in range(2):
        for tensor in state.values():
            tensor.to_local().normal_()
        dist.barrier()
        save = measure(lambda: dcp.save(state, checkpoint_id=folder))
        before = {name: tensor.to_local().clone() for name, tensor in state.items()}
        for tensor in state.values():
            tensor.to_local().zero_()
        if args.drop and dist.get_rank() == 0:
            drop_files(folder)
        dist.barrier()
        load = measure(lambda: dcp.load(state, checkpoint_id=folder))
        if any(not torch.equal(tensor.to_local(), before[name]) for name, tensor in state.items()):
            sys.exit("the state is not what was saved")
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder)
        dist.barrier()
    times = {"save": save[0], "save cpu": save[1], "load": load[0], "load cpu": load[1]}
    print(json.dumps(dict(times, version=torch.__version__)), flush=True)
    dist.destroy_process_group()


# ---- both ----------------------------------------------------------------------------------


def summarize(out, ranks):
    rows = [json.loads(line) for line in re.findall(r"\{.*\}", out)]
    if len(rows) != ranks:
        sys.exit(f"peer_checkpoint: {len(rows)} of {ranks} ranks have printed their times")
    return {part: max(row[part] for row in rows) for part in rows[0]}


def run_torch(args, folder):
    command = [os.path.abspath(__file__), "--worker", folder] + ["--drop"] * args.drop
    return summarize("".join(run_torch_ranks(command, args.ranks, args.verbose)), args.ranks)


def run_ours(args, folder):
    command = [os.path.join(args.build, "shardrun"), "-n", str(args.ranks)]
    command += [os.path.join(args.build, "bench", "bench_checkpoint"), folder] + ["drop"] * args.drop
    run = subprocess.run(command, env=dict(os.environ, SHARDRT_THREADS="1"), capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"peer_checkpoint: bench_checkpoint failed: {run.stderr}")
    return summarize(run.stdout, args.ranks)


def run_dd(args, folder):
    """The file system alone: one process writes the bytes and syncs, then reads them."""
    path, count = os.path.join(folder, "dd"), str(NBYTES // 1000000)
    quiet = {"stderr": subprocess.DEVNULL, "check": True}
    start = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", "of=" + path, "bs=1000000", "count=" + count, "conv=fsync"], **quiet)
    saved = time.monotonic()
    if args.drop:
        drop_files(folder)
    begin = time.monotonic()
    subprocess.run(["dd", "if=" + path, "of=/dev/null", "bs=1000000"], **quiet)
    end = time.monotonic()
    os.unlink(path)
    return {"save": saved - start, "load": end - begin}


def compare(args, name, folder):
    rows = {"ours": [], "torch": [], "dd": []}
    for _ in range(args.rounds):
        rows["ours"].append(run_ours(args, folder))
        rows["torch"].append(run_torch(args, folder))
        rows["dd"].append(run_dd(args, folder))
    for part in "save", "save cpu", "load", "load cpu":
        times = {side: [row[part] for row in rows[side]] for side in rows if part in rows[side][0]}
        line = f"{name:12} {part:8}"
        for side in times:
            median = statistics.median(times[side])
            line += f"  {side} {median:6.3f} ({min(times[side]):.3f} to {max(times[side]):.3f})"
        print(line + f"  torch/ours {statistics.median(times['torch']) / statistics.median(times['ours']):.2f}")
    sys.stdout.flush()
    return rows["torch"][0]["version"], rows["ours"][0]["version"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="where checkpoints are written")
    parser.add_argument("--build", default=".", help="folder of shardrun and bench/bench_checkpoint")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side, alternating")
    parser.add_argument("--drop", action="store_true", help="drop the files from the page cache before loads")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    probe = "import numpy, torch.distributed.checkpoint; from torch.distributed.fsdp import fully_shard"
    if subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).returncode:
        skip("no PyTorch with fully_shard, or no numpy")
    need_programs(args.build, "shardrun", "bench/bench_checkpoint")
    print(f"{args.ranks} ranks x 1 thread, {NBYTES} bytes, seconds, medians of {args.rounds}")
    for name in args.folders:
        with tempfile.TemporaryDirectory(dir=name, prefix="peer_checkpoint-") as folder:
            versions = compare(args, name, folder)
    print("PyTorch %s, libshardrt %s" % versions)


if __name__ == "__main__":
    main()
