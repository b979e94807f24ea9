#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Start-up compared with PyTorch FSDP2 on one machine, in one run: from the start of the programs to
sharded parameters with initial values on all ranks.

The same gpt2-124m (12 layers, 768 wide, vocabulary 50257, context 1024, tied head, fp32) on N ranks
of one thread, with initial values of the same kinds. Ours is bench/bench_startup under shardrun:
modules, policy, srt_engine_build() with the state of AdamW, srt_engine_materialize(). PyTorch, with
gloo, has the model on the meta device, fully_shard on each block and the root, to_empty() and a reset of
each module; no optimizer. The two alternate (A B A B). The program prints medians over the rounds of the
slowest rank: of all, and of PyTorch also without starting Python and its imports, which ours is
compared with in full.

    python3 bench/peer_startup.py [--build DIR] [--ranks 4] [--rounds 5]
    python3 bench/peer_startup.py --barrier [--build DIR] [--ranks 64] [--rounds 5]

With --barrier there is no model: from the start of the launcher to the end of a first barrier, ours under
shardrun and under mpirun, a program of MPI under mpirun, and torchrun with gloo.

Exit status 77 with the reason where PyTorch or the programs are missing.
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

from peers import need_programs, run_torch_ranks, skip

LAYERS, WIDTH, CONTEXT, VOCAB = 12, 768, 1024, 50257


# ---- a rank of PyTorch ---------------------------------------------------------------------


def build_model(nn):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.lnf = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)
            self.head.weight = self.wte.weight

    return GPT()


def reset(nn, model, init):
    """Each module once, and the tied weight once."""
    for name, module in model.named_modules():
        if name == "head" or not hasattr(module, "reset_parameters"):
            continue
        if init == "default" or isinstance(module, nn.LayerNorm):
            module.reset_parameters()
            continue
        nn.init.normal_(module.weight, 0.0, 0.02)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)


def barrier_worker():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    print(json.dumps({"ready": time.monotonic()}), flush=True)
    dist.destroy_process_group()


def worker(args):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    imported = time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    joined = time.monotonic()
    with torch.device("meta"):
        model = build_model(torch.nn)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    sharded = time.monotonic()
    model.to_empty(device="cpu")
    with torch.no_grad():
        reset(torch.nn, model, args.init)
    ready = time.monotonic()
    parts = {"imported": imported, "join": joined - imported, "build": sharded - joined,
             "init": ready - sharded, "version": torch.__version__}
    if model.head.weight is not model.wte.weight or any(p.is_meta for p in model.parameters()):
        sys.exit("the model is not what ours is")
    print(json.dumps(dict(parts, ready=ready)), flush=True)
    dist.destroy_process_group()


# ---- both ----------------------------------------------------------------------------------


def summarize(start, out, ranks):
    """Of the slowest rank at each point, from the start of the first program on."""
    rows = [json.loads(line) for line in re.findall(r"\{.*\}", out)]
    if len(rows) != ranks:
        sys.exit(f"peer_startup: {len(rows)} of {ranks} ranks have printed their times")
    result = {part: max(row[part] for row in rows) for part in ("join", "build", "init", "version")}
    result["all"] = max(row["ready"] for row in rows) - start
    if "imported" in rows[0]:
        result["after imports"] = max(row["ready"] - row["imported"] for row in rows)
    return result


def run_torch(args, init):
    command = [os.path.abspath(__file__), "--worker", "--init", init]
    start = time.monotonic()
    return summarize(start, "".join(run_torch_ranks(command, args.ranks, args.verbose)), args.ranks)


def run_ours(args, init):
    command = [os.path.join(args.build, "shardrun"), "-n", str(args.ranks)]
    command += [os.path.join(args.build, "bench", "bench_startup"), init]
    env = dict(os.environ, SHARDRT_THREADS="1")
    start = time.monotonic()
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"peer_startup: bench_startup failed: {run.stderr}")
    return summarize(start, run.stdout, args.ranks)


def compare(args, init):
    ours, torch = [], []
    for _ in range(args.rounds):
        ours.append(run_ours(args, init))
        torch.append(run_torch(args, init))

    def median(rows, part):
        return statistics.median(row[part] for row in rows)

    mine, imported, all_of_it = median(ours, "all"), median(torch, "after imports"), median(torch, "all")
    print(f"{init:8} {mine:7.3f} {imported:20.3f} {mine / imported:11.2f} {all_of_it:10.3f} {mine / all_of_it:11.2f}")
    for name, rows in ("ours", ours), ("torch", torch):
        print(f"  {name}: " + ", ".join(f"{part} {median(rows, part):.3f}" for part in ("join", "build", "init")))
    sys.stdout.flush()
    return torch[0]["version"], ours[0]["version"]


# ---- without a model -----------------------------------------------------------------------

MPI_PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <time.h>
int main(void)
{
    struct timespec t;
    MPI_Init(NULL, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    clock_gettime(CLOCK_MONOTONIC, &t);
    printf("{\\"ready\\": %.6f}\\n", (double)t.tv_sec + t.tv_nsec * 1e-9);
    MPI_Finalize();
    return 0;
}
"""


def barrier_commands(args, folder):
    ours = [os.path.join(args.build, "bench", "bench_startup"), "barrier"]
    mpi = os.path.join(folder, "mpi_barrier")
    mpirun = ["mpirun", "--oversubscribe", "-n", str(args.ranks)]
    commands = {"shardrun": [os.path.join(args.build, "shardrun"), "-n", str(args.ranks)] + ours}
    if shutil.which("mpicc") and shutil.which("mpirun"):
        subprocess.run(["mpicc", "-O2", "-x", "c", "-", "-o", mpi], input=MPI_PROGRAM, text=True, check=True)
        commands["ours, mpirun"] = mpirun + ours
        commands["MPI, mpirun"] = mpirun + [mpi]
    if has_torch("import torch.distributed.run"):
        commands["torchrun, gloo"] = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                      str(args.ranks), os.path.abspath(__file__), "--worker", "--barrier"]
    return commands


def run_barrier(args, command):
    env = dict(os.environ, SHARDRT_THREADS="1", OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    start = time.monotonic()
    run = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    ready = [json.loads(line)["ready"] for line in re.findall(r"\{.*?\}", run.stdout)]
    if run.returncode or len(ready) != args.ranks:
        sys.exit(f"peer_startup: {command} failed: {run.stderr}")
    return max(ready) - start


def compare_barriers(args):
    with tempfile.TemporaryDirectory() as folder:
        commands = barrier_commands(args, folder)
        times = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                times[name].append(run_barrier(args, command))
    if len(commands) == 1:
        skip("neither MPI (mpicc, mpirun) nor PyTorch")
    mine = statistics.median(times["shardrun"])
    print(f"{args.ranks} ranks, seconds from the launch to the end of the first barrier, {args.rounds} rounds")
    print(f"{'':16} {'median':>8} {'fastest':>8} {'slowest':>8} {'shardrun/this':>14}")
    for name, all_of_it in times.items():
        median = statistics.median(all_of_it)
        print(f"{name:16} {median:8.3f} {min(all_of_it):8.3f} {max(all_of_it):8.3f} {mine / median:14.2f}")


def has_torch(probe):
    return subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=".", help="folder of shardrun and bench/bench_startup")
    parser.add_argument("--ranks", type=int, help="4; 64 with --barrier")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each side, alternating")
    parser.add_argument("--init", default="normal,default", help="normal_(0, 0.02); PyTorch's default")
    parser.add_argument("--barrier", action="store_true", help="no model: until a first barrier")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.ranks = args.ranks or (64 if args.barrier else 4)
    if args.worker and args.barrier:
        barrier_worker()
        return
    if args.worker:
        worker(args)
        return
    if not args.barrier and not has_torch("from torch.distributed.fsdp import fully_shard"):
        skip("no PyTorch with fully_shard")
    need_programs(args.build, "shardrun", "bench/bench_startup")
    if args.barrier:
        compare_barriers(args)
        return
    print(f"{args.ranks} ranks x 1 thread, gpt2-124m, vocabulary {VOCAB}, seconds, medians of {args.rounds}")
    print(f"{'init':8} {'ours':>7} {'torch after imports':>20} {'ours/torch':>11} {'torch, all':>10} {'ours/torch':>11}")
    for init in args.init.split(","):
        versions = compare(args, init)
    print("PyTorch %s, libshardrt %s" % versions)


if __name__ == "__main__":
    main()
