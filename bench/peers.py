# SPDX-License-Identifier: BSD-3-Clause
"""What the peer_*.py programs have in common."""
import os
import socket
import subprocess
import sys


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def need_programs(build, *programs):
    for program in programs:
        if not os.access(os.path.join(build, program), os.X_OK):
            skip(f"{program} is not in {build} (--build, make {program})")


def drop_files(folder):
    """The files of a folder leave the page cache (on tmpfs they do not)."""
    for name in os.listdir(folder):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_torch_ranks(command, ranks, verbose):
    """The output of each rank of a program of torch.distributed, one thread a rank, on gloo."""
    env = dict(os.environ, WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo")
    processes = [subprocess.Popen([sys.executable] + command, env=dict(env, RANK=str(rank)), text=True,
                                  stdout=subprocess.PIPE, stderr=None if verbose else subprocess.DEVNULL)
                 for rank in range(ranks)]
    out = [p.communicate()[0] for p in processes]
    if any(p.returncode for p in processes):
        sys.exit(f"{os.path.basename(command[0])}: PyTorch failed (--verbose shows why)")
    return out
