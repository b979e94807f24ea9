/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend's attention, forward and backward, against the definition (docs/numerics.md,
 * "Attention") written plainly, bit for bit: every instruction set present, causal and not,
 * contexts and head sizes around the tiles' edges, infinities, NaN and tiny values also at masked
 * positions, several numbers of parts. Guard words around the outputs and the scratch must survive.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/attention.h"
#include "kernels/cpu.h"
#include "kernels/math.h"
#include "tests/check.h"
#include "tests/random.h"

#define NGUARD 64

typedef enum values { PLAIN, HARD, TINY } values_t;

/* A case: its tensors, and what they should become. */
typedef struct sample {
	int64_t t, hd, d, nqkv, nout, nstats;
	float *qkv, *dout, *out, *stats, *dqkv, *want_out, *want_stats, *want_dqkv;
} sample_t;

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

static void drop(float *p)
{
	free(p - NGUARD);
}

static void check_guards(const float *p, int64_t n)
{
	for (int i = 0; i < NGUARD; i++)
		CHECK(p[i - NGUARD] == -123.25f && p[n + i] == -123.25f);
}

static float matmul_dot(const float *a, const float *b, int64_t n)
{
	float sum = 0.0f;

	for (int64_t k0 = 0; k0 < n; k0 += 512) {
		float x = 0.0f;

		for (int64_t k = k0; k < n && k < k0 + 512; k++)
			x = fmaf(a[k], b[k], x);
		sum = k0 ? sum + x : x;
	}
	return sum;
}

static float tree(float lanes[64])
{
	for (int h = 32; h; h /= 2)
		for (int l = 0; l < h; l++)
			lanes[l] = lanes[l] + lanes[l + h];
	return lanes[0];
}

/* One head by the definition; p and ds (t,t) are left for the keys' gradients. */
static void reference_queries(const srt_cpu_attention_t *at, int64_t row3, int64_t row,
			      float *stats, const sample_t *x, float *p, float *ds)
{
	const int64_t t = x->t, hd = x->hd, d = x->d;
	const float *q = at->qkv + row3, *k = q + d, *v = k + d;

	for (int64_t i = 0; i < t; i++) {
		int64_t seen = at->causal ? i + 1 : t;
		float m = -INFINITY, z[64] = { 0 }, dsum[64] = { 0 }, dot, *s = p + i * t;

		for (int64_t j = 0; j < seen; j++) {
			s[j] = matmul_dot(q + i * 3 * d, k + j * 3 * d, hd) * at->scale;
			m = s[j] > m || s[j] != s[j] ? s[j] : m;
		}
		m = m + 0.0f;
		for (int64_t j = 0; j < seen; j++) {
			s[j] = k_exp(s[j] - m);
			z[j % 64] = z[j % 64] + s[j];
		}
		stats[2 * i] = m;
		stats[2 * i + 1] = tree(z);
		for (int64_t j = 0; j < seen; j++)
			s[j] = s[j] * (1.0f / stats[2 * i + 1]);
		for (int64_t e = 0; e < hd; e++) {
			float o = 0.0f;

			for (int64_t j = 0; j < seen; j++)
				o = fmaf(s[j], v[j * 3 * d + e], o);
			x->want_out[row + i * d + e] = o;
			dsum[e % 64] = fmaf(x->dout[row + i * d + e], o, dsum[e % 64]);
		}
		dot = tree(dsum);
		for (int64_t j = 0; j < seen; j++)
			ds[i * t + j] =
				(s[j] *
				 (matmul_dot(x->dout + row + i * d, v + j * 3 * d, hd) - dot)) *
				at->scale;
	}
}

static void reference_gradients(const srt_cpu_attention_t *at, int64_t row3, int64_t row,
				const sample_t *x, const float *p, const float *ds)
{
	const int64_t t = x->t, hd = x->hd, d = x->d;
	const float *q = at->qkv + row3, *k = q + d;
	float *dq = x->want_dqkv + row3;

	for (int64_t i = 0; i < t; i++)
		for (int64_t e = 0; e < hd; e++) {
			float a = 0.0f, b = 0.0f, c = 0.0f;

			for (int64_t j = 0; j < (at->causal ? i + 1 : t); j++)
				a = fmaf(ds[i * t + j], k[j * 3 * d + e], a);
			for (int64_t n = at->causal ? i : 0; n < t; n++) {
				b = fmaf(ds[n * t + i], q[n * 3 * d + e], b);
				c = fmaf(p[n * t + i], x->dout[row + n * d + e], c);
			}
			dq[i * 3 * d + e] = a;
			dq[i * 3 * d + d + e] = b;
			dq[i * 3 * d + 2 * d + e] = c;
		}
}

static void reference(const srt_cpu_attention_t *at, const sample_t *x)
{
	size_t nbytes = (size_t)(x->t * x->t + 1) * sizeof(float);
	float *p = malloc(nbytes), *ds = malloc(nbytes);

	CHECK_OR_DIE(p && ds);
	for (int64_t unit = 0; unit < at->batch * at->heads; unit++) {
		int64_t item = unit / at->heads, head = unit % at->heads;
		int64_t row = item * x->t * x->d + head * x->hd;
		int64_t row3 = item * x->t * 3 * x->d + head * x->hd;

		reference_queries(at, row3, row, x->want_stats + unit * x->t * 2, x, p, ds);
		reference_gradients(at, row3, row, x, p, ds);
	}
	free(p);
	free(ds);
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

static void check_case(int64_t batch, int64_t t, int64_t heads, int64_t hd, int causal,
		       values_t kind, int nparts)
{
	srt_cpu_attention_t at = { .batch = batch,
				   .context = t,
				   .heads = heads,
				   .head_dim = hd,
				   .scale = kind == TINY ? 0x1p100f : 0.35f,
				   .causal = causal };
	sample_t x = { .t = t, .hd = hd, .d = heads * hd };
	long before = check_failed;

	x.nqkv = batch * t * 3 * x.d;
	x.nout = batch * t * x.d;
	x.nstats = batch * heads * t * 2;
	at.qkv = x.qkv = numbers(x.nqkv, kind);
	at.dout = x.dout = numbers(x.nout, kind);
	at.out = x.out = numbers(x.nout, PLAIN);
	at.stats = x.stats = numbers(x.nstats, PLAIN);
	at.dqkv = x.dqkv = numbers(x.nqkv, PLAIN);
	x.want_out = numbers(x.nout, PLAIN);
	x.want_stats = numbers(x.nstats, PLAIN);
	x.want_dqkv = numbers(x.nqkv, PLAIN);
	reference(&at, &x);
	run_parts(srt_cpu_attention, &at, srt_cpu_attention_scratch(gemm, &at), nparts);
	CHECK_BITS(x.out, x.want_out, (size_t)x.nout);
	CHECK_BITS(x.stats, x.want_stats, (size_t)x.nstats);
	run_parts(srt_cpu_attention_backward, &at, srt_cpu_attention_backward_scratch(gemm, &at),
		  nparts);
	CHECK_BITS(x.dqkv, x.want_dqkv, (size_t)x.nqkv);
	check_guards(x.out, x.nout);
	check_guards(x.stats, x.nstats);
	check_guards(x.dqkv, x.nqkv);
	CHECK_MSG(check_failed == before,
		  "%s: batch %d context %d heads %d head_dim %d causal %d values %d parts %d", isa,
		  (int)batch, (int)t, (int)heads, (int)hd, causal, (int)kind, nparts);
	drop(x.qkv);
	drop(x.dout);
	drop(x.out);
	drop(x.stats);
	drop(x.dqkv);
	drop(x.want_out);
	drop(x.want_stats);
	drop(x.want_dqkv);
}

static void test_all(void)
{
	static const int64_t dims[] = { 1, 3, 8, 16, 17, 32, 33, 64, 65 };

	for (int causal = 0; causal < 2; causal++) {
		for (int64_t t = 0; t <= 40; t++)
			check_case(1, t, 2, dims[t % 9], causal, (values_t)(t % 3),
				   1 + (int)(t % 4));
		for (int kind = PLAIN; kind <= TINY; kind++) {
			check_case(1, 97, 1, 12, causal, (values_t)kind, 1);
			check_case(2, 64, 2, 32, causal, (values_t)kind, 3);
		}
		check_case(1, 200, 1, 40, causal, PLAIN, 1);
		check_case(1, 130, 2, 64, causal, HARD, 1);
		check_case(3, 5, 5, 9, causal, HARD, 17);
		check_case(1, 9, 1, 1100, causal, PLAIN, 2);
		check_case(1, 600, 1, 4, causal, PLAIN, 1);
		check_case(0, 9, 1, 8, causal, PLAIN, 2);
	}
}

int main(void)
{
	for (int i = 0; i < SRT_ISA_COUNT; i++) {
		isa = srt_cpu_isa_name((srt_cpu_isa_t)i);
		if (!srt_cpu_isa_usable((srt_cpu_isa_t)i))
			continue;
		gemm = srt_cpu_gemm_find(isa);
		CHECK_OR_DIE(gemm != NULL);
		test_all();
	}
	return check_done();
}
