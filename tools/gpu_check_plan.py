# SPDX-License-Identifier: BSD-3-Clause
"""The plan of gpu-check: what it looks for on the machine, and the sections in the order of their worth, each
with its share of the time and its lines. A line is a shell command in the top of the unpacked tree, which looks
like a build folder that is its own source. Used by gpu-check run.
"""
import ctypes.util
import glob
import os
import re
import shutil
import subprocess
import sys


class Line:
    """A command and what its end means: status 0 is passed, 77 skipped with a line "SKIP: reason"."""

    def __init__(self, name, command, skip=None, env=None, figure=None, table=False, device=True, limit=None):
        self.name, self.command, self.skip, self.env = name, command, skip, env or {}
        self.figure = figure  # output -> text; such a line is a measurement, or says more than "pass"
        self.table = table  # the output belongs into the summary; result "figure"
        self.device, self.limit = device, limit

    def judge(self, status):
        """(result, text) of a status, None being ended for its time; the output is in self.output."""
        skipped = re.findall(r"^SKIP: (.*)", self.output, re.M)
        if status is None:
            return "fail", f"did not end in {self.seconds:.0f} s"
        if status == 77:
            return "skip", skipped[-1] if skipped else "no reason given"
        if status:
            reasons = re.findall(r"^FAIL.*", self.output, re.M) or self.output.strip().splitlines()[-1:]
            return "fail", f"exit status {status}" + (f"; {reasons[0][:200]}" if reasons else "")
        try:
            text = self.figure(self.output) if self.figure else ""
        except (ValueError, IndexError, KeyError) as error:
            return "fail", f"its output has not the form that was expected: {error!r}"
        return ("figure" if self.table else "pass"), text


class Section:
    """Lines that may run side by side, `jobs` at a time, within a share of the time."""

    def __init__(self, name, title, share, jobs, lines):
        self.name, self.title, self.share, self.jobs, self.lines = name, title, share, jobs, lines


# ---- the machine ---------------------------------------------------------------------------


def said(*command, timeout=20, env=None):
    """What a command prints, "" where it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def library(name, *folders):
    """Path of a shared library: in a folder, or where the loader knows it."""
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, name))):
            return path
    for line in said("/sbin/ldconfig", "-p").splitlines():
        if line.strip().startswith(name + " ") and "x86-64" in line:
            return line.split("=> ")[-1]
    return None


class Machine:
    """What is here, and the environment of all lines."""

    def __init__(self, tree, backend, date):
        self.tree, self.backend, self.date = tree, backend, date
        self.cores = len(os.sched_getaffinity(0))
        with open(os.path.join(tree, "tests", "device_tests"), encoding="utf-8") as f:
            self.device_tests = f.read().split()
        with open(os.path.join(tree, "tests", "kernel_cases.def"), encoding="utf-8") as f:
            self.cases = re.findall(r"^CASE\((\w+)", f.read(), re.M)
        with open(os.path.join(tree, "VERSION"), encoding="utf-8") as f:
            self.version = f.read().strip()
        paths = [os.path.join(tree, "lib")] + os.environ.get("LD_LIBRARY_PATH", "").split(":")
        modules = [os.path.join(tree, ".libs"), os.environ.get("SHARDRT_MODULE_PATH")]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, paths)), srcdir=".", CONFIG_SHELL="/bin/sh",
                        SHARDRT_MODULE_PATH=":".join(filter(None, modules)),
                        SHARDRT_CACHE_DIR=os.path.join(tree, "cache"), SHARDRT_NUMERICS="exact",
                        SRT_DEVICE_TESTS=" ".join(self.device_tests), SRT_TEST_LONG="",
                        SRT_GOLDEN_DIR=os.path.join(tree, "golden"), PYTHONUNBUFFERED="1")
        self.gpu = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,ecc.mode.current",
                        "--format=csv,noheader")
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.nvcc = (re.findall(r"release ([^,]*)", said(nvcc, "--version")) or ["none"])[0]
        self.sanitizer = shutil.which("compute-sanitizer") or (glob.glob("/usr/local/cuda/bin/compute-sanitizer") or
                                                              [None])[0]
        # without importing it, which takes long
        self.torch = said(sys.executable, "-c", "import importlib.metadata as m, importlib.util as u; "
                          "print(m.version('torch'), u.find_spec('torch').origin)")
        self.icd = library("libnvidia-opencl.so.1", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                           "/usr/lib/x86_64-linux-gnu")
        self.site = os.path.dirname(os.path.dirname(self.torch.split()[-1])) if self.torch else "/nowhere"
        self.nccl = self.find_nccl()
        lt = glob.glob(os.path.join(self.site, "nvidia", "cu*", "lib", "libcublasLt.so.*"))
        lt += glob.glob("/usr/local/cuda/lib64/libcublasLt.so.[0-9]*")
        if lt and not os.environ.get("SHARDRT_CUBLASLT_LIBRARY"):
            self.env["SHARDRT_CUBLASLT_LIBRARY"] = lt[0]
        self.config = said("sh", "-c", f"cd {tree} && ./shardrt-info -c", env=self.env)

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
            number = said(sys.executable, "-c", code, path)
            if number.isdigit():
                found.append((int(number), path))
        return sorted(found, reverse=True)

    def summary(self):
        cpu = re.findall(r"^model name\s*: (.*)", open("/proc/cpuinfo", encoding="utf-8").read(), re.M)
        driver = os.environ.get("SHARDRT_CUDA_DRIVER")
        nccl = [f"{v // 10000}.{v // 100 % 100}.{v % 100} ({p})" for v, p in self.nccl]
        rows = [("date", self.date.strftime("%Y-%m-%d %H:%M UTC")), ("library", self.version),
                ("GPU, driver, memory, clock, ECC", self.gpu or "none: nvidia-smi says nothing"),
                ("driver library", f"{driver} (SHARDRT_CUDA_DRIVER)" if driver else "the machine's"),
                ("nvcc", self.nvcc), ("cuBLASLt", self.env.get("SHARDRT_CUBLASLT_LIBRARY", "where the loader looks")),
                ("NCCL", ", ".join(nccl) or "none"),
                ("PyTorch", self.torch.split()[0] if self.torch else "none"),
                ("CPU", f"{self.cores} of {cpu[0] if cpu else 'unknown'}"),
                ("system", f"{said('uname', '-sr')}, glibc {said('getconf', 'GNU_LIBC_VERSION').split()[-1:]}")]
        return ["| | |", "|---|---|"] + [f"| {k} | {v} |" for k, v in rows]


# ---- what outputs say ----------------------------------------------------------------------


def cells(output):
    """What run_test.sh says of worlds: "1 2 3 ranks"; skips with their reason."""
    rows = re.findall(r"^# on (\S+) (\S+) (\w+) ?(.*)", output, re.M)
    worlds = [w for _, w, r, _ in rows if r == "pass" and w != "-"]
    out = [" ".join(dict.fromkeys(worlds)) + (" ranks" if worlds != ["1"] else " rank")] if worlds else []
    out += dict.fromkeys(f"{b} {w}: skip: {reason}" for b, w, r, reason in rows if r == "skip")
    counts = re.findall(r"^\d+ (?:passed|runs|cases|launches).*", output, re.M)
    return "; ".join(out + counts[-1:])


def last_line(output):
    return output.strip().splitlines()[-1][:300]


def matches(pattern):
    def figure(output):
        found = re.findall(pattern, output, re.M)
        if not found:
            raise ValueError(f"no {pattern}")
        return "; ".join(found)[:300]

    return figure


# Those of which 0.85 of a copy's bandwidth is wanted.
ELEMENTWISE = ("fill scale divide axpy cast_from_f32 cast_from_f16 cast_from_bf16 add relu relu_backward gelu_tanh "
               "gelu_tanh_backward unscale adamw adam sgd").split()


def of_copy(output):
    """The table of bench/bench_kernels in a sentence."""
    rows = [line.split() for line in output.splitlines() if re.match(r"\w+ +(f32|f16|bf16) ", line)]
    shares = {f"{r[0]} {r[1]}": float(r[4]) for r in rows if r[0] in ELEMENTWISE}
    if not shares:
        return f"{len(rows)} rows"
    least = min(shares, key=shares.get)
    good = sum(s >= 0.85 for s in shares.values())
    return f"{good} of {len(shares)} elementwise kernels at 0.85 of the copy or more; least {shares[least]:.2f}: {least}"


def beside(output):
    """The lines of bench/peer_torch_gpu.py that compare."""
    return "; ".join(re.findall(r"^\w+/(?:torch|our).*", output, re.M)) or last_line(output)


# ---- the plan ------------------------------------------------------------------------------


def errors_of_start(m):
    """What must be said where there is nothing to run on; and that the device starts."""
    start = f"SHARDRT_BACKEND={m.backend} ./shardrt-info"
    lines = [
        Line("a device is found", f"tests/list_backends {m.backend} | tee tests/backends.txt; "
             f"grep -q '^{m.backend} ok' tests/backends.txt", figure=last_line, device=False),
        Line("shardrt-info", start, figure=matches(rf"^ +{m.backend}: (.*)"), device=False),
        Line("a device that is not there", f"SHARDRT_DEVICE=nonsense {start} && exit 1; SHARDRT_DEVICE=nonsense "
             f"{start} 2>&1 | grep 'SHARDRT_DEVICE'", figure=last_line, device=False),
    ]
    if m.backend == "cuda":
        lines += [
            Line("no driver", f"SHARDRT_CUDA_DRIVER=/nonexistent.so {start} && exit 1; "
                 f"SHARDRT_CUDA_DRIVER=/nonexistent.so {start} 2>&1 | grep nonexistent", figure=last_line, device=False),
            Line("auto takes cuda", "SHARDRT_BACKEND=auto ./shardrt-info", figure=matches(r"^device:\n +(cuda: .*)"),
                 device=False),
        ]
    return lines


def device_test(backend, name, *arguments, title=None, **more):
    """A test as make check runs it on the one backend that tests/backends.txt has."""
    command = " ".join(["sh tests/run_test.sh", name, *arguments])
    env = dict(more.pop("env", {}), SHARDRT_TEST_BACKENDS=backend)
    return Line(title or os.path.basename(name), command, env=env, figure=more.pop("figure", cells), **more)


def kernels(m):
    """The bits of every kernel, in parts; then the tests of families of them."""
    parts = max(8, m.cores)
    lines = [device_test(m.backend, "tests/test_conformance", *m.cases[i::parts],
                         title=f"test_conformance, part {i + 1} of {parts}") for i in range(parts)]
    return lines + [device_test(m.backend, t) for t in m.device_tests if is_kernel_test(t)]


def is_kernel_test(name):
    return bool(re.match(r"tests/test_(kernels_|tuned|strided|ops|matmul|attention|fast)", name))


SEPARATE = ("tests/test_conformance", "tests/test_hash_matrix.sh", "tests/test_hash_matrix_long.sh",
            "tests/test_golden.sh")


def hashes(m):
    """nano, 50 steps with clipping: the cpu's hash of the same run, for ddp and zero3, staged too."""
    return [device_test(m.backend, "tests/test_hash_matrix.sh", "long", str(n), title=f"nano, 50 steps, {n} ranks",
                        figure=matches(r"^\d ranks: .*"), env={"SHARDRT_THREADS": "2"}) for n in (1, 2, 3)]


def fast(m):
    """Numerics mode fast: its losses are near exact mode's, and not the same, so cuBLASLt was there."""
    if m.backend != "cuda":
        return [Line("numerics fast", "", skip=f"of {m.backend} is not looked at")]
    lines = []
    for fp32, bound in (("ieee", 1e-3), ("tf32", 1e-2)):
        train = "./shardrt-train --text bench/text.txt --preset char --batch 8 --steps 20 --eval-every 0 --numerics"
        log = f"losses-{fp32}"
        losses = f"cat {log}.exact {log}.fast | sed -n 's/.*\"loss\": \\([^,]*\\),.*/\\1/p'"
        far = ("{ x[NR] = $1 } END { n = NR / 2; for (i = 1; i <= n; i++) { d = (x[i] - x[n + i]) / x[i]; if (d < 0) d = -d; "
               'if (d > most) most = d } printf "%d losses, at most %.2g from those of exact mode, %g allowed\\n", n, most, '
               "bound; exit n < 20 || most == 0 || !(most < bound) }")
        lines.append(Line(f"fp32 operands: {fp32}", f"{train} exact --log {log}.exact && {train} fast --log {log}.fast && "
                          f"{losses} | awk -v bound={bound} '{far}'", figure=last_line,
                          env={"SHARDRT_BACKEND": "cuda", "SHARDRT_CUDA_FP32": fp32}))
    return lines


def same_hash(name, backend, job, options, env, **more):
    """The same training on the cpu, without `env`, and on a backend."""
    train = (f"{job} ./shardrt-train --text bench/text.txt --preset nano --steps 20 --eval-every 0 --hash {options} | "
             "sed -n 's/^hash: //p'")
    there = " ".join(f"{k}={v}" for k, v in env.items())
    return Line(name, f"a=$(export SHARDRT_BACKEND=cpu; {train}); b=$(export SHARDRT_BACKEND={backend} {there}; "
                f'{train}); echo "$a, $b"; [ -n "$a" ] && [ "$a" = "$b" ]', figure=last_line, **more)


def nccl(m):
    """The collectives' tests over NCCL: one rank, and two on one GPU where the library can."""
    if m.backend != "cuda":
        return [Line("NCCL", "", skip=f"{m.backend} has no NCCL")]
    if not m.nccl:
        return [Line("NCCL", "", skip="no libnccl.so.2 that can be loaded")]
    if "SHARDRT_NCCL_LIBRARY" not in m.config:
        return [Line("NCCL", "", skip="this build has no NCCL")]
    version, path = m.nccl[0]
    env = {"SHARDRT_NCCL_LIBRARY": path, "SHARDRT_COLLECTIVES": "vendor"}
    old = None if version >= 23000 else f"NCCL {version} allows one rank a GPU (2.30 allows several)"
    lines = []
    for n, e, skip in ((1, env, None), (2, dict(env, NCCL_MULTI_RANK_GPU_ENABLE="1"), old)):
        job = f"./shardrun -n {n}"
        ranks = f"{n} rank{'s' * (n > 1)}"
        lines += [Line(f"{test}, {ranks}", f"SHARDRT_BACKEND=cuda {job} tests/{test}", env=e, skip=skip)
                  for test in ("test_collectives", "test_coll_order")]
        lines.append(same_hash(f"nano, 20 steps, zero3, {ranks}: the cpu's hash", "cuda", job, "--strategy zero3",
                               env=e, skip=skip))
    return lines


def sanitizer(m):
    """compute-sanitizer over the conformance test, whose launches all have guard bytes."""
    if m.backend != "cuda" or not m.sanitizer:
        return [Line("compute-sanitizer", "", skip="not on this machine" if not m.sanitizer else "needs cuda")]
    lines = []
    for tool, cases, parts in (("memcheck", m.cases, m.cores), ("racecheck", m.cases, m.cores),
                               ("initcheck", m.cases[::4], 2), ("synccheck", m.cases[::4], 2)):
        for i in range(parts):
            lines.append(Line(f"{tool}, part {i + 1} of {parts}",
                              f"{m.sanitizer} --tool {tool} --error-exitcode 9 --print-limit 20 tests/test_conformance "
                              f"{' '.join(cases[i::parts])}", env={"SHARDRT_BACKEND": "cuda"},
                              figure=matches(r"^=+ (.*SUMMARY.*)")))
    return lines


def opencl(m):
    """Our OpenCL backend on NVIDIA's own driver."""
    if not m.icd:
        return [Line("NVIDIA's OpenCL", "", skip="no libnvidia-opencl.so.1", device=False)]
    vendors = os.path.join(m.tree, "icd")
    os.makedirs(vendors, exist_ok=True)
    with open(os.path.join(vendors, "nvidia.icd"), "w", encoding="utf-8") as f:
        f.write(m.icd + "\n")
    env = {"OCL_ICD_VENDORS": vendors}
    info = Line("shardrt-info", "SHARDRT_BACKEND=opencl ./shardrt-info", env=env, device=False,
                figure=matches(r"^ +opencl: (.*)"))
    parts = max(1, m.cores // 4)
    lines = [Line(f"test_conformance, part {i + 1} of {parts}", "SHARDRT_BACKEND=opencl tests/test_conformance "
                  + " ".join(m.cases[i::parts]), env=env, device=False) for i in range(parts)]
    same = same_hash("nano, 20 steps: the cpu's hash", "opencl", "", "", env, device=False)
    return [info, same] + lines


def benchmarks(m):
    """Timings, one at a time."""
    python = sys.executable
    torch = None if m.torch else "no PyTorch"
    peer = f"{python} bench/peer_torch_gpu.py --text bench/text.txt --budget {{left}} "
    device = "cuda" if m.backend == "cuda" else "cpu"
    size = "" if m.backend == "cuda" else "--device cpu --preset nano --context 64 --vocab 256 --batch 4 "
    run = f"SHARDRT_BACKEND={m.backend} PYTHON={python} bench/kernels --peer-device {device} " \
          f"--scale {8 if device == 'cuda' else 1} --rounds 2 "
    return [
        Line("gpt2-124m, fp32: exact and fast mode beside PyTorch", f"{peer}{size}--modes exact,fp32", skip=torch,
             limit=80, table=True, figure=beside),
        Line("kernels that move memory, f32", run + "--dtypes f32 adamw unscale cast_from_f16 cast_from_bf16 scale add "
             "axpy fill relu gelu_tanh divide sgd", limit=45, table=True, figure=of_copy),
        Line("casts and scales in 16 bits", run + "--dtypes f16,bf16 cast_from_f32 unscale scale add adamw", limit=30,
             table=True, figure=of_copy),
        Line("gpt2-124m, TF32: fast mode beside PyTorch", f"{peer}{size}--modes tf32 --compile", skip=torch, limit=80,
             table=True, figure=beside),
        Line("gpt2-124m, bf16: fast mode beside PyTorch", f"{peer}{size}--modes bf16 --compile", skip=torch, limit=80,
             table=True, figure=beside),
        Line("products and attention, f32", run + "--dtypes f32 matmul attention attention_backward_q", limit=30,
             table=True, figure=lambda o: "; ".join(re.findall(r"^(?:matmul|attention).*", o, re.M))),
        Line("all other kernels", run + "--dtypes f32", table=True, figure=of_copy),
    ]


def plan(m):
    """The sections. Shares are seconds of the default limit."""
    tests = [t for t in m.device_tests if not is_kernel_test(t) and t not in SEPARATE]
    half = max(1, m.cores // 2)
    few = max(1, m.cores // 4)
    python = sys.executable
    return [
        Section("machine", "The machine", 20, 2, [
            Line("GPU", "nvidia-smi", device=False, figure=matches(r"^\| +(NVIDIA-SMI .*?) *\|$"),
                 skip=None if m.gpu else "nvidia-smi finds none"),
            Line("PyTorch", f"{python} -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'",
                 device=False, figure=last_line, skip=None if m.gpu and m.torch else "no GPU or no PyTorch"),
        ]),
        Section("device", "Start and errors of start", 15, 1, errors_of_start(m)),
        Section("kernels", "Every kernel against the bits of the CPU", 80, half, kernels(m)),
        Section("hash", "Training in exact mode: the hash of the CPU", 55, 3, hashes(m)),
        Section("golden", "Recorded runs of PyTorch", 40, 1, [device_test(m.backend, "tests/test_golden.sh")]),
        Section("fast", "Numerics mode fast", 15, 1, fast(m)),
        Section("tests", "Tests of devices, 1 to 3 ranks sharing the GPU", 75, half,
                [device_test(m.backend, t) for t in tests]),
        Section("nccl", "NCCL", 30, 1, nccl(m)),
        Section("sanitizer", "compute-sanitizer", 55, half, sanitizer(m)),
        Section("opencl", "OpenCL on NVIDIA's driver", 25, few, opencl(m)),
        Section("bench", "Benchmarks", 126, 1, benchmarks(m)),
    ]
