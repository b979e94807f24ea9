/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Growth: what a rank sends and keeps, and how long a start and a step take, in worlds of up to
 * thousands of ranks (docs/scaling.md):
 *
 *     bench/scale [OPTION...] RANKS...         a table, a line for each world
 *     bench/scale --counts [OPTION...] RANKS   what each rank of the first node sends
 *     shardrun -n RANKS bench/scale --rank [OPTION...]     the same, of a real run
 *
 * The ranks of the first node are processes, which run the library's own code: they join, build the
 * model with zero3 and run a step. Other nodes are modelled (scale_links.c, scale_nodes.c), and so
 * are the times of links and compute (below). In a real run with --node N, the ranks of one host
 * are told that they are on nodes of N ranks.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/scale.h"
#include "models/presets.h"

#define MAX_NODE 64

/* The modelled machine, and the work of a step. */
typedef struct machine {
	double latency_s;   /* of a round, or of an exchange from rank to rank */
	double message_s;   /* that a rank's processor needs for a message, sent and received */
	double frame_s;     /* that rank 0 needs for a frame of the control channel */
	double link_rate;   /* bytes a second, of a node */
	double memory_rate; /* bytes a second between ranks of a node, of the node */
	double flops;       /* of a rank */
	double tokens; /* a rank's, weak scaling; strong: all ranks' together are 64 times this */
} machine_t;

#define STRONG_RANKS 64

static machine_t machine = {
	.latency_s = 5e-6,
	.message_s = 1e-6,
	.frame_s = 5e-6,
	.link_rate = 25e9,
	.memory_rate = 100e9,
	.flops = 100e12,
	.tokens = 8192,
};

static srt_decoder_config_t config;
static int node = 8;
static bool is_flat; /* all messages by UCX: no hierarchy */

/* ---- times ---------------------------------------------------------------------------------- */

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* Seconds that a call's messages take, of all ranks of the node at once. */
static double time_of(const scale_count_t *c, int nlocal)
{
	const double messages = (double)(c->messages[0] + c->messages[1]);
	const double near = (double)c->bytes[0] * nlocal / machine.memory_rate;
	const double far = (double)c->bytes[1] * nlocal / machine.link_rate;

	return (double)c->rounds * machine.latency_s +
	       later(messages * machine.message_s, later(near, far));
}

/*
 * A step: one queue of communication and one of compute, in the order of the calls. A gather may
 * start with the compute of the unit before it (a prefetch of 1) and ends before its unit's; sums
 * start after their unit's compute. 2 operations for each parameter and token forward, 4 backward.
 */
static double time_step(const scale_record_t *record, double tokens, int nlocal)
{
	double sends = 0, computes = 0, begun = 0;

	for (int i = 0; i < record->nops; i++) {
		const scale_op_t *op = &record->ops[i];
		const double send_s = time_of(&op->data, nlocal);
		const double work = op->kind == SCALE_FORWARD  ? 2 :
				    op->kind == SCALE_BACKWARD ? 4 :
								 0;

		if (work == 0) {
			sends = later(sends, computes) + send_s;
			continue;
		}
		sends = later(sends, begun) + send_s;
		begun = send_s > 0 ? later(computes, sends) : computes;
		computes = begun + work * op->nparams * tokens / machine.flops;
	}
	return later(sends, computes);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static int fail(const char *what)
{
	fprintf(stderr, "scale: %s\n", what);
	exit(1);
}

/* A port that rank 0 can listen on: it is kept by a socket that does not listen. */
static int reserve_port(int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &length) != 0)
		fail("no port is free");
	*port = ntohs(address.sin_port);
	return fd;
}

static void run_rank(int rank, int world, int nlocal, int port, scale_record_t *record)
{
	char address[32];

	snprintf(address, sizeof(address), "tcp:127.0.0.1:%d", port);
	setenv("SHARDRT_BOOTSTRAP", address, 1);
	set_number("SHARDRT_RANK", rank);
	set_number("SHARDRT_WORLD_SIZE", world);
	set_number("SHARDRT_LOCAL_RANK", rank);
	set_number("SHARDRT_LOCAL_SIZE", nlocal);
	setenv("SHARDRT_HEARTBEAT", "1e6", 1); /* the modelled nodes have none */
	setenv("SHARDRT_COLLECTIVES", is_flat ? "ucx" : "auto", 1);
	setenv("SHARDRT_BACKEND", "cpu", 1);
	setenv("SHARDRT_BIND", "no", 1);
	setenv("SHARDRT_THREADS", "1", 1);
	scale_links_begin(true, 0);
	scale_rank_run(&config, record);
	exit(0);
}

/* Runs the first node of a world. records: [its ranks] */
static void run_world(int world, int nlocal, scale_record_t *records)
{
	pid_t child[MAX_NODE + 1];
	int port, status, n = 0, reserved = reserve_port(&port);

	fflush(stdout); /* what is left there would be printed by each child */
	for (int i = 0; i < nlocal + (world > nlocal); i++) {
		child[n] = fork();
		if (child[n] < 0)
			fail("cannot fork");
		if (child[n++] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* if another one fails */
		close(reserved);
		if (i < nlocal)
			run_rank(i, world, nlocal, port, &records[i]);
		scale_nodes_run(world, nlocal, port);
		exit(0);
	}
	for (int i = 0; i < n; i++) {
		if (waitpid(child[i], &status, 0) != child[i] || status != 0)
			fail("a rank has failed");
	}
	close(reserved);
}

/* ---- output --------------------------------------------------------------------------------- */

static scale_count_t sum_step(const scale_record_t *record)
{
	scale_count_t sum = { .rounds = 0 };

	for (int i = 0; i < record->nops; i++) {
		for (int far = 0; far < 2; far++) {
			sum.messages[far] += record->ops[i].data.messages[far];
			sum.bytes[far] += record->ops[i].data.bytes[far];
		}
		sum.rounds += record->ops[i].data.rounds;
	}
	return sum;
}

static void print_counts(int rank, const scale_record_t *record)
{
	const scale_count_t data = sum_step(record), *c = &record->control;

	printf("rank %d: data near %llu of %llu bytes, far %llu of %llu bytes, %llu rounds; control "
	       "near %llu of %llu bytes, far %llu of %llu bytes, %llu exchanges; %llu connections\n",
	       rank, (unsigned long long)data.messages[0], (unsigned long long)data.bytes[0],
	       (unsigned long long)data.messages[1], (unsigned long long)data.bytes[1],
	       (unsigned long long)data.rounds, (unsigned long long)c->messages[0],
	       (unsigned long long)c->bytes[0], (unsigned long long)c->messages[1],
	       (unsigned long long)c->bytes[1], (unsigned long long)c->rounds,
	       (unsigned long long)record->connections);
	fflush(stdout);
}

/* The frames of all ranks of the node pass rank 0's relay. Exchanges are rank 0's. */
static scale_count_t sum_control(const scale_record_t *records, int nlocal)
{
	scale_count_t sum = { .rounds = records[0].control.rounds };

	for (int i = 0; i < nlocal; i++) {
		sum.messages[1] += records[i].control.messages[1];
		sum.bytes[1] += records[i].control.bytes[1];
	}
	return sum;
}

/* The longest step of the ranks; of a rank that carries no messages of others, the tables. */
static void print_world(int world, int nlocal, const scale_record_t *records)
{
	const scale_record_t *root = &records[0];
	const scale_count_t most = sum_step(root), control = sum_control(records, nlocal);
	const double strong_tokens = machine.tokens * STRONG_RANKS / world;
	double weak = 0, strong = 0, control_s;

	for (int i = 0; i < nlocal; i++) {
		weak = later(weak, time_step(&records[i], machine.tokens, nlocal));
		strong = later(strong, time_step(&records[i], strong_tokens, nlocal));
	}
	control_s = (double)control.messages[1] * machine.frame_s +
		    (double)control.bytes[1] / machine.link_rate +
		    (double)control.rounds * 2 * machine.latency_s;
	printf("%5d %5d %9llu %9.1f %9.1f %6llu %6llu %9llu %9.2f %8.1f %8.1f %7.2f %7.2f %8.3f %9.2f "
	       "%9.2f\n",
	       world, (world + nlocal - 1) / nlocal,
	       (unsigned long long)(most.messages[0] + most.messages[1]),
	       (double)most.bytes[0] / 1e6, (double)most.bytes[1] / 1e6,
	       (unsigned long long)most.rounds, (unsigned long long)root->connections,
	       (unsigned long long)control.messages[1], (double)control.bytes[1] / 1e6,
	       (double)root->plan / (1 << 20), (double)records[nlocal - 1].tables / (1 << 20),
	       root->join_s, root->build_s, control_s, weak * 1e3, strong * 1e3);
	fflush(stdout);
}

static void print_head(void)
{
	printf("%5s %5s %9s %9s %9s %6s %6s %9s %9s %8s %8s %7s %7s %8s %9s %9s\n", "ranks",
	       "nodes", "messages", "near_MB", "far_MB", "rounds", "peers", "frames", "frames_MB",
	       "plan_MiB", "tab_MiB", "join_s", "build_s", "ctl_s", "weak_ms", "strong_ms");
}

/* ---- options -------------------------------------------------------------------------------- */

enum { COUNTS = 256, RANK, FLAT, MODEL, NODE, TOKENS, FLOPS, LATENCY, RATE };

static const struct option options[] = {
	{ "counts", no_argument, NULL, COUNTS },
	{ "rank", no_argument, NULL, RANK },
	{ "flat", no_argument, NULL, FLAT },
	{ "model", required_argument, NULL, MODEL },     /* a preset, or 7b */
	{ "node", required_argument, NULL, NODE },       /* ranks of a node */
	{ "tokens", required_argument, NULL, TOKENS },   /* of a rank */
	{ "flops", required_argument, NULL, FLOPS },     /* of a rank, a second */
	{ "latency", required_argument, NULL, LATENCY }, /* seconds */
	{ "rate", required_argument, NULL, RATE },       /* bytes a second, of a node's link */
	{ NULL, 0, NULL, 0 },
};

static void set_model(const char *name)
{
	if (strcmp(name, "7b") == 0)
		config = (srt_decoder_config_t){ SRT_DECODER_GPT, .layers = 32,    .heads = 32,
						 .width = 4096,   .context = 2048, .vocab = 32000 };
	else if (srt_decoder_preset(name, &config) != SRT_OK)
		fail(srt_error_last());
	if (strcmp(name, "gpt2-124m") == 0)
		config.vocab = 50257;
}

int main(int argc, char **argv)
{
	bool counts = false, is_rank = false;
	int option, world, nlocal;
	scale_record_t *records = mmap(NULL, MAX_NODE * sizeof(*records), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (records == MAP_FAILED)
		fail("no memory");
	set_model("gpt2-124m");
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case COUNTS:
			counts = true;
			break;
		case RANK:
			is_rank = true;
			break;
		case FLAT:
			is_flat = true;
			break;
		case MODEL:
			set_model(optarg);
			break;
		case NODE:
			node = atoi(optarg);
			break;
		case TOKENS:
			machine.tokens = atof(optarg);
			break;
		case FLOPS:
			machine.flops = atof(optarg);
			break;
		case LATENCY:
			machine.latency_s = atof(optarg);
			break;
		case RATE:
			machine.link_rate = atof(optarg);
			break;
		default:
			return 2;
		}
	}
	if (node < 1 || node > MAX_NODE || is_rank != (optind == argc))
		fail("usage: scale [--counts] [OPTION...] RANKS..., or scale --rank [OPTION...]");
	if (is_rank) {
		scale_links_begin(false, node);
		scale_rank_run(&config, &records[0]);
		print_counts(atoi(getenv("SHARDRT_RANK")), &records[0]);
		return 0;
	}
	if (!counts)
		print_head();
	for (; optind < argc; optind++) {
		world = atoi(argv[optind]);
		nlocal = node < world ? node : world;
		memset(records, 0, MAX_NODE * sizeof(*records));
		run_world(world, nlocal, records);
		if (!counts)
			print_world(world, nlocal, records);
		for (int i = 0; counts && i < nlocal; i++)
			print_counts(i, &records[i]);
	}
	return 0;
}
