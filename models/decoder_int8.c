/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A frozen base whose Linear layers are in 8 bits. Instead of a weight MODULE.weight (rows,n) the
 * engine has the bytes MODULE.int8.codes (rows,n) and MODULE.int8.scales, which are floats
 * (rows,ceil(n/SRT_QUANT_BLOCK)), in a separate unit for each block. Both are cut over the ranks by
 * rows, and between the scales of a row by columns.
 */
#include "models/decoder_impl.h"

#include <stdio.h>
#include <string.h>

#include "models/model.h"
#include "models/try.h"

#define MODULE "int8"

int srt_decoder_is_int8_name(const char *name)
{
	const char *at = strstr(name, "." MODULE);

	return at != NULL && (at[sizeof(MODULE)] == '\0' || at[sizeof(MODULE)] == '.');
}

/* Whether a rank's columns are whole blocks, and its rows one range. */
static srt_status_t check_cut(const srt_decoder_t *d, const char *name,
			      const srt_model_param_spec_t *base)
{
	const int ranks = base->is_cut ? d->tensor_ranks : 1;

	if (ranks == 1 || (base->tensor_dim == 0 && base->nblocks == 1) ||
	    (base->tensor_dim == 1 && base->n / ranks % SRT_QUANT_BLOCK == 0))
		return SRT_OK;
	if (base->nblocks > 1)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "decoder: a joint projection of queries, keys and values "
				      "(%s) in 8 bits cannot be cut over %d tensor-parallel ranks",
				      name, ranks);
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "decoder: %s in 8 bits has %lld columns for each of %d tensor-"
			      "parallel ranks, which must be a multiple of %d",
			      name, (long long)(base->n / ranks), ranks, SRT_QUANT_BLOCK);
}

srt_status_t srt_decoder_add_int8(const srt_decoder_t *d, srt_module_t *block, const char *name,
				  const srt_model_param_spec_t *base,
				  const srt_model_options_t *options)
{
	srt_model_options_t bytes = *options;
	srt_model_param_spec_t spec = *base;
	char text[128];

	spec.nparts = 0; /* scales would be cut inside of one */
	SRT_TRY(check_cut(d, name, base));
	bytes.dtype = SRT_U8;
	spec.name = text;
	spec.kind = "Int8";
	snprintf(text, sizeof(text), "%s." MODULE ".codes", name);
	SRT_TRY(srt_model_add_param(block, &spec, &bytes));
	snprintf(text, sizeof(text), "%s." MODULE ".scales", name);
	spec.n = srt_decoder_count_scales(base->n) * (int64_t)sizeof(float);
	return srt_model_add_param(block, &spec, &bytes);
}

srt_status_t srt_decoder_wrap_int8(const srt_decoder_t *d, srt_module_t *block,
				   const srt_model_options_t *options)
{
	const srt_unit_options_t unit = { .size = sizeof(unit), .reshard = options->reshard };
	srt_module_t *modules[SRT_DECODER_PARTS];
	size_t n = 0;
	char text[128];

	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		if (!srt_decoder_has_part(&d->config, k) || !srt_decoder_is_linear(k))
			continue;
		snprintf(text, sizeof(text), "%s." MODULE, d->config.names->part[k]);
		modules[n++] = srt_module_find(block, text);
	}
	return srt_module_wrap_together(modules, n, &unit);
}

void srt_decoder_find_int8(srt_decoder_t *d, srt_engine_t *engine, int64_t layer)
{
	srt_decoder_block_t *block = &d->blocks[layer];
	char text[192];

	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		if (!srt_decoder_has_part(&d->config, k) || !srt_decoder_is_linear(k))
			continue;
		snprintf(text, sizeof(text), "%s.%lld.%s." MODULE ".codes", d->config.names->blocks,
			 (long long)layer, d->config.names->part[k]);
		block->part[k].weight = srt_engine_param_find(engine, text);
		strcpy(strrchr(text, '.'), ".scales");
		block->scales[k] = srt_engine_param_find(engine, text);
		block->codes = srt_param_unit(block->scales[k]);
	}
}

srt_param_t *srt_decoder_find_scales(const srt_param_t *codes, const void *arg)
{
	const srt_decoder_t *d = arg;

	for (int64_t i = 0; i < d->config.layers; i++) {
		if (d->blocks[i].codes != srt_param_unit(codes))
			continue;
		for (int k = 0; k < SRT_DECODER_PARTS; k++)
			if (d->blocks[i].part[k].weight == codes)
				return d->blocks[i].scales[k];
	}
	return NULL;
}
