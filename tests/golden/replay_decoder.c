/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hf (replay.h): a decoder of the model library, described by the config.json of the case's model
 * folder. Its loss is the mean over the targets of a micro-batch that are not below 0.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"

srt_status_t replay_declare_decoder(replay_t *r)
{
	const char *folder = golden_text(json_object_get(r->golden->json, "model"), "folder");
	char *path =
		srt_asprintf("%s/%s/config.json", r->golden->dir, folder != NULL ? folder : ".");
	srt_status_t status = path != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	srt_model_options_t options;
	srt_decoder_config_t config;
	const srt_family_t *family;

	if (status == SRT_OK)
		status = srt_family_read_config(path, &family, &config);
	free(path);
	SRT_TRY(status);
	SRT_TRY(replay_model_options(r, &options));
	options.reshard = r->reshard;
	return srt_decoder_declare(r->engine, &config, &options, &r->decoder);
}

srt_status_t replay_record_decoder(replay_t *r)
{
	const srt_safetensors_tensor_t *ids =
		srt_safetensors_find(r->golden->input, "step1.micro0.input_ids");
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_dtype_t stored;

	if (ids == NULL || ids->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no input_ids of shape (rows,length)");
	SRT_TRY(srt_decoder_record_loss(r->decoder, r->tape, ids->shape[0], ids->shape[1],
					&r->decoder_io));
	r->inputs[r->ninputs++] =
		(replay_input_t){ .name = "input_ids", .tensor = r->decoder_io.ids };
	r->inputs[r->ninputs++] = (replay_input_t){ .name = "targets",
						    .tensor = r->decoder_io.targets,
						    .is_counted = true };
	r->loss = r->decoder_io.loss;
	r->loss_dtype = SRT_F32;
	/* the logits are not kept: they are what the root computes, or casts its output to */
	stored = test_local(srt_engine_param_at(r->engine, 0), SRT_PARAM_VALUE).dtype;
	SRT_TRY(srt_precision_resolve(&r->root_precision, stored, &types));
	r->output_dtype = replay_output_dtype(&types);
	return SRT_OK;
}

/* ---- how far parameters moved ----------------------------------------------------------- */

static double distance(const float *a, const float *b, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
	return sqrt(sum);
}

/* The distance from the recorded values is small compared with that from the first ones: tolerances
 * of elements in 16 bits would not see an update that was left out. */
static srt_status_t compare_movement(replay_t *r, const char *name, const json_t *movement)
{
	srt_param_t *p = replay_find(r, name);
	float *got = NULL, *want = NULL, *first = NULL;
	srt_status_t status;
	char key[160];
	size_t n;

	if (p == NULL)
		return srt_fail(SRT_ERR_FORMAT, "movement of '%s', which is no parameter", name);
	n = (size_t)srt_param_nelem(p);
	got = srt_calloc(n + 1, sizeof(*got), name);
	if (got == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	snprintf(key, sizeof(key), "step%d.param.%s", r->golden->nsteps, name);
	status = srt_param_get(p, SRT_PARAM_VALUE, got, r->stream);
	if (status == SRT_OK)
		status = golden_floats(r->golden->expect, key, n, &want);
	if (status == SRT_OK)
		status = golden_floats(r->golden->init, name, n, &first);
	if (status == SRT_OK)
		verdict_exact(r->verdict,
			      distance(got, want, n) <=
				      (golden_is_wide(r->golden) ? 4 : 1) *
					      golden_number(movement, "max_relative_distance", 0) *
					      distance(want, first, n),
			      "%s is %g of its movement away", name,
			      distance(got, want, n) / distance(want, first, n));
	free(got);
	free(want);
	free(first);
	return status;
}

srt_status_t replay_compare_movement(replay_t *r)
{
	json_t *all = json_object_get(r->golden->json, "movement"), *movement;
	const char *name;

	json_object_foreach(all, name, movement)
	{
		SRT_TRY(compare_movement(r, name, movement));
	}
	return SRT_OK;
}
