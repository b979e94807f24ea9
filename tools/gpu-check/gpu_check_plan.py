# SPDX-License-Identifier: BSD-3-Clause
"""The plan of gpu-check: what it looks for on the machine, and the sections in the order of their worth, each
with its share of the time and its lines. A line is a shell command in the top of the unpacked tree, which looks
like a build folder that is its own source. Used by gpu-check run.
"""
import os
import re
import sys

from gpu_check_machine import Line, Section


ROW = r"^\w+ +(?:f32|f16|bf16) .*"  # of bench/bench_kernels
STEPS = r"^\w+ +(?:torch|ours).* at step \d+.*"  # of bench/peer_torch_gpu.py


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
               "gelu_tanh_backward accumulate_f32 accumulate_f16 accumulate_bf16 unscale clip adamw adam sgd").split()


def of_copy(output):
    """The table of bench/bench_kernels in a sentence."""
    rows = [line.split() for line in re.findall(ROW, output, re.M)]
    shares = {f"{r[0]} {r[1]}": float(r[4]) for r in rows if r[0] in ELEMENTWISE}
    if not shares:
        return f"{len(rows)} rows"
    least = min(shares, key=shares.get)
    good = sum(s >= 0.85 for s in shares.values())
    return f"{good} of {len(shares)} elementwise kernels at 0.85 of the copy or more; least {shares[least]:.2f}: {least}"


def comparison(output):
    """The lines of bench/peer_torch_gpu.py that compare."""
    return "; ".join(re.findall(r"^\w+/(?:torch|our).*", output, re.M)) or last_line(output)


# ---- the plan ------------------------------------------------------------------------------


def errors_of_start(m):
    """What must be said where there is nothing to run on; and that the device starts."""
    start = f"SHARDRT_BACKEND={m.backend} ./shardrt-info"
    lines = [
        Line("a device is found", f"tests/harness/list_backends {m.backend} | tee tests/backends.txt; "
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
    command = " ".join(["sh tests/harness/run_test.sh", name, *arguments])
    more = {"figure": cells, "limit": 60, **more, "env": dict(more.get("env", {}), SHARDRT_TEST_BACKENDS=backend)}
    return Line(title or os.path.basename(name), command, **more)


def kernels(m):
    """The bits of every kernel, in parts; then the tests of families of them."""
    parts = max(8, m.cores)
    lines = [device_test(m.backend, "tests/kernels/test_conformance", *m.cases[i::parts],
                         title=f"test_conformance, part {i + 1} of {parts}", cost=30) for i in range(parts)]
    return lines + [device_test(m.backend, t) for t in m.device_tests if is_kernel_test(t)]


SEPARATE = ("tests/kernels/test_conformance", "tests/tools/test_hash_matrix.sh", "tests/tools/test_hash_matrix_long.sh",
            "tests/golden/test_golden.sh")


def is_kernel_test(name):
    return name.startswith("tests/kernels/") and name not in SEPARATE


def hashes(m):
    """nano with clipping: the cpu's hash, for every strategy, staged too."""
    runs = [(1, "fp32"), (2, "fp32"), (2, "bf16"), (2, "fp16"), (3, "fp32")]
    return [device_test(m.backend, "tests/tools/test_hash_matrix.sh", "long", str(n), precision,
                        title=f"nano, {precision}, {n} ranks", figure=matches(r"^\d ranks, .*"),
                        env={"SHARDRT_THREADS": "2"}, cost=40 * n, limit=200)
            for n, precision in runs]


# Of tests that else run over the fake driver and the fake cuBLASLt.
ON_DEVICE = {"SRT_TEST_CUDA": "device", "SHARDRT_BACKEND": "cuda"}


def can_on_device(test):
    return f"grep -q SRT_TEST_CUDA {test} || {{ echo 'SKIP: it needs the fake driver'; exit 77; }}; "


def fast(m):
    """Numerics mode fast: its losses are near exact mode's, and not the same, so cuBLASLt was there."""
    if m.backend != "cuda":
        return [Line("numerics fast", "", skip=f"of {m.backend} is not looked at")]
    tests = ("tests/device/test_cuda_fast_products", "tests/device/test_cuda_fast_attention")
    lines = [Line(os.path.basename(t), can_on_device(t) + t, env=ON_DEVICE) for t in tests]
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
    if not m.has_nccl:
        return [Line("NCCL", "", skip="this build has no NCCL")]
    version, path = m.nccl[0]
    env = {"SHARDRT_NCCL_LIBRARY": path, "SHARDRT_COLLECTIVES": "nccl"}
    old = None if version >= 23000 else f"NCCL {version} allows one rank a GPU (2.30 allows several)"
    lines = []
    for n, e, skip in ((1, env, None), (2, dict(env, NCCL_MULTI_RANK_GPU_ENABLE="1"), old)):
        job = f"./shardrun -n {n}"
        ranks = f"{n} rank{'s' * (n > 1)}"
        lines += [Line(f"{test}, {ranks}", f"SHARDRT_BACKEND=cuda {job} tests/collectives/{test}", env=e, skip=skip)
                  for test in ("test_collectives", "test_coll_order")]
        lines.append(same_hash(f"nano, 20 steps, zero3, {ranks}: the cpu's hash", "cuda", job, "--strategy zero3",
                               env=e, skip=skip))
    return lines


def sanitizer(m):
    """compute-sanitizer over the conformance test, whose launches all have guard bytes; races are looked for in
    kernels whose threads share memory."""
    if m.backend != "cuda" or not m.sanitizer:
        return [Line("compute-sanitizer", "", skip="not on this machine" if not m.sanitizer else "needs cuda")]
    def line(name, tool, program, **more):
        errors = {"memcheck": "ERROR SUMMARY: 0 errors", "racecheck": "RACECHECK SUMMARY: 0 hazards",
                  "synccheck": "ERROR SUMMARY: 0 errors"}
        # A query that says "not yet" is an error of the driver's interface to memcheck.
        options = " --report-api-errors no" * (tool == "memcheck")
        command = f"{m.sanitizer} --tool {tool}{options} --error-exitcode 9 --print-limit 20 {program}"
        if more["env"] is ON_DEVICE:
            command = can_on_device(program) + command
        return Line(f"{tool}, {name}", command, figure=matches(rf"^=+ ({errors[tool]}.*)"), unless="Device not supported", **more)

    # The tools take turns, so that each has seen something if the time is short.
    parts, lines = m.cores, []
    for i in range(parts):
        for tool, cases in (("memcheck", m.cases), ("racecheck", m.group_cases)):
            part = " ".join(cases[i::parts])
            if part:
                lines.append(line(f"part {i + 1} of {parts}", tool, f"tests/kernels/test_conformance {part}",
                                  env={"SHARDRT_BACKEND": "cuda"}))
    lines.insert(2, line("test_cuda_fast_attention", "memcheck", "tests/device/test_cuda_fast_attention", env=ON_DEVICE))
    return lines + [line("every fourth", "synccheck", f"tests/kernels/test_conformance {' '.join(m.group_cases[::4])}",
                         env={"SHARDRT_BACKEND": "cuda"})]


def opencl(m):
    """Our OpenCL backend on NVIDIA's own driver: a training, which compiles most, and then every kernel."""
    if not m.icd:
        return [Line("NVIDIA's OpenCL", "", skip="no libnvidia-opencl.so.1", device=False)], []
    icd_folder = os.path.join(m.tree, "icd")
    os.makedirs(icd_folder, exist_ok=True)
    with open(os.path.join(icd_folder, "nvidia.icd"), "w", encoding="utf-8") as f:
        f.write(m.icd + "\n")
    env = {"OCL_ICD_VENDORS": icd_folder}
    info = Line("shardrt-info", "SHARDRT_BACKEND=opencl ./shardrt-info", env=env, device=False,
                figure=matches(r"^ +opencl: (.*)"))
    parts = max(1, m.cores // 4)
    lines = [Line(f"test_conformance, part {i + 1} of {parts}", "SHARDRT_BACKEND=opencl tests/kernels/test_conformance "
                  + " ".join(m.cases[i::parts]), env=env, device=False) for i in range(parts)]
    same = same_hash("nano, 20 steps: the cpu's hash", "opencl", "", "", env, device=False)
    return [info, same], lines


def peer(m):
    """bench/peer_torch_gpu.py and its options."""
    size = "" if m.backend == "cuda" else "--device cpu --preset nano --context 64 --vocab 256 --batch 4 "
    return f"{sys.executable} bench/peer_torch_gpu.py --text bench/text.txt {size}--steps"


def warm_torch(m):
    """What PyTorch compiles for the benchmarks, while untimed lines run."""
    if not (m.gpu and m.torch):
        return [Line("PyTorch compiles", "", skip="no GPU or no PyTorch")]
    return [Line("PyTorch compiles", f"for m in tf32 fp32 bf16; do {peer(m)} 2 --worker --compile --modes $m || exit; done",
                 figure=matches(r'"(?:torch|gpu|graphs)": [^,}]*'), cost=150)]


def benchmarks(m):
    """Timings, one at a time, in the order of their worth; each keeps what it has when its time is over."""
    torch = None if m.torch else "no PyTorch"
    device = "cuda" if m.backend == "cuda" else "cpu"
    compare_torch = f"{peer(m)} 30 --compile --budget {{left}} --modes"
    run = f"SHARDRT_BACKEND={m.backend} PYTHON={sys.executable} bench/kernels --peer-device {device} " \
          f"--scale {4 if device == 'cuda' else 1} --rounds 2 --dtypes"
    return [
        Line("gpt2-124m, fp32: fast and exact mode and PyTorch", f"{compare_torch} fp32,exact", skip=torch, limit=75,
             table=STEPS, figure=comparison),
        Line("gpt2-124m, TF32: fast mode and PyTorch", f"{compare_torch} tf32", skip=torch, limit=55, table=STEPS,
             figure=comparison),
        Line("kernels, f32", f"{run} f32 adamw unscale cast_from_f16 cast_from_bf16 scale add matmul attention "
             "attention_backward_q axpy fill relu gelu_tanh divide sgd", limit=45, table=ROW, figure=of_copy),
        Line("gpt2-124m, bf16: fast mode and PyTorch", f"{compare_torch} bf16", skip=torch, limit=55, table=STEPS,
             figure=comparison),
        Line("casts and scales in 16 bits", f"{run} f16,bf16 cast_from_f32 unscale scale add adamw", limit=45, table=ROW,
             figure=of_copy),
    ]


# They time how soon a job ends when a rank has; alone, since starts on a busy GPU take long.
TIMED = ("tests/collectives/test_kill.sh", "tests/collectives/test_peer_failures.sh")


def plan(m):
    """The sections. Shares are seconds of the default limit; what one leaves is the next one's."""
    tests = [t for t in m.device_tests if not is_kernel_test(t) and t not in SEPARATE + TIMED]
    half = max(2, m.cores // 2)  # one that hangs must not keep the others from running
    few = max(1, m.cores // 4)

    def cost(test):
        return 20 if test.endswith(".sh") else 10

    golden = [device_test(m.backend, "tests/golden/test_golden.sh", cost=60, limit=120)]
    golden += [device_test(m.backend, "tests/golden/test_golden.sh", "staged-default", title="test_golden.sh, staged", cost=50,
                           limit=120)]
    opencl_train, opencl_kernels = opencl(m)
    sections = [
        Section("machine", "The machine", 20, 1, [
            Line("GPU", "nvidia-smi", device=False, figure=matches(r"^\| +(NVIDIA-SMI .*?) *\|$"),
                 skip=None if m.gpu else "nvidia-smi finds none"),
        ]),
        Section("device", "Start and errors of start", 40, 1, errors_of_start(m)),
        Section("kernels", "Every kernel against the bits of the CPU", 50, half, kernels(m), pool="bits"),
        Section("hash", "Training in exact mode: the hash of the CPU", 40, half, hashes(m), pool="bits"),
        Section("golden", "Recorded runs of PyTorch", 25, half, golden, pool="bits"),
        Section("tests", "Tests of devices, 1 to 3 ranks sharing the GPU", 40, half,
                [device_test(m.backend, t, cost=cost(t)) for t in tests], pool="bits"),
        Section("torch", "PyTorch, for the benchmarks", 10, half, warm_torch(m), pool="bits"),
        Section("timed", "Jobs with a rank that ends", 20, 1, [device_test(m.backend, t) for t in TIMED if t in m.device_tests]),
        Section("fast", "Numerics mode fast", 30, few, fast(m)),
        Section("nccl", "NCCL", 25, 1, nccl(m)),
        Section("sanitizer", "compute-sanitizer", 65, half, sanitizer(m)),
        Section("opencl", "OpenCL on NVIDIA's driver", 12, 1, opencl_train),
        Section("opencl-kernels", "OpenCL on NVIDIA's driver: every kernel", 13, few, opencl_kernels),
        Section("bench", "Benchmarks", 205, 1, benchmarks(m)),
    ]
    if m.exclusive:  # one line at a time, and ranks that share the GPU are refused
        for section in sections:
            section.jobs = 1
            for line in section.lines:
                line.unless = line.unless or "CUDA_ERROR_DEVICE_UNAVAILABLE"
    return sections
