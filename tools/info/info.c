/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-info: prints the version, how the library was built, topology, backends and their
 * devices, the configuration with its values, and memory plans.
 */
#include "tools/common.h"
#include "tools/info/info.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "tools/precision.h"

static const char usage[] =
	"Usage: shardrt-info [OPTION]...\n"
	"   or: shardrt-info --flight FILES|FOLDERS\n"
	"   or: [shardrun -n N] shardrt-info --bench [--seconds S]\n"
	"Prints the version and build of libshardrt, and topology, backends and devices of this\n"
	"machine.\n"
	"\n"
	"  -v, --version        print the version and exit\n"
	"  -f, --features       print which features of optional packages this build has: built, found\n"
	"                       at run time or missing, and the commands that need them\n"
	"  -c, --config         print the configuration variables with their values\n"
	"      --config-page    print them as a page of documentation, without values\n"
	"  -d, --device         print the device that a program gets with this configuration\n"
	"      --flight         read files that ranks wrote to the folder of SHARDRT_FLIGHT, and print\n"
	"                       the last collectives of the ranks, and which rank waits for which\n"
	"      --bench          measure multiply-adds, memory, products, collectives and a training\n"
	"                       step, with shares of their limits and causes of low ones\n"
	"      --seconds S      about how long that takes (default 60)\n"
	"  -h, --help           print this help and exit\n"
	"\n"
	"Memory plan and modules of a model, for one rank of a job that is not run:\n"
	"      --plan           print the plan\n"
	"      --tree           print the modules with their units, parameters and placements\n"
	"      --preset NAME    model size: nano, char or gpt2-124m (default nano)\n"
	"      --model FOLDER   a model of Hugging Face instead: its config.json, or this file;\n"
	"                       weights are not needed\n"
	"      --context N      tokens in a sequence; without it those of the model, at most 1024\n"
	"  -n N                 number of ranks (default 1)\n"
	"      --strategy S     ddp, zero1, zero2, zero3 or hybrid (default zero3)\n"
	"      --mesh DIM=N,... ranks as a grid, instead of -n; DIM is shard, replicate, dp or tp\n"
	"      --tensor-parts P sums that tensor parallelism cuts are made of P parts (default 1: not)\n"
	"      --sequence-parallel  with tp: rows are cut over it where columns are not\n"
	"      --reshard R      parameters are gathered for each use (always), kept until the next\n"
	"                       step (never), kept in groups of R ranks after the forward pass, or\n"
	"                       as the strategy has it (default auto)\n"
	"      --flat F         one flat parameter for each block, with views (views), without\n"
	"                       (padded), or none (default no)\n"
	"      --offload LIST   what is in host memory: none, all, or some of params, grads, state\n"
	"                       with commas (default none)\n"
	"      --dtype D        dtype to compute in: fp32, bf16 or fp16 (default fp32)\n"
	"      --pure           parameters, gradients and optimizer state have this dtype too\n"
	"      --reduce-dtype R dtype in which gradients are summed over ranks: fp32 or compute;\n"
	"                       without it fp32, compute if --pure\n"
	"      --optimizer O    adamw, or adamw8bit: its states in 8 bits (default adamw)\n"
	"      --recompute      blocks run forward again in the backward pass\n"
	"      --accumulate M   micro-batches per step (default 1)\n"
	"      --lora LIST      with LoRA adapters, as of shardrt-train: r=N,alpha=X,targets=A+B\n"
	"      --base-dtype B   with --lora: dtype of the frozen parameters of blocks: fp32, bf16, int8\n";

enum {
	OPT_CONFIG_PAGE = 256,
	OPT_FLIGHT,
	OPT_BENCH,
	OPT_SECONDS,
	OPT_PLAN,
	OPT_TREE,
	OPT_PRESET,
	OPT_MODEL,
	OPT_CONTEXT,
	OPT_STRATEGY,
	OPT_MESH,
	OPT_TENSOR_PARTS,
	OPT_SEQUENCE_PARALLEL,
	OPT_RESHARD,
	OPT_FLAT,
	OPT_OFFLOAD,
	OPT_DTYPE,
	OPT_PURE,
	OPT_RECOMPUTE,
	OPT_REDUCE_DTYPE,
	OPT_OPTIMIZER,
	OPT_ACCUMULATE,
	OPT_LORA,
	OPT_BASE_DTYPE,
};

static const struct option long_options[] = {
	{ "version", no_argument, NULL, 'v' },
	{ "features", no_argument, NULL, 'f' },
	{ "config", no_argument, NULL, 'c' },
	{ "device", no_argument, NULL, 'd' },
	{ "config-page", no_argument, NULL, OPT_CONFIG_PAGE },
	{ "flight", no_argument, NULL, OPT_FLIGHT },
	{ "bench", no_argument, NULL, OPT_BENCH },
	{ "seconds", required_argument, NULL, OPT_SECONDS },
	{ "help", no_argument, NULL, 'h' },
	{ "plan", no_argument, NULL, OPT_PLAN },
	{ "tree", no_argument, NULL, OPT_TREE },
	{ "preset", required_argument, NULL, OPT_PRESET },
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "context", required_argument, NULL, OPT_CONTEXT },
	{ "strategy", required_argument, NULL, OPT_STRATEGY },
	{ "mesh", required_argument, NULL, OPT_MESH },
	{ "tensor-parts", required_argument, NULL, OPT_TENSOR_PARTS },
	{ "sequence-parallel", no_argument, NULL, OPT_SEQUENCE_PARALLEL },
	{ "reshard", required_argument, NULL, OPT_RESHARD },
	{ "flat", required_argument, NULL, OPT_FLAT },
	{ "offload", required_argument, NULL, OPT_OFFLOAD },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "pure", no_argument, NULL, OPT_PURE },
	{ "recompute", no_argument, NULL, OPT_RECOMPUTE },
	{ "reduce-dtype", required_argument, NULL, OPT_REDUCE_DTYPE },
	{ "optimizer", required_argument, NULL, OPT_OPTIMIZER },
	{ "accumulate", required_argument, NULL, OPT_ACCUMULATE },
	{ "lora", required_argument, NULL, OPT_LORA },
	{ "base-dtype", required_argument, NULL, OPT_BASE_DTYPE },
	{ NULL, 0, NULL, 0 },
};

/* A whole number in 1..max, or 0 after an error message. */
static int parse_count(const char *option, const char *text, int max)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (end != text && !*end && n >= 1 && n <= max)
		return (int)n;
	tool_error("%s %s: must be a whole number in 1..%d", option, text, max);
	return 0;
}

static void print_indented(const char *lines)
{
	while (*lines) {
		size_t len = strcspn(lines, "\n");

		printf("    %.*s\n", (int)len, lines);
		lines += len + (lines[len] == '\n');
	}
}

/* The device that a program gets on this machine with this configuration. */
static int print_device(void)
{
	srt_context_options_t options = { .size = sizeof(options), .bootstrap = "" };
	srt_context_t *context;
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	char text[32], why[600];
	int status = 1;

	printf("device:\n");
	fflush(stdout);
	if (info_backend_is_unusable(why, sizeof(why))) {
		printf("    none: %s\n", why);
		return 1;
	}
	if (srt_context_create(&options, &context) != SRT_OK) {
		printf("    none: %s\n", srt_error_last());
		return 1;
	}
	if (srt_device_get_info(srt_context_device(context), &info) == SRT_OK) {
		printf("    %s: %s\n", info.backend, info.name);
		if (*info.isa)
			printf("    instruction set: %s\n", info.isa);
		if (info.threads)
			printf("    compute threads: %d\n", info.threads);
		printf("    streams: %s\n", info.async_streams ? "threads" : "inline");
		if (info.mem_nbytes)
			printf("    memory: %s\n", tool_bytes((double)info.mem_nbytes, text));
		printf("    numerics: %s\n",
		       srt_context_numerics(context) == SRT_NUMERICS_EXACT ? "exact" : "fast");
		status = 0;
	}
	srt_context_destroy(context);
	return status;
}

/* Prints the device by another process, which a driver that is opened may end. */
static int print_device_apart(void)
{
	char program[] = "shardrt-info", option[] = "--device", how[128];
	char *const argv[] = { program, option, NULL };
	int status;
	pid_t pid;

	fflush(stdout);
	signal(SIGCHLD, SIG_DFL);
	setenv("SHARDRT_RANK", "1", 1); /* rank 0 prints warnings, which this process has done */
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0)
		return print_device();
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
		return WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(how, sizeof(how), "exit status %d", WEXITSTATUS(status));
	printf("    none: its driver ended the process that opened it, by %s: see what the driver has "
	       "printed, or set SHARDRT_BACKEND=cpu to go without it\n",
	       how);
	return 1;
}

static int print_all(void)
{
	int status;

	printf("libshardrt %s, numerics version %d\nbuilt with:\n", srt_version_string(),
	       srt_numerics_version());
	print_indented(srt_build_info());
	printf("features:\n");
	status = info_features("    ");
	info_topology();
	info_backends();
	return status | print_device_apart();
}

/* The command line. */
typedef struct request {
	int features, config, device, page, version, help, flight, bench;
	int seconds;        /* of --bench; 0: not given */
	char *const *paths; /* of --flight */
	int npaths;
	const char *plan_option; /* an option that needs --plan or --tree, if given */
	int has_preset;
	info_plan_t what;
} request_t;

/* Index of the word in optarg. @return 0, or TOOL_EXIT_USAGE after an error message. */
static int parse_word(request_t *r, const char *option, const char *words, int64_t *value)
{
	r->plan_option = option;
	*value = tool_find_word(words, optarg);
	if (*value >= 0)
		return 0;
	tool_error("%s %s: must be one of %s", option, optarg, words);
	return TOOL_EXIT_USAGE;
}

/* The mesh in optarg. @return 0, or TOOL_EXIT_USAGE after an error message. */
static int parse_mesh(request_t *r)
{
	char why[256];

	r->plan_option = "--mesh";
	if (tool_mesh_parse(optarg, &r->what.mesh, why, sizeof(why)) == 0)
		return 0;
	tool_error("%s", why);
	return TOOL_EXIT_USAGE;
}

static int parse_reshard(request_t *r)
{
	char why[160];

	r->plan_option = "--reshard";
	if (tool_reshard(optarg, &r->what.reshard, why, sizeof(why)) == 0)
		return 0;
	tool_error("%s", why);
	return TOOL_EXIT_USAGE;
}

static int parse_offload(request_t *r)
{
	char why[160];

	r->plan_option = "--offload";
	if (tool_offload(optarg, &r->what.offload, why, sizeof(why)) == 0)
		return 0;
	tool_error("%s", why);
	return TOOL_EXIT_USAGE;
}

/* Parses one option. @return 0, or TOOL_EXIT_USAGE after an error message. */
static int parse_option(request_t *r, int opt)
{
	switch (opt) {
	case 'v':
		r->version = 1;
		return 0;
	case 'f':
		r->features = 1;
		return 0;
	case 'c':
		r->config = 1;
		return 0;
	case 'd':
		r->device = 1;
		return 0;
	case OPT_CONFIG_PAGE:
		r->page = 1;
		return 0;
	case OPT_FLIGHT:
		r->flight = 1;
		return 0;
	case OPT_BENCH:
		r->bench = 1;
		return 0;
	case OPT_SECONDS:
		r->seconds = parse_count("--seconds", optarg, 3600);
		return r->seconds ? 0 : TOOL_EXIT_USAGE;
	case 'h':
		r->help = 1;
		return 0;
	case OPT_PLAN:
		r->what.plan = 1;
		return 0;
	case OPT_TREE:
		r->what.tree = 1;
		return 0;
	case OPT_PRESET:
		r->plan_option = "--preset";
		r->has_preset = 1;
		r->what.preset = optarg;
		return 0;
	case OPT_MODEL:
		r->plan_option = "--model";
		r->what.model = optarg;
		return 0;
	case OPT_CONTEXT:
		r->plan_option = "--context";
		r->what.context = parse_count("--context", optarg, INT32_MAX);
		return r->what.context ? 0 : TOOL_EXIT_USAGE;
	case 'n':
		r->plan_option = "-n";
		r->what.world_size = parse_count("-n", optarg, 1 << 20);
		return r->what.world_size ? 0 : TOOL_EXIT_USAGE;
	case OPT_ACCUMULATE:
		r->plan_option = "--accumulate";
		r->what.accumulate = parse_count("--accumulate", optarg, 1 << 20);
		return r->what.accumulate ? 0 : TOOL_EXIT_USAGE;
	case OPT_LORA:
		r->plan_option = "--lora";
		r->what.lora = optarg;
		return 0;
	case OPT_BASE_DTYPE:
		return parse_word(r, "--base-dtype", "fp32|bf16|int8", &r->what.base_dtype);
	case OPT_STRATEGY:
		return parse_word(r, "--strategy", TOOL_STRATEGIES, &r->what.strategy);
	case OPT_MESH:
		return parse_mesh(r);
	case OPT_TENSOR_PARTS:
		r->plan_option = "--tensor-parts";
		r->what.tensor_parts = (int)parse_count("--tensor-parts", optarg, 1 << 20);
		return r->what.tensor_parts ? 0 : TOOL_EXIT_USAGE;
	case OPT_SEQUENCE_PARALLEL:
		r->plan_option = "--sequence-parallel";
		r->what.sequence_parallel = 1;
		return 0;
	case OPT_RESHARD:
		return parse_reshard(r);
	case OPT_FLAT:
		return parse_word(r, "--flat", TOOL_FLATS, &r->what.flat);
	case OPT_OFFLOAD:
		return parse_offload(r);
	case OPT_DTYPE:
		return parse_word(r, "--dtype", TOOL_DTYPES, &r->what.dtype);
	case OPT_OPTIMIZER:
		return parse_word(r, "--optimizer", INFO_OPTIMIZERS, &r->what.optimizer);
	case OPT_REDUCE_DTYPE:
		return parse_word(r, "--reduce-dtype", TOOL_REDUCE_DTYPES, &r->what.reduce_dtype);
	case OPT_PURE:
		r->plan_option = "--pure";
		r->what.pure = 1;
		return 0;
	case OPT_RECOMPUTE:
		r->plan_option = "--recompute";
		r->what.recompute = 1;
		return 0;
	}
	/* getopt_long() has printed the error. */
	fputs("shardrt-info --help lists the options\n", stderr);
	return TOOL_EXIT_USAGE;
}

static int parse_options(request_t *r, int argc, char **argv)
{
	char why[160];
	int opt;

	while ((opt = getopt_long(argc, argv, "vfcdhn:", long_options, NULL)) != -1) {
		if (parse_option(r, opt))
			return TOOL_EXIT_USAGE;
	}
	r->paths = argv + optind;
	r->npaths = argc - optind;
	if (r->flight && r->npaths == 0) {
		tool_error("--flight needs files or folders");
		return TOOL_EXIT_USAGE;
	}
	if (!r->flight && r->npaths > 0) {
		tool_error("unexpected argument \"%s\"", argv[optind]);
		return TOOL_EXIT_USAGE;
	}
	if (r->seconds && !r->bench) {
		tool_error("--seconds needs --bench");
		return TOOL_EXIT_USAGE;
	}
	if (r->has_preset && r->what.model != NULL) {
		tool_error("--preset and --model are both given: one has the sizes");
		return TOOL_EXIT_USAGE;
	}
	if (r->what.mesh.ndim > 0 && r->what.world_size != 1) {
		tool_error("-n and --mesh are both given: the mesh has the ranks");
		return TOOL_EXIT_USAGE;
	}
	if (r->what.mesh.ndim > 0)
		r->what.world_size = r->what.mesh.nranks;
	if (r->what.sequence_parallel && tool_mesh_tensor_ranks(&r->what.mesh) == 1) {
		tool_error("--sequence-parallel needs --mesh with tp");
		return TOOL_EXIT_USAGE;
	}
	if (tool_mesh_check(&r->what.mesh, r->what.strategy, why, sizeof(why)) != 0) {
		tool_error("%s", why);
		return TOOL_EXIT_USAGE;
	}
	if (r->plan_option != NULL && !r->what.plan && !r->what.tree) {
		tool_error("%s needs --plan or --tree", r->plan_option);
		return TOOL_EXIT_USAGE;
	}
	return 0;
}

int main(int argc, char **argv)
{
	request_t r = { .what = { .preset = "nano",
				  .strategy = SRT_STRATEGY_ZERO3,
				  .reduce_dtype = TOOL_REDUCE_DEFAULT,
				  .base_dtype = -1,
				  .world_size = 1,
				  .accumulate = 1 } };
	int status, plans;

	tool_start("shardrt-info");
	status = parse_options(&r, argc, argv);
	plans = r.what.plan || r.what.tree;
	if (!status && (plans || r.features || r.device || r.bench ||
			!(r.help || r.version || r.page || r.config || r.flight)))
		status = tool_check_config();
	if (status)
		return status;
	if (r.help)
		fputs(usage, stdout);
	else if (r.version)
		puts(srt_version_string());
	else if (r.page)
		info_config_page();
	else if (r.features)
		status = info_features("");
	else if (r.device)
		status = print_device();
	else if (r.bench)
		status = info_bench(r.seconds ? r.seconds : 60);
	else if (!r.config && !plans && !r.flight)
		status = print_all();
	if (r.config)
		status = info_config();
	if (r.flight)
		status = info_flight(r.paths, r.npaths);
	if (plans && !status)
		status = info_plan(&r.what);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		tool_error("standard output cannot be written");
		return 1;
	}
	return status;
}
