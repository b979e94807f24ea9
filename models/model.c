/* SPDX-License-Identifier: BSD-3-Clause */
/* Declares units and parameters with the options of their model; the dimensions of a parameter
 * determine its decay. Sets the sentence of a failure. */
#include "models/model.h"

#include <fenv.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

srt_status_t srt_model_fail(srt_status_t status, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return srt_error_set(status, text);
}

/* Volatile: the compiler may else compute before or after the environment changes. */
float srt_model_over_sqrt(float a, int64_t n)
{
	volatile int64_t count = n;
	volatile float root, result;
	fenv_t env;

	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	root = sqrtf((float)count);
	result = a / root;
	fesetenv(&env);
	return result;
}

srt_status_t srt_model_unit(srt_engine_t *engine, srt_unit_t *parent, const char *name,
			    const srt_model_options_t *options, srt_unit_t **unit)
{
	const srt_unit_options_t unit_options = { .reshard = options ? options->reshard : 0,
						  .flat = options ? options->flat : SRT_FLAT_NO };

	return srt_unit_create(engine, parent, name, &unit_options, unit);
}

int srt_model_tensor_ranks(const srt_model_options_t *options)
{
	const int n =
		options && options->mesh ? srt_mesh_size(options->mesh, SRT_MODEL_TENSOR_DIM) : 0;

	return n > 1 ? n : 1;
}

static srt_status_t create_param(srt_unit_t *unit, const char *name, int64_t rows, int64_t n,
				 srt_placement_t placement, const srt_model_options_t *options,
				 srt_param_t **param)
{
	const int64_t shape[2] = { rows, n };
	int ndim = n > 0 ? 2 : 1;
	srt_param_options_t po = { .placement = placement };

	if (options) {
		po.weight_decay = ndim == 2 ? options->matrix_decay : options->vector_decay;
		po.frozen = options->frozen && options->frozen(name, options->arg);
	}
	return srt_param_create(unit, name, options ? options->dtype : SRT_F32, ndim, shape, &po,
				param);
}

srt_status_t srt_model_param(srt_unit_t *unit, const char *name, int64_t rows, int64_t n,
			     const srt_model_options_t *options, srt_param_t **param)
{
	return create_param(unit, name, rows, n, (srt_placement_t){ 0 }, options, param);
}

srt_status_t srt_model_param_cut(srt_unit_t *unit, const char *name, int64_t rows, int64_t n,
				 int tensor_dim, int nblocks, const srt_model_options_t *options,
				 srt_param_t **param)
{
	srt_placement_t placement = { 0 };

	if (srt_model_tensor_ranks(options) > 1)
		placement = (srt_placement_t){ SRT_MODEL_TENSOR_DIM, tensor_dim, nblocks };
	return create_param(unit, name, rows, n, placement, options, param);
}
