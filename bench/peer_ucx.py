#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Messages of the ucx transport compared with ucx_perftest on one machine, in one run.

For each transport of UCX (posix, tcp) and size: the bandwidth of messages from one process to another
one, by `ucx_perftest -t tag_bw` and by a send-recv of this library (bench/bench_coll -m,
SHARDRT_COLLECTIVES=ucx). The program prints the medians over the rounds, in which they alternate, and the
ratios to ucx_perftest's. Both have UCX's defaults but for UCX_TLS; ours has also what the library sets
(docs/architecture.md). ucx_perftest runs in two ways:

    perftest  its defaults: several messages in flight into one buffer, connections without error handling
    same      as a training needs it: one message into the buffer at a time (-O 1), and connections that
              survive the death of a peer (-e), over which UCX sends large messages in another way

--bidirectional: bytes both ways at once. Ours is an all-gather of two ranks, which each send half of the
size and receive the other half. ucx_perftest cannot do this in one run, so two runs of it with half of the size
each go at the same time, and their bandwidths are added. These are four busy processes: compare only on four cores
and more. Without the column `same`: one message at a time is not both ways at once.

    python3 bench/peer_ucx.py [--build DIR] [--rounds 5] [--sizes 65536,1048576,16777216,67108864]
                              [--bidirectional]

Exit status 77 with the reason where ucx_perftest or the programs are missing.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from peers import free_port, need_programs, skip


SAME_TERMS = ["-e", "-O", "1"]


def perftest(tls, size, iterations, terms):
    """GB/s of the receiver's average."""
    port = str(free_port())
    options = ["-t", "tag_bw", "-s", str(size), "-n", str(iterations), "-w", "10", "-p", port, "-f"] + terms
    env = dict(os.environ, UCX_TLS=tls)
    if terms and "posix" in tls:
        env["UCX_MM_ERROR_HANDLING"] = "y"
    server = subprocess.Popen(["ucx_perftest"] + options, env=env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(["ucx_perftest", "127.0.0.1"] + options, env=env, text=True,
                                    capture_output=True, check=False)
            if client.returncode == 0:
                break
        server.wait(30)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    # typical, average, overall latency (us); average, overall MB/s; messages/s
    numbers = [w for w in re.sub(".*:", "", client.stdout.strip().splitlines()[-1]).split()]
    return float(numbers[-3]) * 1048576e-9


def perftest_one_way(tls, size, terms):
    return perftest(tls, size, max(20, min(5000, (1 << 30) // size)), terms)


def perftest_both_ways(tls, size, terms):
    """So many bytes that the two mostly run at the same time."""
    half = size // 2
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda _: perftest(tls, half, max(20, (4 << 30) // half), terms), range(2)))


def ours(build, tls, size, both_ways):
    env = dict(os.environ, UCX_TLS=tls, SHARDRT_COLLECTIVES="ucx", SHARDRT_BACKEND="cpu",
               SHARDRT_THREADS="1")
    command = [f"{build}/shardrun", "-n", "2", f"{build}/bench/bench_coll"] + ["-m"] * (not both_ways)
    out = subprocess.run(command + [str(size)], env=env, text=True, capture_output=True, check=True).stdout
    line = next(l for l in out.splitlines() if l.startswith("all-gather" if both_ways else "send-recv"))
    if not line.endswith("ucx"):
        sys.exit(f"not over UCX: {line}")
    return float(line.split()[3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=".")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="65536,1048576,16777216,67108864")
    parser.add_argument("--tls", default="posix,tcp")
    parser.add_argument("--bidirectional", action="store_true", help="both ways at once, by an all-gather")
    args = parser.parse_args()
    if not shutil.which("ucx_perftest"):
        skip("no ucx_perftest (Debian: ucx-utils)")
    need_programs(args.build, "bench/bench_coll")
    their_way = perftest_both_ways if args.bidirectional else perftest_one_way
    terms = [[]] if args.bidirectional else [[], SAME_TERMS]
    names = ["perftest", "same"][:len(terms)]
    print(f"{'UCX_TLS':10} {'bytes':>10}" + "".join(f" {n:>9}" for n in names + ["ours"]) +
          "".join(f" {'/' + n:>9}" for n in names) + f"   GB/s, medians of {args.rounds}")
    for tls in args.tls.split(","):
        for size in map(int, args.sizes.split(",")):
            rounds = [[their_way(f"{tls},self", size, t) for t in terms] +
                      [ours(args.build, f"{tls},self", size, args.bidirectional)] for _ in range(args.rounds)]
            *theirs, mine = (statistics.median(column) for column in zip(*rounds))
            print(f"{tls + ',self':10} {size:10}" + "".join(f" {x:9.2f}" for x in theirs + [mine]) +
                  "".join(f" {mine / x:9.2f}" for x in theirs), flush=True)


if __name__ == "__main__":
    main()
