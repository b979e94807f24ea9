/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory plan is exact, each rank can plan for every other, and after warm-up a step neither
 * allocates device memory nor calls malloc(). Run on several ranks by test_engine_plan.sh, with
 * "check" for what is compared with the device alone.
 */
#include <limits.h>
#include <link.h>
#include <string.h>

#include "collectives/comm.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;

/* Counts the allocations of all threads that this program, a backend's module or libc make; those
 * of drivers, which may have threads too, are not the library's. Not under sanitizers, whose own
 * malloc must stay in place. */
#if defined(__GLIBC__) && !defined(CHECK_SANITIZED)
#define COUNTS_MALLOC 1
#define EXPORTED __attribute__((visibility("default"))) /* libraries call them too */
static _Atomic long nmallocs;

/* The code whose calls count. */
static struct {
	uintptr_t begin, end;
} counted[8];
static size_t ncounted;

static int add_counted(struct dl_phdr_info *info, size_t nbytes, void *arg)
{
	const char *name = info->dlpi_name;

	(void)nbytes;
	(void)arg;
	if (name[0] != '\0' && strstr(name, "shardrt") == NULL && strstr(name, "/libc.so") == NULL)
		return 0;
	for (int i = 0; i < info->dlpi_phnum && ncounted < SRT_ARRAY_LEN(counted); i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		counted[ncounted].begin = info->dlpi_addr + segment->p_vaddr;
		counted[ncounted].end = counted[ncounted].begin + segment->p_memsz;
		ncounted++;
	}
	return 0;
}

static void list_counted(void)
{
	ncounted = 0;
	dl_iterate_phdr(add_counted, NULL);
	CHECK(ncounted >= 2); /* the program and libc */
}

static void count(const void *caller)
{
	for (size_t i = 0; i < ncounted; i++) {
		if ((uintptr_t)caller >= counted[i].begin && (uintptr_t)caller < counted[i].end)
			nmallocs++;
	}
}

extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t nbytes);

EXPORTED void *malloc(size_t nbytes)
{
	count(__builtin_return_address(0));
	return __libc_malloc(nbytes);
}

EXPORTED void *calloc(size_t n, size_t size)
{
	count(__builtin_return_address(0));
	return __libc_calloc(n, size);
}

EXPORTED void *realloc(void *p, size_t nbytes)
{
	count(__builtin_return_address(0));
	return __libc_realloc(p, nbytes);
}
#else
#define COUNTS_MALLOC 0
static long nmallocs;

static void list_counted(void)
{
}
#endif

static void check_same(const srt_plan_t *a, const srt_plan_t *b)
{
	CHECK_INT(a->param_shards, b->param_shards);
	CHECK_INT(a->grad_shards, b->grad_shards);
	CHECK_INT(a->optimizer_state, b->optimizer_state);
	CHECK_INT(a->unsharded, b->unsharded);
	CHECK_INT(a->unsharded_grads, b->unsharded_grads);
	CHECK_INT(a->staging, b->staging);
	CHECK_INT(a->total, b->total);
	CHECK_INT(a->host_params, b->host_params);
	CHECK_INT(a->host_grads, b->host_grads);
	CHECK_INT(a->host_state, b->host_state);
	CHECK_INT(a->host_staging, b->host_staging);
	CHECK_INT(a->host_total, b->host_total);
	CHECK_INT(a->activations, b->activations);
	CHECK_INT(a->scratch, b->scratch);
	CHECK_INT(a->rank_total, b->rank_total);
	CHECK_INT(a->peer_mapped, b->peer_mapped);
	CHECK_INT(a->nslots, b->nslots);
}

static void test_exact(const srt_engine_options_t *options, int64_t h, srt_flat_t flat)
{
	int world = srt_context_world_size(context), rank = srt_context_rank(context);
	srt_plan_t before = SRT_PLAN_INIT, after = SRT_PLAN_INIT, mine = SRT_PLAN_INIT, theirs[16];
	size_t allocated, used;
	engine_case_t c;

	case_declare_as(&c, context, options, h, &(case_types_t){ .flat = flat });
	CHECK_OK(srt_engine_plan(c.engine, rank, 0, &before)); /* before it is built */
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c.engine));
	used = case_allocated(context) - allocated;
	CHECK_OK(srt_engine_plan(c.engine, rank, world, &after));
	check_same(&before, &after);
	CHECK_INT(used, case_planned(&after));

	/* What I would plan for rank r is what rank r plans. */
	CHECK_OR_DIE(world <= 16);
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), &after, sizeof(after), theirs));
	for (int r = 0; r < world; r++) {
		CHECK_OK(srt_engine_plan(c.engine, r, 0, &mine));
		check_same(&mine, &theirs[r]);
	}
	CHECK_STATUS(srt_engine_plan(c.engine, world, world, &mine), SRT_ERR_INVALID_ARGUMENT);
	/* Any other number of ranks can be planned for too. */
	CHECK_OK(srt_engine_plan(c.engine, 999, 1000, &mine));
	case_destroy(&c);
	CHECK_INT(case_allocated(context), allocated - (size_t)(h * (h + 8) * 4));
}

/* zero3 over more ranks: shards shrink, slots do not. */
static void test_scaling(void)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					       .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, ADAM_BASE) };
	srt_plan_t one = SRT_PLAN_INIT, many = SRT_PLAN_INIT;
	engine_case_t c;

	case_declare(&c, context, &options, 64);
	CHECK_OK(srt_engine_plan(c.engine, 0, 1, &one));
	CHECK_OK(srt_engine_plan(c.engine, 0, 64, &many));
	CHECK_INT(one.unsharded, 0);
	CHECK_INT(one.unsharded_grads, 0);
	CHECK_INT(one.peer_mapped, 0);
	CHECK(many.param_shards * 16 < one.param_shards);
	CHECK(many.optimizer_state == 2 * many.grad_shards);
	/* root, a ring of two for the blocks, b1.inner, never (another size class) */
	CHECK_INT(many.nslots, 5);
	case_destroy(&c);
}

/* Memory of the program is in the plan, and the whole plan has to fit the device. */
static void test_plan_extra(void)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_device_t *device = srt_context_device(context);
	const size_t available = srt_device_available(device);
	srt_plan_t plan = SRT_PLAN_INIT;
	engine_case_t c;
	size_t allocated;

	case_declare(&c, context, &options, 5);
	CHECK_OK(srt_engine_plan(c.engine, 0, 0, &plan));
	CHECK_INT(plan.rank_total, plan.total);
	CHECK_OK(srt_engine_plan_extra(c.engine, 1000, 24));
	CHECK_OK(srt_engine_plan(c.engine, 0, 0, &plan));
	CHECK_INT(plan.activations, 1000);
	CHECK_INT(plan.scratch, 24);
	CHECK_INT(plan.rank_total, plan.total + 1024);
	CHECK_OK(srt_engine_build(c.engine));
	CHECK_STATUS(srt_engine_plan_extra(c.engine, 1, 1), SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_plan_extra(NULL, 1, 1), SRT_ERR_INVALID_ARGUMENT);
	case_destroy(&c);

	for (int all = 0; all < 2 && available > 0; all++) {
		case_declare(&c, context, &options, 5);
		allocated = case_allocated(context);
		/* More than there is; on the last rank alone, or on all. */
		if (all || c.rank == srt_context_world_size(context) - 1)
			CHECK_OK(srt_engine_plan_extra(c.engine, SIZE_MAX / 2, SIZE_MAX / 2 + 2));
		CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_OUT_OF_MEMORY);
		CHECK_ERROR_HAS("GiB is free");
		if (all || c.rank == srt_context_world_size(context) - 1)
			CHECK_ERROR_HAS("activations 8.0 EiB (9223372036854775807 bytes), "
					"scratch of");
		CHECK_INT(case_allocated(context), allocated);
		case_destroy(&c);
	}
}

/* The status of a build with `extra` bytes of the program on each rank. */
static srt_status_t build_with_extra(size_t extra)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_status_t status;
	engine_case_t c;

	case_declare(&c, context, &options, 5);
	CHECK_OK(srt_engine_plan_extra(c.engine, extra, 0));
	status = srt_engine_build(c.engine);
	case_destroy(&c);
	return status;
}

/* How many of the ranks share a memory with another. */
static int count_sharers(void)
{
	const srt_device_t *device = srt_context_device(context);
	static const unsigned char unknown[sizeof(device->caps.memory_id)];
	unsigned char all[16][sizeof(unknown)];
	int world = srt_context_world_size(context), n = 0;

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(srt_context_world(context), device->caps.memory_id,
					       sizeof(unknown), all));
	for (int r = 0; r < world; r++) {
		bool shares = false;

		for (int q = 0; q < world; q++)
			shares = shares || (q != r && memcmp(all[q], all[r], sizeof(unknown)) == 0);
		n += shares && memcmp(all[r], unknown, sizeof(unknown)) != 0;
	}
	return n;
}

/* Needs of ranks that share a memory are added, and some of it is the driver's. */
static void test_together(void)
{
	srt_device_t *device = srt_context_device(context);
	const size_t available = srt_device_available(device);
	const size_t of_device = device->caps.driver_overhead;
	const size_t of_comm = srt_context_world(context)->driver_overhead;
	const size_t later = of_device + of_comm;
	const int sharers = count_sharers();

	if (available == 0)
		return;
	CHECK_OK(build_with_extra(available / 2 / (size_t)srt_context_world_size(context)));
	if (sharers > 0) {
		CHECK_STATUS(build_with_extra(available / 4 * 3), SRT_ERR_OUT_OF_MEMORY);
		CHECK_ERROR_HAS(sharers == 3 ? "ranks 0, 1, 2 share " : "ranks 0, ");
		CHECK_ERROR_HAS(" and together need ");
		CHECK_ERROR_HAS("the plan of this rank is ");
		return;
	}
	CHECK_OK(build_with_extra(available / 4 * 3));
	if (later == 0)
		return;
	CHECK_OK(build_with_extra(available - 2 * later));
	/* Into the last of what may be taken later. */
	if (srt_config_int("SHARDRT_MEMORY_MARGIN") > 0) {
		CHECK_STATUS(build_with_extra(available - later +
					      (of_comm ? of_comm : of_device) / 2),
			     SRT_ERR_OUT_OF_MEMORY);
		CHECK_ERROR_HAS("GiB reserved for its driver and libraries");
	} else {
		CHECK_OK(build_with_extra(available - later / 2));
	}
}

static void test_no_allocation(srt_engine_options_t options, int nmicro)
{
	srt_device_t *device = srt_context_device(context);
	uint64_t allocations;
	long mallocs, more;
	engine_case_t c;
	int step = 0;

	options.microbatches = nmicro;
	case_declare(&c, context, &options, 7);
	case_build(&c);
	for (; step < 3; step++)
		CHECK_OK(case_step(&c, step, nmicro));
	CHECK_OK(srt_stream_sync(c.stream));
	allocations = srt_device_allocations(device);
	mallocs = nmallocs;
	for (; step < 8; step++)
		CHECK_OK(case_step(&c, step, nmicro));
	CHECK_OK(srt_stream_sync(c.stream));
	more = nmallocs - mallocs;
	CHECK_INT(srt_device_allocations(device), allocations);
	CHECK_INT(more, 0);
	/* A rank that is ahead waits here, and not after sending messages that would be counted. */
	CHECK_OK(case_step(&c, step, nmicro));
	case_destroy(&c);
}

/* An engine can print itself; the print names units, parameters and bytes. */
static void test_print(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	char *text = NULL;
	size_t nbytes;
	engine_case_t c;
	FILE *out = open_memstream(&text, &nbytes);

	CHECK_OR_DIE(out != NULL);
	case_declare(&c, context, &options, 5);
	CHECK_OK(srt_engine_plan_extra(c.engine, 12345, 67890));
	CHECK_OK(srt_engine_print(c.engine, out));
	fclose(out);
	CHECK(strstr(text, "unit b1.inner: 1 parameters") != NULL);
	CHECK(strstr(text, "root.weight f32 (5, 3)") != NULL);
	CHECK(strstr(text, "also head.weight") != NULL);
	CHECK(strstr(text, "frozen") != NULL);
	CHECK(strstr(text, "parameter shards") != NULL);
	CHECK(strstr(text, "activations 12345, scratch of matrix products and attention 67890"));
	free(text);
	case_destroy(&c);
}

int main(int argc, char **argv)
{
	static const srt_precision_t precisions[] = {
		{ .size = sizeof(srt_precision_t), .param = SRT_BF16, .reduce = SRT_F32 },
		{ .size = sizeof(srt_precision_t), .param = SRT_F16, .reduce = SRT_F16 },
		{ .size = sizeof(srt_precision_t), .param = SRT_BF16, .rule = SRT_PRECISION_FSDP1 },
		{ .size = sizeof(srt_precision_t), .reduce = SRT_BF16 },
	};
	srt_optim_options_t adamw = SRT_OPTIM_OPTIONS_INIT, sgd = SRT_OPTIM_SGD_INIT;
	srt_engine_options_t o = { ENGINE_BASE, .strategy = SRT_STRATEGY_DDP, .norm_p = 2,
				   .optim = &adamw };

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	list_counted();
	test_plan_extra();
	test_together();
	if (argc > 1 && strcmp(argv[1], "check") == 0) {
		srt_context_destroy(context);
		return check_done();
	}
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++) {
		o.strategy = s;
		for (int micro = 1; micro <= 2; micro++) {
			o.microbatches = micro;
			o.accumulation = SRT_ACCUMULATE_EVERY;
			test_exact(&o, 5, SRT_FLAT_NO);
			test_no_allocation(o, micro);
			o.accumulation = SRT_ACCUMULATE_LAST;
			test_exact(&o, 6, SRT_FLAT_NO);
			test_no_allocation(o, micro);
		}
		for (size_t i = 0; i < SRT_ARRAY_LEN(precisions); i++) {
			o.precision = &precisions[i];
			o.accumulation = i % 2 ? SRT_ACCUMULATE_EVERY : SRT_ACCUMULATE_LAST;
			test_exact(&o, 6, SRT_FLAT_NO);
			test_no_allocation(o, 2);
		}
		o.precision = NULL;
		for (srt_flat_t flat = SRT_FLAT_VIEWS; flat <= SRT_FLAT_PADDED; flat++) {
			test_exact(&o, 5, flat);
			o.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
			test_exact(&o, 1, flat); /* more ranks than elements of some units */
			o.offload = (srt_offload_t){ 0 };
		}
		o.optim = &sgd;
		test_exact(&o, 1, SRT_FLAT_NO);
		o.prefetch = INT_MAX;
		test_exact(&o, 1, SRT_FLAT_NO);
		o.prefetch = 1;
		sgd.momentum = 0.5;
		test_exact(&o, 1, SRT_FLAT_NO);
		sgd.momentum = 0.0;
		o.optim = &adamw;
	}
	test_scaling();
	test_print();
	printf("calls of malloc() %s\n", COUNTS_MALLOC ? "counted" : "not counted in this build");
	srt_context_destroy(context);
	return check_done();
}
