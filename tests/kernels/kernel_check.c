/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/kernel_check.h"

enum { KC_GUARD = 64 };

typedef struct kc_place {
	const void *before;   /* bytes before the run; NULL = a pattern */
	const void *expected; /* after it; NULL = as before */
	size_t nbytes;
	int same_as; /* shares the memory of this place, -1 = its own */
	int is_absent;
	int is_floats; /* or of the dtype, with is_half */
	int is_half;
	void *owned[2]; /* converted copies */
	int is_struct;  /* or doubles: needs more than the alignment of a float */
} kc_place_t;

static struct {
	srt_kernel_id_t kernel;
	srt_dtype_t dtype;
	const void *args;
	const char *what;
	kc_place_t places[SRT_COMMAND_MAX_BINDINGS];
	int nplaces;
	unsigned ncases;
} kc;

srt_device_t *kc_device;
srt_stream_t *kc_stream;

void kc_begin_as(srt_dtype_t dtype, srt_kernel_id_t kernel, const void *args, const char *what)
{
	memset(kc.places, 0, sizeof(kc.places));
	kc.nplaces = 0;
	kc.kernel = kernel;
	kc.dtype = dtype;
	kc.args = args;
	kc.what = what;
}

void kc_begin(srt_kernel_id_t kernel, const void *args, const char *what)
{
	kc_begin_as(SRT_F32, kernel, args, what);
}

void kc_round(srt_dtype_t dtype, float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = half_round(dtype, x[i]);
}

static kc_place_t *kc_add(void)
{
	kc_place_t *p = &kc.places[kc.nplaces++];

	p->same_as = -1;
	return p;
}

void kc_in(const void *data, size_t nbytes)
{
	kc_place_t *p = kc_add();

	p->before = data;
	p->nbytes = nbytes;
}

/* x as the bits of the case's dtype, to be freed; NULL of NULL. */
static void *kc_halves(const float *x, int64_t n)
{
	uint16_t *h = x != NULL ? malloc(((size_t)n + 1) * sizeof(*h)) : NULL;

	CHECK_OR_DIE(h != NULL || x == NULL);
	for (int64_t i = 0; i < n && x != NULL; i++)
		h[i] = half_bits(kc.dtype, x[i]);
	return h;
}

void kc_out_floats(const float *before, const float *expected, int64_t n)
{
	kc_place_t *p = kc_add();

	p->before = before;
	p->expected = expected;
	p->nbytes = (size_t)n * sizeof(float);
	p->is_floats = 1;
}

void kc_out(const float *before, const float *expected, int64_t n)
{
	kc_place_t *p;

	kc_out_floats(before, expected, n);
	if (kc.dtype == SRT_F32)
		return;
	p = &kc.places[kc.nplaces - 1];
	p->before = p->owned[0] = kc_halves(before, n);
	p->expected = p->owned[1] = kc_halves(expected, n);
	p->nbytes = (size_t)n * sizeof(uint16_t);
	p->is_half = 1;
}

void kc_in_t(const float *x, int64_t n)
{
	kc_out(x, NULL, n);
}

void kc_in_struct(const void *data, size_t nbytes)
{
	kc_in(data, nbytes);
	kc.places[kc.nplaces - 1].is_struct = 1;
}

void kc_out_bytes(const void *before, const void *expected, size_t nbytes)
{
	kc_place_t *p = kc_add();

	p->before = before;
	p->expected = expected;
	p->nbytes = nbytes;
	p->is_struct = 1;
}

void kc_same(int place)
{
	kc_add()->same_as = place;
}

void kc_absent(void)
{
	kc_add()->is_absent = 1;
}

static unsigned char *kc_guarded(const kc_place_t *p)
{
	unsigned char *m = malloc(p->nbytes + 2 * KC_GUARD);

	CHECK_OR_DIE(m != NULL);
	memset(m, 0xa5, p->nbytes + 2 * KC_GUARD);
	if (p->before != NULL && p->nbytes)
		memcpy(m + KC_GUARD, p->before, p->nbytes);
	return m;
}

static void kc_compare(const kc_place_t *p, const unsigned char *m, int place, const char *where)
{
	const unsigned char *want = p->expected != NULL ? p->expected : p->before;
	int guards = 1;

	for (int i = 0; i < KC_GUARD; i++)
		guards &= m[i] == 0xa5 && m[KC_GUARD + p->nbytes + (size_t)i] == 0xa5;
	CHECK_MSG(guards, "%s %s, %s: writes outside of place %d", srt_kernel_info(kc.kernel)->name,
		  kc.what, where, place);
	if (!p->nbytes)
		return;
	if (p->is_half) {
		for (size_t i = 0; i < p->nbytes / sizeof(uint16_t); i++) {
			uint16_t a, b;

			memcpy(&a, m + KC_GUARD + i * sizeof(a), sizeof(a));
			memcpy(&b, want + i * sizeof(b), sizeof(b));
			if (a == b)
				continue;
			CHECK_MSG(0, "%s %s, %s, %s: place %d [%zu] is %04x, expected %04x",
				  srt_kernel_info(kc.kernel)->name, kc.what,
				  srt_kernel_dtype_name(kc.dtype), where, place, i, a, b);
			return;
		}
		check_count++;
		return;
	}
	if (!p->is_floats) {
		CHECK_MSG(!memcmp(m + KC_GUARD, want, p->nbytes), "%s %s, %s: place %d differs",
			  srt_kernel_info(kc.kernel)->name, kc.what, where, place);
		return;
	}
	for (size_t i = 0; i < p->nbytes / sizeof(float); i++) {
		float a, b;

		memcpy(&a, m + KC_GUARD + i * sizeof(float), sizeof(a));
		memcpy(&b, want + i * sizeof(float), sizeof(b));
		if (!memcmp(&a, &b, sizeof(a)) || (a != a && b != b))
			continue;
		CHECK_MSG(0, "%s %s, %s: place %d [%zu] is %a, expected %a",
			  srt_kernel_info(kc.kernel)->name, kc.what, where, place, i, (double)a,
			  (double)b);
		return;
	}
	check_count++;
}

static void kc_run_one(srt_cpu_isa_t isa, int pieces)
{
	srt_kernel_cpu_fn *run = srt_kernel_cpu(kc.kernel, kc.dtype, isa);
	unsigned char *memory[SRT_COMMAND_MAX_BINDINGS] = { 0 },
		      *places[SRT_COMMAND_MAX_BINDINGS] = { 0 };
	int64_t ngroups = srt_kernel_grid(kc.kernel, kc.args);

	CHECK_OR_DIE(run != NULL);
	for (int i = 0; i < kc.nplaces; i++) {
		if (kc.places[i].is_absent)
			continue;
		if (kc.places[i].same_as >= 0) {
			places[i] = places[kc.places[i].same_as];
			continue;
		}
		memory[i] = kc_guarded(&kc.places[i]);
		places[i] = memory[i] + KC_GUARD;
	}
	for (int k = pieces; k-- > 0;) /* the last piece first: groups are independent */
		run(places, kc.args, ngroups * k / pieces, ngroups * (k + 1) / pieces);
	for (int i = 0; i < kc.nplaces; i++)
		if (memory[i] != NULL)
			kc_compare(&kc.places[i], memory[i], i, srt_cpu_isa_name(isa));
	for (int i = 0; i < kc.nplaces; i++)
		free(memory[i]);
}

void kc_open(void)
{
	if (kc_device != NULL)
		return;
	kc_device = test_device(1, "inline");
	kc_stream = test_stream(kc_device, "kernels");
}

/* Places in one buffer, one after the other between guards: where floats begin is a multiple of 4
 * and in every other case not of 8. So what a kernel may assume of its places is no more than the
 * operations promise. */
static void kc_run_device(void)
{
	size_t offset[SRT_COMMAND_MAX_BINDINGS] = { 0 }, used = 0;
	unsigned char *memory[SRT_COMMAND_MAX_BINDINGS] = { 0 };
	srt_view_t views[SRT_COMMAND_MAX_BINDINGS] = { 0 };
	srt_buffer_t *buffer;

	kc_open();
	kc.ncases++;
	for (int i = 0; i < kc.nplaces; i++) {
		if (kc.places[i].is_absent || kc.places[i].same_as >= 0)
			continue;
		offset[i] = used + (kc.places[i].is_struct ? 0 : 4 * (kc.ncases % 2));
		offset[i] += kc.places[i].is_half ? 2 : 0;
		used = srt_align_up(offset[i] + kc.places[i].nbytes + 2 * KC_GUARD, KC_GUARD);
	}
	buffer = test_buffer(kc_device, used + KC_GUARD, "places");
	for (int i = 0; i < kc.nplaces; i++) {
		int from = kc.places[i].same_as >= 0 ? kc.places[i].same_as : i;

		if (kc.places[i].is_absent)
			continue;
		views[i] = srt_view(buffer, offset[from] + KC_GUARD, SRT_U8);
		if (from != i)
			continue;
		memory[i] = kc_guarded(&kc.places[i]);
		test_put(kc_stream, buffer, offset[i], memory[i],
			 kc.places[i].nbytes + 2 * KC_GUARD);
	}
	if (srt_kernel_grid(kc.kernel, kc.args) > 0)
		CHECK_OK(srt_launch(kc_stream, kc.kernel, kc.dtype,
				    srt_kernel_grid(kc.kernel, kc.args), kc.args,
				    srt_kernel_info(kc.kernel)->args_nbytes, views, kc.nplaces));
	for (int i = 0; i < kc.nplaces; i++) {
		if (memory[i] == NULL)
			continue;
		test_get(kc_stream, memory[i], buffer, offset[i],
			 kc.places[i].nbytes + 2 * KC_GUARD);
		kc_compare(&kc.places[i], memory[i], i, test_backend());
		free(memory[i]);
	}
	srt_buffer_destroy(buffer);
}

void kc_run(void)
{
	CHECK_INT(kc.nplaces, srt_kernel_info(kc.kernel)->nplaces);
	if (!test_is_cpu()) /* which has been compared when the test ran on the cpu */
		kc_run_device();
	for (int isa = 0; test_is_cpu() && isa < SRT_ISA_COUNT; isa++) {
		if (!srt_cpu_isa_usable((srt_cpu_isa_t)isa))
			continue;
		kc_run_one((srt_cpu_isa_t)isa, 1);
		kc_run_one((srt_cpu_isa_t)isa, 3);
	}
	for (int i = 0; i < kc.nplaces; i++) {
		free(kc.places[i].owned[0]);
		free(kc.places[i].owned[1]);
	}
}

int kc_done(void)
{
	srt_stream_destroy(kc_stream);
	srt_device_close(kc_device);
	return check_done();
}

float kc_mild(void)
{
	float v = (float)(int32_t)random32() * 0x1p-31f;

	return ldexpf(v, (int)(random32() % 6) - 3);
}

float kc_hard(void)
{
	static const float nasty[] = { 0.0f,      -0.0f,     INFINITY,     -INFINITY,
				       NAN,       0x1p-149f, -0x1.8p-140f, 0x1.fffffep127f,
				       -0x1p126f, 0x1p-126f, 1.0f,         -1.0f,
				       88.7f,     -104.0f };
	uint32_t r = random32();

	if (r % 4)
		return kc_mild();
	if (r % 8)
		return nasty[(r >> 8) % (sizeof(nasty) / sizeof(nasty[0]))];
	return float_of(random32());
}

float *kc_floats(int64_t n, float (*source)(void))
{
	float *x = malloc(((size_t)n + 1) * sizeof(float));

	CHECK_OR_DIE(x != NULL);
	for (int64_t i = 0; i < n; i++)
		x[i] = source != NULL ? source() : 0.0f;
	return x;
}

float kc_tree64(const float partial[64])
{
	float s[64];

	memcpy(s, partial, sizeof(s));
	for (int h = 32; h; h /= 2)
		for (int l = 0; l < h; l++)
			s[l] = s[l] + s[l + h];
	return s[0];
}

float kc_row_sum(const float *x, int64_t n)
{
	float lane[64] = { 0 };

	for (int64_t i = 0; i < n; i++)
		lane[i % 64] = lane[i % 64] + x[i];
	return kc_tree64(lane);
}

float kc_row_dot(const float *x, const float *y, int64_t n)
{
	float lane[64] = { 0 };

	for (int64_t i = 0; i < n; i++)
		lane[i % 64] = fmaf(x[i], y[i], lane[i % 64]);
	return kc_tree64(lane);
}

float kc_row_max(const float *x, int64_t n)
{
	float m = -INFINITY;

	for (int64_t i = 0; i < n; i++)
		m = x[i] > m || x[i] != x[i] || m != m ? (m != m ? m : x[i]) : m;
	return m + 0.0f;
}

float kc_pairwise(float *x, int64_t n)
{
	while (n > 1) {
		for (int64_t i = 0; i < n / 2; i++)
			x[i] = x[2 * i] + x[2 * i + 1];
		if (n % 2)
			x[n / 2] = x[n - 1];
		n = (n + 1) / 2;
	}
	return x[0];
}

float kc_column_sum(const float *g, const float *h, int64_t rows, int64_t n, int64_t j)
{
	int64_t nblocks = (rows + 127) / 128;
	float *blocks = kc_floats(nblocks, NULL), total;

	for (int64_t r = 0; r < rows; r++) {
		float *b = &blocks[r / 128];

		*b = h != NULL ? fmaf(g[r * n + j], h[r * n + j], *b) : *b + g[r * n + j];
	}
	total = nblocks ? kc_pairwise(blocks, nblocks) : 0.0f;
	free(blocks);
	return total;
}
