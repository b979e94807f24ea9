/* SPDX-License-Identifier: BSD-3-Clause */
/* The adapters of a decoder, declared next to their base. */
#include "models/decoder_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/try.h"

/* ---- declaring -------------------------------------------------------------------------- */

srt_status_t srt_decoder_match_lora(srt_decoder_t *d, const srt_lora_t *lora)
{
	d->lora = (srt_lora_t){ .r = lora->r, .alpha = lora->alpha, .rslora = lora->rslora };
	d->adapted = calloc((size_t)d->config.layers, SRT_DECODER_PARTS);
	if (d->adapted == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for adapters");
	return srt_lora_match(lora, &d->config, d->adapted);
}

int srt_decoder_is_adapted(const srt_decoder_t *d, int64_t layer, int part)
{
	return d->adapted != NULL && d->adapted[layer * SRT_DECODER_PARTS + part];
}

/* A (r,in) is cut as the columns of its base are, B (out,r) as the rows. */
srt_status_t srt_decoder_add_adapter(const srt_decoder_t *d, srt_module_t *block, const char *name,
				     const srt_model_param_spec_t *base,
				     const srt_model_options_t *options)
{
	const double bound = 1.0 / sqrt((double)base->n);
	const srt_init_t uniform = { .kind = SRT_INIT_UNIFORM, .low = -bound, .high = bound };
	const srt_init_t zero = { .kind = SRT_INIT_CONSTANT };
	const int by_columns = base->is_cut && base->tensor_dim == 1;
	char text[128];
	srt_model_param_spec_t spec = { .name = text,
					.kind = "Linear",
					.rows = d->lora.r,
					.n = base->n,
					.is_cut = by_columns,
					.tensor_dim = 1,
					.nblocks = base->nblocks,
					.init = &uniform,
					.is_adapter = 1 };

	snprintf(text, sizeof(text), "%s.lora_A.weight", name);
	SRT_TRY(srt_model_add_param(block, &spec, options));
	snprintf(text, sizeof(text), "%s.lora_B.weight", name);
	spec.rows = base->rows;
	spec.n = d->lora.r;
	spec.is_cut = base->is_cut && !by_columns;
	spec.tensor_dim = 0;
	spec.init = &zero;
	return srt_model_add_param(block, &spec, options);
}

/* Adapters are a separate unit where they cannot be in that of their block. */
static int needs_unit(const srt_model_options_t *options)
{
	const srt_dtype_t dtype = options->dtype ? options->dtype : SRT_F32;

	return options->flat == SRT_FLAT_PADDED ||
	       (options->base_dtype && options->base_dtype != SRT_U8 &&
		options->base_dtype != dtype);
}

srt_status_t srt_decoder_wrap_adapters(const srt_decoder_t *d, srt_module_t *block, int64_t layer,
				       const srt_model_options_t *options)
{
	static const char *const names[] = { "lora_A", "lora_B" };
	const srt_unit_options_t unit = { .size = sizeof(unit),
					  .reshard = options->reshard,
					  .flat = options->flat };
	srt_module_t *modules[2 * SRT_DECODER_PARTS];
	size_t n = 0;
	char text[128];

	if (!needs_unit(options))
		return SRT_OK;
	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		for (int j = 0; j < 2 && srt_decoder_is_adapted(d, layer, k); j++) {
			snprintf(text, sizeof(text), "%s.%s", d->config.names->part[k], names[j]);
			modules[n++] = srt_module_find(block, text);
		}
	}
	return n > 0 ? srt_module_wrap_together(modules, n, &unit) : SRT_OK;
}

void srt_decoder_find_adapters(srt_decoder_t *d, srt_engine_t *engine, int64_t layer)
{
	srt_decoder_block_t *block = &d->blocks[layer];
	char text[192];

	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		srt_decoder_adapter_t *adapter = &block->adapter[k];

		if (!srt_decoder_is_adapted(d, layer, k))
			continue;
		snprintf(text, sizeof(text), "%s.%lld.%s.lora_A.weight", d->config.names->blocks,
			 (long long)layer, d->config.names->part[k]);
		adapter->a = srt_engine_param_find(engine, text);
		*(strrchr(text, '.') - 1) = 'B';
		adapter->b = srt_engine_param_find(engine, text);
		if (srt_param_unit(adapter->a) != block->unit)
			block->adapters = srt_param_unit(adapter->a);
	}
}

const srt_lora_t *srt_decoder_lora(const srt_decoder_t *d)
{
	return d->adapted != NULL ? &d->lora : NULL;
}

int64_t srt_decoder_lora_nparams(const srt_decoder_t *d)
{
	int64_t n = 0;

	for (int64_t i = 0; i < d->config.layers; i++)
		for (int k = 0; k < SRT_DECODER_PARTS; k++)
			if (srt_decoder_is_adapted(d, i, k))
				n += srt_param_nelem(d->blocks[i].adapter[k].a) +
				     srt_param_nelem(d->blocks[i].adapter[k].b);
	return n;
}
