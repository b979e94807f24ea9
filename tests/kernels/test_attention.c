/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend's attention, forward and backward, against the definition (docs/numerics.md,
 * "Attention") written plainly, bit for bit: every instruction set present, all three types, causal
 * and not, other numbers of keys than of queries, lengths, masks, first keys, heads that share a
 * head of keys, queries after some of the keys, layouts, sizes around the tiles'
 * edges, infinities, NaN and tiny values also at masked positions, several numbers of parts. Guard
 * words around the tensors and the scratch must survive.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/attention.h"
#include "kernels/cpu.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"
#include "tests/kernels/attention_ref.h"

#define NGUARD 64
#define GUARD (-123.25f)

typedef enum values { PLAIN, HARD, TINY } values_t;

static const char *isa;
static const srt_cpu_gemm_t *gemm;

/* Tiny: so that sums of products are subnormal, before attention's scale. */
static float value(srt_dtype_t dtype, values_t kind)
{
	uint32_t r = random32();
	float x = (float)((int)(r >> 8) - (1 << 23)) * 0x1p-22f;

	if (kind == HARD && r % 97 == 0)
		return (r >> 8) % 3 == 0 ? NAN : r & 0x1000 ? INFINITY : -INFINITY;
	if (kind == HARD && r % 7 == 0)
		return r & 0x1000 ? 0.0f : -0.0f;
	if (kind == TINY && dtype == SRT_F16)
		return x * (r % 3 ? 0x1p-7f : 0x1p-15f);
	if (kind == TINY)
		return x * (r % 3 ? 0x1p-70f : 0x1p-126f);
	return x;
}

/* ---- tensors of any of the three types, between guards --------------------------------- */

typedef struct tensor {
	srt_dtype_t dtype;
	int64_t n;
	void *all; /* guards too */
} tensor_t;

static size_t element_nbytes(srt_dtype_t dtype)
{
	return srt_dtype_bits(dtype) / 8;
}

static void *at(const tensor_t *t)
{
	return (char *)t->all + NGUARD * element_nbytes(t->dtype);
}

static tensor_t tensor(srt_dtype_t dtype, const float *x, int64_t n)
{
	tensor_t t = { .dtype = dtype, .n = n };

	t.all = malloc((size_t)(n + 2 * NGUARD) * element_nbytes(dtype));
	CHECK_OR_DIE(t.all != NULL);
	for (size_t i = 0; i < NGUARD; i++) {
		half_put(dtype, t.all, i, GUARD);
		half_put(dtype, t.all, (size_t)(NGUARD + n) + i, GUARD);
	}
	for (size_t i = 0; i < (size_t)n; i++)
		half_put(dtype, at(&t), i, x[i]);
	return t;
}

static tensor_t twin(const tensor_t *of)
{
	tensor_t t = *of;
	const size_t nbytes = (size_t)(t.n + 2 * NGUARD) * element_nbytes(t.dtype);

	t.all = malloc(nbytes);
	CHECK_OR_DIE(t.all != NULL);
	memcpy(t.all, of->all, nbytes);
	return t;
}

/* Gaps between rows and guards are compared too; a NaN of 16 bits has one pattern. */
static void compare(const tensor_t *got, const tensor_t *want)
{
	const size_t n = (size_t)want->n + 2 * NGUARD;

	if (want->dtype == SRT_F32)
		CHECK_BITS((const float *)got->all, (const float *)want->all, n);
	else
		CHECK(memcmp(got->all, want->all, n * element_nbytes(want->dtype)) == 0);
}

/* ---- a case: inputs, what outputs are before, and what they should become ---------------- */

enum { Q, K, V, DOUT, NIN };
enum { OUT, STATS, DQ, DK, DV, NOUT };

typedef struct sample {
	srt_dtype_t dtype;
	att_t want;
	tensor_t in[NIN], before[NOUT], after[NOUT];
} sample_t;

static float *numbers(srt_dtype_t dtype, int64_t n, values_t kind)
{
	float *p = malloc((size_t)(n + 1) * sizeof(*p));

	CHECK_OR_DIE(p != NULL);
	for (int64_t i = 0; i < n; i++)
		p[i] = half_round(dtype, value(dtype, kind));
	return p;
}

static sample_t make(srt_dtype_t dtype, const srt_k_attention_t *a, int hidden, values_t kind)
{
	const int64_t rows = a->batch * a->queries, nout = rows * a->heads * a->head_dim;
	const int64_t ins[NIN] = { att_queries_extent(a, a->ldq), att_keys_extent(a, a->ldk),
				   att_keys_extent(a, a->ldv), nout };
	const int64_t outs[NOUT] = { nout, 2 * rows * a->heads, att_queries_extent(a, a->lddq),
				     att_keys_extent(a, a->lddk), att_keys_extent(a, a->lddv) };
	sample_t x = { .dtype = dtype, .want = { .a = *a, .dtype = dtype } };
	att_t *w = &x.want;
	const float **const in[NIN] = { &w->q, &w->k, &w->v, &w->dout };
	float **const out[NOUT] = { &w->out, &w->stats, &w->dq, &w->dk, &w->dv };

	for (int i = 0; i < NIN; i++) {
		*in[i] = numbers(dtype, ins[i], kind);
		x.in[i] = tensor(dtype, *in[i], ins[i]);
	}
	w->lengths = hidden & 1 ? att_lengths(a) : NULL;
	w->mask = hidden & 2 ? att_mask(a) : NULL;
	w->first = hidden & 4 ? att_first(a) : NULL;
	w->dsum = numbers(SRT_F32, rows * a->heads, PLAIN);
	for (int i = 0; i < NOUT; i++) {
		*out[i] = numbers(dtype, outs[i], PLAIN);
		x.before[i] = tensor(i == STATS ? SRT_F32 : dtype, *out[i], outs[i]);
	}
	att_reference(w);
	for (int i = 0; i < NOUT; i++)
		x.after[i] = tensor(i == STATS ? SRT_F32 : dtype, *out[i], outs[i]);
	return x;
}

static void drop(sample_t *x)
{
	const att_t *w = &x->want;
	const void *const all[] = { w->q,    w->k,     w->v,   w->dout,  w->lengths,
				    w->mask, w->first, w->out, w->stats, w->dsum,
				    w->dq,   w->dk,    w->dv };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free((void *)(uintptr_t)all[i]);
	for (int i = 0; i < NIN; i++)
		free(x->in[i].all);
	for (int i = 0; i < NOUT; i++) {
		free(x->before[i].all);
		free(x->after[i].all);
	}
}

/* ---- both passes over it ------------------------------------------------------------------ */

static srt_cpu_attention_t arguments(const sample_t *x, tensor_t *out)
{
	const srt_k_attention_t *a = &x->want.a;

	return (srt_cpu_attention_t){
		.dtype = x->dtype,
		.shape.batch = a->batch,
		.shape.queries = a->queries,
		.shape.keys = a->keys,
		.shape.heads = a->heads,
		.shape.kv_heads = a->kv_heads,
		.shape.offset = a->offset,
		.shape.head_dim = a->head_dim,
		.shape.scale = a->scale,
		.shape.causal = a->causal,
		.shape.ldq = a->ldq,
		.shape.ldk = a->ldk,
		.shape.ldv = a->ldv,
		.shape.lddq = a->lddq,
		.shape.lddk = a->lddk,
		.shape.lddv = a->lddv,
		.lengths = x->want.lengths,
		.mask = x->want.mask,
		.first = x->want.first,
		.stats = at(&out[STATS]),
		.q = at(&x->in[Q]),
		.k = at(&x->in[K]),
		.v = at(&x->in[V]),
		.dout = at(&x->in[DOUT]),
		.out = at(&out[OUT]),
		.dq = at(&out[DQ]),
		.dk = at(&out[DK]),
		.dv = at(&out[DV]),
	};
}

static void run_pass(const srt_cpu_attention_t *at, int backward, int nparts)
{
	const size_t nbytes = backward ? srt_cpu_attention_backward_scratch(gemm, at) :
					 srt_cpu_attention_scratch(gemm, at);
	unsigned char *scratch = aligned_alloc(64, (nbytes + 191) / 64 * 64);

	CHECK_OR_DIE(scratch != NULL);
	memset(scratch, 0xff, nbytes + 128); /* NaN: what is read must have been written */
	for (int part = nparts - 1; part >= 0; part--) {
		if (backward)
			srt_cpu_attention_backward(gemm, at, part, nparts, scratch + 64);
		else
			srt_cpu_attention(gemm, at, part, nparts, scratch + 64);
	}
	for (int i = 0; i < 64; i++)
		CHECK(scratch[i] == 0xff && scratch[64 + nbytes + (size_t)i] == 0xff);
	free(scratch);
}

/* Without one gradient the others are what they were. */
static void run_absent(const srt_cpu_attention_t *all, int nparts)
{
	for (int i = 0; i < 3; i++) {
		srt_cpu_attention_t some = *all;

		if (i == 0)
			some.dq = NULL;
		else if (i == 1)
			some.dk = NULL;
		else
			some.dv = NULL;
		run_pass(&some, 1, nparts);
	}
}

/* On the instruction set. */
static void check_sample(const sample_t *x, int nparts)
{
	tensor_t out[NOUT];
	srt_cpu_attention_t all;

	for (int i = 0; i < NOUT; i++)
		out[i] = twin(&x->before[i]);
	all = arguments(x, out);
	run_pass(&all, 0, nparts);
	run_pass(&all, 1, nparts);
	if (x->want.a.queries < 10)
		run_absent(&all, nparts);
	for (int i = 0; i < NOUT; i++) {
		compare(&out[i], &x->after[i]);
		free(out[i].all);
	}
}

/* hidden: by lengths, a mask, first keys. */
static void check_shape(srt_dtype_t dtype, const srt_k_attention_t *shape, int hidden,
			values_t kind, int nparts)
{
	srt_k_attention_t a = *shape;
	sample_t x;

	a.scale = kind != TINY ? 0.35f : dtype == SRT_F16 ? 0x1p14f : 0x1p100f;
	x = make(dtype, &a, hidden, kind);
	for (int i = 0; i < SRT_ISA_COUNT; i++) {
		const long before = check_failed;

		isa = srt_cpu_isa_name((srt_cpu_isa_t)i);
		if (!srt_cpu_isa_usable((srt_cpu_isa_t)i))
			continue;
		gemm = srt_cpu_gemm_find(isa);
		CHECK_OR_DIE(gemm != NULL);
		check_sample(&x, nparts);
		CHECK_MSG(check_failed == before,
			  "%s, %s: batch %d, %d queries from %d on, %d keys, heads %d of %d "
			  "head_dim %d causal %d ldq %d hidden %d values %d parts %d",
			  isa, srt_kernel_dtype_name(dtype), (int)a.batch, (int)a.queries,
			  (int)a.offset, (int)a.keys, (int)a.heads, (int)a.kv_heads,
			  (int)a.head_dim, a.causal, (int)a.ldq, hidden, (int)kind, nparts);
	}
	drop(&x);
}

/* In floats and one of the 16-bit types, chosen at random; in make check-long in both. */
static void check_types(const srt_k_attention_t *a, int hidden, values_t kind, int nparts)
{
	const int left_out = check_is_long() ? -1 : random32() % 2 ? SRT_F16 : SRT_BF16;

	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++)
		if (dtype != left_out)
			check_shape((srt_dtype_t)dtype, a, hidden, kind, nparts);
}

/* form: causal, lengths, mask, and the layout of rows. */
enum { CAUSAL = 1, LENGTHS = 2, MASK = 4, LAYOUT = 8, NFORMS = LAYOUT * ATT_NLAYOUTS };

static void check_case(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t hd,
		       int form, values_t kind, int nparts)
{
	const srt_k_attention_t a = att_shape(batch, queries, keys, heads, hd, form & CAUSAL,
					      (att_layout_t)(form / LAYOUT % ATT_NLAYOUTS));

	check_types(&a, form / LENGTHS % 4, kind, nparts);
}

/* The positions of queries are the keys'. */
static void test_self(void)
{
	static const int64_t dims[] = { 1, 3, 8, 16, 17, 32, 33, 64, 65 };

	for (int causal = 0; causal < 2; causal++) {
		for (int64_t t = 0; t <= 40; t++)
			check_case(1, t, t, 2, dims[t % 9], causal + t % 5 / 4 * MASK,
				   (values_t)(t % 3), 1 + (int)(t % 4));
		for (int kind = PLAIN; kind <= TINY; kind++) {
			check_case(1, 97, 97, 1, 12, causal, (values_t)kind, 1);
			check_case(2, 64, 64, 2, 32, causal, (values_t)kind, 3);
		}
		check_case(1, 200, 200, 1, 40, causal, PLAIN, 1);
		check_case(1, 130, 130, 2, 64, causal, HARD, 1);
		check_case(3, 5, 5, 5, 9, causal, HARD, 17);
		check_case(1, 9, 9, 1, 1100, causal, PLAIN, 2);
		check_case(1, 600, 600, 1, 4, causal, PLAIN, 1);
		check_case(0, 9, 9, 1, 8, causal, PLAIN, 2);
	}
}

/* Others, and items with fewer keys; rows in every layout. */
static void test_general(void)
{
	static const int64_t sizes[] = {
		1, 2, 7, 11, 12, 13, 24, 25, 31, 33, 64, 67, 97, 107, 131
	};
	const int nsizes = (int)(sizeof(sizes) / sizeof(sizes[0]));

	for (int i = 0; i < 2 * nsizes; i++)
		check_case(2, sizes[i % nsizes], sizes[random32() % (uint32_t)nsizes], 2,
			   1 + i % 20, i % NFORMS, (values_t)(i % 3), 1 + i % 4);
	for (int form = 0; form < NFORMS; form++) {
		check_case(6, 29, 26, 1, 8, form, HARD, 2);
		check_case(6, 13, 37, 1, 5, form, PLAIN, 1);
	}
	for (int form = 1; form < LAYOUT; form++) { /* several blocks of queries */
		check_case(2, 203, 101, 1, 6, form, PLAIN, 1);
		check_case(2, 101, 203, 1, 6, form, HARD, 1);
	}
	check_case(2, 3, 0, 1, 4, 0, PLAIN, 1);
	check_case(2, 0, 3, 1, 4, 1, PLAIN, 1);
}

/* Keys hidden in one piece, as items are padded at their start or end; heads that tiles read where
 * they lie. */
static void test_padding(void)
{
	for (int form = MASK; form <= (MASK | CAUSAL); form++) {
		check_case(4, 50, 50, 1, 32, form, HARD, 1);
		check_case(4, 31, 70, 2, 64, form, PLAIN, 3);
	}
}

/* `group` heads for each head of keys, with first keys of each kind. */
static void check_grouped(int64_t queries, int64_t keys, int64_t group, int64_t hd, int64_t offset,
			  int hidden, values_t kind)
{
	srt_k_attention_t a = att_shape(5, queries, keys, 2 * group, hd, offset >= 0,
					(att_layout_t)(queries % ATT_NLAYOUTS));

	a.kv_heads = 2;
	a.offset = offset < 0 ? 0 : offset < keys ? offset : keys;
	check_types(&a, hidden, kind, 1 + (int)(keys % 4));
}

/* Heads of keys that queries share, queries after some of the keys (-1: not causal), first keys. */
static void test_grouped(void)
{
	static const int64_t groups[] = { 1, 2, 3, 4, 7 }, dims[] = { 8, 32, 5, 17, 64 };
	enum { FIRST = 4 };

	for (int i = 0; i < 40; i++) {
		const int64_t queries = 1 + random32() % 130, keys = 1 + random32() % 150;
		const int64_t offset = i % 3 ? (int64_t)(random32() % (uint32_t)(keys + 1)) : -1;

		check_grouped(queries, keys, groups[i % 5], dims[i / 2 % 5], offset,
			      i % 8 & 3 ? i % 4 : FIRST, (values_t)(i % 3));
		check_grouped(queries, keys, 1 + i % 2, dims[i % 5], offset, FIRST | i % 2,
			      (values_t)(i % 3));
	}
	for (int64_t t = 1; t < 300; t += 1 + t / 3) { /* the queries are the last ones */
		check_grouped(t, t, 2, 8, 0, FIRST, PLAIN);
		check_grouped(t, t + 67, 1, 16, 67, FIRST, HARD);
	}
}

int main(void)
{
	test_self();
	test_grouped();
	test_general();
	test_padding();
	return check_done();
}
