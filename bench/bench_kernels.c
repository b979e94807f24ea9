/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of every portable kernel on the device of SHARDRT_BACKEND: GB/s (bytes read + written) or
 * GF/s, as a share of a copy on the same device in the same run, and compared with a peer that uses
 * the protocol of bench/peer_kernels.py, on the same sizes and number of threads. Run by
 * bench/kernels.
 *
 *     bench/bench_kernels [--threads N] [--rounds N] [--scale N] [--dtypes f32,f16,bf16]
 *                         [--json FILE] [--peer COMMAND] [CASE...]
 *
 * Cases are those of kernels/cases/cases.def at their family's bench size, times the scale (for
 * devices with large caches); by default the first of each kernel. On a device other than the cpu
 * many launches are submitted and timed together, so that none waits for the host. In a round the
 * types, the copy, ours and the peer's alternate, so that a change of the machine's load affects
 * all; the best of all rounds counts. /f32: the time divided by that of floats, as many elements.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kernels/kernel_operations.h"

#define COPY_NBYTES ((size_t)64 << 20) /* times the scale: beyond the caches */
#define MAX_STREAMS 64
#define ROUND_S 0.1           /* at least this much of ours in a round */
#define TOGETHER_S 0.02       /* launches on a device are timed in batches of about so long */
#define FILL_NELEM (16 << 20) /* longer tensors repeat their first elements: filling takes long */

typedef struct bench {
	int threads, rounds, scale;
	size_t copy_nbytes;
	const char *dtypes, *peer_command;
	FILE *json, *to_peer, *from_peer;
	pid_t peer;
	char peer_version[64];
	srt_device_t *device;
	srt_stream_t *streams[MAX_STREAMS]; /* one a thread, so that copies use as many */
	int nstreams;
	srt_buffer_t *copy[2];
	bool is_cpu;
} bench_t;

/* One kernel in one dtype. */
typedef struct row {
	const srt_kernel_case_t *c;
	srt_kernel_dims_t dims;
	srt_dtype_t dtype;
	uint64_t args[SRT_COMMAND_MAX_ARGS / 8];
	srt_kernel_place_t places[SRT_COMMAND_MAX_BINDINGS];
	srt_view_t views[SRT_COMMAND_MAX_BINDINGS];
	double nbytes, flops; /* flops 0: limited by memory */
	double ours_s, copy_s, peer_s;
} row_t;

static const char *row_name(const row_t *row)
{
	return strcmp(row->c->name, "attention_backward_q") ? row->c->name : "attention_backward";
}

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_kernels: %s\n", srt_error_last());
	exit(1);
}

static void fail_bench(const char *what)
{
	fprintf(stderr, "bench_kernels: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- the peer ------------------------------------------------------------------------------ */
/* A line of the peer without its newline; NULL after the peer has ended. */
static char *peer_line(const bench_t *b, char *line, int size)
{
	if (fgets(line, size, b->from_peer) == NULL)
		return NULL;
	line[strcspn(line, "\n")] = 0;
	return line;
}

/* Starts the peer; its first line is its version, or with exit status 77 why it cannot run. */
static void start_peer(bench_t *b)
{
	int to[2], from[2], status = 0;

	if (b->peer_command == NULL)
		return;
	if (pipe(to) || pipe(from))
		fail_bench("pipe");
	b->peer = fork();
	if (b->peer < 0)
		fail_bench("fork");
	if (!b->peer) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		execl("/bin/sh", "sh", "-c", b->peer_command, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	b->to_peer = fdopen(to[1], "w");
	b->from_peer = fdopen(from[0], "r");
	if (b->to_peer == NULL || b->from_peer == NULL)
		fail_bench("fdopen");
	if (peer_line(b, b->peer_version, sizeof(b->peer_version)) == NULL)
		strcpy(b->peer_version, "nothing said");
	if (b->peer_version[0] >= '0' && b->peer_version[0] <= '9')
		return;
	waitpid(b->peer, &status, 0);
	printf("SKIP: the peer: %s\n", b->peer_version);
	fclose(b->to_peer);
	fclose(b->from_peer);
	b->to_peer = NULL;
}

static void stop_peer(bench_t *b)
{
	if (b->to_peer == NULL)
		return;
	fclose(b->to_peer);
	fclose(b->from_peer);
	waitpid(b->peer, NULL, 0);
}

/* Seconds of the peer's operation, 0 if it has none. */
static double ask_peer(const bench_t *b, const row_t *row)
{
	const srt_kernel_dims_t *d = &row->dims;
	char line[64];

	if (b->to_peer == NULL)
		return 0.0;
	fprintf(b->to_peer, "%d %s %s %lld %lld %lld %lld\n", b->threads, row_name(row),
		srt_dtype_name(row->dtype), (long long)d->r, (long long)d->n, (long long)d->k,
		(long long)d->b);
	fflush(b->to_peer);
	if (peer_line(b, line, sizeof(line)) == NULL) {
		fprintf(stderr, "bench_kernels: the peer has ended\n");
		exit(1);
	}
	return strtod(line, NULL);
}

/* ---- ours ------------------------------------------------------------------------------------ */
static double min_of(double a, double b)
{
	return b < a ? b : a;
}

static void sync_all(const bench_t *b)
{
	for (int i = 0; i < b->nstreams; i++)
		check_status(srt_stream_sync(b->streams[i]));
}

/* The number of launches of this duration to submit together; 1 on the cpu. */
static int count_launches(const bench_t *b, double seconds)
{
	double n = TOGETHER_S / seconds;

	return b->is_cpu || n < 1.0 ? 1 : n > 1000.0 ? 1000 : (int)n;
}

/* Seconds of one of n copies, each in as many parts as there are threads. */
static double time_copies(const bench_t *b, int n)
{
	size_t part = b->copy_nbytes / (size_t)b->nstreams / 64 * 64;
	double start = srt_now_s();

	for (int k = 0; k < n; k++)
		for (int i = 0; i < b->nstreams; i++)
			check_status(srt_buffer_copy(b->copy[1], (size_t)i * part, b->copy[0],
						     (size_t)i * part, part, b->streams[i]));
	sync_all(b);
	return (srt_now_s() - start) / n * (double)b->copy_nbytes / ((double)part * b->nstreams);
}

static double time_copy(const bench_t *b)
{
	return time_copies(b, count_launches(b, b->is_cpu ? 1.0 : time_copies(b, 1)));
}

static void run_once(const bench_t *b, const row_t *row)
{
	const srt_kernel_info_t *info = srt_kernel_info(row->c->kernel);
	srt_status_t status;

	if (row->c->kernel == SRT_K_ATTENTION_BACKWARD_Q)
		status = kernel_case_attention_backward(b->streams[0], row->dtype, row->args,
							row->views);
	else
		status = kernel_case_operation(b->streams[0], row->c->kernel, row->dtype, row->args,
					       row->views);
	if (status == SRT_ERR_UNSUPPORTED)
		status = srt_launch(b->streams[0], row->c->kernel, row->dtype,
				    srt_kernel_grid(row->c->kernel, row->args), row->args,
				    info->args_nbytes, row->views, info->nplaces);
	check_status(status);
}

/* Seconds of one of n runs. */
static double time_runs(const bench_t *b, const row_t *row, int n)
{
	double start = srt_now_s();

	for (int i = 0; i < n; i++)
		run_once(b, row);
	check_status(srt_stream_sync(b->streams[0]));
	return (srt_now_s() - start) / n;
}

/* The best of as many runs as fit into a round, at least three. */
static double time_ours(const bench_t *b, const row_t *row)
{
	int n = count_launches(b, b->is_cpu ? 1.0 : time_runs(b, row, 1));
	double best = 1e9, begin = srt_now_s();

	for (int i = 0; i < 3 || srt_now_s() - begin < ROUND_S; i++)
		best = min_of(best, time_runs(b, row, n));
	return best;
}

static double flops_of(const row_t *row)
{
	const srt_kernel_dims_t *d = &row->dims;
	/* Pairs of positions that see each other, of all heads, times head_dim. */
	double seen = 0.5 * (double)d->r * (double)(d->r + 1) * (double)d->k * (double)d->b;

	seen *= (double)d->n;
	switch (row->c->kernel) {
	case SRT_K_MATMUL:
		return 2.0 * (double)d->r * (double)d->n * (double)d->k * (double)d->b;
	case SRT_K_ATTENTION: /* scores, values */
		return 4.0 * seen;
	case SRT_K_ATTENTION_BACKWARD_Q: /* scores, dP, dq, dk, dv */
		return 10.0 * seen;
	default:
		return 0.0;
	}
}

/* The family's size, the scale's times as many elements or rows; products of as many more in each
 * direction as take that many times the work, attention of as many more sequences. */
static srt_kernel_dims_t dims_of(const bench_t *b, const srt_kernel_case_t *c)
{
	srt_kernel_dims_t d = c->family->bench;
	int64_t side = 1;

	while (side * side * side < b->scale)
		side *= 2;
	if (c->kernel == SRT_K_MATMUL) {
		d.r *= side;
		d.n *= side;
		d.k *= side;
	} else if (c->kernel == SRT_K_ATTENTION || c->kernel == SRT_K_ATTENTION_BACKWARD_Q) {
		d.b *= b->scale;
	} else if (d.r) {
		d.r *= b->scale;
	} else {
		d.n *= b->scale;
	}
	return d;
}

/* Fills a binding's tensor. A long tensor repeats its first values. */
static void fill_binding(const row_t *row, int i, unsigned char *bytes, unsigned char *next)
{
	srt_kernel_place_t places[SRT_COMMAND_MAX_BINDINGS];
	size_t nbytes = srt_kernel_place_nbytes(&row->places[i], row->dtype), filled;

	memcpy(places, row->places, sizeof(places));
	if (strchr("ov+", places[i].fill) != NULL && places[i].nelem > FILL_NELEM)
		places[i].nelem = FILL_NELEM;
	srt_kernel_place_fill(row->c, i, places, row->dtype, SRT_INPUT_MILD, 0, bytes, next);
	for (filled = srt_kernel_place_nbytes(&places[i], row->dtype); filled < nbytes; filled *= 2)
		memcpy(bytes + filled, bytes, filled < nbytes - filled ? filled : nbytes - filled);
}

/* Allocates and fills the bindings; bytes moved follow from the access letters. */
static void row_begin(const bench_t *b, row_t *row, const srt_kernel_case_t *c, srt_dtype_t dtype)
{
	const srt_kernel_info_t *info = srt_kernel_info(c->kernel);
	unsigned char *next = NULL;

	*row = (row_t){ .c = c,
			.dims = dims_of(b, c),
			.dtype = dtype,
			.ours_s = 1e9,
			.copy_s = 1e9,
			.peer_s = 1e9 };
	c->make(&row->dims, row->args, row->places);
	row->flops = flops_of(row);
	for (int i = info->nplaces; i-- > 0;) {
		size_t nbytes = srt_kernel_place_nbytes(&row->places[i], dtype);
		unsigned char *bytes;

		if (row->places[i].fill == '-')
			continue;
		bytes = calloc(1, nbytes + 64);
		if (bytes == NULL)
			fail_bench("memory");
		fill_binding(row, i, bytes, next);
		check_status(srt_buffer_create(b->device, SRT_MEM_DEVICE, nbytes, "place",
					       &row->views[i].buffer));
		row->views[i].dtype = SRT_U8;
		check_status(srt_buffer_copy_from_host(row->views[i].buffer, 0, bytes, nbytes,
						       b->streams[0]));
		row->nbytes += (double)nbytes * (strchr("Xx", info->access[i]) != NULL ? 2.0 : 1.0);
		free(next);
		next = bytes;
	}
	free(next);
}

static void row_end(row_t *row)
{
	for (int i = 0; i < SRT_COMMAND_MAX_BINDINGS; i++)
		srt_buffer_destroy(row->views[i].buffer);
}

static void print_head(const bench_t *b)
{
	printf("%s, %d threads%s%s\n", b->device->caps.name, b->threads,
	       b->to_peer != NULL ? "; torch " : "", b->to_peer != NULL ? b->peer_version : "");
	printf("%-26s %-5s %8s %7s %5s %7s %7s", "kernel", "dtype", "ms", "GB/s", "GF/s", "of copy",
	       "/f32");
	printf(b->to_peer != NULL ? " %8s %7s\n" : "\n", "torch/ms", "faster");
}

static void print_row(const bench_t *b, const row_t *row, double f32_s)
{
	double copy = 2.0 * (double)b->copy_nbytes / row->copy_s, speed = row->nbytes / row->ours_s;

	printf("%-26s %-5s %8.3f ", row_name(row), srt_dtype_name(row->dtype), row->ours_s * 1e3);
	if (row->flops > 0.0)
		printf("%7s %5.1f %7s", "", row->flops / row->ours_s * 1e-9, "");
	else
		printf("%7.2f %5s %7.2f", speed * 1e-9, "", speed / copy);
	printf(" %7.2f", f32_s > 0.0 ? row->ours_s / f32_s : 0.0);
	if (row->peer_s > 0.0)
		printf(" %8.3f %6.2fx", row->peer_s * 1e3, row->peer_s / row->ours_s);
	printf("\n");
	fflush(stdout);
	if (b->json == NULL)
		return;
	fprintf(b->json,
		"{\"kernel\": \"%s\", \"dtype\": \"%s\", \"backend\": \"%s\", \"threads\": %d, "
		"\"seconds\": %.9g, \"bytes\": %.0f, \"flops\": %.0f, \"copy_bytes_per_s\": %.6g, "
		"\"torch_seconds\": ",
		row_name(row), srt_dtype_name(row->dtype), b->device->backend->name, b->threads,
		row->ours_s, row->nbytes, row->flops, copy);
	fprintf(b->json, row->peer_s > 0.0 ? "%.9g}\n" : "null}\n", row->peer_s);
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = words; (p = strstr(p, word)) != NULL; p += n)
		if ((p == words || p[-1] == ',') && (!p[n] || p[n] == ','))
			return true;
	return false;
}

/* A kernel in all wanted types. */
static void bench_case(const bench_t *b, const srt_kernel_case_t *c)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };
	row_t rows[SRT_ARRAY_LEN(dtypes)];
	int nrows = 0;

	for (size_t t = 0; t < SRT_ARRAY_LEN(dtypes); t++) {
		if (!has_word(b->dtypes, srt_dtype_name(dtypes[t])) ||
		    !srt_kernel_has(c->kernel, dtypes[t]))
			continue;
		row_begin(b, &rows[nrows], c, dtypes[t]);
		run_once(b, &rows[nrows++]);
	}
	for (int round = 0; round < b->rounds; round++) {
		for (row_t *row = rows; row < rows + nrows; row++) {
			for (int i = 0; i < 3; i++)
				row->copy_s = min_of(row->copy_s, time_copy(b));
			row->ours_s = min_of(row->ours_s, time_ours(b, row));
			row->peer_s = min_of(row->peer_s, ask_peer(b, row));
		}
	}
	for (row_t *row = rows; row < rows + nrows; row++) {
		print_row(b, row, rows[0].dtype == SRT_F32 ? rows[0].ours_s : 0.0);
		row_end(row);
	}
}

/* ---- the program --------------------------------------------------------------------------- */
static void open_device(bench_t *b)
{
	const char *name = srt_config_string("SHARDRT_BACKEND");
	srt_device_request_t request = { .selector = srt_config_string("SHARDRT_DEVICE"),
					 .local_size = 1,
					 .threads = b->threads,
					 .exact = 1 };
	unsigned char *bytes;

	b->copy_nbytes = COPY_NBYTES * (size_t)b->scale;
	bytes = calloc(1, b->copy_nbytes);
	if (bytes == NULL)
		fail_bench("memory");
	if (b->threads > 1) /* a worker a stream: copies on several run concurrently */
		setenv("SHARDRT_CPU_STREAMS", "threads", 0);
	check_status(srt_device_open(name, &request, SRT_NUMERICS_EXACT, &b->device));
	b->is_cpu = !strcmp(b->device->backend->name, "cpu");
	b->threads = b->device->caps.threads ? b->device->caps.threads : b->threads;
	b->nstreams = b->threads < MAX_STREAMS ? b->threads : MAX_STREAMS;
	for (int i = 0; i < b->nstreams; i++)
		check_status(srt_stream_create(b->device, 0, "bench", &b->streams[i]));
	for (int i = 0; i < 2; i++) {
		check_status(srt_buffer_create(b->device, SRT_MEM_DEVICE, b->copy_nbytes, "copy",
					       &b->copy[i]));
		check_status(srt_buffer_copy_from_host(b->copy[i], 0, bytes, b->copy_nbytes,
						       b->streams[0]));
	}
	free(bytes);
}

static void close_device(bench_t *b)
{
	for (int i = 0; i < b->nstreams; i++)
		srt_stream_destroy(b->streams[i]);
	srt_buffer_destroy(b->copy[0]);
	srt_buffer_destroy(b->copy[1]);
	srt_device_close(b->device);
}

/* The first case of each kernel, or the cases named by case or kernel. */
static bool is_wanted(int number, char **names)
{
	const srt_kernel_case_t *c = &srt_kernel_cases[number];

	if (!c->family->bench.n || c->kernel == SRT_K_ATTENTION_BACKWARD_D ||
	    c->kernel == SRT_K_ATTENTION_BACKWARD_KV) /* part of the backward pass's row */
		return false;
	for (int i = 0; names[i] != NULL; i++)
		if (!strcmp(names[i], c->name) ||
		    !strcmp(names[i], srt_kernel_info(c->kernel)->name))
			return true;
	return names[0] == NULL && (!number || srt_kernel_cases[number - 1].kernel != c->kernel);
}

static int print_usage(void)
{
	fprintf(stderr,
		"usage: bench_kernels [--threads N] [--rounds N] [--scale N] [--dtypes f32,f16,bf16]\n"
		"                     [--json FILE] [--peer COMMAND] [CASE...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	bench_t b = { .threads = 1, .rounds = 3, .scale = 1, .dtypes = "f32,f16,bf16" };
	int i = 1;

	for (; i < argc && !strncmp(argv[i], "--", 2); i += 2) {
		if (i + 1 == argc)
			return print_usage();
		if (!strcmp(argv[i], "--threads"))
			b.threads = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--rounds"))
			b.rounds = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--scale"))
			b.scale = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--dtypes"))
			b.dtypes = argv[i + 1];
		else if (!strcmp(argv[i], "--peer"))
			b.peer_command = argv[i + 1];
		else if (strcmp(argv[i], "--json"))
			return print_usage();
		else if ((b.json = fopen(argv[i + 1], "w")) == NULL)
			fail_bench(argv[i + 1]);
	}
	if (b.threads < 1 || b.rounds < 1 || b.scale < 1 || b.scale > 64)
		return print_usage();
	open_device(&b);
	start_peer(&b);
	print_head(&b);
	for (int k = 0; k < SRT_CASE_COUNT; k++)
		if (is_wanted(k, argv + i))
			bench_case(&b, &srt_kernel_cases[k]);
	stop_peer(&b);
	close_device(&b);
	if (b.json != NULL && fclose(b.json))
		fail_bench("the JSON file");
	return 0;
}
