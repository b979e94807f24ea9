#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Step time and memory of fine-tuning compared with transformers and FSDP2 (fully_shard, gloo), in one run.

LoRA adapters, with PEFT on the other side, or with --full all parameters. The same model folder, adapters (r on
all Linear layers), optimizer (AdamW), clipping and shape of the data on both sides; N ranks of one thread each.
Ours is the trainer under shardrun. The other side runs as a good user would write it: get_peft_model() for
adapters, fully_shard on each layer and the root, scaled_dot_product_attention, fused AdamW of what is trained. With
--dtype bf16 both keep fp32 parameters, compute in bf16 and reduce in fp32 (MixedPrecisionPolicy). The two alternate
(A B A B). The program prints medians over all steps after the warm-up of each run, the quotient, and the memory of a
rank (PSS, the mean over the ranks, the most of samples).

    python3 bench/peer_lora.py --model FOLDER --text FILE [--build DIR] [--r 16] [--base-dtype bf16]
    python3 bench/peer_lora.py --model FOLDER --text FILE [--build DIR] --full [--dtype bf16 --numerics fast]

Exit status 77 with the reason where transformers, PEFT for adapters, or the trainer is missing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from peer_torch import PeakMemory
from peers import need_programs, run_torch_ranks, skip

BETAS, DECAY, CLIP = (0.9, 0.99), 0.1, 1.0


def learning_rate(args):
    return 1e-5 if args.full else 1e-3


def worker(args):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cores = sorted(os.sched_getaffinity(0))
    if world <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    layers = model.model.layers
    if not args.full:
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=args.r, lora_alpha=2 * args.r, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, config)
    policy = MixedPrecisionPolicy()
    if args.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate(args), betas=BETAS, eps=1e-8, weight_decay=DECAY, fused=True)
    ids = torch.tensor(AutoTokenizer.from_pretrained(args.model)(open(args.text, encoding="utf-8").read()).input_ids)
    generator = torch.Generator().manual_seed(1)
    mine = slice(rank * args.batch // world, (rank + 1) * args.batch // world)
    times, loss = [], None
    for _ in range(args.steps):
        start = time.perf_counter()
        at = torch.randint(len(ids) - args.context, (args.batch,), generator=generator)[mine]
        rows = torch.stack([ids[i : i + args.context] for i in at.tolist()])
        loss = model(input_ids=rows, labels=rows, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"times": times, "loss": loss, "trained": sum(p.numel() for p in trained)}))
    dist.destroy_process_group()


def run_torch(args):
    command = [os.path.abspath(__file__), "--worker"] + ["--full"] * args.full
    for name in ("model", "text", "r", "dtype", "context", "batch", "steps"):
        command += [f"--{name}", str(getattr(args, name))]
    with PeakMemory(os.getpid()) as memory:
        out = run_torch_ranks(command, args.ranks, args.verbose)
    return dict(json.loads(out[0]), memory=memory.most)


def run_ours(args):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        command = [os.path.join(args.build, "shardrun"), "-n", str(args.ranks)]
        command += [os.path.join(args.build, "shardrt-train"), "--init", args.model, "--text", args.text]
        command += ["--context", str(args.context), "--batch", str(args.batch), "--dtype", args.dtype]
        if not args.full:
            command += ["--lora", f"r={args.r}", "--base-dtype", args.base_dtype]
        command += ["--steps", str(args.steps), "--threads", "1", "--strategy", args.strategy, "--eval-every", "0"]
        command += ["--lr", str(learning_rate(args)), "--clip", str(CLIP), "--numerics", args.numerics, "--log", log]
        command += ["--recompute"] * args.recompute
        launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with PeakMemory(launcher.pid) as memory:
            out = launcher.communicate()[0]
        if launcher.returncode:
            sys.exit(f"peer_lora: the trainer failed: {out}")
        with open(log, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
    plan = next(line for line in out.splitlines() if "memory per rank" in line)
    return {"times": [r["step_s"] for r in rows], "loss": rows[-1]["loss"], "memory": memory.most,
            "rss": rows[-1]["rss_bytes"] / 2**20, "plan": plan.split("memory per rank: ")[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="folder of Hugging Face")
    parser.add_argument("--text", required=True, help="text to train on")
    parser.add_argument("--build", default=".", help="folder of shardrun and shardrt-train")
    parser.add_argument("--full", action="store_true", help="train all parameters, without adapters")
    parser.add_argument("--r", type=int, default=16, help="of adapters")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"], help="to compute in")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side, alternating")
    parser.add_argument("--steps", type=int, default=6, help="of a run")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="sequences over all ranks")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--numerics", default="exact", choices=["exact", "fast"], help="ours")
    parser.add_argument("--strategy", default="zero3", help="ours; PyTorch shards always")
    parser.add_argument("--base-dtype", default="fp32", choices=["fp32", "bf16"], help="ours, with adapters")
    parser.add_argument("--recompute", action="store_true", help="ours")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    try:
        import torch
        import transformers
        from torch.distributed.fsdp import fully_shard  # noqa: F401

        versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
        if not args.full:
            import peft

            versions += f", PEFT {peft.__version__}"
    except ImportError as error:
        skip(f"no PyTorch with fully_shard, transformers and, for adapters, PEFT: {error}")
    need_programs(args.build, "shardrun", "shardrt-train")
    times = {"ours": [], "torch": []}
    for _ in range(args.rounds):
        ours = run_ours(args)
        times["ours"] += ours["times"][args.warmup:]
        theirs = run_torch(args)
        times["torch"] += theirs["times"][args.warmup:]
    a, b = (statistics.median(times[k]) for k in ("ours", "torch"))
    what = "all parameters" if args.full else f"LoRA r {args.r} on all Linear layers"
    base = "" if args.full else f", base {args.base_dtype}"
    print(f"{args.ranks} ranks x 1 thread, {args.dtype}, {what} ({theirs['trained']} parameters), "
          f"{args.batch} sequences of {args.context} tokens")
    print(f"s/step: ours {a:.3f} ({args.strategy} {args.numerics}{base}), "
          f"{'' if args.full else 'PEFT with '}fully_shard {b:.3f}: {a / b:.2f}")
    print(f"MiB a rank (PSS): ours {ours['memory']:.0f}, theirs {theirs['memory']:.0f}: "
          f"{ours['memory'] / theirs['memory']:.2f}; ours, resident {ours['rss']:.0f}, planned {ours['plan']}")
    print(f"loss after {args.steps} steps (other batches): {ours['loss']:.3f}, {theirs['loss']:.3f}")
    print(versions)


if __name__ == "__main__":
    main()
