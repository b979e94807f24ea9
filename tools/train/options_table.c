/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of shardrt-train: one row for each. */
#include "tools/mesh.h"
#include "tools/train/options_internal.h"

#define FIELD(f) offsetof(train_options_t, f)

static const tool_option_t rows[] = {
	HEADING("Data and model"),
	STRING("text", text, "FILE", NULL,
	       "text to train on, one token per byte; the first nine tenths train,\n"
	       "the rest validates. If the folder of --init has a tokenizer.json,\n"
	       "the text is encoded by it at the start, on each rank"),
	STRING("tokens", tokens, "FILES", NULL,
	       "instead of --text: tokens of 16 or 32 bits in a file as llm.c\n"
	       "writes it, or of 16 bits as nanoGPT, split in the same way; with\n"
	       "--vocab. A quoted pattern, such as 'data/train_*.bin': several\n"
	       "files, which follow each other in the order of names"),
	STRING("sft", sft, "FILE.jsonl", NULL,
	       "instead of --text: answers to prompts, one JSON object per line:\n"
	       "{\"prompt\": TEXT, \"completion\": TEXT}, or with --template\n"
	       "{\"messages\": [{\"role\": \"user\", \"content\": TEXT}, {\"role\":\n"
	       "\"assistant\", \"content\": TEXT}, ...]}. The loss is the mean over\n"
	       "the tokens of answers of a step. Examples are packed into rows of\n"
	       "--context tokens, each example once in an epoch"),
	STRING("template", template, "NAME", NULL,
	       "how --sft writes messages: chatml, llama3, mistral, gemma, zephyr"),
	INT("sft-show", sft_show, NULL, 1, OPTION_BIG,
	    "print the first N examples of --sft as they are trained on, and stop"),
	FLAG("sft-skip-bad", sft_skip_bad,
	     "leave out lines of --sft that are not examples, such as one that is\n"
	     "longer than --context; otherwise the file is refused"),
	STRING("val", val, "FILES", NULL,
	       "validate on these files, as --text, --tokens or --sft; all of these\n"
	       "train"),
	STRING("preset", preset, "NAME", NULL,
	       "model size: nano (4 layers, 4 heads, width 128, context 64),\n"
	       "char (6, 6, 384, 256) or gpt2-124m (12, 12, 768, 1024); the\n"
	       "options below override it; default: that of --init, or nano"),
	INT("layers", layers, NULL, 1, OPTION_BIG, "transformer blocks"),
	INT("heads", heads, NULL, 1, OPTION_BIG, "attention heads; must divide the width"),
	INT("width", width, NULL, 1, OPTION_BIG, "width of the residual stream"),
	INT("context", context, NULL, 1, OPTION_BIG, "tokens in a sequence"),
	INT("vocab", vocab, NULL, 1, OPTION_BIG,
	    "vocabulary size; the presets have 256, one for each byte"),
	INT("seed", seed, "1", 0, 9e15, "seed of initial values, batches and sampling"),
	HEADING("Training"),
	INT("steps", steps, "2000", 0, OPTION_BIG, "optimizer steps"),
	INT("batch", batch, "12", 1, OPTION_BIG,
	    "sequences per step over all ranks; a multiple of\n"
	    "ranks x accumulate"),
	INT("accumulate", accumulate, "1", 1, 65536, "micro-batches per step"),
	WORD("accumulate-mode", accumulate_mode, "every", "every|last|tree|last-all-reduce",
	     "reduce gradients after every micro-batch, or after the last; tree:\n"
	     "after the last, with the same bits for every number of ranks that\n"
	     "is a power of two; last-all-reduce: within a replica after every\n"
	     "one, over the replicas (--strategy hybrid) after the last"),
	INT("micro-batches", micro_batches, "-1", 1, 65536,
	    "with tree, instead of --accumulate: micro-batches per step over\n"
	    "all ranks, a power of two"),
	WORD("optimizer", optimizer, "adamw", "sgd|adam|adamw|muon|adamw8bit",
	     "optimizer; muon: Muon for the matrices of the blocks, AdamW for\n"
	     "embeddings, the head, biases and norms; adamw8bit: adamw with its\n"
	     "two states in 8 bits, as bitsandbytes has them: a quarter of their\n"
	     "memory"),
	REAL("lr", lr, "1e-3", 0, 1e6, "learning rate after warm-up"),
	WORD("schedule", schedule, "cosine", "cosine|linear|stable|constant",
	     "learning rate after warm-up: cosine, linear: down to --min-lr at the\n"
	     "last step; stable (warmup-stable-decay): --lr, and down in the last\n"
	     "steps, which are those of --decay-steps; constant: --lr"),
	REAL("min-lr", min_lr, "-1", 0, 1e6,
	     "learning rate at the end of the schedule; default: lr / 10"),
	INT("decay-steps", decay_steps, "-1", 1, OPTION_BIG,
	    "with --schedule stable: the steps in which the learning rate goes\n"
	    "down; default: a tenth of the steps"),
	INT("warmup", warmup, "-1", 0, OPTION_BIG,
	    "steps of linear warm-up; default: a tenth of the steps, at most 100"),
	REAL("beta1", beta1, "0.9", 0, 0.9999999, "decay of the first moment (adam, adamw, muon)"),
	REAL("beta2", beta2, "0.99", 0, 0.9999999,
	     "decay of the second moment (adam, adamw, muon)"),
	REAL("momentum", momentum, "-1", 0, 0.9999999,
	     "momentum (sgd, muon); default: 0 of sgd, 0.95 of muon"),
	REAL("muon-lr", muon_lr, "-1", 0, 1e6,
	     "learning rate of Muon after warm-up; the schedule is that of --lr.\n"
	     "Default: 0.02; with --muon-adjust match-rms-adamw --lr"),
	WORD("muon-adjust", muon_adjust, "original", "original|match-rms-adamw|spectral",
	     "what the learning rate of a matrix is multiplied by: original:\n"
	     "sqrt(max(1, rows / columns)); match-rms-adamw: 0.2 times the root\n"
	     "of the larger size, so that updates are as large as AdamW's;\n"
	     "spectral: sqrt(rows / columns)"),
	REAL("weight-decay", weight_decay, "0.1", 0, 1e6, "weight decay"),
	WORD("decay", decay, "matrices", "matrices|all",
	     "parameters that --weight-decay is for: matrices: those of two\n"
	     "dimensions, not biases and norms; all"),
	REAL("clip", clip, "1", 0, 1e30, "maximum gradient norm; 0: do not clip"),
	WORD("clip-p", clip_p, "2", "1|2|3|inf", "norm used for clipping"),
	FLAG("recompute", recompute,
	     "keep only the inputs of blocks and run them forward again in the\n"
	     "backward pass: less memory, more time, the same bits"),
	HEADING("Adapters"),
	STRING("lora", lora, "LIST", NULL,
	       "train LoRA adapters of the Linear layers of blocks, the rest is\n"
	       "frozen: r=N,alpha=X,targets=NAME+NAME,rslora. NAME is the name of a\n"
	       "module, or its end, as q_proj; or instead of targets, at the end,\n"
	       "match=EXPRESSION; default: r=16, alpha twice r, all-linear. --save\n"
	       "writes a folder of PEFT"),
	STRING("adapter", adapter, "FOLDER", NULL,
	       "start from the LoRA adapters in a folder of PEFT, which has their\n"
	       "sizes; of its lora_dropout nothing is applied"),
	WORD("base-dtype", base_dtype, "-", "fp32|bf16|int8",
	     "with --lora or --adapter: dtype in which the frozen parameters of\n"
	     "blocks are stored; default: that of the others. In layers that\n"
	     "compute in another one they are cast for each use. int8: matrices\n"
	     "as codes with a scale for each 64 columns, 17/64 of fp32; the\n"
	     "others as without this option"),
	HEADING("Precision"),
	WORD("dtype", dtype, "fp32", TOOL_DTYPES,
	     "dtype to compute in. With bf16 and fp16 the parameters stay fp32\n"
	     "and are cast for each use; losses are fp32"),
	FLAG("pure", pure,
	     "with bf16 or fp16: parameters, gradients and optimizer state\n"
	     "have this dtype too"),
	WORD("reduce-dtype", reduce_dtype, "-", TOOL_REDUCE_DTYPES,
	     "dtype in which gradients are summed over ranks; default: fp32,\n"
	     "compute if --pure"),
	OPTIONAL("scaler", scaler, "[plain|sharded]", "none", "none|plain|sharded",
		 "scale the loss, and skip steps whose gradients are not finite, as\n"
		 "PyTorch's GradScaler (plain, also without a value) or\n"
		 "ShardedGradScaler. fp16 needs it; --pure fp16 needs sharded"),
	REAL("init-scale", init_scale, "-1", 1e-30, 1e30,
	     "first scale of --scaler; default: 65536"),
	HEADING("Ranks"),
	WORD("strategy", strategy, "ddp", TOOL_STRATEGIES,
	     "ddp: every rank holds everything; zero1, zero2: gradients and\n"
	     "optimizer state are sharded; zero3: parameters too; hybrid: zero3\n"
	     "within groups of ranks that are replicas of each other (--mesh).\n"
	     "All have the same results, hybrid for groups of 2, 4, 8 ... ranks"),
	STRING("mesh", mesh, "DIM=N,DIM=N", NULL,
	       "ranks as a grid, row-major: the last dimension varies fastest.\n"
	       "shard: parameters are sharded over it; replicate: they are\n"
	       "replicated over it; dp: sharded, with ddp replicated; tp:\n"
	       "tensor parallelism, the blocks, the vocabulary and the logits\n"
	       "are cut over it. E.g. replicate=2,shard=4 with hybrid on 8\n"
	       "ranks, dp=4,tp=2, or tp=2 alone"),
	INT("tensor-parts", tensor_parts, "1", 1, 8,
	    "cut the sums that tensor parallelism cuts into N parts, 2, 4 or 8,\n"
	    "whatever tp is: every tp that divides N has the same bits; 1: not"),
	FLAG("sequence-parallel", sequence_parallel,
	     "with tp and --tensor-parts: cut rows over tp where columns are not,\n"
	     "in norms and sums: less memory for activations"),
	STRING("reshard", reshard, "R", "auto",
	       "whether parameters are gathered for each use (always) or kept\n"
	       "until the next step (never); a number of ranks: after the forward\n"
	       "pass kept in groups of that number; auto: as the strategy has it"),
	WORD("flat", flat, "no", TOOL_FLATS,
	     "one flat parameter for each block, as FSDP1 has with (views) or\n"
	     "without (padded) use_orig_params. The results have the same bits"),
	STRING("offload", offload, "LIST", NULL,
	       "what is in host memory: none, all, or some of params, grads,\n"
	       "state, with commas. The host then steps the parameters. The\n"
	       "results have the same bits"),
	INT("threads", threads, "0", 0, 4096,
	    "compute threads of a rank; 0: SHARDRT_THREADS. The results have\n"
	    "the same bits"),
	WORD("numerics", numerics, "default", "default|exact|fast",
	     "exact: bits as docs/numerics.md defines them; fast: products and\n"
	     "attention in the order of the device's libraries; default:\n"
	     "SHARDRT_NUMERICS, else exact"),
	HEADING("Results"),
	INT("eval-every", eval_every, "250", 0, OPTION_BIG,
	    "validate every N steps and at the end; 0: never"),
	INT("eval-batches", eval_batches, "-1", 0, OPTION_BIG,
	    "validate on the first N batches of the validation text; 0: all;\n"
	    "default: at most the number of training steps from one validation\n"
	    "to the next"),
	FLAG("eval", eval,
	     "no training: print loss and perplexity of all of --text, --tokens or\n"
	     "--sft, texts in windows of --context tokens, each from position 0"),
	INT("sample", sample, "0", 0, 1e6,
	    "bytes of text, or tokens, to generate and print after training"),
	STRING("save", save, "FILE", NULL,
	       "write the parameters (safetensors) at the end, also after Ctrl-C.\n"
	       "If the loss is not finite, the file is left unchanged and the exit\n"
	       "status is 1. With --init of a model of Hugging Face: a folder that\n"
	       "transformers loads"),
	WORD("save-dtype", save_dtype, "-", "f32|f16|bf16",
	     "dtype of the weights in such a folder; default: that of the\n"
	     "parameters"),
	SIZE("max-shard-size", max_shard_size, NULL, 1, 9e18,
	     "most bytes of weights in a file of such a folder, also with suffix\n"
	     "k, m or g; default: 5e9"),
	INT("save-every", save_every, "0", 0, OPTION_BIG,
	    "write --save and --checkpoint every N steps, too; 0: at the end\n"
	    "only. The file of --save has the parameters alone: a run with --init\n"
	    "starts with new optimizer states, at step 1 and at the start of the\n"
	    "data"),
	STRING("checkpoint", checkpoint, "DIR", NULL,
	       "save checkpoints of the whole run to this folder, at the end and\n"
	       "after a signal too"),
	INT("keep", keep, "2", 0, OPTION_BIG,
	    "checkpoints that are kept in --checkpoint, the newest; 0: all"),
	FLAG("resume", resume,
	     "go on from the latest checkpoint in --checkpoint, with the bits of a\n"
	     "run that did not stop; without one, start a new run"),
	STRING("init", init, "FILE", NULL,
	       "start from saved parameters; the file contains the model size:\n"
	       "one of --save, a checkpoint, or the folder of --checkpoint, which\n"
	       "means its latest one; or a GPT-2 of Hugging Face\n"
	       "(model.safetensors, config.json next to it has the number of heads);\n"
	       "or a folder of Hugging Face, whose config.json has the sizes"),
	FLAG("init-random", init_random,
	     "start from random values; of --init, a folder of Hugging Face, only\n"
	     "config.json is read"),
	INT("generate", generate, "0", 0, 1e6,
	    "generate and print N bytes and stop; without --text. With a\n"
	    "tokenizer.json in the folder of --init: N tokens"),
	STRING("prompt", prompt, "TEXT", "\n", "start of the generated text; default: a newline"),
	REAL("temperature", temperature, "0.8", 0, 1e6,
	     "sampling temperature; 0: always the likeliest"),
	STRING("log", log, "FILE.jsonl", NULL,
	       "one JSON object per step, of rank 0: step, loss, grad_norm, lr,\n"
	       "step_s, tokens_per_s, flops (of a step), peak_flops (per second),\n"
	       "mfu (flops / step_s / peak_flops), launches (of kernels),\n"
	       "rss_bytes, numerics (mode); scale and skipped (steps so far) if\n"
	       "--scaler; val_loss if validated. peak_flops and mfu only if the\n"
	       "peak is known: on a\n"
	       "CPU in numerics mode exact, where independent FMAs in registers\n"
	       "are measured at the start"),
	FLAG("hash", hash,
	     "print a last line: numerics version and XXH3-128 of all parameters;\n"
	     "shardrt-ckpt hash prints the latter of what was saved"),
	FLAG("version", version, "print the version and stop"),
	FLAG("help", help, "print this help and stop; also -h"),
};

const tool_options_t train_option_table = { .rows = rows, .count = sizeof(rows) / sizeof(rows[0]) };
