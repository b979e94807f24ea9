/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine in memory of the program (srt_engine_options_t.allocate): the bits of one in memory of
 * the library, all memory is freed, and what cannot work is refused. Run by test_allocator.sh.
 */
#include "tests/engine/engine_case.h"

#define STEPS 3

typedef struct pool {
	size_t nbytes, nblocks; /* in use */
	size_t fails_at;        /* the allocation that fails, from 1; 0: none */
	size_t shift;           /* bytes that addresses are wrong by */
	char last[64];          /* the name of the last allocation */
} pool_t;

static srt_context_t *context;

/* With the size in front; not zero, as memory that was used before. */
static void *allocate(size_t nbytes, const char *name, void *arg)
{
	pool_t *pool = arg;
	unsigned char *memory;

	snprintf(pool->last, sizeof(pool->last), "%s", name);
	if (pool->nblocks + 1 == pool->fails_at)
		return NULL;
	memory = aligned_alloc(64, srt_align_up(nbytes + 128, 64));
	CHECK_OR_DIE(memory != NULL);
	memset(memory, 0xff, nbytes + 128);
	memcpy(memory + pool->shift, &nbytes, sizeof(nbytes));
	pool->nbytes += nbytes;
	pool->nblocks++;
	return memory + 64 + pool->shift;
}

static void release(void *memory, void *arg)
{
	pool_t *pool = arg;
	unsigned char *block = (unsigned char *)memory - 64;
	size_t nbytes;

	memcpy(&nbytes, block, sizeof(nbytes));
	pool->nbytes -= nbytes;
	pool->nblocks--;
	free(block - pool->shift);
}

static void test_bits(srt_strategy_t strategy)
{
	static const srt_param_what_t whats[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0,
						  SRT_PARAM_STATE1 };
	srt_engine_options_t options = case_adamw(strategy);
	const size_t before = case_allocated(context);
	pool_t pool = { 0 };
	engine_case_t first, own, plain;
	size_t of_own, of_plain;

	options.microbatches = 2;
	case_declare(&first, context, &options, 5); /* allocates what its communicator keeps */
	case_build(&first);
	case_declare(&plain, context, &options, 5);
	options.allocate = allocate; /* a function of (nbytes, name, arg) */
	options.free = release;
	options.allocate_arg = &pool;
	case_declare(&own, context, &options, 5);
	of_own = case_allocated(context);
	case_build(&own);
	of_own = case_allocated(context) - of_own;
	CHECK(pool.nblocks > 3);
	CHECK_OK(srt_stream_sync(own.stream));
	of_plain = case_allocated(context);
	case_build(&plain);
	of_plain = case_allocated(context) - of_plain;
	CHECK_INT(of_plain, of_own + pool.nbytes);
	for (int step = 0; step < STEPS; step++) {
		CHECK_OK_OR_DIE(case_step(&own, step, 2));
		CHECK_OK_OR_DIE(case_step(&plain, step, 2));
	}
	for (size_t w = 0; w < SRT_ARRAY_LEN(whats); w++) {
		float *a = case_collect(&own, whats[w]), *b = case_collect(&plain, whats[w]);

		CHECK_BITS(a, b, case_nelem(&own));
		free(a);
		free(b);
	}
	case_destroy(&own);
	case_destroy(&plain);
	case_destroy(&first);
	CHECK_INT(pool.nblocks, 0);
	CHECK_INT(pool.nbytes, 0);
	CHECK_INT(case_allocated(context), before);
}

/* A build that fails on the last rank fails on all, and frees what was allocated. */
static void test_failure(size_t fails_at, size_t shift, srt_status_t expected, const char *words)
{
	const int last = srt_context_rank(context) == srt_context_world_size(context) - 1;
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	pool_t pool = { .fails_at = last ? fails_at : 0, .shift = last ? shift : 0 };
	engine_case_t c;

	options.allocate = allocate;
	options.free = release;
	options.allocate_arg = &pool;
	case_declare(&c, context, &options, 5);
	CHECK_STATUS(srt_engine_build(c.engine), expected);
	CHECK_ERROR_HAS(words);
	case_destroy(&c);
	CHECK_INT(pool.nblocks, 0);
}

static void test_options(void)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_engine_t *engine;

	options.allocate = allocate;
	CHECK_STATUS(srt_engine_create(context, &options, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("allocate and free");
	options.free = release;
	options.offload.state = 1;
	CHECK_STATUS(srt_engine_create(context, &options, &engine), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("allocate and offload");
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	test_options();
	if (srt_comm_mem_kind(srt_context_world(context)) == SRT_MEM_PEER) {
		test_failure(0, 0, SRT_ERR_UNSUPPORTED, "ranks map each other's memory");
	} else if (!srt_context_device(context)->caps.host_memory) {
		test_failure(0, 0, SRT_ERR_UNSUPPORTED, "has no host addresses");
	} else {
		test_bits(SRT_STRATEGY_DDP);
		test_bits(SRT_STRATEGY_ZERO2);
		test_bits(SRT_STRATEGY_ZERO3);
		test_failure(3, 0, SRT_ERR_OUT_OF_MEMORY, "the program's allocator has no ");
		test_failure(0, 16, SRT_ERR_INVALID_ARGUMENT, "must be a multiple of 64");
	}
	srt_context_destroy(context);
	return check_done();
}
