#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives compared with Open MPI and with PyTorch's gloo on one machine, in one run.

All-gather, reduce-scatter and all-reduce of fp32 on N processes of one thread, not bound to cores.
Ours is bench/bench_coll under shardrun, by shared memory without copies (shm), staged, and by UCX; MPI
is bench/peer_mpi.c, which this program compiles; gloo is torch.distributed. All have the rules of
bench/coll_rules.h: sizes, starts, the best of the means of five repeats, and every rank checks the bits
of one more start, whose sums are exact in any order. The sides alternate (A B C A B C), and the program
prints medians over the rounds, algbw = bytes / time, busbw as nccl-tests has it, and for each peer
our time divided by its time: below 1 ours is faster.

    python3 bench/peer_collectives.py [--build DIR] [--worlds 2,4] [--rounds 5] [--peers mpi,gloo]

Exit status 77 with the reason where a peer or a program is missing.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from peers import need_programs, run_torch_ranks, skip

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUSES = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2}  # of (n-1)/n
# the variables that choose ours, and what bench_coll must say
OURS = {
    "shm": ({"SHARDRT_COLLECTIVES": "shm"}, "zero copy"),
    "staged": ({"SHARDRT_COLLECTIVES": "staged"}, "staged"),
    "ucx": ({"SHARDRT_COLLECTIVES": "ucx"}, "ucx"),
}


# ---- a rank of gloo ------------------------------------------------------------------------


def starts_of(nbytes):
    return 3 if nbytes >= 16000000 else 50 if nbytes >= 100000 else 2000


def values(torch, rank, first, nelem):
    i = torch.arange(first, first + nelem, dtype=torch.int64) + 40503 * rank
    return ((i * 2654435761 & 0xffffffff) >> 20).float() - 2048


def time_coll(torch, dist, call, starts):
    best = 1e9
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(starts):
            call()
        slowest = torch.tensor((time.perf_counter() - start) / starts, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        best = min(best, slowest.item())
    return best


def worker(args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for nbytes in args.sizes:
        each = nbytes // 4 // size
        full, shard, first = torch.empty(size * each), torch.empty(each), rank * each
        whole = values(torch, rank, 0, size * each)
        # name: what it calls, its result, what fills its source for the check, what the result is then
        calls = {
            "all-gather": (
                lambda: dist.all_gather_into_tensor(full, shard), full,
                lambda: shard.copy_(whole[first:first + each]),
                lambda: torch.cat([values(torch, r, r * each, each) for r in range(size)])),
            "reduce-scatter": (
                lambda: dist.reduce_scatter_tensor(shard, full), shard, lambda: full.copy_(whole),
                lambda: sum(values(torch, r, first, each) for r in range(size))),
            "all-reduce": (
                lambda: dist.all_reduce(full), full, lambda: full.copy_(whole),
                lambda: sum(values(torch, r, 0, size * each) for r in range(size))),
        }
        for name, (call, result, fill, expected) in calls.items():
            full.zero_(), shard.zero_()
            best = time_coll(torch, dist, call, starts_of(size * each * 4))
            result.fill_(0.5)
            fill()
            call()
            wrong = (result != expected()).nonzero()
            if len(wrong):
                sys.exit(f"{name}: element {wrong[0].item()} of rank {rank} is {result[wrong[0]].item()}")
            dist.barrier()
            if rank == 0:
                print(f"{name} {size * each * 4} {best * 1e6:.2f} ok", flush=True)
    dist.destroy_process_group()


# ---- one run of a side: {(collective, bytes): microseconds} ------------------------------------


def run(command, **env):
    done = subprocess.run(command, env=dict(os.environ, **env), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"peer_collectives: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def run_ours(args, world, side):
    env, transport = OURS[side]
    command = [f"{args.build}/shardrun", "-n", str(world), f"{args.build}/bench/bench_coll"]
    out = run(command + list(map(str, args.sizes)), SHARDRT_BACKEND="cpu", SHARDRT_THREADS="1", **env)
    rows = [line.split(None, 6) for line in out.splitlines() if line.split()[0] in BUSES]
    if any(row[5:] != ["ok", transport] for row in rows):
        sys.exit(f"peer_collectives: not {transport}: {out}")
    return {(row[0], int(row[1])): float(row[2]) for row in rows}


def parse(out):
    rows = [line.split() for line in out.splitlines()]
    if any(row[3:] != ["ok"] for row in rows):
        sys.exit(f"peer_collectives: not checked: {out}")
    return {(name, int(nbytes)): float(us) for name, nbytes, us, _ in rows}


def run_mpi(args, world, program):
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(world), program]
    return parse(run(command + list(map(str, args.sizes)), OMPI_ALLOW_RUN_AS_ROOT="1",
                     OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))


def run_gloo(args, world):
    command = [os.path.abspath(__file__), "--worker", "--sizes", ",".join(map(str, args.sizes))]
    return parse(run_torch_ranks(command, world, args.verbose)[0])


# ---- all -----------------------------------------------------------------------------------


def compare(args, world, sides):
    times = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, call in sides.items():
            times[side].append(call(world))
    for key in times["shm"][0]:
        name, nbytes = key
        median = {side: statistics.median(row[key] for row in rows) for side, rows in times.items()}
        for side, us in median.items():
            algbw = nbytes / us * 1e-3
            line = f"{world:5} {name:14} {nbytes:9} {side:7} {us:10.2f} {algbw:8.2f} "
            line += f"{algbw * BUSES[name] * (world - 1) / world:8.2f}   ok"
            if side not in OURS:
                line += "   " + "".join(f" {median[mine] / us:8.3f}" for mine in OURS)
            print(line)
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=".", help="folder of shardrun and bench/bench_coll")
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side, alternating")
    parser.add_argument("--sizes", default="4096,1048576,67108864", help="bytes of the full buffer",
                        type=lambda text: [int(size) for size in text.split(",")])
    parser.add_argument("--peers", default="mpi,gloo")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    need_programs(args.build, "shardrun", "bench/bench_coll")
    with tempfile.TemporaryDirectory() as folder:
        sides = {side: lambda world, side=side: run_ours(args, world, side) for side in OURS}
        versions = []
        if "mpi" in args.peers.split(","):
            if not shutil.which("mpicc") or not shutil.which("mpirun"):
                skip("no mpicc and mpirun (Debian: libopenmpi-dev, openmpi-bin), or --peers gloo")
            program = f"{folder}/peer_mpi"
            run(["mpicc", "-O2", "-I", SOURCE, "-o", program, f"{SOURCE}/bench/peer_mpi.c"])
            versions.append(run(["mpirun", "--version"]).splitlines()[0])
            sides["mpi"] = lambda world: run_mpi(args, world, program)
        if "gloo" in args.peers.split(","):
            probe = subprocess.run([sys.executable, "-c", "import torch.distributed as d, torch; print(torch.__version__)"
                                    "; assert d.is_gloo_available()"],
                                   capture_output=True, text=True, check=False)
            if probe.returncode:
                skip("no PyTorch with gloo, or --peers mpi")
            versions.append(f"PyTorch {probe.stdout.strip()}")
            sides["gloo"] = lambda world: run_gloo(args, world)
        print(f"fp32, one thread a rank, medians of {args.rounds}; {', '.join(versions)}")
        print(f"{'ranks':5} {'':14} {'bytes':>9} {'':7} {'us':>10} {'algbw':>8} {'busbw':>8} GB/s      "
              + "".join(f" {mine + '/x':>8}" for mine in OURS))
        for world in args.worlds.split(","):
            compare(args, int(world), sides)


if __name__ == "__main__":
    main()
