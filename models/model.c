/* SPDX-License-Identifier: BSD-3-Clause */
/* Declares a parameter with the options of its model; its dimensions determine its decay. */
#include "models/model.h"

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
