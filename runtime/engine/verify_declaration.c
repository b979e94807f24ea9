/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification at build: all ranks declared the same engine.
 *
 * The ranks exchange fingerprints of their declarations. All ranks compute the same result from the
 * same table, so a difference is the same error on every rank, and no rank waits for another.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/version.h>

#include "collectives/comm.h"
#include "runtime/engine/engine.h"

#define TEXT_NBYTES 80
/* FNV-1a */
#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

enum {
	KEY_LIBRARY,
	KEY_NUMERICS_VERSION,
	KEY_NUMERICS,
	KEY_STRATEGY,
	KEY_AVERAGE,
	KEY_ACCUMULATION,
	KEY_MICROBATCHES,
	KEY_PREFETCH,
	KEY_OPTIMIZER,
	KEY_VARIANT,
	KEY_GROUPS,
	KEY_SCHEDULE,
	KEY_NORM,
	KEY_UNITS,
	KEY_BUFFERS,
	KEY_PARAMETERS,
	NKEYS,
};

static const char *const key_names[NKEYS] = {
	[KEY_LIBRARY] = "library version",
	[KEY_NUMERICS_VERSION] = "numerics version",
	[KEY_NUMERICS] = "numerics mode",
	[KEY_STRATEGY] = "strategy",
	[KEY_AVERAGE] = "average",
	[KEY_ACCUMULATION] = "accumulation",
	[KEY_MICROBATCHES] = "microbatches",
	[KEY_PREFETCH] = "prefetch",
	[KEY_OPTIMIZER] = "optimizer",
	[KEY_VARIANT] = "optimizer variant",
	[KEY_GROUPS] = "groups of parameters",
	[KEY_SCHEDULE] = "learning rate",
	[KEY_NORM] = "norm",
	[KEY_UNITS] = "units",
	[KEY_BUFFERS] = "buffers",
	[KEY_PARAMETERS] = "parameters",
};

/* What a rank declared. Exchanged as plain bytes. */
typedef struct fingerprint {
	char text[NKEYS][TEXT_NBYTES];
	uint64_t nparams;
} fingerprint_t;

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t nbytes)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < nbytes; i++)
		hash = (hash ^ p[i]) * HASH_PRIME;
	return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
	return hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t hash_units(const srt_engine_t *engine)
{
	uint64_t hash = HASH_START;

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];

		hash = hash_text(hash, unit->name);
		hash = hash_text(hash, unit->parent != NULL ? unit->parent->name : "");
		hash = hash_bytes(hash, &unit->types, sizeof(unit->types));
		hash = hash_bytes(hash, &unit->reshard, sizeof(unit->reshard));
	}
	return hash;
}

static uint64_t hash_buffers(const srt_engine_t *engine)
{
	uint64_t hash = HASH_START;

	for (size_t i = 0; i < engine->nbuffers; i++) {
		const srt_unit_buffer_t *buffer = engine->buffers[i];

		hash = hash_text(hash, buffer->name);
		hash = hash_text(hash, buffer->unit->name);
		hash = hash_bytes(hash, &buffer->dtype, sizeof(buffer->dtype));
		hash = hash_bytes(hash, buffer->shape, sizeof(buffer->shape));
	}
	return hash;
}

static uint64_t hash_groups(const srt_engine_t *engine)
{
	uint64_t hash = HASH_START;
	char text[256];

	/* The first is that of the options, which are compared by themselves. */
	for (size_t g = 1; g < engine->ngroups; g++) {
		const srt_group_options_t *o = &engine->groups[g];

		snprintf(text, sizeof(text), "%.9g %.9g %.9g %.9g %d %.17g %.17g %.9g %d %d",
			 (double)o->lr, (double)o->weight_decay, (double)o->momentum,
			 (double)o->dampening, o->nesterov, o->beta1, o->beta2, (double)o->eps,
			 o->amsgrad, o->maximize);
		hash = hash_text(hash, text);
	}
	return hash;
}

static uint64_t hash_param(const srt_param_t *param)
{
	const float group[] = { param->weight_decay, param->lr_scale };
	uint64_t hash = hash_text(HASH_START, param->name);

	hash = hash_text(hash, param->unit->name);
	for (size_t i = 0; i < param->naliases; i++)
		hash = hash_text(hash, param->aliases[i]);
	hash = hash_bytes(hash, &param->dtype, sizeof(param->dtype));
	hash = hash_bytes(hash, param->shape, (size_t)param->ndim * sizeof(param->shape[0]));
	hash = hash_bytes(hash, &param->frozen, sizeof(param->frozen));
	hash = hash_bytes(hash, &param->group, sizeof(param->group));
	return hash_bytes(hash, group, sizeof(group));
}

static void describe_param(const srt_engine_t *engine, size_t i, char *text)
{
	const srt_param_t *param;
	int at;

	if (i >= engine->nparams) {
		snprintf(text, TEXT_NBYTES, "missing");
		return;
	}
	param = engine->params[i];
	at = snprintf(text, TEXT_NBYTES, "'%.40s' (", param->name);
	for (int d = 0; d < param->ndim && at < TEXT_NBYTES; d++)
		at += snprintf(text + at, TEXT_NBYTES - (size_t)at, "%s%lld", d > 0 ? "," : "",
			       (long long)param->shape[d]);
	if (at < TEXT_NBYTES)
		snprintf(text + at, TEXT_NBYTES - (size_t)at, ")%s decay %g",
			 param->frozen ? " frozen" : "",
			 srt_optim_value((double)param->weight_decay));
}

static void set_text(fingerprint_t *print, int key, const char *format, ...) SRT_PRINTF(3, 4);

static void set_text(fingerprint_t *print, int key, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(print->text[key], TEXT_NBYTES, format, args);
	va_end(args);
}

static void make_fingerprint(const srt_engine_t *engine, fingerprint_t *print)
{
	static const char *const optimizers[] = { "SGD", "Adam", "AdamW", "none" };
	static const char *const averages[] = { "default", "once", "factors", "first", "sum" };
	const srt_engine_options_t *o = &engine->options;
	uint64_t params = HASH_START;

	for (size_t i = 0; i < engine->nparams; i++) {
		uint64_t hash = hash_param(engine->params[i]);

		params = hash_bytes(params, &hash, sizeof(hash));
	}
	print->nparams = engine->nparams;
	set_text(print, KEY_LIBRARY, "%s", srt_version_string());
	set_text(print, KEY_NUMERICS_VERSION, "%d", srt_numerics_version());
	set_text(print, KEY_NUMERICS, "%s",
		 engine->device->numerics == SRT_NUMERICS_FAST ? "fast" : "exact");
	set_text(print, KEY_STRATEGY, "%s", srt_strategy_name(o->strategy));
	set_text(print, KEY_AVERAGE, "%s, factor %.9g", averages[o->average],
		 (double)o->divide_factor);
	set_text(print, KEY_ACCUMULATION, "%s",
		 o->accumulation == SRT_ACCUMULATE_EVERY ? "every" :
		 o->accumulation == SRT_ACCUMULATE_LAST  ? "last" :
							   "tree");
	set_text(print, KEY_MICROBATCHES, "%d", o->microbatches);
	set_text(print, KEY_PREFETCH, "%d", o->prefetch);
	if (o->optimizer == SRT_OPTIMIZER_SGD)
		set_text(print, KEY_OPTIMIZER, "SGD momentum %.9g dampening %.9g nesterov %d",
			 (double)o->momentum, (double)o->dampening, o->nesterov);
	else
		set_text(print, KEY_OPTIMIZER, "%s betas %.17g %.17g eps %.9g",
			 optimizers[o->optimizer], srt_optim_value(engine->groups[0].beta1),
			 srt_optim_value(engine->groups[0].beta2),
			 srt_optim_value((double)engine->groups[0].eps));
	set_text(print, KEY_VARIANT, "amsgrad %d maximize %d", o->amsgrad != 0, o->maximize != 0);
	set_text(print, KEY_GROUPS, "%zu, hash %016llx", engine->ngroups,
		 (unsigned long long)hash_groups(engine));
	set_text(print, KEY_SCHEDULE, "%.9g to %.9g, warm-up %d of %d steps, kind %d, decay %d",
		 (double)o->lr, (double)o->min_lr, (int)o->warmup, (int)o->lr_steps,
		 (int)o->schedule, (int)o->decay_steps);
	set_text(print, KEY_NORM, "p %d, at most %.9g, skip %d", o->norm_p, (double)o->max_norm,
		 o->skip_nonfinite != 0);
	set_text(print, KEY_UNITS, "%zu, hash %016llx", engine->nunits,
		 (unsigned long long)hash_units(engine));
	set_text(print, KEY_BUFFERS, "%zu, hash %016llx, broadcast %d", engine->nbuffers,
		 (unsigned long long)hash_buffers(engine), o->broadcast_buffers != 0);
	set_text(print, KEY_PARAMETERS, "%zu, hash %016llx", engine->nparams,
		 (unsigned long long)params);
}

/* The index of the first parameter that differs between ranks. Collective. */
static srt_status_t find_difference(srt_engine_t *engine, size_t nparams, size_t *first)
{
	size_t world = (size_t)engine->world;
	uint64_t *mine = srt_calloc(nparams, sizeof(*mine), "hashes of parameters");
	uint64_t *all = srt_calloc(nparams * world, sizeof(*all), "hashes of parameters");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (mine != NULL && all != NULL) {
		for (size_t i = 0; i < nparams; i++)
			mine[i] = hash_param(engine->params[i]);
		status = srt_comm_oob_allgather_for(engine->comm,
						    "comparing the declared parameters", mine,
						    nparams * sizeof(*mine), all);
	}
	*first = nparams;
	for (size_t i = 0; status == SRT_OK && i < nparams && *first == nparams; i++) {
		for (size_t r = 1; r < world; r++) {
			if (all[r * nparams + i] != all[i])
				*first = i;
		}
	}
	free(mine);
	free(all);
	return status;
}

/* Fails: the error names the first parameter that differs. Collective. */
static srt_status_t fail_params(srt_engine_t *engine, const fingerprint_t *prints)
{
	char mine[TEXT_NBYTES] = { 0 };
	size_t nparams = engine->nparams, first;
	char(*all)[TEXT_NBYTES];
	srt_status_t status;
	int other = 1;

	for (int r = 0; r < engine->world; r++) {
		if (prints[r].nparams < nparams)
			nparams = (size_t)prints[r].nparams;
	}
	SRT_TRY(find_difference(engine, nparams, &first));
	all = srt_calloc((size_t)engine->world, sizeof(*all), "descriptions of parameters");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	describe_param(engine, first, mine);
	status = srt_comm_oob_allgather_for(engine->comm, "comparing the declared parameters", mine,
					    sizeof(mine), all);
	while (other < engine->world - 1 && strcmp(all[other], all[0]) == 0)
		other++;
	if (status == SRT_OK)
		status =
			srt_fail(SRT_ERR_MISMATCH,
				 "the ranks declared different parameters: index %zu is %s on rank "
				 "0 and %s on rank %d; declare the same on all ranks",
				 first, all[0], all[other], other);
	free(all);
	return status;
}

static srt_status_t compare_fingerprints(srt_engine_t *engine, const fingerprint_t *prints)
{
	char text[1024];
	int at = 0;
	bool only_params = true;

	for (int key = 0; key < NKEYS; key++) {
		for (int r = 1; r < engine->world; r++) {
			if (strcmp(prints[r].text[key], prints[0].text[key]) == 0)
				continue;
			only_params = only_params && key == KEY_PARAMETERS;
			at += snprintf(text + at, sizeof(text) - (size_t)at,
				       "%s%s is '%s' on rank 0 and '%s' on rank %d",
				       at > 0 ? "; " : "", key_names[key], prints[0].text[key],
				       prints[r].text[key], r);
			if ((size_t)at > sizeof(text) - 256)
				at = (int)sizeof(text) - 256;
			break;
		}
	}
	if (at == 0)
		return SRT_OK;
	if (only_params)
		return fail_params(engine, prints);
	return srt_fail(SRT_ERR_MISMATCH,
			"the ranks declared different engines: %s; declare the same on all ranks",
			text);
}

srt_status_t srt_verify_declaration(srt_engine_t *engine)
{
	fingerprint_t *prints =
		srt_calloc((size_t)engine->world + 1, sizeof(*prints), "declarations of the ranks");
	fingerprint_t *mine = prints + engine->world;
	srt_status_t status;

	if (prints == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	make_fingerprint(engine, mine);
	status = srt_comm_oob_allgather_for(engine->comm, "comparing the declared engines", mine,
					    sizeof(*mine), prints);
	if (status == SRT_OK)
		status = compare_fingerprints(engine, prints);
	free(prints);
	return status;
}
