/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conformance: every case of tests/kernel_cases.def, in every dtype that its kernel has, at all
 * sizes of its family, with three kinds of values, gives the same bits in every way of running it,
 * and the digests committed in tests/conformance.def, whatever compiler built this.
 *
 *     tests/test_conformance [CASE...]      on the device of SHARDRT_BACKEND; on the cpu, all
 *                                           instruction sets, threads and kinds of streams
 *     tests/test_conformance print > tests/conformance.def    after a change that is meant
 *
 * The bits to be met are those of the baseline instruction set on this thread, which
 * tests/test_kernels_* hold to plain references; the digests hold them in turn. All places of a
 * launch lie in one buffer between guard bytes, in every other run as little aligned as an
 * operation allows, and all of the buffer is compared: what is only read must not change.
 * SRT_TEST_LONG=1 adds the long sizes, thread counts and kinds of streams; without it OpenCL
 * devices, which compile each kernel in each dtype and form, have f16 with lanes as a loop and bf16
 * with lanes as work-items alone.
 */
#include "kernels/cpu.h"
#include "tests/device.h"
#include "tests/kernel_cases.h"

#define GUARD 64
#define PATTERN 0xa5
#define MAX_WAYS 24

/* One launch and what memory looks like before and after it. */
typedef struct run {
	const kernel_case_t *c;
	const srt_kernel_info_t *info;
	srt_dtype_t dtype;
	uint64_t args[SRT_LAUNCH_MAX_ARGS / 8];
	int64_t ngroups;
	kernel_place_t places[SRT_LAUNCH_MAX_PLACES];
	size_t offset[SRT_LAUNCH_MAX_PLACES];
	size_t nbytes; /* of each of these */
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
	const char *name, *dtype;
	uint64_t quick, more;
} digest_t;

static const digest_t digests[] = {
#define DIGEST(name, dtype, quick, more) { #name, #dtype, quick, more },
#include "tests/conformance.def"
	{ NULL, NULL, 0, 0 }
};

static way_t ways[MAX_WAYS];
static int nways;
static bool is_long;
static unsigned nruns;

/* ---- one launch ---------------------------------------------------------------------------- */
static bool is_written(const run_t *r, int i)
{
	return strchr("WXwx", r->info->access[i]) != NULL;
}

static unsigned char *allocate(size_t nbytes)
{
	unsigned char *p = aligned_alloc(64, srt_align_up(nbytes, 64));

	CHECK_OR_DIE(p != NULL);
	return p;
}

static void canonical(const run_t *r, unsigned char *bytes)
{
	for (int i = 0; i < r->info->nplaces; i++)
		if (is_written(r, i))
			kernel_place_canonical(&r->places[i], r->dtype, bytes + r->offset[i]);
}

static void run_on_host(const run_t *r, srt_cpu_isa_t isa, int pieces, unsigned char *bytes)
{
	srt_kernel_cpu_fn *entry = srt_kernel_cpu(r->c->kernel, r->dtype, isa);
	unsigned char *at[SRT_LAUNCH_MAX_PLACES] = { 0 };

	CHECK_OR_DIE(entry != NULL);
	for (int i = 0; i < r->info->nplaces; i++)
		if (r->places[i].fill != '-')
			at[i] = bytes + r->offset[i];
	for (int k = pieces; k-- > 0;)
		entry(at, r->args, r->ngroups * k / pieces, r->ngroups * (k + 1) / pieces);
}

static void run_begin(run_t *r, const kernel_case_t *c, srt_dtype_t dtype,
		      const kernel_dims_t *dims, kernel_input_t input)
{
	size_t used = 0;

	*r = (run_t){ .c = c, .info = srt_kernel_info(c->kernel), .dtype = dtype };
	c->make(dims, r->args, r->places);
	r->ngroups = srt_kernel_grid(c->kernel, r->args);
	nruns++;
	for (int i = 0; i < r->info->nplaces; i++) {
		bool is_tensor = !strchr("Bd", r->places[i].type);
		size_t width = kernel_place_width(&r->places[i], dtype);

		r->offset[i] = used + GUARD + (is_tensor && nruns % 2 ? width : 0);
		used = srt_align_up(r->offset[i] + kernel_place_nbytes(&r->places[i], dtype), 64);
	}
	r->nbytes = used + GUARD;
	r->before = allocate(r->nbytes);
	r->want = allocate(r->nbytes);
	r->got = allocate(r->nbytes);
	memset(r->before, PATTERN, r->nbytes);
	for (int i = r->info->nplaces; i-- > 0;)
		kernel_place_fill(c, i, r->places, dtype, input, dims->k == 1,
				  r->before + r->offset[i],
				  i + 1 < r->info->nplaces ? r->before + r->offset[i + 1] : NULL);
	memcpy(r->want, r->before, r->nbytes);
	run_on_host(r, SRT_ISA_BASELINE, 1, r->want);
	canonical(r, r->want);
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

	if (!memcmp(r->got, r->want, r->nbytes))
		return false;
	while (r->got[at] == r->want[at])
		at++;
	for (int i = 0; i < r->info->nplaces; i++) {
		size_t nbytes = kernel_place_nbytes(&r->places[i], r->dtype);
		size_t width = kernel_place_width(&r->places[i], r->dtype), first;
		uint64_t got = 0, want = 0;

		if (at < r->offset[i] || at >= r->offset[i] + nbytes)
			continue;
		first = (at - r->offset[i]) / width;
		width = width > 8 ? 4 : width; /* of a struct */
		memcpy(&got, r->got + at / width * width, width);
		memcpy(&want, r->want + at / width * width, width);
		snprintf(words, nwords, "%s %d [%zu] is %0*" PRIx64 ", expected %0*" PRIx64,
			 is_written(r, i) ? "place" : "the input, place", i, first, (int)width * 2,
			 got, (int)width * 2, want);
		return true;
	}
	snprintf(words, nwords, "byte %zu, outside of all places, is written", at);
	return true;
}

static srt_status_t run_on_device(run_t *r, const way_t *way)
{
	srt_view_t views[SRT_LAUNCH_MAX_PLACES] = { 0 };
	srt_buffer_t *buffer = test_buffer(way->device, r->nbytes, "places");
	srt_event_t *event = NULL;
	srt_stream_t *runs = way->other ? way->other : way->stream;
	srt_status_t status = SRT_OK;

	for (int i = 0; i < r->info->nplaces; i++)
		if (r->places[i].fill != '-')
			views[i] = srt_view(buffer, r->offset[i], SRT_U8);
	test_put(way->stream, buffer, 0, r->before, r->nbytes);
	if (way->other) { /* the upload is before the launch */
		CHECK_OK_OR_DIE(srt_event_create(way->device, &event));
		CHECK_OK(srt_event_record(event, way->stream));
		CHECK_OK(srt_stream_wait_event(way->other, event));
	}
	if (way->operation)
		status = kernel_case_operation(runs, r->c->kernel, r->dtype, r->args, views);
	else if (r->ngroups > 0)
		status = srt_launch(runs, r->c->kernel, r->dtype, r->ngroups, r->args,
				    r->info->args_nbytes, views, r->info->nplaces);
	if (way->other) { /* and the launch before the download */
		CHECK_OK(srt_event_record(event, way->other));
		CHECK_OK(srt_stream_wait_event(way->stream, event));
	}
	test_get(way->stream, r->got, buffer, 0, r->nbytes);
	srt_event_destroy(event);
	srt_buffer_destroy(buffer);
	return status;
}

/* Whether the way has this kernel. */
static bool run_way(run_t *r, const way_t *way, const kernel_dims_t *d, kernel_input_t input)
{
	static const char *const inputs[KERNEL_INPUT_COUNT] = { "mild", "edge", "hard" };
	char words[128] = "";
	srt_status_t status = SRT_OK;

	if (way->pieces) {
		memcpy(r->got, r->before, r->nbytes);
		run_on_host(r, way->isa, way->pieces, r->got);
	} else {
		status = run_on_device(r, way);
		if (way->operation && status == SRT_ERR_UNSUPPORTED)
			return false;
	}
	canonical(r, r->got);
	CHECK_MSG(status == SRT_OK, "%s %s, %s: %s", r->c->name, srt_dtype_name(r->dtype),
		  way->name, srt_last_error());
	CHECK_MSG(!differs(r, words, sizeof(words)),
		  "%s %s, sizes %lld %lld %lld %lld, %s values, %s: %s", r->c->name,
		  srt_dtype_name(r->dtype), (long long)d->r, (long long)d->n, (long long)d->k,
		  (long long)d->b, inputs[input], way->name, words);
	return true;
}

/* ---- a case ---------------------------------------------------------------------------------- */
/* FNV-1a by words of eight bytes, then bytes. */
static uint64_t fold(uint64_t h, const unsigned char *p, size_t nbytes)
{
	for (; nbytes >= 8; nbytes -= 8, p += 8) {
		uint64_t u;

		memcpy(&u, p, 8);
		h = (h ^ u) * 0x100000001b3u;
		h ^= h >> 32;
	}
	for (; nbytes; nbytes--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}

/* Runs some sizes of a case with all kinds of values; returns the digest of what it must give. */
static uint64_t run_sizes(const kernel_case_t *c, srt_dtype_t dtype, const kernel_dims_t *dims,
			  int ndims, bool compare, int *most)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (int k = 0; k < ndims; k++) {
		for (int input = 0; input < KERNEL_INPUT_COUNT; input++) {
			int count = 0;
			run_t r;

			run_begin(&r, c, dtype, &dims[k], (kernel_input_t)input);
			for (int i = 0; i < r.info->nplaces; i++)
				if (is_written(&r, i))
					h = fold(h, r.want + r.offset[i],
						 kernel_place_nbytes(&r.places[i], dtype));
			for (int w = 0; compare && w < nways; w++)
				count += run_way(&r, &ways[w], &dims[k], (kernel_input_t)input);
			*most = count > *most ? count : *most;
			run_end(&r);
		}
	}
	return h;
}

static const digest_t *find_digest(const char *name, const char *dtype)
{
	for (const digest_t *d = digests; d->name; d++)
		if (!strcmp(d->name, name) && !strcmp(d->dtype, dtype))
			return d;
	return NULL;
}

static void check_dtype(const kernel_case_t *c, srt_dtype_t dtype, int *most)
{
	static const char advice[] = "a kernel, its case or its values have changed; if that is "
				     "meant: tests/test_conformance print > tests/conformance.def";
	const digest_t *d = find_digest(c->name, srt_dtype_name(dtype));
	const kernel_family_t *f = c->family;
	uint64_t h;

	CHECK_MSG(d != NULL, "%s %s has no digest: %s", c->name, srt_dtype_name(dtype), advice);
	h = run_sizes(c, dtype, f->quick, f->nquick, true, most);
	CHECK_MSG(!d || h == d->quick, "%s %s has other bits: %s", c->name, srt_dtype_name(dtype),
		  advice);
	if (!is_long)
		return;
	h = run_sizes(c, dtype, f->more, f->nmore, true, most);
	CHECK_MSG(!d || h == d->more, "%s %s has other bits: %s", c->name, srt_dtype_name(dtype),
		  advice);
}

static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

static bool is_tried(const kernel_case_t *c, srt_dtype_t dtype)
{
	const char *lanes = getenv("SHARDRT_OPENCL_LANES");
	bool items = lanes && !strcmp(lanes, "items");

	if (!srt_kernel_has(c->kernel, dtype))
		return false;
	if (is_long || strcmp(test_backend(), "opencl") || dtype == SRT_F32)
		return true;
	return dtype == (items ? SRT_BF16 : SRT_F16);
}

static void check_case(const kernel_case_t *c)
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
	       c->family->nquick + (is_long ? c->family->nmore : 0), KERNEL_INPUT_COUNT, most);
}

static void print_digests(void)
{
	int most = 0;

	printf("/* SPDX-License-Identifier: BSD-3-Clause */\n"
	       "/* Made by: tests/test_conformance print. Case, dtype, digest of its quick and of "
	       "its long sizes. */\n");
	for (int k = 0; k < kernel_case_count; k++) {
		const kernel_case_t *c = &kernel_cases[k];

		for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes); i++) {
			const kernel_family_t *f = c->family;

			if (!srt_kernel_has(c->kernel, dtypes[i]))
				continue;
			printf("DIGEST(%s, %s, 0x%016" PRIx64 "u, ", c->name,
			       srt_dtype_name(dtypes[i]),
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
		if (!ways[w].device || !last)
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

	for (int k = 0; k < kernel_case_count; k++)
		seen[kernel_cases[k].kernel] = true;
	for (int k = 0; k < SRT_K_COUNT; k++)
		CHECK_MSG(seen[k], "kernel %s has no row in tests/kernel_cases.def",
			  srt_kernel_info((srt_kernel_id_t)k)->name);
	for (const digest_t *d = digests; d->name; d++) {
		int k = 0;

		while (k < kernel_case_count && strcmp(kernel_cases[k].name, d->name))
			k++;
		CHECK_MSG(k < kernel_case_count, "tests/conformance.def has %s, which is no case",
			  d->name);
	}
}

/* One wrong bit anywhere, be it in a guard, an input or a result, is seen. */
static void test_sees_every_byte(void)
{
	const kernel_case_t *c = &kernel_cases[0];
	char words[128];
	run_t r;

	while (c->kernel != SRT_K_LAYERNORM)
		c++;
	run_begin(&r, c, SRT_F32, &(kernel_dims_t){ .r = 3, .n = 5 }, KERNEL_INPUT_MILD);
	memcpy(r.got, r.want, r.nbytes);
	CHECK(!differs(&r, words, sizeof(words)));
	for (size_t i = 0; i < r.nbytes; i++) {
		r.got[i] ^= 1;
		CHECK(differs(&r, words, sizeof(words)));
		r.got[i] ^= 1;
	}
	run_end(&r);
}

int main(int argc, char **argv)
{
	const char *long_run = getenv("SRT_TEST_LONG");

	is_long = long_run && long_run[0];
	if (argc == 2 && !strcmp(argv[1], "print")) {
		print_digests();
		return 0;
	}
	test_all_kernels_have_a_case();
	test_sees_every_byte();
	add_ways();
	for (int w = 0; w < nways; w++)
		printf("way: %s\n", ways[w].name);
	for (int k = 0; k < kernel_case_count; k++) {
		bool wanted = argc == 1;

		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], kernel_cases[k].name) ||
				  !strcmp(argv[i], srt_kernel_info(kernel_cases[k].kernel)->name);
		if (wanted)
			check_case(&kernel_cases[k]);
	}
	remove_ways();
	return check_done();
}
