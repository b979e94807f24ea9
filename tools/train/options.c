/* SPDX-License-Identifier: BSD-3-Clause */
/* See options.h. An option is one row of the table. */
#include "tools/train/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mesh.h"

enum option_type {
	OPT_STRING,
	OPT_INT,
	OPT_REAL,
	OPT_WORD,     /* index of one of the words in `words` */
	OPT_OPTIONAL, /* the same; the second word if there is no value */
	OPT_FLAG,
	OPT_HEADING, /* of --help only */
};

typedef struct option {
	const char *name;
	enum option_type type;
	size_t offset;
	const char *arg;     /* as --help shows it */
	const char *initial; /* as one would type it; NULL = 0 */
	double min, max;     /* of numbers */
	const char *words;   /* "a|b|c" */
	const char *help;    /* lines after the first get the same indentation */
} option_t;

#define FIELD(f) offsetof(train_options_t, f)
#define HEADING(text)                                                                              \
	{                                                                                          \
		text, OPT_HEADING, 0, NULL, NULL, 0, 0, NULL, NULL                                 \
	}
#define STRING(name, f, arg, initial, help)                                                        \
	{                                                                                          \
		name, OPT_STRING, FIELD(f), arg, initial, 0, 0, NULL, help                         \
	}
#define INT(name, f, initial, min, max, help)                                                      \
	{                                                                                          \
		name, OPT_INT, FIELD(f), "N", initial, min, max, NULL, help                        \
	}
#define REAL(name, f, initial, min, max, help)                                                     \
	{                                                                                          \
		name, OPT_REAL, FIELD(f), "X", initial, min, max, NULL, help                       \
	}
#define WORD(name, f, initial, words, help)                                                        \
	{                                                                                          \
		name, OPT_WORD, FIELD(f), words, initial, 0, 0, words, help                        \
	}
#define OPTIONAL(name, f, arg, initial, words, help)                                               \
	{                                                                                          \
		name, OPT_OPTIONAL, FIELD(f), arg, initial, 0, 0, words, help                      \
	}
#define FLAG(name, f, help)                                                                        \
	{                                                                                          \
		name, OPT_FLAG, FIELD(f), NULL, NULL, 0, 0, NULL, help                             \
	}

#define BIG 2147483647.0

static const option_t table[] = {
	HEADING("Data and model"),
	STRING("text", text, "FILE", NULL,
	       "text to train on, one token per byte; the first nine tenths train,\n"
	       "the rest validates"),
	STRING("preset", preset, "NAME", "nano",
	       "model size: nano (4 layers, 4 heads, width 128, context 64),\n"
	       "char (6, 6, 384, 256) or gpt2-124m (12, 12, 768, 1024); the\n"
	       "options below override it"),
	INT("layers", layers, NULL, 1, BIG, "transformer blocks"),
	INT("heads", heads, NULL, 1, BIG, "attention heads; must divide the width"),
	INT("width", width, NULL, 1, BIG, "width of the residual stream"),
	INT("context", context, NULL, 1, BIG, "tokens in a sequence"),
	INT("vocab", vocab, NULL, 1, BIG,
	    "vocabulary size; the presets have 256, one for each byte"),
	INT("seed", seed, "1", 0, 9e15, "seed of initial values, batches and sampling"),
	HEADING("Training"),
	INT("steps", steps, "2000", 0, BIG, "optimizer steps"),
	INT("batch", batch, "12", 1, BIG,
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
	WORD("optimizer", optimizer, "adamw", "sgd|adam|adamw", "optimizer"),
	REAL("lr", lr, "1e-3", 0, 1e6, "learning rate after warm-up"),
	REAL("min-lr", min_lr, "-1", 0, 1e6,
	     "learning rate at the end of the cosine; default: lr / 10"),
	INT("warmup", warmup, "-1", 0, BIG,
	    "steps of linear warm-up; default: a tenth of the steps, at most 100"),
	REAL("beta1", beta1, "0.9", 0, 0.9999999, "decay of the first moment (adam, adamw)"),
	REAL("beta2", beta2, "0.99", 0, 0.9999999, "decay of the second moment (adam, adamw)"),
	REAL("momentum", momentum, "0", 0, 0.9999999, "momentum (sgd)"),
	REAL("weight-decay", weight_decay, "0.1", 0, 1e6,
	     "weight decay of matrices; biases and norms have none"),
	REAL("clip", clip, "1", 0, 1e30, "maximum gradient norm; 0: do not clip"),
	WORD("clip-p", clip_p, "2", "1|2|3|inf", "norm used for clipping"),
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
	STRING("reshard", reshard, "R", "auto",
	       "whether parameters are gathered for each use (always) or kept\n"
	       "until the next step (never); a number of ranks: after the forward\n"
	       "pass kept in groups of so many; auto: as the strategy has it"),
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
	     "exact: bits as docs/numerics.md defines them; default:\n"
	     "SHARDRT_NUMERICS"),
	HEADING("Results"),
	INT("eval-every", eval_every, "250", 0, BIG,
	    "validate every N steps and at the end; 0: never"),
	INT("eval-batches", eval_batches, "0", 0, BIG,
	    "validate on the first N batches of the validation text; 0: all"),
	INT("sample", sample, "0", 0, 1e6, "bytes of text to generate and print after training"),
	STRING("save", save, "FILE", NULL,
	       "write the parameters (safetensors) at the end, also after Ctrl-C.\n"
	       "If the loss is not finite, the file is left unchanged and the exit\n"
	       "status is 1"),
	INT("save-every", save_every, "0", 0, BIG,
	    "write the file of --save every N steps, too; 0: never. It has the\n"
	    "parameters alone: a run with --init starts with new optimizer\n"
	    "states, at step 1 and at the start of the data"),
	STRING("init", init, "FILE", NULL,
	       "start from saved parameters; the file contains the model size"),
	INT("generate", generate, "0", 0, 1e6,
	    "generate and print N bytes and stop; without --text"),
	STRING("prompt", prompt, "TEXT", "\n", "start of the generated text; default: a newline"),
	REAL("temperature", temperature, "0.8", 0, 1e6,
	     "sampling temperature; 0: always the likeliest byte"),
	STRING("log", log, "FILE.jsonl", NULL,
	       "one JSON object per step, of rank 0: step, loss, grad_norm, lr,\n"
	       "step_s, tokens_per_s, flops (of a step), peak_flops (per second),\n"
	       "mfu (flops / step_s / peak_flops), launches (of kernels),\n"
	       "rss_bytes; scale and skipped (steps so far) if --scaler; val_loss\n"
	       "if validated. peak_flops and mfu only if the peak is known: on a\n"
	       "CPU in numerics mode exact, where independent FMAs in registers\n"
	       "are measured at the start"),
	FLAG("hash", hash, "print a last line: numerics version and XXH3-128 of all parameters"),
	FLAG("version", version, "print the version and stop"),
	FLAG("help", help, "print this help and stop; also -h"),
};

#define NOPTIONS (sizeof(table) / sizeof(table[0]))

static int64_t *get_int_field(train_options_t *o, const option_t *opt)
{
	return (int64_t *)(void *)((char *)o + opt->offset);
}

static double *get_real_field(train_options_t *o, const option_t *opt)
{
	return (double *)(void *)((char *)o + opt->offset);
}

static int refuse_value(char *why, size_t nwhy, const option_t *opt, const char *value)
{
	if (opt->words)
		snprintf(why, nwhy, "--%s must be one of %s, not '%s'", opt->name, opt->words,
			 value);
	else if (opt->max >= BIG)
		snprintf(why, nwhy, "--%s needs %s of %g or more, not '%s'", opt->name,
			 opt->type == OPT_INT ? "a whole number" : "a number", opt->min, value);
	else
		snprintf(why, nwhy, "--%s needs %s from %g to %g, not '%s'", opt->name,
			 opt->type == OPT_INT ? "a whole number" : "a number", opt->min, opt->max,
			 value);
	return -1;
}

static int set_option(train_options_t *o, const option_t *opt, const char *value, char *why,
		      size_t nwhy)
{
	char *end = NULL;

	errno = 0;
	switch (opt->type) {
	case OPT_STRING:
		*(const char **)(void *)((char *)o + opt->offset) = value;
		return 0;
	case OPT_INT: {
		long long n = strtoll(value, &end, 10);

		if (errno || end == value || *end || (double)n < opt->min || (double)n > opt->max)
			return refuse_value(why, nwhy, opt, value);
		*get_int_field(o, opt) = n;
		return 0;
	}
	case OPT_REAL: {
		double x = strtod(value, &end);

		if (end == value || *end || !(x >= opt->min && x <= opt->max))
			return refuse_value(why, nwhy, opt, value);
		*get_real_field(o, opt) = x;
		return 0;
	}
	case OPT_WORD:
	case OPT_OPTIONAL: {
		int64_t i = tool_find_word(opt->words, value);

		if (i < 0)
			return refuse_value(why, nwhy, opt, value);
		*get_int_field(o, opt) = i;
		return 0;
	}
	default:
		*get_int_field(o, opt) = 1;
		return 0;
	}
}

/* A default may be outside the range: it means that another option determines the value. */
static void set_initial(train_options_t *o, const option_t *opt)
{
	if (!opt->initial || opt->type == OPT_HEADING)
		return;
	if (opt->type == OPT_STRING)
		*(const char **)(void *)((char *)o + opt->offset) = opt->initial;
	else if (opt->type == OPT_REAL)
		*get_real_field(o, opt) = strtod(opt->initial, NULL);
	else if (opt->words)
		*get_int_field(o, opt) = tool_find_word(opt->words, opt->initial);
	else
		*get_int_field(o, opt) = strtoll(opt->initial, NULL, 10);
}

static const option_t *find_option(const char *name, size_t n)
{
	for (size_t i = 0; i < NOPTIONS; i++)
		if (table[i].type != OPT_HEADING && strlen(table[i].name) == n &&
		    strncmp(table[i].name, name, n) == 0)
			return &table[i];
	return NULL;
}

static int check_precision(const train_options_t *o, char *why, size_t nwhy)
{
	tool_precision_t precision;

	if (tool_precision((tool_dtype_t)o->dtype, (int)o->pure, (tool_reduce_t)o->reduce_dtype,
			   &precision, why, nwhy) != 0)
		return -1;
	if (o->init_scale > 0 && o->scaler == TRAIN_SCALER_NONE) {
		snprintf(why, nwhy, "--init-scale needs --scaler");
		return -1;
	}
	if (o->generate > 0 || o->steps == 0 || o->dtype != TOOL_FP16)
		return 0;
	if (o->scaler == TRAIN_SCALER_NONE) {
		snprintf(why, nwhy,
			 "--dtype fp16 needs --scaler: most gradients are below 6e-8, the least "
			 "fp16 number, and would be 0");
		return -1;
	}
	if (o->pure && o->scaler == TRAIN_SCALER_PLAIN) {
		snprintf(why, nwhy,
			 "--pure --dtype fp16 needs --scaler sharded: GradScaler refuses fp16 "
			 "gradients");
		return -1;
	}
	return 0;
}

/* --accumulate-mode tree and --micro-batches go together. */
static int check_tree(const train_options_t *o, char *why, size_t nwhy)
{
	int tree = o->accumulate_mode == SRT_ACCUMULATE_TREE;
	int64_t n = o->micro_batches;
	tool_precision_t precision;
	srt_unit_types_t types;

	if (tree != (n > 0)) {
		snprintf(why, nwhy, "%s",
			 tree ? "--accumulate-mode tree needs --micro-batches N, those of a step "
				"over all ranks" :
				"--micro-batches is for --accumulate-mode tree; otherwise "
				"--accumulate has the micro-batches of each rank");
		return -1;
	}
	if (!tree)
		return 0;
	if ((n & (n - 1)) != 0 || o->batch % n != 0) {
		snprintf(why, nwhy,
			 "--micro-batches %lld must be a power of two that divides --batch %lld",
			 (long long)n, (long long)o->batch);
		return -1;
	}
	if (o->accumulate != 1) {
		snprintf(why, nwhy,
			 "--accumulate cannot be given with --accumulate-mode tree: "
			 "--micro-batches and the number of ranks decide it");
		return -1;
	}
	precision = train_options_precision(o);
	if (srt_precision_resolve(&precision.policy, precision.stored, &types) != SRT_OK ||
	    types.reduce != SRT_F32) {
		snprintf(why, nwhy,
			 "--accumulate-mode tree needs gradients that are reduced in "
			 "fp32: --reduce-dtype fp32");
		return -1;
	}
	return 0;
}

static int check_mesh(const train_options_t *o, char *why, size_t nwhy)
{
	tool_mesh_t mesh;

	if (tool_mesh_parse(o->mesh, &mesh, why, nwhy) != 0)
		return -1;
	return tool_mesh_check(&mesh, (srt_strategy_t)o->strategy, why, nwhy);
}

static int check_reshard(const train_options_t *o, char *why, size_t nwhy)
{
	int reshard;

	return tool_reshard(o->reshard, &reshard, why, nwhy);
}

/* Checks that involve several options. */
static int check_options(const train_options_t *o, char *why, size_t nwhy)
{
	srt_offload_t offload;

	if (o->help || o->version)
		return 0;
	if (o->generate > 0 && !o->init) {
		snprintf(why, nwhy, "--generate needs --init FILE, a saved model");
		return -1;
	}
	if (o->generate == 0 && (!o->text || !*o->text)) {
		snprintf(why, nwhy, "there is no text to train on: --text FILE is missing");
		return -1;
	}
	if ((o->generate > 0 || o->sample > 0) && !*o->prompt) {
		snprintf(why, nwhy, "--prompt must not be empty");
		return -1;
	}
	if (o->save_every > 0 && !o->save) {
		snprintf(why, nwhy, "--save-every needs --save FILE");
		return -1;
	}
	if (o->min_lr > o->lr) {
		snprintf(why, nwhy, "--min-lr %g is above --lr %g", o->min_lr, o->lr);
		return -1;
	}
	if (o->warmup > o->steps && o->steps > 0) {
		snprintf(why, nwhy, "--warmup %lld is more than --steps %lld", (long long)o->warmup,
			 (long long)o->steps);
		return -1;
	}
	if (check_precision(o, why, nwhy) != 0 || check_mesh(o, why, nwhy) != 0 ||
	    tool_offload(o->offload, &offload, why, nwhy) != 0 || check_reshard(o, why, nwhy) != 0)
		return -1;
	return check_tree(o, why, nwhy);
}

/* The argument after an option, which may be its value. */
static const char *get_next(const option_t *opt, int argc, char **argv, int a)
{
	const char *next = a + 1 < argc ? argv[a + 1] : NULL;

	return opt->type == OPT_OPTIONAL && next && next[0] == '-' ? NULL : next;
}

int train_options_parse(int argc, char **argv, train_options_t *o, char *why, size_t nwhy)
{
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < NOPTIONS; i++)
		set_initial(o, &table[i]);
	for (int a = 1; a < argc; a++) {
		const char *name = argv[a], *value;
		const option_t *opt;

		if (strcmp(name, "-h") == 0)
			name = "--help";
		if (strncmp(name, "--", 2) != 0) {
			snprintf(why, nwhy, "unexpected argument '%s'; --help lists the options",
				 name);
			return -1;
		}
		name += 2;
		value = strchr(name, '=');
		opt = find_option(name, value ? (size_t)(value - name) : strlen(name));
		if (!opt || (opt->type == OPT_FLAG && value)) {
			snprintf(why, nwhy, "%s '%s'; --help lists the options",
				 opt ? "no value is allowed in" : "unknown option", argv[a]);
			return -1;
		}
		if (value)
			value++;
		else if (opt->type != OPT_FLAG && (value = get_next(opt, argc, argv, a)))
			a++;
		if (!value && opt->type == OPT_OPTIONAL) {
			*get_int_field(o, opt) = 1;
			continue;
		}
		if (!value && opt->type != OPT_FLAG) {
			snprintf(why, nwhy, "--%s needs a value", opt->name);
			return -1;
		}
		if (set_option(o, opt, value, why, nwhy) != 0)
			return -1;
	}
	if (o->min_lr < 0)
		o->min_lr = o->lr / 10;
	if (o->warmup < 0)
		o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
	return check_options(o, why, nwhy);
}

static void print_option(FILE *out, const option_t *opt)
{
	char left[64];

	snprintf(left, sizeof(left), "--%s%s%s", opt->name, opt->arg ? " " : "",
		 opt->arg ? opt->arg : "");
	fprintf(out, "  %-30s ", left);
	if (strlen(left) > 30)
		fprintf(out, "\n%33s", "");
	for (const char *p = opt->help; *p; p++) {
		fputc(*p, out);
		if (*p == '\n')
			fprintf(out, "%33s", "");
	}
	if (opt->initial && opt->initial[0] != '-' && opt->initial[0] != '\n')
		fprintf(out, " [%s]", opt->initial);
	fputc('\n', out);
}

void train_options_help(FILE *out)
{
	fprintf(out, "usage: shardrt-train --text FILE [options]\n"
		     "       shardrt-train --init FILE --generate N [options]\n"
		     "       shardrun -n RANKS shardrt-train ...\n"
		     "\n"
		     "Trains a GPT on the bytes of a text, on one or several ranks.\n");
	for (size_t i = 0; i < NOPTIONS; i++) {
		if (table[i].type == OPT_HEADING)
			fprintf(out, "\n%s:\n", table[i].name);
		else
			print_option(out, &table[i]);
	}
	fprintf(out,
		"\n"
		"Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 end training after the current step, or\n"
		"end a validation; --save, --hash and the log are completed. If --save cannot be\n"
		"written at the end, it is tried again for a minute, unless a signal has ended\n"
		"training; then the parameters go to a new folder in TMPDIR (/tmp), and the status\n"
		"is 1. Exit status: 0 success, 1 failure, 2 wrong options or text, 128 + the number of\n"
		"the signal that ended training (130: Ctrl-C, 143: SIGTERM).\n"
		"shardrt-info -c lists the environment variables (SHARDRT_*).\n");
}
