/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole program (context, build, two steps, save, load, destroy) in which one call of the system
 * or one allocation fails, on one rank: tests/engine/test_failing_calls.sh. The linker gives the
 * library these functions (--wrap).
 *
 *     test_failing_calls VARIANT FILE              prints how often each rank calls each function
 *     test_failing_calls VARIANT FILE CALL K RANK  the K-th call fails on the rank
 *
 * VARIANT: "plain", or "all" with a split mesh, groups that are resharded to, offload, mixed
 * precision, micro-batches that are reduced once, a gradient scaler, clipping and a hash; or
 * "state8", whose optimizer states are in 8 bits: calls are counted while one is read, which is the
 * program's end.
 *
 * Prints a line for each rank: "rank R: done", or the error that the program got.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "tests/harness/options.h"

/* X(result, name, what a failure returns, errno, parameters, arguments) */
#define CALLS(X)                                                                                   \
	X(void *, malloc, NULL, ENOMEM, (size_t n), (n))                                           \
	X(void *, calloc, NULL, ENOMEM, (size_t n, size_t size), (n, size))                        \
	X(void *, realloc, NULL, ENOMEM, (void *p, size_t n), (p, n))                              \
	X(void *, aligned_alloc, NULL, ENOMEM, (size_t align, size_t n), (align, n))               \
	X(void *, mmap, MAP_FAILED, ENOMEM,                                                        \
	  (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at)) \
	X(int, memfd_create, -1, EMFILE, (const char *name, unsigned flags), (name, flags))        \
	X(int, ftruncate, -1, ENOSPC, (int fd, off_t n), (fd, n))                                  \
	X(int, fallocate, -1, ENOSPC, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))    \
	X(ssize_t, recvmsg, -1, ENOMEM, (int fd, struct msghdr *m, int flags), (fd, m, flags))     \
	X(ssize_t, sendmsg, -1, ENOBUFS, (int fd, const struct msghdr *m, int flags),              \
	  (fd, m, flags))                                                                          \
	X(ssize_t, pread, -1, EIO, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))          \
	X(ssize_t, pwrite, -1, ENOSPC, (int fd, const void *p, size_t n, off_t at),                \
	  (fd, p, n, at))                                                                          \
	X(int, fsync, -1, EIO, (int fd), (fd))                                                     \
	X(int, rename, -1, EIO, (const char *from, const char *to), (from, to))                    \
	X(int, pthread_create, EAGAIN, EAGAIN,                                                     \
	  (pthread_t * thread, const pthread_attr_t *attr, void *(*f)(void *), void *p),           \
	  (thread, attr, f, p))

typedef enum call {
#define ENUM(result, name, failed, error, parameters, arguments) CALL_##name,
	CALLS(ENUM)
#undef ENUM
		CALL_open,
	NCALLS
} call_t;

static const char *const names[NCALLS] = {
#define NAME(result, name, failed, error, parameters, arguments) #name,
	CALLS(NAME)
#undef NAME
		"open"
};

static atomic_long calls[NCALLS];
static atomic_long fails_at[NCALLS];

static int fails(call_t call, int error)
{
	if (atomic_fetch_add(&calls[call], 1) + 1 != atomic_load(&fails_at[call]))
		return 0;
	errno = error;
	return 1;
}

#define WRAP(result, name, failed, error, parameters, arguments)                                   \
	result __real_##name parameters;                                                           \
	result __wrap_##name parameters;                                                           \
	result __wrap_##name parameters                                                            \
	{                                                                                          \
		return fails(CALL_##name, error) ? (failed) : __real_##name arguments;             \
	}
CALLS(WRAP)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if (flags & O_CREAT)
		mode = va_arg(args, mode_t);
	va_end(args);
	return fails(CALL_open, EMFILE) ? -1 : __real_open(path, flags, mode);
}

/* ---- the program ----------------------------------------------------------------------- */

#define TRY(call)                                                                                  \
	do {                                                                                       \
		srt_status_t try_status = (call);                                                  \
		if (try_status != SRT_OK)                                                          \
			return try_status;                                                         \
	} while (0)

enum { NUNITS = 3, NELEM = 8192, NSTEPS = 2, NMICROBATCHES = 2 };

typedef struct program {
	bool all, state8; /* the variant */
	srt_context_t *context;
	srt_stream_t *stream;
	srt_mesh_t *mesh, *slice;
	srt_scaler_t *scaler;
	srt_engine_t *engine;
	srt_unit_t *units[NUNITS];
	srt_param_t *params[NUNITS];
} program_t;

/* What only the variant "all" has. Its four ranks have two groups. */
static srt_status_t add_all(program_t *p, srt_engine_options_t *options)
{
	static const srt_precision_t precision = { .size = sizeof(precision), .param = SRT_BF16 };
	static const char *const names[] = { "replicate", "shard" };
	const int shape[] = { 1, srt_context_world_size(p->context) };

	TRY(srt_mesh_create(srt_context_world(p->context), 2, shape, names, &p->mesh));
	TRY(srt_mesh_slice(p->mesh, 1, &names[1], &p->slice));
	TRY(srt_scaler_create(p->context, NULL, &p->scaler));
	options->strategy = SRT_STRATEGY_HYBRID;
	options->mesh = p->mesh;
	options->precision = &precision;
	options->accumulation = SRT_ACCUMULATE_LAST;
	options->microbatches = NMICROBATCHES;
	options->offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	return SRT_OK;
}

static srt_status_t declare_units(program_t *p, const srt_engine_options_t *options)
{
	const srt_unit_options_t unit = { .size = sizeof(unit), .reshard = p->all ? 2 : 0 };
	const int64_t shape[] = { NELEM / 128, 128 };
	char name[16];

	TRY(srt_stream_create(srt_context_device(p->context), 0, "compute", &p->stream));
	TRY(srt_engine_create(p->context, options, &p->engine));
	for (int i = 0; i < NUNITS; i++) {
		snprintf(name, sizeof(name), "unit%d", i);
		TRY(srt_unit_create(p->engine, i ? p->units[0] : NULL, name, &unit, &p->units[i]));
		snprintf(name, sizeof(name), "w%d", i);
		TRY(srt_param_create(p->units[i], name, SRT_F32, 2, shape, NULL, &p->params[i]));
	}
	return SRT_OK;
}

/* In these calls no rank waits for another one, so the program tells them of a failure. */
static srt_status_t declare_alone(program_t *p, const srt_engine_options_t *options)
{
	const srt_status_t status = declare_units(p, options);

	if (status != SRT_OK)
		srt_comm_abort(srt_context_world(p->context), srt_error_last());
	return status;
}

static srt_status_t declare(program_t *p)
{
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					 .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.01f,
							.state_bits = p->state8 ? 8 : 0,
							ADAM_BASE) };

	TRY(srt_context_create(NULL, &p->context));
	if (p->all)
		TRY(add_all(p, &options));
	TRY(declare_alone(p, &options));
	TRY(srt_engine_build(p->engine));
	for (int i = 0; i < NUNITS; i++)
		TRY(srt_param_init_normal(p->params[i], 1, 0.0f, 1.0f, p->stream));
	return SRT_OK;
}

static srt_status_t backward(program_t *p, int i)
{
	srt_view_t view;
	int accumulate;

	TRY(srt_param_grad(p->params[i], &view, &accumulate));
	TRY(srt_buffer_zero(view.buffer, view.offset,
			    NELEM * (p->all ? sizeof(uint16_t) : sizeof(float)), p->stream));
	TRY(srt_param_grad_ready(p->params[i]));
	return srt_unit_backward_end(p->units[i], p->stream);
}

static srt_status_t run_passes(program_t *p)
{
	TRY(srt_unit_forward_begin(p->units[0], p->stream));
	for (int i = 1; i < NUNITS; i++) {
		TRY(srt_unit_forward_begin(p->units[i], p->stream));
		TRY(srt_unit_forward_end(p->units[i], p->stream));
	}
	TRY(srt_unit_forward_end(p->units[0], p->stream));
	TRY(srt_unit_backward_begin(p->units[0], p->stream));
	for (int i = NUNITS - 1; i > 0; i--) {
		TRY(srt_unit_backward_begin(p->units[i], p->stream));
		TRY(backward(p, i));
	}
	return backward(p, 0);
}

static srt_status_t step(program_t *p)
{
	if (!p->all) {
		TRY(run_passes(p));
		return srt_engine_step(p->engine, p->stream);
	}
	for (int m = 0; m < NMICROBATCHES; m++) {
		(void)test_scaler_view(p->scaler); /* the loss is scaled */
		TRY(srt_engine_microbatch(p->engine, m, NMICROBATCHES));
		TRY(run_passes(p));
	}
	TRY(srt_scaler_unscale(p->scaler, p->engine, p->stream));
	TRY(srt_engine_clip(p->engine, 2, 1.0f, p->stream));
	TRY(srt_scaler_step(p->scaler, p->engine, p->stream));
	return srt_scaler_update(p->scaler, p->stream);
}

static srt_status_t hash(program_t *p)
{
	unsigned char bytes[16];
	srt_status_t status = srt_engine_hash(p->engine, bytes, p->stream);

	return status == SRT_ERR_UNSUPPORTED ? SRT_OK : status; /* built without libxxhash */
}

static srt_status_t read_state(program_t *p)
{
	static float state[NELEM];

	return srt_param_get(p->params[0], SRT_PARAM_STATE0, state, p->stream);
}

/* argv: of a failure; NULL: calls are only counted. */
static void count_calls(char **argv, int rank)
{
	for (int i = 0; i < NCALLS; i++) {
		atomic_store(&calls[i], 0);
		if (argv != NULL && rank == atoi(argv[5]) && strcmp(names[i], argv[3]) == 0)
			atomic_store(&fails_at[i], atol(argv[4]));
	}
}

static srt_status_t run(program_t *p, const char *path, char **argv, int rank)
{
	if (!p->state8)
		count_calls(argv, rank);
	TRY(declare(p));
	for (int i = 0; i < NSTEPS; i++)
		TRY(step(p));
	if (p->state8) {
		count_calls(argv, rank);
		return read_state(p);
	}
	if (p->all)
		TRY(hash(p));
	TRY(srt_engine_save(p->engine, path, NULL, 0, p->stream));
	TRY(srt_engine_load(p->engine, path, p->stream));
	return srt_stream_sync(p->stream);
}

int main(int argc, char **argv)
{
	const char *variable = getenv("SHARDRT_RANK");
	const int rank = variable != NULL ? atoi(variable) : 0;
	program_t program = { 0 };
	srt_status_t status;

	if (argc != 3 && argc != 6)
		return 2;
	program.all = strcmp(argv[1], "all") == 0;
	program.state8 = strcmp(argv[1], "state8") == 0;
	status = run(&program, argv[2], argc == 6 ? argv : NULL, rank);
	printf("rank %d: %s\n", rank, status == SRT_OK ? "done" : srt_error_last());
	srt_engine_destroy(program.engine);
	srt_scaler_destroy(program.scaler);
	srt_mesh_destroy(program.slice);
	srt_mesh_destroy(program.mesh);
	srt_stream_destroy(program.stream);
	srt_context_destroy(program.context);
	for (int i = 0; argc == 3 && i < NCALLS; i++)
		printf("calls %s %d %ld\n", names[i], rank, atomic_load(&calls[i]));
	return 0;
}
