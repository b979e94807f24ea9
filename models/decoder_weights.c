/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole parameters of a decoder in the dtype that it computes in, gathered once for many
 * forward passes: passes over them are this rank's alone, with every strategy.
 */
#include "models/decoder_impl.h"

#include <stdlib.h>

#include "models/try.h"

typedef struct weight {
	srt_param_t *param;
	srt_view_t view;
} weight_t;

struct srt_decoder_weights {
	srt_decoder_t *decoder;
	srt_buffer_t *buffer;
	size_t nbytes;
	weight_t *weights; /* by address of the parameter */
	size_t n;
};

enum { ALIGN = 64 };

/* ---- making ------------------------------------------------------------------------------ */

static int compare_params(const void *a, const void *b)
{
	const uintptr_t x = (uintptr_t)((const weight_t *)a)->param;
	const uintptr_t y = (uintptr_t)((const weight_t *)b)->param;

	return (x > y) - (x < y);
}

static srt_status_t place_param(srt_decoder_weights_t *w, srt_param_t *param)
{
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	const size_t nelem = (size_t)srt_param_nelem(param);

	SRT_TRY(srt_unit_types(srt_param_unit(param), &types));
	w->weights[w->n++] = (weight_t){ param, srt_view(NULL, w->nbytes, types.compute) };
	w->nbytes += nelem * (srt_dtype_bits(types.compute) / 8);
	w->nbytes = (w->nbytes + ALIGN - 1) / ALIGN * ALIGN;
	return SRT_OK;
}

static srt_status_t allocate(srt_decoder_weights_t *w, srt_device_t *device)
{
	srt_engine_t *engine = w->decoder->engine;
	const size_t nparams = srt_engine_param_count(engine);

	w->weights = calloc(nparams + 1, sizeof(*w->weights));
	if (w->weights == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a decoder's weights");
	for (size_t i = 0; i < nparams; i++)
		SRT_TRY(place_param(w, srt_engine_param_at(engine, i)));
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, w->nbytes, "weights", &w->buffer));
	for (size_t k = 0; k < w->n; k++)
		w->weights[k].view.buffer = w->buffer;
	qsort(w->weights, w->n, sizeof(*w->weights), compare_params);
	return SRT_OK;
}

srt_status_t srt_decoder_weights_create(srt_decoder_t *decoder, srt_device_t *device,
					srt_decoder_weights_t **weights)
{
	srt_decoder_weights_t *w;
	srt_status_t status;

	if (decoder->tensor_ranks > 1)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "decoder: the weights of %d tensor-parallel ranks are not "
				      "gathered; passes over their parts are collective",
				      decoder->tensor_ranks);
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a decoder's weights");
	w->decoder = decoder;
	status = allocate(w, device);
	if (status != SRT_OK) {
		srt_decoder_weights_destroy(w);
		return status;
	}
	*weights = w;
	return SRT_OK;
}

void srt_decoder_weights_destroy(srt_decoder_weights_t *weights)
{
	if (weights == NULL)
		return;
	srt_buffer_destroy(weights->buffer);
	free(weights->weights);
	free(weights);
}

size_t srt_decoder_weights_nbytes(const srt_decoder_weights_t *weights)
{
	return weights->nbytes;
}

srt_view_t srt_decoder_weights_find(const srt_param_t *param, const void *weights)
{
	const srt_decoder_weights_t *w = weights;
	const weight_t key = { (srt_param_t *)(uintptr_t)param, { NULL, 0, SRT_F32 } };
	const weight_t *found =
		bsearch(&key, w->weights, w->n, sizeof(*w->weights), compare_params);

	return found != NULL ? found->view : key.view;
}

/* ---- gathering --------------------------------------------------------------------------- */

static srt_status_t take(const srt_decoder_weights_t *w, srt_param_t *param, srt_stream_t *stream)
{
	const srt_view_t to = srt_decoder_weights_find(param, w);
	const int64_t nelem = srt_param_nelem(param);
	srt_view_t from;

	SRT_TRY(srt_param_full(param, SRT_PARAM_VALUE, &from));
	if (from.dtype != to.dtype)
		return srt_op_cast(to, from, nelem, stream);
	return srt_buffer_copy(to.buffer, to.offset, from.buffer, from.offset,
			       (size_t)nelem * (srt_dtype_bits(to.dtype) / 8), stream);
}

static srt_status_t gather_unit(const srt_decoder_weights_t *w, srt_unit_t *unit,
				srt_stream_t *stream)
{
	srt_full_params_options_t options = SRT_FULL_PARAMS_OPTIONS_INIT;
	srt_status_t status = SRT_OK, ended;

	options.recurse = 0;
	options.writeback = 0;
	SRT_TRY(srt_unit_full_params_begin(unit, &options, stream));
	for (size_t k = 0; k < w->n && status == SRT_OK; k++)
		if (srt_param_unit(w->weights[k].param) == unit)
			status = take(w, w->weights[k].param, stream);
	ended = srt_unit_full_params_end(unit, stream);
	return status != SRT_OK ? status : ended;
}

srt_status_t srt_decoder_weights_gather(srt_decoder_weights_t *weights, srt_stream_t *stream)
{
	srt_engine_t *engine = weights->decoder->engine;

	for (size_t i = 0; i < srt_engine_unit_count(engine); i++)
		SRT_TRY(gather_unit(weights, srt_engine_unit_at(engine, i), stream));
	return SRT_OK;
}
