/* SPDX-License-Identifier: BSD-3-Clause */
/* Declares units and parameters with the options of their model; the dimensions of a parameter
 * determine its decay. */
#include "models/model.h"

srt_status_t srt_model_unit(srt_engine_t *engine, srt_unit_t *parent, const char *name,
			    const srt_model_options_t *options, srt_unit_t **unit)
{
	const srt_unit_options_t unit_options = { .reshard = options ? options->reshard : 0 };

	return srt_unit_create(engine, parent, name, &unit_options, unit);
}

srt_status_t srt_model_param(srt_unit_t *unit, const char *name, int64_t rows, int64_t n,
			     const srt_model_options_t *options, srt_param_t **param)
{
	const int64_t shape[2] = { rows, n };
	int ndim = n > 0 ? 2 : 1;
	srt_param_options_t po = { 0 };

	if (options) {
		po.weight_decay = ndim == 2 ? options->matrix_decay : options->vector_decay;
		po.frozen = options->frozen && options->frozen(name, options->arg);
	}
	return srt_param_create(unit, name, options ? options->dtype : SRT_F32, ndim, shape, &po,
				param);
}
