/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "tests/harness/bits.h"
#include "tests/harness/random.h"
#include "tests/models/tape_case.h"

/* Some elements of `values`, whose analytic gradient is `grad`. */
static void check_differences(tape_run_t *r, const char *what, float *values, const float *grad,
			      int64_t nelem)
{
	const float h = 0x1p-7f;
	int64_t stride = nelem / 12 + 1;

	for (int64_t i = (int64_t)(random_state % (uint64_t)stride); i < nelem; i += stride) {
		float old = values[i];
		double up, down, numeric, analytic = (double)grad[i];

		if (r->c->corner && fabsf(old) < 2.0f * h)
			continue; /* no derivative there */
		values[i] = old + h;
		up = tape_pass(r);
		values[i] = old - h;
		down = tape_pass(r);
		values[i] = old;
		numeric = 0.5 * (up - down) / (2.0 * (double)h);
		CHECK_MSG(fabs(numeric - analytic) <= 4e-3 * (fabs(numeric) + 1.0),
			  "%s: %s[%lld]: numeric %.6f, analytic %.6f", r->c->name, what,
			  (long long)i, numeric, analytic);
	}
}

void tape_check_gradients(const tape_case_t *c)
{
	tape_run_t r;
	float *grads[MAX_PARAMS], *extra_grads[MAX_EXTRA], *xgrad;
	int64_t nx = c->rows * c->n;

	tape_open(&r, c);
	tape_pass(&r);
	/* further passes write over r.grads */
	for (int k = 0; k < r.nextra; k++) {
		extra_grads[k] = tape_zeros(tape_nelem(r.extra[k]));
		memcpy(extra_grads[k], r.extra_grads[k], tape_nelem(r.extra[k]) * 4);
	}
	xgrad = tape_zeros((size_t)nx);
	memcpy(xgrad, r.xgrad, (size_t)nx * 4);
	for (int k = 0; k < r.nparams; k++) {
		size_t nelem = (size_t)srt_param_nelem(r.param[k]);

		grads[k] = tape_zeros(nelem);
		memcpy(grads[k], r.grads[k], nelem * 4);
	}
	if (!c->ids)
		check_differences(&r, "input", r.xvalues, xgrad, nx);
	for (int k = 0; k < r.nextra; k++) {
		if (r.extra[k]->needs_grad)
			check_differences(&r, "further input", r.extra_values[k], extra_grads[k],
					  (int64_t)tape_nelem(r.extra[k]));
		free(extra_grads[k]);
	}
	for (int k = 0; k < r.nparams; k++) {
		check_differences(&r, srt_param_name(r.param[k]), r.values[k], grads[k],
				  srt_param_nelem(r.param[k]));
		free(grads[k]);
	}
	free(xgrad);
	tape_close(&r);
}

void tape_check_plan(const tape_case_t *c)
{
	tape_run_t r;
	size_t offset = 0, planned;
	float *losses, *xgrad, *grads[MAX_PARAMS], *extra_grads[MAX_EXTRA];
	int64_t nx = c->rows * c->n;

	tape_open(&r, c);
	tape_pass(&r);
	losses = r.losses;
	xgrad = r.xgrad;
	memcpy(grads, r.grads, sizeof(grads));
	memcpy(extra_grads, r.extra_grads, sizeof(extra_grads));
	for (int k = 0; k < r.nextra; k++)
		r.extra_grads[k] = tape_zeros(tape_nelem(r.extra[k]));
	r.losses = tape_zeros((size_t)r.loss->rows);
	r.xgrad = tape_zeros((size_t)nx);
	for (int k = 0; k < r.nparams; k++)
		r.grads[k] = tape_zeros((size_t)srt_param_nelem(r.param[k]));

	planned = srt_tape_nbytes(r.tape);
	for (int b = 0; b < r.tape->nblocks; b++) {
		r.tape->blocks[b].offset = offset;
		offset += (r.tape->blocks[b].nbytes + 511) / 256 * 256;
	}
	CHECK_MSG(planned <= offset, "%s: %zu bytes planned, %zu without sharing", c->name, planned,
		  offset);
	r.tape->nbytes = offset;
	srt_buffer_destroy(r.arena);
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, offset, "arena", &r.arena));
	CHECK_OK_OR_DIE(srt_tape_bind(r.tape, r.arena));
	for (int again = 0; again < 2; again++) {
		uint64_t allocations = srt_device_allocations(tape_device);

		tape_pass(&r);
		CHECK_INT(srt_device_allocations(tape_device), allocations);
		CHECK_BITS(r.losses, losses, (size_t)r.loss->rows);
		CHECK_BITS(r.xgrad, xgrad, (size_t)nx);
		for (int k = 0; k < r.nparams; k++)
			CHECK_BITS(r.grads[k], grads[k], (size_t)srt_param_nelem(r.param[k]));
		for (int k = 0; k < r.nextra; k++)
			CHECK_BITS(r.extra_grads[k], extra_grads[k], tape_nelem(r.extra[k]));
	}
	free(losses);
	free(xgrad);
	for (int k = 0; k < r.nparams; k++)
		free(grads[k]);
	for (int k = 0; k < r.nextra; k++)
		free(extra_grads[k]);
	tape_close(&r);
}

uint64_t tape_digest = DIGEST_START;

/* Got in 16 bits, wanted in 32. */
static void check_against_f32(const tape_case_t *c, const char *what, const float *got,
			      const float *want, size_t n)
{
	const double rounding = c->dtype == SRT_F16 ? 0x1p-11 : 0x1p-8;
	double most = 0.0;

	tape_digest = digest_floats(tape_digest, got, n);
	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)want[i]));
	for (size_t i = 0; i < n; i++) {
		double off = fabs((double)got[i] - (double)want[i]);

		CHECK_MSG(off <= 16.0 * rounding * most, "%s in %s: %s[%zu] is %g, in f32 %g",
			  c->name, srt_dtype_name(c->dtype), what, i, (double)got[i],
			  (double)want[i]);
	}
}

/* The values of a run for another of the same case in another dtype. */
static void take_values(tape_run_t *to, const tape_run_t *from)
{
	memcpy(to->xvalues, from->xvalues, (size_t)(to->c->rows * to->c->n) * 4);
	memcpy(to->target_values, from->target_values, tape_nelem(to->target) * 4);
	for (int k = 0; k < to->nparams; k++)
		memcpy(to->values[k], from->values[k], (size_t)srt_param_nelem(to->param[k]) * 4);
	for (int k = 0; k < to->nextra; k++)
		memcpy(to->extra_values[k], from->extra_values[k], tape_nelem(to->extra[k]) * 4);
}

static void check_dtype(const tape_case_t *c)
{
	tape_case_t in_f32 = *c;
	tape_run_t got, want;

	in_f32.dtype = SRT_F32;
	tape_open(&got, c);
	tape_open(&want, &in_f32);
	take_values(&want, &got);
	tape_pass(&want);
	tape_pass(&got);
	CHECK_INT(srt_tensor_dtype(got.loss), SRT_F32);
	check_against_f32(c, "loss", got.losses, want.losses, (size_t)got.loss->rows);
	if (!c->ids)
		check_against_f32(c, "input", got.xgrad, want.xgrad, tape_nelem(got.x));
	for (int k = 0; k < got.nparams; k++)
		check_against_f32(c, srt_param_name(got.param[k]), got.grads[k], want.grads[k],
				  (size_t)srt_param_nelem(got.param[k]));
	for (int k = 0; k < got.nextra; k++)
		check_against_f32(c, "further input", got.extra_grads[k], want.extra_grads[k],
				  tape_nelem(got.extra[k]));
	tape_close(&got);
	tape_close(&want);
	tape_check_plan(c);
}

void tape_check_dtypes(const tape_case_t *c)
{
	tape_case_t half = *c;

	for (half.dtype = SRT_F16; half.dtype <= SRT_BF16; half.dtype++)
		check_dtype(&half);
}
