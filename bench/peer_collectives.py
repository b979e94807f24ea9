#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives compared with Open MPI, PyTorch's gloo, oneCCL and DeepSpeed on one machine, in one run.

All-gather, reduce-scatter and all-reduce of fp32 on N processes of one thread, not bound to cores.
Ours is bench/bench_coll under shardrun, by shared memory without copies (shm), staged, and by UCX; MPI
is bench/peer_mpi.c, which this program compiles; gloo is torch.distributed. Only the all-reduce is
compared with oneccl, which is bench/peer_oneccl.cc with the packages oneccl, oneccl-devel, impi-rt and
intel-cmplr-lib-rt of PyPI, without its worker threads (CCL_WORKER_OFFLOAD=0) over Intel MPI's shared
memory, and with deepspeed, the all-reduce by shared memory of the package deepspeed, which needs ninja
and is compiled in the first run. Install these packages for the Python that runs this program. All have the rules of
bench/coll_rules.h: sizes, starts, the best of the means of five repeats, and every rank checks the bits
of one more start, whose sums are exact in any order. The sides alternate (A B C A B C), and the program
prints medians over the rounds, algbw = bytes / time, busbw as nccl-tests has it, and for each peer
our time divided by its time: below 1 ours is faster.

    python3 bench/peer_collectives.py [--build DIR] [--worlds 2,4] [--rounds 5] [--peers mpi,gloo]
    python3 bench/peer_collectives.py --peers oneccl,deepspeed --sizes 10240,65536

Exit status 77 with the reason where a peer or a program is missing.
"""
import argparse
import importlib.metadata
import importlib.util
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


# ---- a rank of gloo or deepspeed ------------------------------------------------------------------------


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


def open_deepspeed(torch, rank, size):
    """DeepSpeed's all-reduce in place, compiled if it was not yet."""
    os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]  # ninja
    os.environ["LOCAL_SIZE"] = str(size)
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    ShareMemCommBuilder().load(verbose=False).initialize(size, rank)
    return torch.ops.deepspeed.inference_all_reduce_


def worker(args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    all_reduce = open_deepspeed(torch, rank, size) if args.worker == "deepspeed" else dist.all_reduce
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
                lambda: all_reduce(full), full, lambda: full.copy_(whole),
                lambda: sum(values(torch, r, 0, size * each) for r in range(size))),
        }
        for name, (call, result, fill, expected) in calls.items():
            if args.worker == "deepspeed" and name != "all-reduce":
                continue
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
    rows = [line.split() for line in out.splitlines() if line.startswith(tuple(BUSES))]
    if not rows or any(row[3:] != ["ok"] for row in rows):
        sys.exit(f"peer_collectives: not checked: {out}")
    return {(name, int(nbytes)): float(us) for name, nbytes, us, _ in rows}


def run_mpi(args, world, program):
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(world), program]
    return parse(run(command + list(map(str, args.sizes)), OMPI_ALLOW_RUN_AS_ROOT="1",
                     OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))


def run_torch(args, world, side):
    command = [os.path.abspath(__file__), "--worker", side, "--sizes", ",".join(map(str, args.sizes))]
    return parse(run_torch_ranks(command, world, args.verbose)[0])


def run_oneccl(args, world, program):
    address = f"{program}.address"
    if os.path.exists(address):
        os.remove(address)
    rank = f'RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE exec {program} {address} {" ".join(map(str, args.sizes))}'
    return parse(run([f"{sys.prefix}/bin/mpiexec.hydra", "-n", str(world), "sh", "-c", rank],
                     PATH=f"{sys.prefix}/bin:{os.environ['PATH']}", LD_LIBRARY_PATH=f"{sys.prefix}/lib",
                     CCL_ROOT=sys.prefix, I_MPI_ROOT=sys.prefix, I_MPI_FABRICS="shm", I_MPI_PIN="0",
                     CCL_ATL_TRANSPORT="mpi", CCL_WORKER_OFFLOAD="0"))


def build_oneccl(folder):
    """Compiles peer_oneccl.cc with the packages in the prefix of this Python."""
    library, program = f"{sys.prefix}/lib/ccl/cpu/lib/libccl.a", f"{folder}/peer_oneccl"
    if not shutil.which("g++") or not all(map(os.path.exists, (
            library, f"{sys.prefix}/include/oneapi/ccl.hpp", f"{sys.prefix}/lib/libsvml.so",
            f"{sys.prefix}/bin/mpiexec.hydra"))):
        skip(f"no g++, or not oneccl, oneccl-devel, impi-rt and intel-cmplr-lib-rt in {sys.prefix}")
    run(["g++", "-std=c++17", "-O2", "-w", "-I", SOURCE, "-I", f"{sys.prefix}/include", "-o", program,
         f"{SOURCE}/bench/peer_oneccl.cc", library, f"-L{sys.prefix}/lib", f"-Wl,-rpath,{sys.prefix}/lib",
         "-lhwloc", "-l:libintlc.so.5", "-lsvml", "-limf", "-lirng", "-ldl", "-lpthread"])
    return program


# ---- all -----------------------------------------------------------------------------------


def compare(args, world, sides):
    times = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, call in sides.items():
            times[side].append(call(world))
    for key in times["shm"][0]:
        name, nbytes = key
        median = {side: statistics.median(row[key] for row in rows)
                  for side, rows in times.items() if key in rows[0]}
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
    parser.add_argument("--worker", help=argparse.SUPPRESS)
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
        if "oneccl" in args.peers.split(","):
            oneccl = build_oneccl(folder)
            versions.append(f"oneCCL {importlib.metadata.version('oneccl')}")
            sides["oneccl"] = lambda world: run_oneccl(args, world, oneccl)
        for side in ("gloo", "deepspeed"):
            if side not in args.peers.split(","):
                continue
            checks = "import torch.distributed as d, torch; print(torch.__version__); assert d.is_gloo_available()"
            probe = subprocess.run([sys.executable, "-c", checks], capture_output=True, text=True, check=False)
            if probe.returncode:
                skip("no PyTorch with gloo, or other --peers")
            versions.append(f"PyTorch {probe.stdout.strip()}")
            if side == "deepspeed":
                if not importlib.util.find_spec("deepspeed"):
                    skip("no deepspeed, or other --peers")
                versions.append(f"DeepSpeed {importlib.metadata.version('deepspeed')}")
            sides[side] = lambda world, side=side: run_torch(args, world, side)
        print(f"fp32, one thread a rank, medians of {args.rounds}; {', '.join(versions)}")
        print(f"{'ranks':5} {'':14} {'bytes':>9} {'':7} {'us':>10} {'algbw':>8} {'busbw':>8} GB/s      "
              + "".join(f" {mine + '/x':>8}" for mine in OURS))
        for world in args.worlds.split(","):
            compare(args, int(world), sides)


if __name__ == "__main__":
    main()
