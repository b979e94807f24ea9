/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rotary position embedding of the heads of a row, by tables of the caller. Backward turns the
 * gradient by the opposite angle; it reads the positions again.
 */
#include <shardrt/models/layers.h>

#include <stdlib.h>

#include "models/tape_impl.h"

enum { X, POSITIONS };

static srt_rotary_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	srt_rotary_t args = node->args.rotary;

	args.positions = srt_run_value(run, node->in[POSITIONS]);
	return args;
}

static srt_status_t forward_rotary(const srt_run_t *run, const srt_node_t *node)
{
	srt_rotary_t args = get_args(run, node);

	args.x = srt_run_value(run, node->in[X]);
	args.y = srt_run_value(run, node->out);
	return srt_op_rotary(&args, run->stream);
}

static srt_status_t backward_rotary(const srt_run_t *run, const srt_node_t *node)
{
	srt_rotary_t args = get_args(run, node);

	args.backward = 1;
	args.x = srt_run_grad_out(run, node);
	srt_run_grad_in(run, node, X, &args.y, &args.accumulate);
	return srt_op_rotary(&args, run->stream);
}

static const srt_layer_t rotary_layer = {
	.name = "rotary",
	.keeps_in = 1u << POSITIONS,
	.adds = 1,
	.passes_on = 1u << X,
	.forward = forward_rotary,
	.backward = backward_rotary,
};

static int check_shapes(srt_tape_t *tape, const srt_tensor_t *x, const srt_rotary_in_t *in)
{
	if (in->positions->dtype == SRT_I32 && in->positions->rows == x->rows &&
	    in->positions->n == 1 && in->head_dim > 0 && x->n % in->head_dim == 0 && in->dim >= 0 &&
	    in->dim % 2 == 0 && in->dim <= in->head_dim && in->npositions > 0 && in->copied >= 0 &&
	    in->copied <= x->n / in->head_dim)
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "rotary: x (%lld,%lld) in heads of %lld values, of which %lld are rotated, "
		      "positions (%lld,%lld) %s below %lld do not match",
		      (long long)x->rows, (long long)x->n, (long long)in->head_dim,
		      (long long)in->dim, (long long)in->positions->rows,
		      (long long)in->positions->n, srt_dtype_name(in->positions->dtype),
		      (long long)in->npositions);
	return 0;
}

srt_tensor_t *srt_layer_rotary(srt_tape_t *tape, srt_tensor_t *x, const srt_rotary_in_t *in)
{
	srt_node_desc_t desc = { .layer = &rotary_layer };
	srt_rotary_t *args = &desc.args.rotary;

	desc.in[X] = x = srt_tape_enter(tape, rotary_layer.name, x);
	desc.in[POSITIONS] = in->positions;
	if (x == NULL || !srt_tape_usable(tape, in->positions) || !check_shapes(tape, x, in))
		return NULL;
	*args = (srt_rotary_t)SRT_ROTARY_INIT;
	args->rows = x->rows;
	args->heads = x->n / in->head_dim;
	args->head_dim = in->head_dim;
	args->dim = in->dim;
	args->npositions = in->npositions;
	args->copied = in->copied;
	args->cos = in->cos;
	args->sin = in->sin;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}

/* ---- tables ----------------------------------------------------------------------------- */

/* @param[out] host room for the table. */
static srt_status_t fill_table(srt_device_t *device, const srt_rope_t *rope, int64_t npositions,
			       float *host, srt_buffer_t *table)
{
	const int64_t half = npositions * (rope->dim / 2);
	srt_stream_t *stream;
	srt_status_t status;

	SRT_TRY(srt_rope_tables(rope, npositions, host, host + half));
	SRT_TRY(srt_stream_create(device, 0, "tables", &stream));
	status = srt_buffer_copy_from_host(table, 0, host, srt_buffer_nbytes(table), stream);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	srt_stream_destroy(stream);
	return status;
}

srt_status_t srt_rotary_create(srt_device_t *device, const srt_rope_t *rope, srt_rotary_in_t *in,
			       srt_buffer_t **tables)
{
	srt_buffer_t *table = NULL;
	srt_status_t status;
	size_t nbytes;
	float *host;

	if (device == NULL || rope == NULL || in == NULL || tables == NULL)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_rotary_create: device, rope, in or tables is NULL");
	if (in->npositions < 1 || in->npositions > SRT_ROPE_MAX_POSITIONS || rope->dim < 2 ||
	    rope->dim > INT32_MAX)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_rotary_create: %lld positions, %lld rotated values of a "
				      "head: possible are 1 .. %lld, and 2 .. %d",
				      (long long)in->npositions, (long long)rope->dim,
				      (long long)SRT_ROPE_MAX_POSITIONS, INT32_MAX);
	nbytes = (size_t)in->npositions * (size_t)rope->dim * sizeof(float);
	host = malloc(nbytes);
	if (host == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for the angles of %lld positions",
				      (long long)in->npositions);
	status = srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "rotary positions", &table);
	if (status == SRT_OK)
		status = fill_table(device, rope, in->npositions, host, table);
	free(host);
	if (status != SRT_OK) {
		srt_buffer_destroy(table);
		return status;
	}
	in->dim = rope->dim;
	in->cos = srt_view(table, 0, SRT_F32);
	in->sin = srt_view(table, nbytes / 2, SRT_F32);
	*tables = table;
	return SRT_OK;
}
