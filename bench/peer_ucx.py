#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Messages of the ucx transport compared with ucx_perftest on one machine, in one run.

For each transport of UCX (posix, tcp) and size: the bandwidth of messages from one process to another
one, several in flight, by `ucx_perftest -t tag_bw` and by a send-recv of this library
(bench/bench_coll -m, SHARDRT_COLLECTIVES=ucx). The two alternate (A B A B), and the program prints the
medians over the rounds and their ratio. Both have UCX's defaults but for UCX_TLS; ours has also what the
library sets (docs/architecture.md).

    python3 bench/peer_ucx.py [--build DIR] [--rounds 5] [--sizes 65536,1048576,16777216,67108864]

Exit status 77 with the reason where ucx_perftest or the programs are missing.
"""
import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def perftest(tls, size):
    """GB/s of the receiver's average."""
    iterations = max(20, min(5000, (1 << 30) // size))
    port = str(free_port())
    options = ["-t", "tag_bw", "-s", str(size), "-n", str(iterations), "-w", "10", "-p", port, "-f"]
    env = dict(os.environ, UCX_TLS=tls)
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


def ours(build, tls, size):
    env = dict(os.environ, UCX_TLS=tls, SHARDRT_COLLECTIVES="ucx", SHARDRT_BACKEND="cpu",
               SHARDRT_THREADS="1")
    out = subprocess.run([f"{build}/shardrun", "-n", "2", f"{build}/bench/bench_coll", "-m", str(size)],
                         env=env, text=True, capture_output=True, check=True).stdout
    line = next(l for l in out.splitlines() if l.startswith("send-recv"))
    if not line.endswith("ucx"):
        sys.exit(f"not over UCX: {line}")
    return float(line.split()[3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=".")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="65536,1048576,16777216,67108864")
    parser.add_argument("--tls", default="posix,tcp")
    args = parser.parse_args()
    if not shutil.which("ucx_perftest"):
        skip("no ucx_perftest (Debian: ucx-utils)")
    if not os.path.exists(f"{args.build}/bench/bench_coll"):
        skip(f"no {args.build}/bench/bench_coll: make bench/bench_coll")
    print(f"{'UCX_TLS':10} {'bytes':>10} {'perftest':>9} {'ours':>9} {'ratio':>6}   GB/s, medians of "
          f"{args.rounds}")
    for tls in args.tls.split(","):
        for size in map(int, args.sizes.split(",")):
            theirs, mine = [], []
            for _ in range(args.rounds):
                theirs.append(perftest(f"{tls},self", size))
                mine.append(ours(args.build, f"{tls},self", size))
            a, b = statistics.median(theirs), statistics.median(mine)
            print(f"{tls + ',self':10} {size:10} {a:9.2f} {b:9.2f} {b / a:6.2f}", flush=True)


if __name__ == "__main__":
    main()
