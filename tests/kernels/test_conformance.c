/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conformance: every case of kernels/cases/cases.def, in every dtype that its kernel has, at all
 * sizes of its family, with three kinds of values, gives the same bits in every way of running it,
 * and the digests committed in kernels/cases/digests.def, whatever compiler built this.
 *
 *     test_conformance [CASE...]      on the device of SHARDRT_BACKEND; on the cpu, all
 *                                     instruction sets, threads and kinds of streams
 *     test_conformance print > kernels/cases/digests.def    after a change that is meant
 *
 * The bits to be met are those of the baseline instruction set on this thread, which
 * tests/kernels/test_kernels_* hold to plain references; the digests hold them in turn. All
 * places of a launch lie in one buffer between guard bytes, in every other run as little
 * aligned as an operation allows, and all of the buffer is compared: what is only read must not
 * change. SRT_TEST_LONG=1 adds the long sizes, thread counts and kinds of streams; without it
 * OpenCL devices, which compile each kernel in each dtype and form, have f16 with lanes as a
 * loop and bf16 with lanes as work-items alone.
 */
#include "kernels/cpu.h"
#include "kernels/cases/selftest.h"
#include "tests/harness/device.h"
#include "tests/kernels/kernel_operations.h"

#define MAX_WAYS 24

/* One launch and what memory looks like before and after it. */
typedef struct run {
	srt_kernel_run_t of;
	const srt_kernel_info_t *info;
	unsigned char *before, *want, *got;
} run_t;

/* A way to run it other than the reference. */
typedef struct way {
	char name[64];
	srt_cpu_isa_t isa;
	int pieces; /* groups are split in so many, the last first; 0: on the device */
	srt_device_t *device;
	srt_stream_t *stream, *other;
	bool operation; /* as the operation with tuned versions */
} way_t;

typedef struct digest {
	uint64_t selftest, quick, more;
} digest_t;

static const digest_t digests[SRT_CASE_COUNT][SRT_KERNEL_NDTYPES] = {
#define f32 SRT_F32
#define f16 SRT_F16
#define bf16 SRT_BF16
#define DIGEST(name, dtype, ...) [SRT_CASE_##name][dtype] = { __VA_ARGS__ },
#include "kernels/cases/digests.def"
#undef f32
#undef f16
#undef bf16
};

static way_t ways[MAX_WAYS];
static int nways;
static bool is_long;
static unsigned nruns;

/* ---- one launch ---------------------------------------------------------------------------- */
static unsigned char *allocate(size_t nbytes)
{
	unsigned char *p = aligned_alloc(64, srt_align_up(nbytes, 64));

	CHECK_OR_DIE(p != NULL);
	return p;
}

static void run_on_host(const run_t *r, srt_cpu_isa_t isa, int pieces, unsigned char *bytes)
{
	const srt_kernel_run_t *of = &r->of;
	srt_kernel_cpu_fn *entry = srt_kernel_cpu(of->c->kernel, of->dtype, isa);
	unsigned char *at[SRT_COMMAND_MAX_BINDINGS] = { 0 };

	CHECK_OR_DIE(entry != NULL);
	for (int i = 0; i < of->nplaces; i++)
		if (of->places[i].fill != '-')
			at[i] = bytes + of->offset[i];
	for (int k = pieces; k-- > 0;)
		entry(at, of->args, of->ngroups * k / pieces, of->ngroups * (k + 1) / pieces);
}

static void run_begin(run_t *r, const srt_kernel_case_t *c, srt_dtype_t dtype,
		      const srt_kernel_dims_t *dims, srt_kernel_input_t input)
{
	*r = (run_t){ .info = srt_kernel_info(c->kernel) };
	srt_kernel_run_init(&r->of, c, dtype, dims, ++nruns % 2);
	r->before = allocate(r->of.nbytes);
	r->want = allocate(r->of.nbytes);
	r->got = allocate(r->of.nbytes);
	srt_kernel_run_fill(&r->of, input, dims->k == 1, r->before);
	memcpy(r->want, r->before, r->of.nbytes);
	run_on_host(r, SRT_ISA_BASELINE, 1, r->want);
	srt_kernel_run_canonical(&r->of, r->want);
}

static void run_end(run_t *r)
{
	free(r->before);
	free(r->want);
	free(r->got);
}

/* The first difference in words; false if there is none. */
static bool differs(const run_t *r, char *words, size_t nwords)
{
	size_t at = 0;

	if (!memcmp(r->got, r->want, r->of.nbytes))
		return false;
	while (r->got[at] == r->want[at])
		at++;
	for (int i = 0; i < r->info->nplaces; i++) {
		size_t nbytes = srt_kernel_place_nbytes(&r->of.places[i], r->of.dtype);
		size_t width = srt_kernel_place_width(&r->of.places[i], r->of.dtype), first;
		uint64_t got = 0, want = 0;

		if (at < r->of.offset[i] || at >= r->of.offset[i] + nbytes)
			continue;
		first = (at - r->of.offset[i]) / width;
		width = width > 8 ? 4 : width; /* of a struct */
		memcpy(&got, r->got + at / width * width, width);
		memcpy(&want, r->want + at / width * width, width);
		snprintf(words, nwords, "%s %d [%zu] is %0*" PRIx64 ", expected %0*" PRIx64,
			 strchr("WXwx", r->info->access[i]) != NULL ? "place" : "the input, place",
			 i, first, (int)width * 2, got, (int)width * 2, want);
		return true;
	}
	snprintf(words, nwords, "byte %zu, outside of all places, is written", at);
	return true;
}

static srt_status_t run_on_device(run_t *r, const way_t *way)
{
	srt_view_t views[SRT_COMMAND_MAX_BINDINGS] = { 0 };
	srt_buffer_t *buffer = test_buffer(way->device, r->of.nbytes, "places");
	srt_event_t *event = NULL;
	srt_stream_t *runs = way->other != NULL ? way->other : way->stream;
	srt_status_t status = SRT_OK;

	for (int i = 0; i < r->info->nplaces; i++)
		if (r->of.places[i].fill != '-')
			views[i] = srt_view(buffer, r->of.offset[i], SRT_U8);
	test_put(way->stream, buffer, 0, r->before, r->of.nbytes);
	if (way->other != NULL) { /* the upload is before the launch */
		CHECK_OK_OR_DIE(srt_event_create(way->device, &event));
		CHECK_OK(srt_event_record(event, way->stream));
		CHECK_OK(srt_stream_wait_event(way->other, event));
	}
	if (way->operation)
		status = kernel_case_operation(runs, r->of.c->kernel, r->of.dtype, r->of.args,
					       views);
	else if (r->of.ngroups > 0)
		status = srt_launch(runs, r->of.c->kernel, r->of.dtype, r->of.ngroups, r->of.args,
				    r->info->args_nbytes, views, r->info->nplaces);
	if (way->other != NULL) { /* and the launch before the download */
		CHECK_OK(srt_event_record(event, way->other));
		CHECK_OK(srt_stream_wait_event(way->stream, event));
	}
	test_get(way->stream, r->got, buffer, 0, r->of.nbytes);
	srt_event_destroy(event);
	srt_buffer_destroy(buffer);
	return status;
}

/* Whether the way has this kernel. */
static bool run_way(run_t *r, const way_t *way, const srt_kernel_dims_t *d,
		    srt_kernel_input_t input)
{
	static const char *const inputs[SRT_INPUT_COUNT] = { "mild", "edge", "hard" };
	char words[128] = "";
	srt_status_t status = SRT_OK;

	if (way->pieces) {
		memcpy(r->got, r->before, r->of.nbytes);
		run_on_host(r, way->isa, way->pieces, r->got);
	} else {
		status = run_on_device(r, way);
		if (way->operation && status == SRT_ERR_UNSUPPORTED)
			return false;
	}
	srt_kernel_run_canonical(&r->of, r->got);
	CHECK_MSG(status == SRT_OK, "%s %s, %s: %s", r->of.c->name, srt_dtype_name(r->of.dtype),
		  way->name, srt_error_last());
	CHECK_MSG(!differs(r, words, sizeof(words)),
		  "%s %s, sizes %lld %lld %lld %lld, %s values, %s: %s", r->of.c->name,
		  srt_dtype_name(r->of.dtype), (long long)d->r, (long long)d->n, (long long)d->k,
		  (long long)d->b, inputs[input], way->name, words);
	return true;
}

/* ---- a case ---------------------------------------------------------------------------------- */
/* Runs some sizes of a case with all kinds of values; returns the digest of what it must give. */
static uint64_t run_sizes(const srt_kernel_case_t *c, srt_dtype_t dtype,
			  const srt_kernel_dims_t *dims, int ndims, bool compare, int *most)
{
	uint64_t h = SRT_KERNEL_DIGEST;

	for (int k = 0; k < ndims; k++) {
		for (int input = 0; input < SRT_INPUT_COUNT; input++) {
			int count = 0;
			run_t r;

			run_begin(&r, c, dtype, &dims[k], (srt_kernel_input_t)input);
			h = srt_kernel_run_digest(&r.of, h, r.want);
			/* Events between streams do not depend on values. */
			for (int w = 0; compare && w < nways; w++)
				if (is_long || ways[w].other == NULL || input == SRT_INPUT_MILD)
					count += run_way(&r, &ways[w], &dims[k],
							 (srt_kernel_input_t)input);
			*most = count > *most ? count : *most;
			run_end(&r);
		}
	}
	return h;
}

static void check_digest(const srt_kernel_case_t *c, srt_dtype_t dtype, uint64_t got, uint64_t want)
{
	CHECK_MSG(got == want,
		  "%s %s has other bits: a kernel, its case or its values have changed; if that is "
		  "meant: tests/kernels/test_conformance print > kernels/cases/digests.def",
		  c->name, srt_dtype_name(dtype));
}

static void check_dtype(const srt_kernel_case_t *c, srt_dtype_t dtype, int *most)
{
	const digest_t *d = &digests[c - srt_kernel_cases][dtype];
	const srt_kernel_family_t *f = c->family;

	check_digest(c, dtype, run_sizes(c, dtype, f->quick, f->nquick, true, most), d->quick);
	if (is_long)
		check_digest(c, dtype, run_sizes(c, dtype, f->more, f->nmore, true, most), d->more);
}

static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

static bool is_tried(const srt_kernel_case_t *c, srt_dtype_t dtype)
{
	const char *lanes = getenv("SHARDRT_OPENCL_LANES");
	bool items = lanes != NULL && !strcmp(lanes, "items");

	if (!srt_kernel_has(c->kernel, dtype))
		return false;
	if (is_long || strcmp(test_backend(), "opencl") || dtype == SRT_F32)
		return true;
	return dtype == (items ? SRT_BF16 : SRT_F16);
}

static void check_case(const srt_kernel_case_t *c)
{
	int most = 0;

	printf("%-26s", c->name);
	for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes); i++) {
		if (!is_tried(c, dtypes[i])) {
			printf("      ");
			continue;
		}
		printf(" %-5s", srt_dtype_name(dtypes[i]));
		check_dtype(c, dtypes[i], &most);
	}
	printf("%2d sizes x %d kinds of values x %d ways\n",
	       c->family->nquick + (is_long ? c->family->nmore : 0), SRT_INPUT_COUNT, most);
}

static srt_status_t run_selftest(void *context, const srt_command_t *launch, unsigned char *bytes,
				 size_t nbytes)
{
	unsigned char *at[SRT_COMMAND_MAX_BINDINGS] = { 0 };

	(void)context;
	(void)nbytes;
	for (int i = 0; i < launch->nbindings; i++)
		if (launch->bindings[i].mem != NULL)
			at[i] = bytes + launch->bindings[i].offset;
	srt_kernel_cpu(launch->kernel, launch->dtype, SRT_ISA_BASELINE)(at, launch->args, 0,
									launch->ngroups);
	return SRT_OK;
}

static void print_digests(void)
{
	printf("/* SPDX-License-Identifier: BSD-3-Clause */\n"
	       "/* Made by: tests/kernels/test_conformance print. Case, dtype, digest of its sizes in the "
	       "self-test, of its quick ones\n * and of its long ones. */\n");
	for (const srt_kernel_case_t *c = srt_kernel_cases; c < srt_kernel_cases + SRT_CASE_COUNT;
	     c++) {
		for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes); i++) {
			const srt_kernel_family_t *f = c->family;
			uint64_t digest = 0;
			int most = 0;

			if (!srt_kernel_has(c->kernel, dtypes[i]))
				continue;
			CHECK_OK_OR_DIE(srt_kernels_selftest_case(c, dtypes[i], run_selftest, NULL,
								  &digest));
			printf("DIGEST(%s, %s, 0x%016" PRIx64 "u, ", c->name,
			       srt_dtype_name(dtypes[i]), digest);
			printf("0x%016" PRIx64 "u, ",
			       run_sizes(c, dtypes[i], f->quick, f->nquick, false, &most));
			printf("0x%016" PRIx64 "u)\n",
			       run_sizes(c, dtypes[i], f->more, f->nmore, false, &most));
		}
	}
	printf("#undef DIGEST\n");
}

/* ---- the ways ------------------------------------------------------------------------------ */
static way_t *add_way(const char *name)
{
	way_t *way = &ways[nways++];

	CHECK_OR_DIE(nways <= MAX_WAYS);
	snprintf(way->name, sizeof(way->name), "%s", name);
	return way;
}

/* The device's launches on a stream, across two streams with events, and as operations. It closes
 * with its last way. */
static void add_device(srt_device_t *device, const char *name)
{
	srt_stream_t *stream = test_stream(device, "first"), *other = test_stream(device, "other");

	for (int kind = 0; kind < 3; kind++) {
		static const char *const kinds[] = { "", ", two streams", ", as operation" };
		way_t *way = add_way(name);

		strncat(way->name, kinds[kind], sizeof(way->name) - strlen(way->name) - 1);
		way->device = device;
		way->stream = stream;
		way->other = kind == 1 ? other : NULL;
		way->operation = kind == 2;
	}
}

static void add_cpu_device(int threads, const char *streams)
{
	char name[64];

	snprintf(name, sizeof(name), "%d threads, %s streams", threads, streams);
	add_device(test_cpu_device(threads, streams), name);
}

static void add_ways(void)
{
	if (!test_is_cpu()) {
		add_device(test_device(1, "threads"), test_backend());
		return;
	}
	for (int isa = 0; isa < SRT_ISA_COUNT; isa++) {
		for (int pieces = 1; pieces <= 3; pieces += 2) {
			char name[64];
			way_t *way;

			if (!srt_cpu_isa_usable((srt_cpu_isa_t)isa) ||
			    (isa == SRT_ISA_BASELINE && pieces == 1)) /* which is the reference */
				continue;
			snprintf(name, sizeof(name), "%s, pieces: %d",
				 srt_cpu_isa_name((srt_cpu_isa_t)isa), pieces);
			way = add_way(name);
			way->isa = (srt_cpu_isa_t)isa;
			way->pieces = pieces;
		}
	}
	add_cpu_device(3, "threads");
	if (!is_long)
		return;
	add_cpu_device(1, "inline");
	add_cpu_device(1, "threads");
	add_cpu_device(2, "inline");
	add_cpu_device(2, "threads");
	add_cpu_device(5, "inline");
}

static void remove_ways(void)
{
	for (int w = 0; w < nways; w++) {
		bool last = w + 1 == nways || ways[w + 1].device != ways[w].device;

		srt_stream_destroy(ways[w].other);
		if (ways[w].device == NULL || !last)
			continue;
		srt_stream_destroy(ways[w].stream);
		CHECK_INT(srt_device_allocated(ways[w].device), 0);
		srt_device_close(ways[w].device);
	}
}

/* ---- the harness itself ---------------------------------------------------------------------- */
static void test_all_kernels_have_a_case(void)
{
	bool seen[SRT_K_COUNT] = { 0 };

	for (int k = 0; k < SRT_CASE_COUNT; k++)
		seen[srt_kernel_cases[k].kernel] = true;
	for (int k = 0; k < SRT_K_COUNT; k++)
		CHECK_MSG(seen[k], "kernel %s has no row in kernels/cases/cases.def",
			  srt_kernel_info((srt_kernel_id_t)k)->name);
}

/* One wrong bit anywhere, be it in a guard, an input or a result, is seen. */
static void test_sees_every_byte(void)
{
	const srt_kernel_case_t *c = &srt_kernel_cases[SRT_CASE_layernorm];
	char words[128];
	run_t r;

	run_begin(&r, c, SRT_F32, &(srt_kernel_dims_t){ .r = 3, .n = 5 }, SRT_INPUT_MILD);
	memcpy(r.got, r.want, r.of.nbytes);
	CHECK(!differs(&r, words, sizeof(words)));
	for (size_t i = 0; i < r.of.nbytes; i++) {
		r.got[i] ^= 1;
		CHECK(differs(&r, words, sizeof(words)));
		r.got[i] ^= 1;
	}
	run_end(&r);
}

/*
 * Values of a case reach its results: they differ in f16 and bf16. Of attention_backward_d_masked,
 * whose first item has no keys, only those of other sizes do.
 *
 * Reliability: masked attention of an item with keys, in the conformance test | hardly run | run,
 * and results of f16 and bf16 must differ
 */
static void test_types_differ(void)
{
	for (int k = 0; k < SRT_CASE_COUNT; k++) {
		const digest_t *f16 = &digests[k][SRT_F16], *bf16 = &digests[k][SRT_BF16];

		CHECK_MSG(f16->quick != bf16->quick || f16->quick == 0 ||
				  k == SRT_CASE_attention_backward_d_masked,
			  "%s", srt_kernel_cases[k].name);
	}
}

int main(int argc, char **argv)
{
	is_long = check_is_long();
	if (argc == 2 && !strcmp(argv[1], "print")) {
		print_digests();
		return 0;
	}
	test_all_kernels_have_a_case();
	test_sees_every_byte();
	test_types_differ();
	add_ways();
	for (int w = 0; w < nways; w++)
		printf("way: %s\n", ways[w].name);
	for (int k = 0; k < SRT_CASE_COUNT; k++) {
		bool wanted = argc == 1;

		for (int i = 1; i < argc; i++)
			wanted |=
				!strcmp(argv[i], srt_kernel_cases[k].name) ||
				!strcmp(argv[i], srt_kernel_info(srt_kernel_cases[k].kernel)->name);
		if (wanted)
			check_case(&srt_kernel_cases[k]);
	}
	remove_ways();
	return check_done();
}
