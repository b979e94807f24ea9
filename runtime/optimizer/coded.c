/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * States in 8 bits: where they are, and their values on the host. kernels/adam8.k steps them;
 * kernels/dialect/codes.h has the values of the codes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "kernels/dialect/codes.h"
#include "runtime/optimizer/optimizer.h"

_Static_assert(SRT_OPTIM_BLOCK == SRT_K_CODE_BLOCK, "blocks");

/* Bytes of a pair of absmax. */
#define PAIR_NBYTES (2 * sizeof(float))

bool srt_optim_in_8_bits(const srt_optim_t *optim)
{
	return optim->groups[0].state_bits == 8;
}

bool srt_coded_fits(int64_t whole_nelem, int64_t row_nelem)
{
	return whole_nelem >= SRT_OPTIM_LEAST_NELEM && row_nelem >= SRT_OPTIM_LEAST_ROW;
}

int64_t srt_coded_blocks(int64_t nelem, int64_t row_nelem)
{
	return nelem == 0 ? 0 : nelem / row_nelem * ((row_nelem - 1) / SRT_OPTIM_BLOCK + 1);
}

bool srt_optim_is_coded(const srt_optim_t *optim, const srt_optim_param_t *p)
{
	return srt_optim_in_8_bits(optim) && srt_coded_fits(p->whole_nelem, p->row_nelem);
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Bytes of one state's codes or floats, and of absmax, before what is placed next. */
typedef struct places {
	size_t state, absmax;
} places_t;

/* Adds the entry; *at: where it is. */
static void add_place(const srt_optim_t *optim, const srt_optim_param_t *p, places_t *next,
		      places_t *at)
{
	const bool is_coded = srt_optim_is_coded(optim, p);
	const size_t size = is_coded ? 1 : sizeof(float);

	*at = *next;
	next->state = srt_align_up(next->state + (size_t)p->nelem * size, SRT_OPTIM_ALIGN);
	if (is_coded)
		next->absmax += (size_t)srt_coded_blocks(p->nelem, p->row_nelem) * PAIR_NBYTES;
}

static bool is_allocated(const srt_optim_t *optim, const srt_optim_entry_t *entry)
{
	return entry->run >= 0 && optim->runs[entry->run].allocates;
}

/* Buffer: exp_avg, exp_avg_sq, absmax of all parameters. `total`: bytes of each. */
static void set_views(srt_optim_t *optim, places_t total)
{
	places_t next = { 0 }, at;

	for (size_t i = 0; i < optim->nentries; i++) {
		srt_optim_param_t *p = &optim->entries[i].param;
		const bool is_coded = srt_optim_is_coded(optim, p);

		if (!is_allocated(optim, &optim->entries[i]))
			continue;
		add_place(optim, p, &next, &at);
		for (size_t k = 0; k < 2; k++)
			p->state[k] = srt_view(optim->state_buffer, k * total.state + at.state,
					       is_coded ? SRT_U8 : SRT_F32);
		if (is_coded)
			p->state[2] =
				srt_view(optim->state_buffer, 2 * total.state + at.absmax, SRT_F32);
		for (int k = 0; k < (is_coded ? 3 : 2); k++)
			srt_buffer_hold(p->state[k].buffer);
	}
}

/* Where m, v and absmax of the run begin. */
static void set_run(srt_optim_t *optim, const srt_optim_entry_t *entry, places_t total)
{
	srt_optim_run_t *run = &optim->runs[entry->run];
	const srt_view_t *states = entry->param.state;
	const size_t apart = run->allocates ? total.state : 0;

	run->args.m = srt_view(states[0].buffer, 0, SRT_U8);
	run->args.v = srt_view(states[1].buffer, apart, SRT_U8);
	if (states[2].buffer != NULL)
		run->args.vmax = srt_view(states[2].buffer, 2 * apart, SRT_F32);
}

srt_status_t srt_coded_place_states(srt_optim_t *optim)
{
	places_t total = { 0 }, at;

	for (size_t i = 0; i < optim->nentries; i++)
		if (is_allocated(optim, &optim->entries[i]))
			add_place(optim, &optim->entries[i].param, &total, &at);
	if (total.state > 0)
		SRT_TRY(srt_buffer_create(optim->device, SRT_MEM_DEVICE,
					  2 * total.state + total.absmax, "optimizer state",
					  &optim->state_buffer));
	set_views(optim, total);
	for (size_t i = 0; i < optim->nentries; i++)
		if (optim->entries[i].run >= 0)
			set_run(optim, &optim->entries[i], total);
	return SRT_OK;
}

srt_k_segment8_t srt_coded_segment(const srt_optim_t *optim, const srt_optim_entry_t *entry,
				   int64_t *nblocks)
{
	const srt_optim_param_t *p = &entry->param;
	const srt_optim_args_t *args = &optim->runs[entry->run].args;
	const bool is_coded = srt_optim_is_coded(optim, p);
	const int64_t row = is_coded ? p->row_nelem : p->nelem;
	srt_k_segment8_t segment = {
		.offset = entry->first,
		.row = row,
		.block = *nblocks,
		.state = (int64_t)(p->state[0].offset - args->m.offset),
		.absmax = -1,
		.param = entry->slot,
	};

	if (is_coded)
		segment.absmax = (int64_t)((p->state[2].offset - args->vmax.offset) / PAIR_NBYTES);
	*nblocks += srt_coded_blocks(p->nelem, row);
	return segment;
}

/* ---- values ------------------------------------------------------------------------------ */

static float value_of(int k, int code)
{
	return k == 0 ? k_signed_value(code) : k_unsigned_value(code);
}

/* The nearest value, of two the smaller one in magnitude, as in adam8.k. */
static unsigned char nearest(int k, float x)
{
	const int zero = k == 0 ? 127 : 0;
	const float y = k == 0 ? fabsf(x) : x;
	int low = 0, high = x < 0.0f ? zero : 255 - zero;

	while (low < high) {
		const int mid = (low + high) / 2;

		if (y > 0.5f * (value_of(k, zero + mid) + value_of(k, zero + mid + 1)))
			low = mid + 1;
		else
			high = mid;
	}
	return (unsigned char)(x < 0.0f ? zero - low : zero + low);
}

/* Codes of n elements, a block. Returns whether they have just these values. */
static bool encode_by(int k, const float *elements, int64_t n, float absmax, unsigned char *codes)
{
	bool is_exact = true;

	for (int64_t i = 0; i < n; i++) {
		codes[i] = nearest(k, absmax > 0.0f ? elements[i] / absmax : 0.0f);
		if (k == 1 && codes[i] == 0 && elements[i] > 0.0f)
			codes[i] = 1;
		is_exact = is_exact && value_of(k, codes[i]) * absmax == elements[i];
	}
	return is_exact;
}

/*
 * Encodes a block by its largest magnitude, as a step does; returns that. Values of codes become
 * these codes again: where the largest is negative, it was read as value 0 times the absmax before.
 */
static float encode_block(int k, const float *elements, int64_t n, unsigned char *codes)
{
	float top = 0.0f, before;

	for (int64_t i = 0; i < n; i++) {
		const float x = fabsf(elements[i]);

		top = x > top || x != x ? x : top;
	}
	if (!(top < INFINITY))
		top = NAN;
	else if (top < 0x1p-120f)
		top = 0.0f;
	before = nextafterf(top / -k_signed_value(0), 0.0f);
	if (encode_by(k, elements, n, top, codes))
		return top;
	for (int i = 0; k == 0 && i < 3; i++) {
		if (encode_by(k, elements, n, before, codes))
			return before;
		before = nextafterf(before, INFINITY);
	}
	encode_by(k, elements, n, top, codes);
	return top;
}

/* A copy of a shard's states on the host. */
typedef struct copy {
	unsigned char *codes;
	float *absmax; /* pairs */
	int64_t nblocks;
} copy_t;

static void copy_free(copy_t *copy)
{
	free(copy->codes);
	free(copy->absmax);
}

static srt_status_t copy_create(int64_t nelem, int64_t row_nelem, copy_t *copy)
{
	copy->nblocks = srt_coded_blocks(nelem, row_nelem);
	copy->codes = srt_calloc((size_t)nelem + 1, 1, "optimizer state");
	copy->absmax = srt_calloc((size_t)copy->nblocks + 1, PAIR_NBYTES, "optimizer state");
	if (copy->codes != NULL && copy->absmax != NULL)
		return SRT_OK;
	copy_free(copy);
	return SRT_ERR_OUT_OF_MEMORY;
}

static void decode(const copy_t *copy, int k, int64_t nelem, int64_t row_nelem, float *elements)
{
	const int64_t blocks = srt_coded_blocks(row_nelem, row_nelem);
	const srt_fpenv_t env = srt_fpenv_enter();

	for (int64_t i = 0; i < nelem; i++) {
		const int64_t block = i / row_nelem * blocks + i % row_nelem / SRT_OPTIM_BLOCK;

		elements[i] = value_of(k, copy->codes[i]) * copy->absmax[2 * block + k];
	}
	srt_fpenv_leave(env);
}

static void encode(const copy_t *copy, int k, int64_t nelem, int64_t row_nelem,
		   const float *elements)
{
	const srt_fpenv_t env = srt_fpenv_enter();
	int64_t block = 0;

	for (int64_t row = 0; row < nelem; row += row_nelem) {
		for (int64_t at = 0; at < row_nelem; at += SRT_OPTIM_BLOCK, block++) {
			const int64_t left = row_nelem - at;

			copy->absmax[2 * block + k] =
				encode_block(k, elements + row + at,
					     left < SRT_OPTIM_BLOCK ? left : SRT_OPTIM_BLOCK,
					     copy->codes + row + at);
		}
	}
	srt_fpenv_leave(env);
}

srt_status_t srt_coded_read(srt_view_t codes, srt_view_t absmax, int k, int64_t nelem,
			    int64_t row_nelem, float *elements, srt_stream_t *stream)
{
	srt_status_t status;
	copy_t copy;

	if (nelem == 0)
		return SRT_OK;
	SRT_TRY(copy_create(nelem, row_nelem, &copy));
	status = srt_buffer_copy_to_host(copy.codes, codes.buffer, codes.offset, (size_t)nelem,
					 stream);
	if (status == SRT_OK)
		status = srt_buffer_copy_to_host(copy.absmax, absmax.buffer, absmax.offset,
						 (size_t)copy.nblocks * PAIR_NBYTES, stream);
	if (status == SRT_OK)
		decode(&copy, k, nelem, row_nelem, elements);
	copy_free(&copy);
	return status;
}

srt_status_t srt_coded_write(srt_view_t codes, srt_view_t absmax, int k, int64_t nelem,
			     int64_t row_nelem, const float *elements, srt_stream_t *stream)
{
	srt_status_t status;
	size_t nbytes;
	copy_t copy;

	if (nelem == 0)
		return SRT_OK;
	SRT_TRY(copy_create(nelem, row_nelem, &copy));
	nbytes = (size_t)copy.nblocks * PAIR_NBYTES;
	/* those of the other state stay */
	status = srt_buffer_copy_to_host(copy.absmax, absmax.buffer, absmax.offset, nbytes, stream);
	if (status == SRT_OK) {
		encode(&copy, k, nelem, row_nelem, elements);
		status = srt_buffer_copy_from_host(absmax.buffer, absmax.offset, copy.absmax,
						   nbytes, stream);
	}
	if (status == SRT_OK)
		status = srt_buffer_copy_from_host(codes.buffer, codes.offset, copy.codes,
						   (size_t)nelem, stream);
	copy_free(&copy);
	return status;
}
