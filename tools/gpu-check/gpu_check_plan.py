# SPDX-License-Identifier: BSD-3-Clause
"""The plan of gpu-check: the sections, each with its lines, and the profiles, which are sections in the order of
their worth, each with its share of the time. A line is a shell command in the top of the unpacked tree, which looks
like a build folder that is its own source. Used by gpu-check run.
"""
import glob
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
    parts = max(4, m.cores // 2)
    lines = [device_test(m.backend, "tests/kernels/test_conformance", *m.cases[i::parts],
                         title=f"test_conformance, part {i + 1} of {parts}", cost=90) for i in range(parts)]
    return lines + [device_test(m.backend, t) for t in m.device_tests if is_kernel_test(t)]


SEPARATE = ("tests/kernels/test_conformance", "tests/tools/test_hash_matrix.sh", "tests/tools/test_hash_matrix_long.sh",
            "tests/golden/test_golden.sh")


def is_kernel_test(name):
    return name.startswith("tests/kernels/") and name not in SEPARATE


def hashes(m):
    """A training of nano: the cpu's hash, on 1 to 3 ranks that share the GPU."""
    runs = [(1, "fp32"), (1, "bf16"), (2, "fp32"), (2, "fp16"), (3, "bf16")]
    return [same_hash(f"nano, {precision}, {n} ranks", m.backend, f"./shardrun -n {n}",
                      f"--strategy zero3 --clip 0.5 --batch 6 --dtype {precision}{' --scaler' * (precision == 'fp16')}", {"SHARDRT_THREADS": "2"}, cost=10, limit=60)
            for n, precision in runs]


def hash_matrix(m):
    """nano with clipping: the cpu's hash, for every strategy, staged too."""
    runs = [(1, "fp32"), (2, "fp32"), (2, "bf16"), (2, "fp16"), (3, "fp32")]
    return [device_test(m.backend, "tests/tools/test_hash_matrix.sh", "long", str(n), precision,
                        title=f"nano, {precision}, {n} ranks, every strategy", figure=matches(r"^\d ranks, .*"),
                        env={"SHARDRT_THREADS": "2"}, cost=40 * n, limit=300)
            for n, precision in runs]


def golden(m):
    """The recorded runs of PyTorch, those of a world in jobs of a few. Ranks that share the GPU take turns on it, which
    makes each step slow."""
    cases = {}
    for path in sorted(glob.glob(os.path.join(m.tree, "golden", "cases", "*", "case.json"))):
        with open(path, encoding="utf-8") as f:
            world = re.search(r'^ "world_size": (\d+)', f.read(), re.M)
        cases.setdefault(int(world[1]) if world else 1, []).append(os.path.relpath(os.path.dirname(path), m.tree))
    lines = []
    for world, names in cases.items():
        parts = -(-len(names) // 24)
        for i in range(parts):
            part = f"golden/{world}-{i}"
            with open(os.path.join(m.tree, part), "w", encoding="utf-8") as f:
                f.write("\n".join(names[i::parts]) + "\n")
            lines.append(Line(f"{world} rank{'s' * (world > 1)}, part {i + 1} of {parts}",
                              f"./shardrun -n {world} tests/golden/replay_golden --one $(cat {part})", cost=20 - world,
                              env={"SHARDRT_BACKEND": m.backend, "SHARDRT_STAGING_BYTES": "64k"}, limit=90,
                              figure=lambda output: f"{len(re.findall('^PASS', output, re.M))} passed, "
                              f"{len(re.findall('^skip', output, re.M))} skipped"))
    return lines or [Line("recorded runs", "", skip="none were packed")]


def start(m):
    """What the start of a process costs: of a program that asks for the backends and opens its device."""
    command = ('for n in 1 2 3; do begin=$(date +%s%N); SHARDRT_BACKEND=$0 ./shardrt-info > start.log 2>&1 || { cat start.log; exit 1; }; '
               'echo $(( ($(date +%s%N) - begin) / 1000000 )) ms; done')
    return [Line(f"shardrt-info, {backend}{', ' * bool(env)}{' '.join(env.values())}", f"sh -c '{command}' {backend}",
                 env=env, figure=lambda output: " ".join(output.split()))
            for backend, env in (("cpu", {}), ("auto", {}), (m.backend, {}), (m.backend, {"SHARDRT_CUDA_TUNED": "portable"}))]


# The step that is timed, as bench/peer_torch_gpu.py runs it.
STEP = ("./shardrt-train --text bench/text.txt --preset gpt2-124m --context 1024 --vocab 50257 --batch 16 --strategy zero3 "
        "--eval-every 0")

# Of tests that else run over the fake driver and the fake cuBLASLt.
ON_DEVICE = {"SRT_TEST_CUDA": "device", "SHARDRT_BACKEND": "cuda"}


def can_on_device(test):
    return f"grep -q SRT_TEST_CUDA {test} || {{ echo 'SKIP: it needs the fake driver'; exit 77; }}; "


def fast(m):
    """Numerics mode fast: its losses are near exact mode's, and its parameters others, so cuBLASLt was there."""
    if m.backend != "cuda":
        return [Line("numerics fast", "", skip=f"of {m.backend} is not looked at")]
    tests = ("tests/device/test_cuda_fast_products", "tests/device/test_cuda_fast_attention")
    lines = [Line(os.path.basename(t), can_on_device(t) + t, env=ON_DEVICE) for t in tests]
    lines.append(Line("cuBLASLt takes every product of a bf16 step", f"SHARDRT_LOG=info {STEP} --steps 2 --dtype bf16 "
                      "--numerics fast > taken.log 2>&1 || { cat taken.log; exit 1; }; grep 'cuBLASLt [tr]' taken.log; "
                      "taken=$(grep -c 'cuBLASLt takes' taken.log); refused=$(grep -c 'cuBLASLt refuses' taken.log); "
                      'echo "$taken shapes taken, $refused refused"; [ "$refused" = 0 ] && [ "$taken" -ge 10 ]',
                      figure=last_line, env={"SHARDRT_BACKEND": "cuda"}))
    for fp32, bound in (("ieee", 1e-3), ("tf32", 1e-2)):
        train = "./shardrt-train --text bench/text.txt --preset char --batch 8 --steps 20 --lr 1e-4 --eval-every 0 --hash --numerics"
        log = f"losses-{fp32}"
        losses = f"cat {log}.exact {log}.fast | sed -n 's/.*\"loss\": \\([^,]*\\),.*/\\1/p'"
        far = ("{ x[NR] = $1 } END { n = NR / 2; for (i = 1; i <= n; i++) { d = (x[i] - x[n + i]) / x[i]; if (d < 0) d = -d; "
               'if (d > most) most = d } printf "%d losses, at most %.2g from those of exact mode, %g allowed\\n", n, most, '
               "bound; exit n < 20 || !(most < bound) }")
        lines.append(Line(f"fp32 operands: {fp32}", f"{train} exact --log {log}.exact > {log}.out && {train} fast --log {log}.fast >> {log}.out || "
                          f"{{ cat {log}.out; exit 1; }}; grep '^hash' {log}.out; [ $(grep '^hash' {log}.out | cut -d, -f2 | "
                          f"sort -u | wc -l) = 2 ] && {losses} | awk -v bound={bound} '{far}'", figure=last_line,
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
    """The collectives' tests over NCCL with two ranks on the one GPU. NCCL 2.30 allows that; to an older one the
    ranks are of two hosts, which talk over sockets (NCCL_HOSTID, in the place of the host's name)."""
    if m.backend != "cuda":
        return [Line("NCCL", "", skip=f"{m.backend} has no NCCL")]
    if not m.nccl:
        return [Line("NCCL", "", skip="no libnccl.so.2 that can be loaded")]
    if not m.has_nccl:
        return [Line("NCCL", "", skip="this build has no NCCL")]
    version, path = m.nccl[0]
    env = {"SHARDRT_NCCL_LIBRARY": path, "SHARDRT_COLLECTIVES": "nccl", "SHARDRT_BACKEND": "cuda"}
    job, ways = "./shardrun -n 2", "one host"
    if version >= 23000:
        env["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    else:
        env.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
        job, ways = job + " sh -c 'NCCL_HOSTID=$SHARDRT_RANK exec \"$0\" \"$@\"'", "two hosts to NCCL"
    lines = [Line(f"{test}, 2 ranks, {ways}", f"{job} tests/collectives/{test}", env=env, limit=60)
             for test in ("test_collectives", "test_coll_order")]
    return lines + [same_hash(f"nano, 20 steps, zero3, 2 ranks, {ways}: the cpu's hash", "cuda", job, "--strategy zero3",
                              env=env, limit=60)]


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


def warm_torch(m, compiled):
    """What PyTorch reads and compiles for the benchmarks, while untimed lines run."""
    if not (m.gpu and m.torch):
        return [Line("PyTorch starts", "", skip="no GPU or no PyTorch")]
    modes = "bf16 fp32 tf32" if compiled else "bf16"
    return [Line("PyTorch starts", f"for m in {modes}; do {peer(m)} 2 --worker {'--compile ' * compiled}--modes $m || exit; done",
                 figure=matches(r'"(?:torch|gpu|graphs)": [^,}]*'), cost=150)]


def compare(m, mode, title, limit, options=""):
    return Line(f"gpt2-124m, {title}", f"{peer(m)} 12 {options}--budget {{left}} --modes {mode}",
                skip=None if m.torch else "no PyTorch", limit=limit, table=STEPS, figure=comparison)


def kernels_speed(m, title, types, cases, limit=45, options=""):
    device = "cuda" if m.backend == "cuda" else "cpu"
    run = f"SHARDRT_BACKEND={m.backend} PYTHON={sys.executable} bench/kernels --peer-device {device} " \
          f"--scale {4 if device == 'cuda' else 1} --rounds 2 {options}--dtypes"
    return Line(title, f"{run} {types} {cases}", limit=limit, table=ROW, figure=of_copy)


# ---- figures for work without a GPU --------------------------------------------------------


def host_costs(m):
    """What the driver's calls cost the host, the GPU's copies, and every product of a step."""
    if m.backend != "cuda":
        return [Line("bench_cuda", "", skip="needs cuda")]
    return [Line("calls of the driver", "mkdir -p data && bench/bench_cuda host | tee data/host.json", figure=last_line),
            Line("products with cuBLASLt", "mkdir -p data && bench/bench_cuda products | tee data/products.csv", limit=60,
                 figure=lambda output: f"{output.count(chr(10)) - 1} products")]


def memory(m):
    """The memory that a step takes on the GPU, and the plan, with clock and power of the GPU meanwhile."""
    if m.backend != "cuda" or not m.gpu:
        return [Line("memory", "", skip="needs cuda and nvidia-smi")]
    ask = "nvidia-smi --query-gpu=memory.used,clocks.sm,power.draw,temperature.gpu --format=csv,noheader,nounits -lms 100"
    say = ("NR == 1 { before = $1 } { if ($1 > most) most = $1; if ($3 > power) power = $3 } "
           "$3 > 300 && (!clock || $2 < clock) { clock = $2 } END { printf \"%d MiB on the GPU; %d W at most, %d MHz at least "
           "above 300 W\\n\", most - before, power, clock }")
    return [Line(f"memory, {mode}", f"mkdir -p data; {ask} > data/clocks-{mode}.csv & smi=$!; sleep 1; {STEP} --steps {steps} "
                 f"{options} > memory.log; status=$?; kill $smi; sed -n 's/.*memory per rank: //p' memory.log; "
                 f"awk -F, '{say}' data/clocks-{mode}.csv; exit $status", env={"SHARDRT_BACKEND": "cuda"}, limit=30,
                 figure=lambda output: "; ".join(output.strip().splitlines()[-2:]))
            for mode, steps, options in (("bf16", 40, "--dtype bf16 --numerics fast"), ("exact", 8, "--numerics exact"))]


def launches_of(m, name, steps, program, env):
    """The durations of all launches of one step of a program (launches.c)."""
    if not m.cupti or not os.path.exists(os.path.join(m.tree, ".libs", "launches.so")):
        return Line(f"launches of a step: {name}", "", skip="needs CUPTI, here and where it was built")
    return Line(f"launches of a step: {name}", f"mkdir -p data && CUDA_INJECTION64_PATH=$PWD/.libs/launches.so "
                f"SRT_LAUNCHES_CUPTI={m.cupti} SRT_LAUNCHES=rows.csv {program} && {sys.executable} ../gpu_check_launches.py "
                f"rows.csv {steps} data/step-{name}.csv", env={"SHARDRT_BACKEND": "cuda", **env}, figure=last_line, limit=40)


# How the step is timed: its name, the steps of a run, options.
STEP_MODES = (("bf16", 8, "--dtype bf16 --numerics fast"), ("exact", 5, "--numerics exact"))


def launches(m):
    """The durations of all launches of one step, ours and PyTorch's."""
    if m.backend != "cuda":
        return [Line("launches of a step", "", skip="needs cuda")]
    lines = [launches_of(m, name, steps, f"{STEP} --steps {steps} {options}", {}) for name, steps, options in STEP_MODES]
    if m.torch:
        lines += [launches_of(m, "torch-bf16", 8, f"{peer(m)} 8 --worker --modes bf16", {}),
                  launches_of(m, "torch-fp32", 6, f"{peer(m)} 6 --worker --modes fp32", {})]
    return lines


def variants(m, mode):
    """Other builds of the module (pack --variant) and this one in turn: the time of a step, after which the parameters
    must be those of the first in exact mode; then the launches of each."""
    folder = os.path.join(m.tree, "variants")
    names = sorted(os.listdir(folder)) if m.backend == "cuda" and os.path.isdir(folder) else []
    if not names:
        return [Line("variants", "", skip="none were packed")]
    _, steps, options = next(row for row in STEP_MODES if row[0] == mode)
    same = '[ -n "$hash" ] && [ "$hash" = "$(cat first-hash)" ]' if mode == "exact" else '[ -n "$hash" ]'

    def env(name):
        return {"SHARDRT_BACKEND": "cuda", **({"SHARDRT_MODULE_PATH": os.path.join(folder, name)} if name != "this" else {})}

    lines = [Line(f"{mode}: {name}, round {i + 1}", f"rm -f log.jsonl; {STEP} --steps {steps + 1} {options} --hash --log log.jsonl > "
                  "log || { cat log; exit 1; }; hash=$(sed -n 's/^hash: //p' log); [ -e first-hash ] || echo \"$hash\" > first-hash; "
                  "sed -n 's/.*\"step_s\": \\([^,]*\\),.*/\\1/p' log.jsonl | sed 1d | sort -g | awk -v hash=\"$hash\" "
                  "'{ x[NR] = $1 } END { printf \"%.2f ms a step, %s\\n\", 1000 * x[int((NR + 1) / 2)], hash; exit NR == 0 }' && "
                  f"{same}", env=env(name), figure=last_line, limit=30)
             for i in range(2) for name in ["this", *names]]
    lines[0].command = f"rm -f first-hash; {lines[0].command}"
    return lines + [launches_of(m, f"{mode}-{name}", steps, f"{STEP} --steps {steps} {options}", env(name))
                    for name in ["this", *names]]


def profiler(m):
    """ncu's details of the kernels in which a step spends most of its time, and samples of what their warps waited for
    at each instruction. The first launches are of tests at the start, which are small."""
    if m.backend != "cuda" or not m.ncu:
        return [Line("ncu", "", skip="not on this machine" if not m.ncu else "needs cuda")]

    def line(mode, names, skipped, count, options):
        table, report = f"data/ncu-{mode}", f"$PWD/ncu-{mode}"
        return Line(f"ncu, {mode}", f"mkdir -p data && {m.ncu} --clock-control none --set detailed --section SourceCounters "
                    f"--kernel-name regex:'{names}' --launch-skip {skipped} --launch-count {count} -f -o {report} {STEP} --steps 1 "
                    f"{options} && {m.ncu} --import {report}.ncu-rep --page details --csv > {table}.csv && {m.ncu} --import "
                    f"{report}.ncu-rep --page source --csv > {table}-source.csv; grep -c '\"Duration\"' {table}.csv",
                    env={"SHARDRT_BACKEND": "cuda"}, limit=40, figure=lambda output: f"{last_line(output)} launches")

    return [line("exact", "k_matmul", 120, 8, "--numerics exact"),
            line("bf16", "k_fast_attention|k_cross_entropy|k_layernorm|k_bias_backward|k_gelu", 160, 16,
                 "--dtype bf16 --numerics fast")]


# They time how soon a job ends when a rank has; alone, since starts on a busy GPU take long.
TIMED = ("tests/collectives/test_kill.sh", "tests/collectives/test_peer_failures.sh")


# Of each profile the limit, and its sections in order with their shares: seconds, of which what one leaves is the
# next one's.
PROFILES = {
    "first": (235, {"machine": 2, "device": 8, "kernels": 30, "hash": 20, "torch": 5, "fast": 10, "bf16": 30, "exact": 35,
                    "launches": 35, "host": 30}),
    "rest": (420, {"device": 8, "nccl": 30, "tests": 120, "golden": 60, "timed": 30, "opencl": 30, "sanitizer": 60,
                   "hash-matrix": 60}),
    "data": (330, {"device": 8, "torch-compiled": 40, "compiled": 60, "bf16-50304": 30, "memory": 10, "launches": 40, "profiler": 60, "compiled-fp32": 60,
                   "tf32": 40, "speed": 60}),
    "variants": (240, {"device": 6, "variants-exact": 120, "variants-bf16": 100}),
    "regress": (90, {"device": 6, "kernels": 30, "hash": 10, "fast": 10, "bf16": 30}),
    "all": (900, {"machine": 2, "device": 10, "kernels": 40, "hash": 20, "golden": 100, "tests": 120, "hash-matrix": 60,
                  "torch-compiled": 20, "timed": 30, "fast": 20, "nccl": 40, "sanitizer": 65, "opencl": 25,
                  "opencl-kernels": 13, "start": 8, "host": 40, "exact": 45, "bf16-50304": 30, "compiled": 60, "compiled-fp32": 60, "tf32": 40, "speed": 60,
                  "memory": 10, "launches": 60, "variants-exact": 90, "variants-bf16": 90, "profiler": 60}),
}


def plan(m):
    """All sections by name."""
    tests = [t for t in m.device_tests if not is_kernel_test(t) and t not in SEPARATE + TIMED]
    # Each start waits for the driver, and each process spins while it waits for the GPU.
    few = max(1, m.cores // 4)

    # Programs of one rank first: a script starts many, and each start takes about a second.
    def cost(test):
        return 10 if test.endswith(".sh") else 20

    opencl_train, opencl_kernels = opencl(m)
    sections = [
        Section("machine", "The machine", 1, [
            Line("GPU", "nvidia-smi", device=False, figure=matches(r"^\| +(NVIDIA-SMI .*?) *\|$"),
                 skip=None if m.gpu else "nvidia-smi finds none"),
        ]),
        Section("device", "Start and errors of start", 1, errors_of_start(m)),
        Section("kernels", "Every kernel against the bits of the CPU", few, kernels(m), pool="bits"),
        Section("hash", "Training in exact mode: the hash of the CPU", few, hashes(m), pool="bits"),
        Section("hash-matrix", "Training in exact mode, every strategy and form", few, hash_matrix(m), pool="bits"),
        Section("golden", "Recorded runs of PyTorch", few, golden(m), pool="bits"),
        Section("tests", "Tests of devices, 1 to 3 ranks sharing the GPU", few,
                [device_test(m.backend, t, cost=cost(t)) for t in tests], pool="bits"),
        Section("torch", "PyTorch, for the benchmarks", few, warm_torch(m, False), pool="bits"),
        Section("torch-compiled", "PyTorch compiles, for the benchmarks", few, warm_torch(m, True), pool="bits"),
        Section("timed", "Jobs with a rank that ends", 1, [device_test(m.backend, t) for t in TIMED if t in m.device_tests]),
        Section("fast", "Numerics mode fast", few, fast(m)),
        Section("nccl", "NCCL", 1, nccl(m)),
        Section("sanitizer", "compute-sanitizer", few, sanitizer(m)),
        Section("opencl", "OpenCL on NVIDIA's driver", 1, opencl_train),
        Section("opencl-kernels", "OpenCL on NVIDIA's driver: every kernel", few, opencl_kernels),
        Section("start", "Start of a process", 1, start(m), alone=True),
        Section("host", "Costs of the host, products", 1, host_costs(m), alone=True),
        Section("bf16", "Benchmark: bf16", 1, [compare(m, "bf16", "bf16: fast mode and PyTorch", 60)], alone=True),
        Section("bf16-50304", "Benchmark: bf16, an even vocabulary", 1, [
            compare(m, "bf16", "vocabulary 50304, bf16: fast mode and PyTorch", 60, "--vocab 50304 ")], alone=True),
        Section("exact", "Benchmark: exact mode", 1, [compare(m, "exact", "exact mode and PyTorch's fp32", 60)], alone=True),
        Section("compiled", "Benchmark: bf16 and PyTorch compiled", 1, [
            compare(m, "bf16", "bf16: fast mode, PyTorch eager and compiled", 70, "--compile ")], alone=True),
        Section("compiled-fp32", "Benchmark: fp32 and PyTorch compiled", 1, [
            compare(m, "exact,fp32", "fp32: exact and fast mode, PyTorch eager and compiled", 90, "--compile ")], alone=True),
        Section("tf32", "Benchmark: TF32", 1, [compare(m, "tf32", "TF32: fast mode and PyTorch", 60, "--compile ")], alone=True),
        Section("speed", "Benchmarks: kernels", 1, [
            kernels_speed(m, "kernels, f32", "f32", "adamw unscale cast_from_f16 cast_from_bf16 scale add matmul attention "
                          "attention_backward_q axpy fill relu gelu_tanh divide sgd"),
            kernels_speed(m, "kernels in 16 bits", "f16,bf16", "cast_from_f32 unscale scale add adamw")], alone=True),
        Section("memory", "Memory, clock and power of a step", 1, memory(m), alone=True),
        Section("launches", "Launches of a step", 1, launches(m), alone=True),
        *[Section(f"variants-{mode}", f"Variants of the module: {mode}", 1, variants(m, mode), alone=True)
          for mode, _, _ in STEP_MODES],
        Section("profiler", "Kernels by ncu", 1, profiler(m), alone=True),
    ]
    if m.exclusive:  # one line at a time, and ranks that share the GPU are refused
        for section in sections:
            section.jobs = 1
            for line in section.lines:
                line.unless = line.unless or "CUDA_ERROR_DEVICE_UNAVAILABLE"
    return {s.name: s for s in sections}
