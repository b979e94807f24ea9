#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpt2-124m compared with PyTorch FSDP2 on one GPU, in one run: tokens a second and MFU at equal shapes.

Ours is the trainer as users run it, one rank, zero3; PyTorch is fully_shard on each block and the root over NCCL
at world 1, scaled_dot_product_attention, fused AdamW, eager and (--compile) with its blocks compiled. Both read
the loss every step. A mode sets the types of both sides:

    exact  ours: --numerics exact (fp32)      PyTorch: fp32, TF32 off
    fp32   ours: --numerics fast              PyTorch: the same
    tf32   ours: --numerics fast, operands in TF32     PyTorch: float32_matmul_precision "high"
    bf16   ours: --numerics fast --dtype bf16          PyTorch: MixedPrecisionPolicy(bf16, gradients summed in fp32)

The batch is halved until both fit. Each side runs until its share of --budget is over, which counts from the start of
this program; medians are over the steps after the warm-up, whose number is printed. Both have a constant learning rate. It
is a failure if a side has no two steps, or if what was to be compiled was not. MFU: 6 x parameters that are multiplied + 12 x layers x width x context,
a token, over the peak of the GPU in that type (dense, from its data sheet).

    python3 bench/peer_torch_gpu.py --text FILE [--modes exact,fp32,tf32,bf16] [--compile] [--budget S]
    python3 bench/peer_torch_gpu.py --text FILE --device cpu --preset nano --context 64 --vocab 256 --batch 4

Exit status 77 with the reason where PyTorch, its GPU or the trainer is missing.
"""
import argparse
import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from peer_torch import ATTN_BIAS, BETAS, CLIP, DECAY, LR, build_model
from peers import need_programs, skip

SHAPES = {"nano": (4, 4, 128), "char": (6, 6, 384), "gpt2-124m": (12, 12, 768)}
# Options and variables of the trainer, and what PyTorch does; a mode whose option --help does not have is left out.
MODES = {
    "exact": (["--numerics", "exact"], {}, "fp32"),
    "fp32": (["--numerics", "fast"], {"SHARDRT_CUDA_FP32": "ieee"}, "fp32"),
    "tf32": (["--numerics", "fast"], {"SHARDRT_CUDA_FP32": "tf32"}, "tf32"),
    "bf16": (["--numerics", "fast", "--dtype", "bf16"], {}, "bf16"),
}
# TFLOP/s in fp32, TF32, bf16, dense
PEAKS = {"H100 80GB HBM3": (67, 495, 989), "H200": (67, 495, 989), "H100 PCIe": (51, 378, 756),
         "A100": (19.5, 156, 312)}
WARMUP = 3
START = time.monotonic()  # of this process


def peak_of(name, mode):
    for key, peaks in PEAKS.items():
        if key in name:
            return 1e12 * peaks[("fp32", "tf32", "bf16").index(MODES[mode][2])]
    return None


def flops_per_token(args):
    layers, _, width = SHAPES[args.preset]
    return 6.0 * (layers * 12 * width * width + args.vocab * width) + 12.0 * layers * width * args.context


# ---- PyTorch, in a separate process --------------------------------------------------------


def worker(args):
    import torch
    import torch.distributed as dist

    device, mode = args.device, args.modes
    cuda = device == "cuda"
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError as error:
        skip(f"no PyTorch with fully_shard: {error}")
    if cuda and not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    torch.manual_seed(1)
    if cuda:
        torch.cuda.set_device(0)
    torch.set_float32_matmul_precision("highest" if MODES[mode][2] == "fp32" else "high")
    with tempfile.NamedTemporaryFile() as meeting:
        dist.init_process_group("nccl" if cuda else "gloo", init_method=f"file://{meeting.name}.store", rank=0,
                                world_size=1)
    with torch.device(device):
        model = build_model(torch, *SHAPES[args.preset], args.context, args.vocab, args.preset in ATTN_BIAS)
    policy = {}
    if mode == "bf16":
        policy["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if args.compile:
            block.compile()
        fully_shard(block, **policy)
    fully_shard(model, **policy)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=1e-8, fused=True)
    text = torch.frombuffer(bytearray(open(args.text, "rb").read()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(1)
    times, losses, end = [], [], START + args.budget
    print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if cuda else "cpu"}), flush=True)
    while len(times) < args.steps and (len(times) < WARMUP + 3 or time.monotonic() < end):
        start = time.perf_counter()
        at = torch.randint(len(text) - args.context, (args.batch,), generator=generator)
        rows = torch.stack([text[i : i + args.context + 1] for i in at.tolist()]).long().to(device)
        loss = model(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
        print(json.dumps({"step_s": times[-1], "loss": losses[-1]}), flush=True)
        if args.compile and len(times) == 1:  # now it is known
            print(json.dumps({"graphs": torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)}), flush=True)
    dist.destroy_process_group()


class OutOfMemory(Exception):
    """A side did not fit; the other must not run at this batch either."""


def finish(process, seconds, what, err, out=None):
    """Waits; ends it when its time is over, which is not a failure: completed steps are already written."""
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(2)
            except subprocess.TimeoutExpired as error:
                raise RuntimeError(f"{what} cannot be ended") from error
        return
    if status == 77 and out:
        out.seek(0)
        print(out.read().decode(errors="replace"), end="")
        sys.exit(77)
    if status:
        err.seek(0)
        said = err.read().decode(errors="replace")
        if re.search(r"out.of.memory|has no \d+ bytes", said, re.I):
            raise OutOfMemory(what)
        raise RuntimeError(f"{what}: exit status {status}: {' '.join(said.split())[-400:]}")


def steps_of(lines):
    """The rows that were written whole."""
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def run_torch(args, mode, batch, compiled, budget):
    command = [sys.executable, os.path.abspath(__file__), "--worker", "--text", args.text, "--modes", mode]
    command += ["--preset", args.preset, "--context", str(args.context), "--vocab", str(args.vocab)]
    command += ["--batch", str(batch), "--device", args.device, "--steps", str(args.steps)]
    command += ["--budget", str(budget - 2)] + ["--compile"] * compiled
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        finish(process, budget, "PyTorch", err, out)
        out.seek(0)
        rows = steps_of(out.read().decode().splitlines())
    head = {k: v for row in rows if "step_s" not in row for k, v in row.items()}
    if compiled and head.get("graphs") == 0:
        raise RuntimeError("PyTorch has compiled nothing")
    return head, [row for row in rows if "step_s" in row]


# ---- ours ----------------------------------------------------------------------------------


def run_ours(args, mode, batch, budget):
    options, variables, _ = MODES[mode]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as err:
        log = os.path.join(folder, "log.jsonl")
        command = [os.path.join(args.build, "shardrt-train"), "--text", args.text, "--preset", args.preset]
        command += ["--context", str(args.context), "--vocab", str(args.vocab), "--batch", str(batch)]
        command += ["--steps", str(args.steps), "--strategy", "zero3", "--eval-every", "0", "--log", log]
        command += ["--lr", str(LR), "--min-lr", str(LR), "--warmup", "0", "--clip", str(CLIP), *options]
        env = dict(os.environ, SHARDRT_BACKEND=args.device, **variables)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, env=env)
        finish(process, budget, "the trainer", err)
        if not os.path.exists(log):
            return []
        with open(log, encoding="utf-8") as f:
            return steps_of(f)


# ---- both ----------------------------------------------------------------------------------


def report(args, mode, batch, side, rows, gpu):
    """A line of the table; seconds of a step."""
    times = [r["step_s"] for r in rows]
    if len(times) < 2:
        print(f"{mode:5} {side:14} {batch:5}   no two steps in its share of the time", flush=True)
        return None
    kept = times[min(WARMUP, len(times) // 2):]
    step_s = statistics.median(kept)
    speed = batch * args.context / step_s
    peak = peak_of(gpu, mode)
    mfu = f"{100 * speed * flops_per_token(args) / peak:7.1f} %" if peak else f"{'-':>9}"
    print(f"{mode:5} {side:14} {batch:5} {1e3 * step_s:10.2f} {speed:10.0f} {mfu} {len(kept):6} "
          f"{rows[-1]['loss']:9.4f} at step {len(rows)}", flush=True)
    return step_s


WEIGHTS = {"torch": 1.5, "torch compiled": 2.0, "ours": 1.0}  # of their time


def sides_of(args, mode, done):
    """The sides to run for a mode: another mode may already have PyTorch's result."""
    sides = [("torch", MODES[mode][2]), ("ours", mode)] + [("torch compiled", MODES[mode][2])] * args.compile
    return [s for s in sides if s not in done]


def weight_of(sides):
    return sum(WEIGHTS[s] for s, _ in sides)


def compare(args, mode, later, end, done):
    """`done`: (batch, seconds of a step, GPU) by side and PyTorch's type, ours by mode. `later`: sides that must run
    before the end too. True if a figure is missing."""
    sides = sides_of(args, mode, done)
    known = [batch for (_, kind), (batch, _, _) in done.items() if kind == MODES[mode][2]]
    batch, gpu = min(known + [args.batch]), "cpu"
    while sides:
        side, kind = sides[0]
        budget = max(1.0, (end - time.monotonic()) * WEIGHTS[side] / weight_of(sides + later))
        try:
            if side == "ours":
                gpu = next((g for _, _, g in done.values()), gpu)
                rows = run_ours(args, mode, batch, budget)
            else:
                head, rows = run_torch(args, mode, batch, side != "torch", budget)
                gpu = head.get("gpu", gpu)
            done[(side, kind)] = (batch, report(args, mode, batch, side, rows, gpu), gpu)
            sides.pop(0)
        except OutOfMemory as error:
            print(f"{mode:5} batch {batch}: {error} is out of memory", flush=True)
            batch //= 2
            sides = sides_of(args, mode, {})
            if not batch:
                raise RuntimeError("not even one sequence fits") from error
    ours = done[("ours", mode)][1]
    others = [("torch", MODES[mode][2])] + [("torch compiled", MODES[mode][2])] * args.compile
    others += [("ours", "fp32" if mode == "exact" else "exact")]
    for side, kind in others:
        their_batch, theirs, _ = done.get((side, kind), (0, None, ""))
        if ours and theirs and their_batch == batch:
            name = side if side != "ours" else "our exact mode" if kind == "exact" else "our fast mode"
            print(f"{mode}/{name}: {ours / theirs:.3f} of its step time ({batch * args.context / ours:.0f} and "
                  f"{batch * args.context / theirs:.0f} tokens/s)", flush=True)
    missing = [side for side, kind in sides_of(args, mode, {}) if done[(side, kind)][1] is None]
    for side in missing:
        print(f"FAIL: {mode}: no figure of {side.replace('torch', 'PyTorch')}", flush=True)
    return bool(missing)


def known_modes(args):
    """Modes of the trainer, and the reason for each mode that it does not have."""
    text = subprocess.run([os.path.join(args.build, "shardrt-train"), "--help"], capture_output=True, text=True,
                          check=False).stdout
    modes = []
    for mode in args.modes.split(","):
        missing = [o for o in MODES[mode][0] if o.startswith("--") and f"{o} " not in text]
        if missing:
            print(f"SKIP: {mode}: the trainer has no {missing[0]}")
        else:
            modes.append(mode)
    return modes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--text", required=True, help="text to train on")
    parser.add_argument("--build", default=".", help="folder of shardrt-train")
    parser.add_argument("--modes", default="exact,fp32,tf32,bf16")
    parser.add_argument("--compile", action="store_true", help="torch.compile as a further side")
    parser.add_argument("--budget", type=float, default=180, help="seconds for all modes")
    parser.add_argument("--steps", type=int, default=60, help="at most, of each side")
    parser.add_argument("--batch", type=int, default=16, help="sequences to begin with")
    parser.add_argument("--preset", default="gpt2-124m", choices=SHAPES)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return 0
    if not importlib.util.find_spec("torch"):
        skip("no PyTorch")
    need_programs(args.build, "shardrt-train")
    modes = known_modes(args)
    if not modes:
        return 77
    print(f"{args.preset}, context {args.context}, vocabulary {args.vocab}, one rank, zero3 and fully_shard; "
          "medians")
    print(f"{'mode':5} {'side':14} {'batch':>5} {'ms':>10} {'tokens/s':>10} {'MFU':>9} {'steps':>6} {'loss':>9}")
    failed, done, end = False, {}, START + args.budget - 3  # for ending the last side
    for i, mode in enumerate(modes):
        # what later modes will still need: PyTorch's part of a type runs once
        later = {s for m in modes[i + 1:] for s in sides_of(args, m, done)} - set(sides_of(args, mode, {}))
        try:
            failed |= compare(args, mode, list(later), end, done)
        except RuntimeError as error:
            print(f"FAIL: {mode}: {error}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
