# SPDX-License-Identifier: BSD-3-Clause
"""Of gpu-check: what a line of the plan is and what its end means, and what is looked for on the machine.
Used by gpu_check_plan.py and gpu-check run.
"""
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile


class Line:
    """A command and what its end means: status 0 is passed, 77 skipped with a line "SKIP: reason"."""

    def __init__(self, name, command, skip=None, env=None, figure=None, table=None, device=True, limit=None, cost=10,
                 unless=None):
        self.name, self.command, self.skip, self.env = name, command, skip, env or {}
        self.figure = figure  # output -> text; such a line is a measurement, or says more than "pass"
        self.table = table  # pattern of the rows of an output that belongs into the summary; result "figure"
        self.device, self.limit = device, limit
        self.cost = cost  # about so many seconds: in a pool the long ones begin first
        self.unless = unless  # a failure that says this is a skip: the machine cannot do it

    def judge(self, status):
        """(result, text) of a status, None being ended for its time; the output is in self.output."""
        skipped = re.findall(r"^SKIP: (.*)", self.output, re.M)
        if status is None:
            ended = f"did not end in {self.seconds:.0f} s"
            rows = re.findall(self.table, self.output, re.M) if self.table else []
            return ("figure", f"ended after {len(rows)} rows") if rows else ("fail", ended)
        if status == 77:
            return "skip", skipped[-1] if skipped else "no reason given"
        if status and self.unless and self.unless in self.output:
            return "skip", self.unless
        if status:
            reasons = re.findall(r"^FAIL.*", self.output, re.M) or self.output.strip().splitlines()[-1:]
            return "fail", f"exit status {status}" + (f"; {reasons[0][:200]}" if reasons else "")
        try:
            text = self.figure(self.output) if self.figure else ""
        except (ValueError, IndexError, KeyError) as error:
            return "fail", f"its output has not the form that was expected: {error!r}"
        return ("figure" if self.table else "pass"), text


class Section:
    """Lines that may run side by side, `jobs` at a time, within a share of the time, which the profile sets. Sections
    of one pool, one after the other, have their shares together. alone: timings of a GPU that nobody else has open."""

    def __init__(self, name, title, jobs, lines, pool=None, alone=False):
        self.name, self.title, self.jobs, self.lines, self.alone = name, title, jobs, lines, alone
        self.pool, self.share = pool or name, 0.0


# ---- the machine ---------------------------------------------------------------------------


RUNNING = set()  # sessions of running commands, which are ended with the run


def output_of(*command, timeout=10, env=None):
    """What a command prints, "" where it cannot run. One that hangs in a driver cannot be waited for."""
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                       env=env, start_new_session=True)
        except OSError:
            return ""
        RUNNING.add(process.pid)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return ""
        RUNNING.discard(process.pid)
        out.seek(0)
        return out.read().decode(errors="replace").strip() if status == 0 else ""


def library(name, *folders):
    """Path of a shared library: in a folder, or where the loader knows it."""
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, name))):
            return path
    for line in output_of("/sbin/ldconfig", "-p").splitlines():
        if line.strip().startswith(name + " ") and "x86-64" in line:
            return line.split("=> ")[-1]
    return None


def kernels_of_groups(tree):
    """Names of the kernels whose threads share memory: by their text, and the tuned ones that are others."""
    found = {"matmul"}
    for path in glob.glob(os.path.join(tree, "kernels", "*.k")):
        with open(path, encoding="utf-8") as f:
            for text in re.split(r"^KERNEL", f.read(), flags=re.M)[1:]:
                found |= set(re.findall(r"\A\w*\(\d+, (\w+)", text)) if "SHARED" in text else set()
    return found


# The driver keeps the GPU ready for as long as somebody has it open; without, each start may cost seconds.
HOLD = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0:
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    sys.stdin.read() # until who started it closes it, or is gone
"""


class Machine:
    """What is here, and the environment of all lines."""

    def __init__(self, tree, backend, date):
        self.tree, self.backend, self.date = tree, backend, date
        self.cores = len(os.sched_getaffinity(0))
        with open(os.path.join(tree, "tests", "device_tests"), encoding="utf-8") as f:
            self.device_tests = f.read().split()
        with open(os.path.join(tree, "kernels", "cases", "cases.def"), encoding="utf-8") as f:
            kernels = dict(re.findall(r"^CASE\((\w+), (\w+)", f.read(), re.M))
        self.cases = list(kernels)
        groups = kernels_of_groups(tree)
        self.group_cases = [case for case, kernel in kernels.items() if kernel.lower() in groups]
        with open(os.path.join(tree, "VERSION"), encoding="utf-8") as f:
            self.version = f.read().strip()
        paths = [os.path.join(tree, "lib")] + os.environ.get("LD_LIBRARY_PATH", "").split(":")
        modules = [os.path.join(tree, ".libs"), os.environ.get("SHARDRT_MODULE_PATH")]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, paths)), srcdir=".", CONFIG_SHELL="/bin/sh",
                        SHARDRT_MODULE_PATH=":".join(filter(None, modules)),
                        SHARDRT_CACHE_DIR=os.path.join(tree, "cache"), SHARDRT_NUMERICS="exact",
                        SRT_DEVICE_TESTS=" ".join(self.device_tests), SRT_TEST_LONG="", SRT_TEST_CORES="all",
                        SRT_GOLDEN_DIR=os.path.join(tree, "golden"), PYTHONUNBUFFERED="1",
                        TORCHINDUCTOR_CACHE_DIR=os.path.join(tree, "cache", "inductor"),
                        TRITON_CACHE_DIR=os.path.join(tree, "cache", "triton"))
        # Ranks that wait for one that hangs say so before the time of their section is over.
        self.env.setdefault("SHARDRT_TIMEOUT", "30")
        self.gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,ecc.mode.current",
                        "--format=csv,noheader", timeout=40)
        # One process at a time may have such a GPU open.
        self.exclusive = "Exclusive_Process" in output_of("nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader",
                                                     timeout=40)
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.nvcc = (re.findall(r"release ([^,]*)", output_of(nvcc, "--version")) or ["none"])[0]
        self.sanitizer = shutil.which("compute-sanitizer") or (glob.glob("/usr/local/cuda/bin/compute-sanitizer") or
                                                              [None])[0]
        # without importing it, which takes long
        self.torch = output_of(sys.executable, "-c", "import importlib.metadata as m, importlib.util as u; "
                          "print(m.version('torch'), u.find_spec('torch').origin)")
        self.icd = library("libnvidia-opencl.so.1", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                           "/usr/lib/x86_64-linux-gnu")
        self.site = os.path.dirname(os.path.dirname(self.torch.split()[-1])) if self.torch else "/nowhere"
        self.nccl, self.has_nccl = self.find_nccl(), False
        self.ncu = shutil.which("ncu") or (glob.glob("/usr/local/cuda/bin/ncu") + glob.glob(
            "/opt/nvidia/nsight-compute/*/ncu") + [None])[0]
        self.cupti = (glob.glob(os.path.join(self.site, "nvidia", "cu*", "lib", "libcupti.so.*")) + glob.glob(
            "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so") + glob.glob("/usr/local/cuda/lib64/libcupti.so") + [None])[0]
        lt = glob.glob(os.path.join(self.site, "nvidia", "cu*", "lib", "libcublasLt.so.*"))
        lt += glob.glob("/usr/local/cuda/lib64/libcublasLt.so.[0-9]*")
        if lt and not os.environ.get("SHARDRT_CUBLASLT_LIBRARY"):
            self.env["SHARDRT_CUBLASLT_LIBRARY"] = lt[0]
        with contextlib.suppress(OSError), open(os.path.join(tree, ".libs", "shardrt_backend_cuda.so"), "rb") as f:
            self.has_nccl = b"ncclCommInitRank" in f.read()

    def hold(self):
        """A process that has the GPU open until its input is closed; None where there is none, or for one process."""
        if not self.gpu or self.exclusive:
            return None
        return subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env=self.env, start_new_session=True)

    def find_nccl(self):
        """(version, path) of every NCCL that can be loaded, the newest first."""
        paths = glob.glob(os.path.join(self.site, "nvidia", "nccl", "lib", "libnccl.so.2"))
        paths += [library("libnccl.so.2", "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu")]
        if os.environ.get("SHARDRT_NCCL_LIBRARY"):
            paths.insert(0, os.environ["SHARDRT_NCCL_LIBRARY"])
        found = []
        for path in dict.fromkeys(filter(None, paths)):
            code = ("import ctypes, sys; n = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion("
                    "ctypes.byref(n)); print(n.value)")
            number = output_of(sys.executable, "-c", code, path)
            if number.isdigit():
                found.append((int(number), path))
        return sorted(found, reverse=True)

    def summary(self):
        cpu = re.findall(r"^model name\s*: (.*)", open("/proc/cpuinfo", encoding="utf-8").read(), re.M)
        driver = os.environ.get("SHARDRT_CUDA_DRIVER")
        nccl = [f"{v // 10000}.{v // 100 % 100}.{v % 100} ({p})" for v, p in self.nccl]
        rows = [("date", self.date.strftime("%Y-%m-%d %H:%M UTC")), ("library", self.version),
                ("GPU, driver, memory, clock, ECC", self.gpu or "none: nvidia-smi says nothing"),
                ("compute mode", "Exclusive_Process: jobs of several ranks are skipped" if self.exclusive else "shared"),
                ("driver library", f"{driver} (SHARDRT_CUDA_DRIVER)" if driver else "the machine's"),
                ("nvcc", self.nvcc), ("cuBLASLt", self.env.get("SHARDRT_CUBLASLT_LIBRARY", "where the loader looks")),
                ("NCCL", ", ".join(nccl) or "none"),
                ("PyTorch", self.torch.split()[0] if self.torch else "none"),
                ("CPU", f"{self.cores} of {cpu[0] if cpu else 'unknown'}"),
                ("system", f"{output_of('uname', '-sr')}, glibc {output_of('getconf', 'GNU_LIBC_VERSION').split()[-1:]}")]
        return ["| | |", "|---|---|"] + [f"| {k} | {v} |" for k, v in rows]
