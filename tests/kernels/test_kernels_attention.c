/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The definition of attention against a plain reference, element by element: the positions of
 * queries the keys' own or others, causal or not, lengths and masks, all layouts, hard values; what
 * is hidden does not leak; and the gradient against finite differences in double.
 */
#include "tests/kernels/attention_ref.h"
#include "tests/kernels/kernel_check.h"

/* What hides keys. */
enum { LENGTHS = 1, MASK = 2, FIRST = 4, POISON = 8 }; /* POISON: hidden are NaN and infinities */

/* n numbers that the dtype has. */
static float *numbers(srt_dtype_t dtype, int64_t n, float (*source)(void))
{
	float *x = kc_floats(n, source);

	kc_round(dtype, x, n);
	return x;
}

static att_t make(srt_dtype_t dtype, const srt_k_attention_t *a, int hide, float (*source)(void))
{
	const int64_t d = a->heads * a->head_dim, rows = a->batch * a->queries;
	att_t t = { .a = *a };

	t.dtype = dtype;
	t.q = numbers(dtype, att_queries_extent(a, a->ldq), source);
	t.k = numbers(dtype, att_keys_extent(a, a->ldk), source);
	t.v = numbers(dtype, att_keys_extent(a, a->ldv), source);
	t.dout = numbers(dtype, rows * d, source);
	t.lengths = hide & LENGTHS ? att_lengths(a) : NULL;
	t.mask = hide & MASK ? att_mask(a) : NULL;
	t.first = hide & FIRST ? att_first(a) : NULL;
	t.out = kc_floats(rows * d, NULL);
	t.stats = kc_floats(2 * rows * a->heads, NULL);
	t.dsum = kc_floats(rows * a->heads, NULL);
	t.dq = numbers(dtype, att_queries_extent(a, a->lddq), kc_mild);
	t.dk = numbers(dtype, att_keys_extent(a, a->lddk), kc_mild);
	t.dv = numbers(dtype, att_keys_extent(a, a->lddv), kc_mild);
	return t;
}

static void drop(att_t *t)
{
	void *const all[] = { (void *)(uintptr_t)t->q,
			      (void *)(uintptr_t)t->k,
			      (void *)(uintptr_t)t->v,
			      (void *)(uintptr_t)t->dout,
			      (void *)(uintptr_t)t->lengths,
			      (void *)(uintptr_t)t->mask,
			      (void *)(uintptr_t)t->first,
			      t->out,
			      t->stats,
			      t->dsum,
			      t->dq,
			      t->dk,
			      t->dv };

	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++)
		free(all[i]);
}

/* ---- the kernels against the reference --------------------------------------------------- */

static void in_statistics(const att_t *t)
{
	const size_t rows = (size_t)(t->a.batch * t->a.queries * t->a.heads);

	kc_in(t->stats, 2 * rows * sizeof(float));
	kc_in(t->dsum, rows * sizeof(float));
}

static void in_masks(const att_t *t)
{
	if (t->lengths != NULL)
		kc_in(t->lengths, (size_t)t->a.batch * sizeof(int32_t));
	else
		kc_absent();
	if (t->mask != NULL)
		kc_in(t->mask, (size_t)(t->a.batch * t->a.keys));
	else
		kc_absent();
	if (t->first != NULL)
		kc_in(t->first, (size_t)(t->a.batch * t->a.queries) * sizeof(int32_t));
	else
		kc_absent();
}

static void in_rows(const att_t *t)
{
	kc_in_t(t->q, att_queries_extent(&t->a, t->a.ldq));
	kc_in_t(t->k, att_keys_extent(&t->a, t->a.ldk));
	kc_in_t(t->v, att_keys_extent(&t->a, t->a.ldv));
}

static float *copy_of(const float *x, int64_t n)
{
	float *y = kc_floats(n, NULL);

	memcpy(y, x, (size_t)n * sizeof(*y));
	return y;
}

static void run_backward(const att_t *t, srt_dtype_t dtype, const float *dq, const float *dk,
			 const float *dv)
{
	const int64_t rows = t->a.batch * t->a.queries, d = t->a.heads * t->a.head_dim;

	kc_begin_as(dtype, SRT_K_ATTENTION_BACKWARD_Q, &t->a, "dq");
	kc_out(dq, t->dq, att_queries_extent(&t->a, t->a.lddq));
	kc_in_t(t->dout, rows * d);
	in_rows(t);
	in_statistics(t);
	in_masks(t);
	kc_run();
	for (int absent = 0; absent < 3; absent++) { /* none of both, dk, dv */
		kc_begin_as(dtype, SRT_K_ATTENTION_BACKWARD_KV, &t->a, "dk, dv");
		if (absent == 1)
			kc_absent();
		else
			kc_out(dk, t->dk, att_keys_extent(&t->a, t->a.lddk));
		if (absent == 2)
			kc_absent();
		else
			kc_out(dv, t->dv, att_keys_extent(&t->a, t->a.lddv));
		kc_in_t(t->dout, rows * d);
		in_rows(t);
		in_statistics(t);
		in_masks(t);
		kc_run();
	}
}

static void run(const att_t *t, srt_dtype_t dtype)
{
	const int64_t rows = t->a.batch * t->a.queries, d = t->a.heads * t->a.head_dim;
	/* What is between rows stays. */
	float *dq = copy_of(t->dq, att_queries_extent(&t->a, t->a.lddq));
	float *dk = copy_of(t->dk, att_keys_extent(&t->a, t->a.lddk));
	float *dv = copy_of(t->dv, att_keys_extent(&t->a, t->a.lddv));

	att_reference(t);
	kc_begin_as(dtype, SRT_K_ATTENTION, &t->a, "forward");
	kc_out(NULL, t->out, rows * d);
	kc_out_floats(NULL, t->stats, 2 * rows * t->a.heads);
	in_rows(t);
	in_masks(t);
	kc_run();
	kc_begin_as(dtype, SRT_K_ATTENTION_BACKWARD_D, &t->a, "D");
	kc_out_floats(NULL, t->dsum, rows * t->a.heads);
	kc_in_t(t->dout, rows * d);
	kc_in_t(t->out, rows * d);
	in_rows(t);
	kc_in(t->stats, (size_t)(2 * rows * t->a.heads) * sizeof(float));
	in_masks(t);
	kc_run();
	run_backward(t, dtype, dq, dk, dv);
	free(dq);
	free(dk);
	free(dv);
}

/* ---- the gradient, and what is hidden ---------------------------------------------------- */

/* sum(out * dout) in double, with v[at] of one input changed by `by`. */
static double loss(const att_t *t, const float *of, int64_t at, double by)
{
	double total = 0.0;

	for (int64_t u = 0; u < t->a.batch * t->a.heads * t->a.queries; u++) {
		const int64_t i = u % t->a.queries, h = u / t->a.queries % t->a.heads;
		const int64_t b = u / t->a.queries / t->a.heads;
		double z = 0.0, dot = 0.0;

		for (int64_t j = 0; j < t->a.keys; j++) {
			double s = 0.0, g = 0.0;

			if (!att_sees(t, b, i, j))
				continue;
			for (int64_t e = 0; e < t->a.head_dim; e++) {
				const float *q = ATT_Q(t, b, h, i) + e, *k = ATT_K(t, b, h, j) + e;
				const float *v = ATT_V(t, b, h, j) + e;

				s += ((double)*q + (q == of + at ? by : 0.0)) *
				     ((double)*k + (k == of + at ? by : 0.0));
				g += ((double)*v + (v == of + at ? by : 0.0)) *
				     (double)ATT_OUT(t, dout, b, h, i)[e];
			}
			z += exp(s * (double)t->a.scale);
			dot += exp(s * (double)t->a.scale) * g;
		}
		total += z > 0.0 ? dot / z : 0.0;
	}
	return total;
}

/* A gradient by central differences; every element of every row. */
static void check_gradient(const att_t *t, const char *name, const float *x, int64_t ldx,
			   const float *dx, int64_t lddx, int64_t positions, int64_t heads)
{
	const int64_t d = heads * t->a.head_dim;

	for (int64_t r = 0; r < t->a.batch * positions; r++)
		for (int64_t e = 0; e < d; e++) {
			const double want =
				(loss(t, x, r * ldx + e, 1e-5) - loss(t, x, r * ldx + e, -1e-5)) /
				2e-5;
			const double got = (double)dx[r * lddx + e];

			CHECK_MSG(fabs(want - got) < 1e-5 * (1.0 + fabs(want)),
				  "%s row %d column %d is %g, by differences %g", name, (int)r,
				  (int)e, got, want);
		}
}

static void check_gradients(const att_t *t)
{
	check_gradient(t, "dq", t->q, t->a.ldq, t->dq, t->a.lddq, t->a.queries, t->a.heads);
	check_gradient(t, "dk", t->k, t->a.ldk, t->dk, t->a.lddk, t->a.keys, t->a.kv_heads);
	check_gradient(t, "dv", t->v, t->a.ldv, t->dv, t->a.lddv, t->a.keys, t->a.kv_heads);
}

static int is_hidden(const att_t *t, int64_t b, int64_t j)
{
	return (t->lengths != NULL && j >= t->lengths[b]) ||
	       (t->mask != NULL && !t->mask[b * t->a.keys + j]);
}

static void poison(att_t *t)
{
	const int64_t d = t->a.kv_heads * t->a.head_dim;
	float *k = (float *)(uintptr_t)t->k, *v = (float *)(uintptr_t)t->v;

	for (int64_t r = 0; r < t->a.batch * t->a.keys; r++)
		for (int64_t e = 0; is_hidden(t, r / t->a.keys, r % t->a.keys) && e < d; e++) {
			k[r * t->a.ldk + e] = e % 2 ? NAN : INFINITY;
			v[r * t->a.ldv + e] = e % 2 ? -INFINITY : NAN;
		}
}

static void check_finite(const float *x, int64_t rows, int64_t ld, int64_t d)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t e = 0; e < d; e++)
			CHECK(isfinite(x[r * ld + e]));
}

/* The reference leaves out what is hidden; nobody may have noticed the poison. */
static void check_leaks(const att_t *t)
{
	const int64_t dq = t->a.heads * t->a.head_dim, d = t->a.kv_heads * t->a.head_dim;

	check_finite(t->out, t->a.batch * t->a.queries, dq, dq);
	check_finite(t->dq, t->a.batch * t->a.queries, t->a.lddq, dq);
	check_finite(t->dk, t->a.batch * t->a.keys, t->a.lddk, d);
	check_finite(t->dv, t->a.batch * t->a.keys, t->a.lddv, d);
	for (int64_t r = 0; r < t->a.batch * t->a.keys; r++)
		for (int64_t e = 0; is_hidden(t, r / t->a.keys, r % t->a.keys) && e < d; e++)
			CHECK(t->dk[r * t->a.lddk + e] == 0.0f && t->dv[r * t->a.lddv + e] == 0.0f);
}

static void test_shape(srt_dtype_t dtype, const srt_k_attention_t *a, int hide,
		       float (*source)(void))
{
	att_t t = make(dtype, a, hide, source);

	if (hide & POISON)
		poison(&t);
	run(&t, dtype);
	if (hide & POISON)
		check_leaks(&t);
	else if (dtype == SRT_F32 && source == kc_mild &&
		 a->batch * a->queries * a->keys * a->heads * a->head_dim < 1100)
		check_gradients(&t);
	drop(&t);
}

static void test_case(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t head_dim,
		      int causal, att_layout_t layout, int hide, float (*source)(void))
{
	const srt_k_attention_t a =
		att_shape(batch, queries, keys, heads, head_dim, causal, layout);

	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++)
		test_shape((srt_dtype_t)dtype, &a, hide, source);
}

/* `group` heads for each head of keys, queries that begin at `offset`, and what hides keys. */
static void test_grouped_case(int64_t queries, int64_t keys, int64_t kv_heads, int64_t group,
			      int64_t offset, int hide, float (*source)(void))
{
	const att_layout_t layout = (att_layout_t)(group % ATT_NLAYOUTS);
	srt_k_attention_t a =
		att_shape(5, queries, keys, kv_heads * group, 2 + group % 2, 1, layout);

	a.kv_heads = kv_heads;
	a.offset = offset;
	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++)
		test_shape((srt_dtype_t)dtype, &a, hide, source);
}

/* Heads of keys that queries share, queries after some of the keys, first keys. */
static void test_grouped(void)
{
	static const int64_t groups[] = { 1, 2, 3, 5, 7, 8, 127 };

	for (size_t i = 0; i < SRT_ARRAY_LEN(groups); i++) {
		test_grouped_case(3, 4, 2, groups[i], 1, FIRST, kc_mild);
		test_grouped_case(5, 7, 1, groups[i], (int64_t)i, LENGTHS | FIRST, kc_hard);
		test_grouped_case(3, 4, 1, groups[i], 0, 0, kc_mild);
	}
	for (int64_t keys = 71; keys < 76; keys++) {
		test_grouped_case(9, keys, 1, 2, 62, LENGTHS | FIRST | POISON, kc_mild);
		test_grouped_case(9, keys, 2, 1, keys - 9, LENGTHS | MASK | FIRST, kc_hard);
		test_grouped_case(keys, keys, 1, 2, 0, MASK | FIRST | POISON, kc_mild);
		test_grouped_case(2, keys, 1, 3, keys, FIRST, kc_hard);
	}
}

/* A query that sees nothing: statistics, output and gradients are what the definition says. */
static void test_nothing_seen(void)
{
	const srt_k_attention_t a = att_shape(1, 3, 4, 1, 5, 0, ATT_DENSE);
	const int32_t none = 0;
	att_t t = make(SRT_F32, &a, 0, kc_mild);

	t.lengths = &none;
	run(&t, SRT_F32);
	for (int i = 0; i < 3; i++)
		CHECK(t.stats[2 * i] == -INFINITY && t.stats[2 * i + 1] == 0.0f);
	for (int i = 0; i < 15; i++)
		CHECK(t.out[i] == 0.0f && t.dq[i] == 0.0f);
	for (int i = 0; i < 20; i++)
		CHECK(t.dk[i] == 0.0f && t.dv[i] == 0.0f);
	t.lengths = NULL;
	drop(&t);
}

int main(void)
{
	for (int causal = 0; causal < 2; causal++) {
		test_case(1, 1, 1, 1, 1, causal, ATT_PACKED, 0, kc_mild);
		test_case(2, 5, 5, 3, 7, causal, ATT_PACKED, 0, kc_mild);
		test_case(1, 67, 67, 2, 16, causal, ATT_PACKED, 0, kc_mild);
		test_case(1, 9, 9, 1, 65, causal, ATT_PACKED, 0, kc_hard);
		test_case(1, 3, 3, 1, 515, causal, ATT_PACKED, 0, kc_mild);
		test_case(0, 3, 3, 1, 4, causal, ATT_PACKED, 0, kc_mild);
		/* other numbers of keys than of queries */
		test_case(2, 1, 7, 2, 3, causal, ATT_DENSE, 0, kc_mild);
		test_case(2, 7, 1, 2, 3, causal, ATT_GAPS, 0, kc_mild);
		test_case(1, 5, 131, 1, 6, causal, ATT_GAPS, 0, kc_hard);
		test_case(1, 131, 3, 1, 4, causal, ATT_DENSE, 0, kc_hard);
		test_case(2, 0, 3, 1, 4, causal, ATT_DENSE, 0, kc_mild);
		test_case(2, 3, 0, 1, 4, causal, ATT_DENSE, 0, kc_mild);
		for (int hide = LENGTHS; hide <= (LENGTHS | MASK); hide++) {
			test_case(7, 3, 4, 1, 5, causal, ATT_GAPS, hide, kc_mild);
			test_case(7, 6, 4, 2, 3, causal, ATT_DENSE, hide | POISON, kc_mild);
			test_case(4, 9, 71, 1, 9, causal, ATT_PACKED, hide | POISON, kc_mild);
			test_case(6, 4, 5, 2, 3, causal, ATT_DENSE, hide, kc_hard);
		}
	}
	test_grouped();
	test_nothing_seen();
	return kc_done();
}
