/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend's attention, forward and backward, against the definition (docs/numerics.md,
 * "Attention") written plainly, bit for bit: every instruction set present, causal and not, other
 * numbers of keys than of queries, lengths, layouts, sizes around the tiles' edges, infinities, NaN
 * and tiny values also at masked positions, several numbers of parts. Guard words around the
 * outputs and the scratch must survive.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/attention.h"
#include "kernels/cpu.h"
#include "tests/attention_ref.h"
#include "tests/check.h"
#include "tests/random.h"

#define NGUARD 64

typedef enum values { PLAIN, HARD, TINY } values_t;

static const char *isa;
static const srt_cpu_gemm_t *gemm;

static float value(values_t kind)
{
	uint32_t r = random32();
	float x = (float)((int)(r >> 8) - (1 << 23)) * 0x1p-22f;

	if (kind == HARD && r % 97 == 0)
		return (r >> 8) % 3 == 0 ? NAN : r & 0x1000 ? INFINITY : -INFINITY;
	if (kind == HARD && r % 7 == 0)
		return r & 0x1000 ? 0.0f : -0.0f;
	if (kind == TINY)
		return x * (r % 3 ? 0x1p-70f : 0x1p-126f);
	return x;
}

static float *numbers(int64_t n, values_t kind)
{
	float *p = malloc((size_t)(n + 2 * NGUARD) * sizeof(*p));

	CHECK_OR_DIE(p != NULL);
	for (int64_t i = 0; i < n + 2 * NGUARD; i++)
		p[i] = i < NGUARD || i >= NGUARD + n ? -123.25f : value(kind);
	return p + NGUARD;
}

static void drop(const float *p)
{
	free((void *)(uintptr_t)(p - NGUARD));
}

static void check_guards(const float *p, int64_t n)
{
	for (int i = 0; i < NGUARD; i++)
		CHECK(p[i - NGUARD] == -123.25f && p[n + i] == -123.25f);
}

typedef void pass_fn(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
		     int nparts, void *scratch);

static void run_parts(pass_fn *pass, const srt_cpu_attention_t *at, size_t nbytes, int nparts)
{
	unsigned char *scratch = aligned_alloc(64, (nbytes + 191) / 64 * 64);

	CHECK_OR_DIE(scratch != NULL);
	memset(scratch, 0xff, nbytes + 128); /* NaN: what is read must have been written */
	for (int part = nparts - 1; part >= 0; part--)
		pass(gemm, at, part, nparts, scratch + 64);
	for (int i = 0; i < 64; i++)
		CHECK(scratch[i] == 0xff && scratch[64 + nbytes + (size_t)i] == 0xff);
	free(scratch);
}

/* A case: the tensors, and what they should become. */
typedef struct sample {
	att_t want;
	srt_cpu_attention_t at;
	int64_t nout, nstats, ndq, ndk, ndv;
} sample_t;

/* Two of the same numbers. */
static float *twin(const float *x, int64_t n)
{
	float *p = numbers(n, PLAIN);

	memcpy(p, x, (size_t)n * sizeof(*p));
	return p;
}

static sample_t make(const srt_k_attention_t *a, int with_lengths, values_t kind)
{
	const int64_t d = a->heads * a->head_dim, rows = a->batch * a->queries;
	sample_t x = { .want = { .a = *a } };
	att_t *w = &x.want;

	x.nout = rows * d;
	x.nstats = 2 * rows * a->heads;
	x.ndq = att_extent(a, a->queries, a->lddq);
	x.ndk = att_extent(a, a->keys, a->lddk);
	x.ndv = att_extent(a, a->keys, a->lddv);
	w->q = numbers(att_extent(a, a->queries, a->ldq), kind);
	w->k = numbers(att_extent(a, a->keys, a->ldk), kind);
	w->v = numbers(att_extent(a, a->keys, a->ldv), kind);
	w->lengths = with_lengths ? att_lengths(a, random32) : NULL;
	w->dout = numbers(x.nout, kind);
	w->out = numbers(x.nout, PLAIN);
	w->stats = numbers(x.nstats, PLAIN);
	w->dsum = numbers(rows * a->heads, PLAIN);
	w->dq = numbers(x.ndq, PLAIN);
	w->dk = numbers(x.ndk, PLAIN);
	w->dv = numbers(x.ndv, PLAIN);
	x.at = (srt_cpu_attention_t){
		.batch = a->batch,
		.queries = a->queries,
		.keys = a->keys,
		.heads = a->heads,
		.head_dim = a->head_dim,
		.scale = a->scale,
		.causal = a->causal,
		.q = w->q,
		.k = w->k,
		.v = w->v,
		.ldq = a->ldq,
		.ldk = a->ldk,
		.ldv = a->ldv,
		.lengths = w->lengths,
		.dout = w->dout,
		.out = twin(w->out, x.nout),
		.stats = twin(w->stats, x.nstats),
		.dq = twin(w->dq, x.ndq),
		.dk = twin(w->dk, x.ndk),
		.dv = twin(w->dv, x.ndv),
		.lddq = a->lddq,
		.lddk = a->lddk,
		.lddv = a->lddv,
	};
	return x;
}

static void drop_all(const sample_t *x)
{
	const float *const all[] = { x->want.q,   x->want.k,     x->want.v,    x->want.dout,
				     x->want.out, x->want.stats, x->want.dsum, x->want.dq,
				     x->want.dk,  x->want.dv,    x->at.out,    x->at.stats,
				     x->at.dq,    x->at.dk,      x->at.dv };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		drop(all[i]);
	free((void *)(uintptr_t)x->want.lengths);
}

/* Gaps between rows are compared too. */
static void compare(const float *got, const float *want, int64_t n)
{
	CHECK_BITS(got, want, (size_t)n);
	check_guards(got, n);
}

/* Without one gradient the others are what they were. */
static void check_absent(sample_t *x, int nparts)
{
	float *const dq = x->at.dq, *const dk = x->at.dk, *const dv = x->at.dv;

	for (int i = 0; i < 3; i++) {
		x->at.dq = i == 0 ? NULL : dq;
		x->at.dk = i == 1 ? NULL : dk;
		x->at.dv = i == 2 ? NULL : dv;
		run_parts(srt_cpu_attention_backward, &x->at,
			  srt_cpu_attention_backward_scratch(gemm, &x->at), nparts);
	}
	x->at.dq = dq;
	x->at.dk = dk;
	x->at.dv = dv;
}

static void check_case(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t hd,
		       int form, values_t kind, int nparts)
{
	const int causal = form & 1, with_lengths = form >> 1 & 1;
	const att_layout_t layout = (att_layout_t)((form >> 2) % ATT_NLAYOUTS);
	srt_k_attention_t a = att_shape(batch, queries, keys, heads, hd, causal, layout);
	long before = check_failed;
	sample_t x;

	a.scale = kind == TINY ? 0x1p100f : 0.35f;
	x = make(&a, with_lengths, kind);
	att_reference(&x.want);
	run_parts(srt_cpu_attention, &x.at, srt_cpu_attention_scratch(gemm, &x.at), nparts);
	compare(x.at.out, x.want.out, x.nout);
	compare(x.at.stats, x.want.stats, x.nstats);
	run_parts(srt_cpu_attention_backward, &x.at,
		  srt_cpu_attention_backward_scratch(gemm, &x.at), nparts);
	if (queries < 10)
		check_absent(&x, nparts);
	compare(x.at.dq, x.want.dq, x.ndq);
	compare(x.at.dk, x.want.dk, x.ndk);
	compare(x.at.dv, x.want.dv, x.ndv);
	CHECK_MSG(check_failed == before,
		  "%s: batch %d, %d queries, %d keys, heads %d head_dim %d form %d values %d parts "
		  "%d",
		  isa, (int)batch, (int)queries, (int)keys, (int)heads, (int)hd, form, (int)kind,
		  nparts);
	drop_all(&x);
}

/* The positions of queries are the keys'. */
static void test_self(void)
{
	static const int64_t dims[] = { 1, 3, 8, 16, 17, 32, 33, 64, 65 };

	for (int causal = 0; causal < 2; causal++) {
		for (int64_t t = 0; t <= 40; t++)
			check_case(1, t, t, 2, dims[t % 9], causal, (values_t)(t % 3),
				   1 + (int)(t % 4));
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
			   1 + i % 20, i % 12, (values_t)(i % 3), 1 + i % 4);
	for (int form = 0; form < 12; form++) {
		check_case(6, 29, 26, 1, 8, form, HARD, 2);
		check_case(6, 13, 37, 1, 5, form, PLAIN, 1);
	}
	for (int form = 1; form < 4; form++) { /* several blocks of queries */
		check_case(2, 203, 101, 1, 6, form, PLAIN, 1);
		check_case(2, 101, 203, 1, 6, form, HARD, 1);
	}
	check_case(2, 3, 0, 1, 4, 0, PLAIN, 1);
	check_case(2, 0, 3, 1, 4, 1, PLAIN, 1);
}

int main(void)
{
	for (int i = 0; i < SRT_ISA_COUNT; i++) {
		isa = srt_cpu_isa_name((srt_cpu_isa_t)i);
		if (!srt_cpu_isa_usable((srt_cpu_isa_t)i))
			continue;
		gemm = srt_cpu_gemm_find(isa);
		CHECK_OR_DIE(gemm != NULL);
		test_self();
		test_general();
	}
	return check_done();
}
