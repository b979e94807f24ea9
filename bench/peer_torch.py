#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Step time compared with PyTorch FSDP2 (fully_shard, gloo) on one machine, in one run.

The same GPT shapes, batch sizes, optimizer (AdamW, decay on matrices only), clipping and text on
both sides; N ranks of one thread each, bound to a core each; fp32, or bf16 with fp32 parameters and
reduction (MixedPrecisionPolicy). Ours runs as users run it: the trainer under shardrun. PyTorch
runs as a good user would write it: fully_shard on each block and the root,
scaled_dot_product_attention, fused AdamW, no compile (--compile adds it). The two alternate
(A B A B) so that a change of the machine's load affects both. The program prints medians over all
steps after the warm-up of each run, and the quotient; and the memory of a rank (PSS, the mean over
the ranks), the most of samples taken while a run lasts.

    python3 bench/peer_torch.py --text FILE [--build DIR] [--presets nano,char,gpt2-124m]

Exit status 77 with the reason where PyTorch or the trainer is missing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from peers import need_programs, run_torch_ranks, skip

# name: layers, heads, width, context, sequences over all ranks at 2 ranks, steps of a run, warm-up
PRESETS = {
    "nano": (4, 4, 128, 64, 12, 120, 20),
    "char": (6, 6, 384, 256, 12, 12, 3),
    "gpt2-124m": (12, 12, 768, 64, 8, 10, 3),
}
ATTN_BIAS = {"gpt2-124m"}
VOCAB = 256
LR, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0


# ---- memory --------------------------------------------------------------------------------


def ranks_pss(parent):
    """MiB of memory of a rank, over the ranks that are the children of a process: pages that
    several processes map count in parts."""
    sizes = []
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as f:
            children = f.read().split()
        for child in children:
            with open(f"/proc/{child}/smaps_rollup", encoding="ascii") as f:
                sizes += [int(line.split()[1]) / 1024 for line in f if line.startswith("Pss:")]
    except OSError:  # a rank has ended
        return 0.0
    return sum(sizes) / len(sizes) if sizes else 0.0


class PeakMemory:
    """The maximum of ranks_pss(), sampled twice a second."""

    def __init__(self, parent):
        self.parent, self.most, self.done = parent, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.done.wait(0.5):
            self.most = max(self.most, ranks_pss(self.parent))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


# ---- a rank of PyTorch ---------------------------------------------------------------------


def build_model(torch, layers, heads, width, context, vocab, bias):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=bias)
            self.proj = nn.Linear(width, width)
            self.fc = nn.Linear(width, 4 * width)
            self.out = nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (
                y.view(b, t, heads, c // heads).transpose(1, 2)
                for y in self.qkv(self.ln1(x)).split(c, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.lnf = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocab, bias=False)
            self.head.weight = self.wte.weight
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, 0.0, 0.02)

        def forward(self, ids, targets):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.lnf(x))
            return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    return GPT()


def worker(args):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cores = sorted(os.sched_getaffinity(0))
    if world <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    layers, heads, width, context, batch, steps, _ = args.shape
    model = build_model(torch, layers, heads, width, context, args.vocab, args.attn_bias)
    policy = MixedPrecisionPolicy()
    if args.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=1e-8, fused=True)
    run = torch.compile(model) if args.compile else model
    text = torch.frombuffer(bytearray(open(args.text, "rb").read()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(1)
    mine = slice(rank * batch // world, (rank + 1) * batch // world)
    times, loss = [], None
    for _ in range(steps):
        start = time.perf_counter()
        at = torch.randint(len(text) - context, (batch,), generator=generator)[mine]
        rows = torch.stack([text[i : i + context + 1] for i in at.tolist()]).long()
        loss = run(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"times": times, "loss": loss, "torch": torch.__version__}))
    dist.destroy_process_group()


def run_torch(args, preset, shape, compiled):
    command = [os.path.abspath(__file__), "--worker", "--text", args.text]
    command += ["--shape", json.dumps(shape), "--vocab", str(args.vocab), "--dtype", args.dtype]
    command += ["--attn-bias"] * (preset in ATTN_BIAS) + ["--compile"] * compiled
    with PeakMemory(os.getpid()) as memory:
        out = run_torch_ranks(command, args.ranks, args.verbose)
    return dict(json.loads(out[0]), memory=memory.most)


# ---- ours ----------------------------------------------------------------------------------


def run_ours(args, preset, shape):
    _, _, _, context, batch, steps, _ = shape
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        command = [os.path.join(args.build, "shardrun"), "-n", str(args.ranks)]
        command += [os.path.join(args.build, "shardrt-train"), "--text", args.text]
        command += ["--preset", preset, "--context", str(context), "--vocab", str(args.vocab)]
        command += ["--batch", str(batch), "--steps", str(steps), "--threads", "1"]
        command += ["--strategy", args.strategy, "--eval-every", "0", "--log", log]
        command += ["--lr", str(LR), "--clip", str(CLIP), "--numerics", args.numerics]
        command += ["--dtype", args.dtype]
        pipe = None if args.verbose else subprocess.PIPE
        launcher = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        with PeakMemory(launcher.pid) as memory:
            errors = launcher.communicate()[1]
        if launcher.returncode:
            sys.exit(f"peer_torch: the trainer failed on {preset}: {errors or ''}")
        with open(log, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
    return {"times": [r["step_s"] for r in rows], "loss": rows[-1]["loss"], "memory": memory.most}


# ---- both ----------------------------------------------------------------------------------


def shape_of(args, preset):
    layers, heads, width, context, batch, steps, warmup = PRESETS[preset]
    steps = args.steps or steps
    # as many sequences a rank as at 2 ranks
    batch = args.batch or batch * args.ranks // 2
    return [layers, heads, width, args.context or context, batch, steps, min(warmup, steps // 2)]


def compare(args, preset):
    shape = shape_of(args, preset)
    warmup = shape[6]
    columns = {"ours": [], "torch": [], "compile": []}
    for _ in range(args.rounds):
        ours = run_ours(args, preset, shape)
        columns["ours"] += ours["times"][warmup:]
        result = run_torch(args, preset, shape, False)
        columns["torch"] += result["times"][warmup:]
        if args.compile:
            columns["compile"] += run_torch(args, preset, shape, True)["times"][warmup:]
    median = {k: statistics.median(v) for k, v in columns.items() if v}
    line = f"{preset:10} {shape[3]:7} {shape[4]:9} {1e3 * median['ours']:9.2f} "
    line += f"{1e3 * median['torch']:9.2f} {median['ours'] / median['torch']:10.2f}"
    if args.compile:
        line += f" {1e3 * median['compile']:10.2f} {median['ours'] / median['compile']:10.2f}"
    print(f"{line}   (loss after {shape[5]} steps: {ours['loss']:.3f}, {result['loss']:.3f}; MiB a rank: "
          f"{ours['memory']:.0f}, {result['memory']:.0f}, {ours['memory'] / result['memory']:.2f})", flush=True)
    return result["torch"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="text to train on")
    parser.add_argument("--build", default=".", help="folder of shardrun and shardrt-train")
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, alternating")
    parser.add_argument("--steps", type=int, help="of a run")
    parser.add_argument("--batch", type=int, help="sequences over all ranks")
    parser.add_argument("--context", type=int)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--numerics", default="exact", choices=["exact", "fast"], help="ours")
    parser.add_argument("--strategy", default="zero3", help="ours; PyTorch shards always")
    parser.add_argument("--compile", action="store_true", help="torch.compile as a further column")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--attn-bias", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    try:
        import torch  # noqa: F401
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError as error:
        skip(f"no PyTorch with fully_shard: {error}")
    need_programs(args.build, "shardrun", "shardrt-train")
    head = f"{'preset':10} {'context':>7} {'sequences':>9} {'ours/ms':>9} {'torch/ms':>9} {'ours/torch':>10}"
    print(f"{args.ranks} ranks x 1 thread, {args.dtype}, {args.strategy} {args.numerics} next to fully_shard, vocabulary "
          f"{args.vocab}, medians")
    print(head + (f" {'compile/ms':>10} {'ours/comp.':>10}" if args.compile else ""))
    for preset in args.presets.split(","):
        version = compare(args, preset)
    print(f"PyTorch {version}")


if __name__ == "__main__":
    main()
