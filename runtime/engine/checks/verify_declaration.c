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
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/shard.h"

#define TEXT_NBYTES 80
/* FNV-1a */
#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

enum {
	KEY_LIBRARY,
	KEY_NUMERICS_VERSION,
	KEY_NUMERICS,
	KEY_STRATEGY,
	KEY_MESH,
	KEY_AVERAGE,
	KEY_ACCUMULATION,
	KEY_OFFLOAD,
	KEY_MICROBATCHES,
	KEY_PREFETCH,
	KEY_OPTIMIZER,
	KEY_VARIANT,
	KEY_GROUPS,
	KEY_SCHEDULE,
	KEY_NORM,
	KEY_CHECKS,
	KEY_UNITS,
	KEY_BUFFERS,
	KEY_BROADCAST,
	KEY_PARAMETERS,
	NKEYS,
};

static const char *const key_names[NKEYS] = {
	[KEY_LIBRARY] = "library version",
	[KEY_NUMERICS_VERSION] = "numerics version",
	[KEY_NUMERICS] = "numerics mode",
	[KEY_STRATEGY] = "strategy",
	[KEY_MESH] = "dimensions of the mesh",
	[KEY_AVERAGE] = "average",
	[KEY_ACCUMULATION] = "accumulation",
	[KEY_OFFLOAD] = "offload",
	[KEY_MICROBATCHES] = "microbatches",
	[KEY_PREFETCH] = "prefetch",
	[KEY_OPTIMIZER] = "optimizer",
	[KEY_VARIANT] = "optimizer variant",
	[KEY_GROUPS] = "groups of parameters",
	[KEY_SCHEDULE] = "learning rate",
	[KEY_NORM] = "norm",
	[KEY_CHECKS] = "checks",
	[KEY_UNITS] = "units",
	[KEY_BUFFERS] = "buffers",
	[KEY_BROADCAST] = "broadcast of buffers",
	[KEY_PARAMETERS] = "parameters",
};

enum { NLISTS = 4 }; /* units, buffers, groups, parameters: `lists` */

/* What a rank declared. Exchanged as plain bytes. */
typedef struct fingerprint {
	char text[NKEYS][TEXT_NBYTES];
	uint64_t counts[NLISTS], hashes[NLISTS];
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

static uint64_t hash_unit(const srt_engine_t *engine, size_t i)
{
	const srt_unit_t *unit = engine->units[i];
	const srt_unit_types_t *t = &unit->types;
	/* Not the struct, which has padding. */
	const int types[] = { (int)t->stored,  (int)t->compute, (int)t->accumulate, (int)t->reduce,
			      t->casts_inputs, (int)t->output,  (int)t->buffer };
	uint64_t hash = hash_text(HASH_START, unit->name);

	hash = hash_text(hash, unit->parent != NULL ? unit->parent->name : "");
	hash = hash_bytes(hash, types, sizeof(types));
	hash = hash_bytes(hash, &unit->flat, sizeof(unit->flat));
	return hash_bytes(hash, &unit->reshard, sizeof(unit->reshard));
}

static uint64_t hash_buffer(const srt_engine_t *engine, size_t i)
{
	const srt_unit_buffer_t *buffer = engine->unit_buffers.all[i];
	uint64_t hash = hash_text(HASH_START, buffer->name);

	hash = hash_text(hash, buffer->unit->name);
	hash = hash_bytes(hash, &buffer->dtype, sizeof(buffer->dtype));
	return hash_bytes(hash, buffer->shape, sizeof(buffer->shape));
}

/* All hyper-parameters of a group. */
static void format_group(const srt_optim_options_t *o, char *text, size_t size)
{
	snprintf(text, size,
		 "kind %d, bits %d, iteration %d %d %.9g %.9g %.9g, lr %.9g decay %.9g "
		 "momentum %.17g %.9g %d betas %.17g %.17g eps %.9g %d %d, "
		 "schedule %.9g %d %d %d %d",
		 (int)o->kind, o->state_bits, o->ns_steps, (int)o->adjust,
		 (double)o->ns_coefficients[0], (double)o->ns_coefficients[1],
		 (double)o->ns_coefficients[2], (double)o->lr, (double)o->weight_decay, o->momentum,
		 (double)o->dampening, o->nesterov, o->beta1, o->beta2, (double)o->eps, o->amsgrad,
		 o->maximize, (double)o->min_lr, (int)o->warmup, (int)o->lr_steps, (int)o->schedule,
		 (int)o->decay_steps);
}

static uint64_t hash_group(const srt_engine_t *engine, size_t i)
{
	char text[480] = "";

	/* The first is that of the options, which are compared by themselves. */
	if (i > 0)
		format_group(&engine->optim->groups[i], text, sizeof(text));
	return hash_text(HASH_START, text);
}

static uint64_t hash_param(const srt_engine_t *engine, size_t i)
{
	const srt_param_t *param = engine->params[i];
	const float group[] = { param->weight_decay, param->lr_scale };
	uint64_t hash = hash_text(HASH_START, param->name);

	hash = hash_text(hash, param->unit->name);
	for (size_t a = 0; a < param->naliases; a++)
		hash = hash_text(hash, param->aliases[a]);
	hash = hash_bytes(hash, &param->dtype, sizeof(param->dtype));
	hash = hash_bytes(hash, param->shape, (size_t)param->ndim * sizeof(param->shape[0]));
	hash = hash_bytes(hash, &param->frozen, sizeof(param->frozen));
	hash = hash_bytes(hash, &param->is_cut, sizeof(param->is_cut));
	hash = hash_bytes(hash, &param->cut.dim, sizeof(param->cut.dim));
	hash = hash_bytes(hash, &param->cut.nblocks, sizeof(param->cut.nblocks));
	hash = hash_bytes(hash, &param->cut.nparts, sizeof(param->cut.nparts));
	hash = hash_bytes(hash, &param->group, sizeof(param->group));
	return hash_bytes(hash, group, sizeof(group));
}

static void describe_unit(const srt_engine_t *engine, size_t i, char *text)
{
	const srt_unit_t *unit = engine->units[i];

	snprintf(text, TEXT_NBYTES, "'%.25s' in '%.18s', reshard %d, flat %d", unit->name,
		 unit->parent != NULL ? unit->parent->name : "", unit->reshard, (int)unit->flat);
}

static void describe_buffer(const srt_engine_t *engine, size_t i, char *text)
{
	const srt_unit_buffer_t *buffer = engine->unit_buffers.all[i];

	snprintf(text, TEXT_NBYTES, "'%.35s' of unit '%.30s'", buffer->name, buffer->unit->name);
}

static void describe_group(const srt_engine_t *engine, size_t i, char *text)
{
	char all[480];

	format_group(&engine->optim->groups[i], all, sizeof(all));
	snprintf(text, TEXT_NBYTES, "%.79s", all);
}

static void describe_param(const srt_engine_t *engine, size_t i, char *text)
{
	const srt_param_t *param = engine->params[i];
	int at = snprintf(text, TEXT_NBYTES, "'%.40s' (", param->name);

	for (int d = 0; d < param->ndim && at < TEXT_NBYTES; d++)
		at += snprintf(text + at, TEXT_NBYTES - (size_t)at, "%s%lld", d > 0 ? "," : "",
			       (long long)param->shape[d]);
	if (at < TEXT_NBYTES)
		at += snprintf(text + at, TEXT_NBYTES - (size_t)at, ")%s decay %g",
			       param->frozen ? " frozen" : "", (double)param->weight_decay);
	if (at < TEXT_NBYTES && param->cut.nparts > 1)
		snprintf(text + at, TEXT_NBYTES - (size_t)at, " in %d parts", param->cut.nparts);
}

/* What is declared as a list. A difference is reported by its first item. Units come first: their
 * names are also in the hashes of their parameters and buffers. */
typedef struct item_list {
	int key;
	uint64_t (*hash)(const srt_engine_t *engine, size_t i);
	void (*describe)(const srt_engine_t *engine, size_t i, char *text); /* TEXT_NBYTES */
} item_list_t;

static const item_list_t lists[NLISTS] = {
	{ KEY_UNITS, hash_unit, describe_unit },
	{ KEY_BUFFERS, hash_buffer, describe_buffer },
	{ KEY_GROUPS, hash_group, describe_group },
	{ KEY_PARAMETERS, hash_param, describe_param },
};

static void count_items(const srt_engine_t *engine, uint64_t *counts)
{
	counts[0] = engine->nunits;
	counts[1] = engine->unit_buffers.n;
	counts[2] = engine->optim->ngroups;
	counts[3] = engine->nparams;
}

static uint64_t hash_items(const srt_engine_t *engine, const item_list_t *list, size_t n)
{
	uint64_t all = HASH_START;

	for (size_t i = 0; i < n; i++) {
		uint64_t hash = list->hash(engine, i);

		all = hash_bytes(all, &hash, sizeof(hash));
	}
	return all;
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
	static const char *const optimizers[] = { "SGD", "Adam", "AdamW", "none", "Muon" };
	static const char *const accumulations[] = { "every", "last", "tree", "last all-reduce" };
	static const char *const averages[] = { "default", "once", "factors", "first", "sum" };
	const srt_engine_options_t *o = &engine->options;
	const srt_optim_options_t *optim = &engine->optim->groups[0];

	count_items(engine, print->counts);
	for (int k = 0; k < NLISTS; k++) {
		print->hashes[k] = hash_items(engine, &lists[k], (size_t)print->counts[k]);
		set_text(print, lists[k].key, "%llu, hash %016llx",
			 (unsigned long long)print->counts[k],
			 (unsigned long long)print->hashes[k]);
	}
	set_text(print, KEY_LIBRARY, "%s", srt_version_string());
	set_text(print, KEY_NUMERICS_VERSION, "%d", srt_numerics_version());
	set_text(print, KEY_NUMERICS, "%s",
		 engine->device->numerics == SRT_NUMERICS_FAST ? "fast" : "exact");
	set_text(print, KEY_STRATEGY, "%s", srt_strategy_name(o->strategy));
	set_text(print, KEY_MESH, "%d, of %d shards, and %d, of %d replicas",
		 engine->comms.shard_dim, srt_shard_count(engine, engine->world),
		 engine->comms.replicate_dim, srt_shard_replicas(engine, engine->world));
	set_text(print, KEY_AVERAGE, "%s, factor %.9g", averages[o->average],
		 (double)o->divide_factor);
	set_text(print, KEY_ACCUMULATION, "%s", accumulations[o->accumulation]);
	set_text(print, KEY_OFFLOAD, "params %d, grads %d, state %d", o->offload.params != 0,
		 o->offload.grads != 0, o->offload.state != 0);
	set_text(print, KEY_MICROBATCHES, "%d", o->microbatches);
	set_text(print, KEY_PREFETCH, "%d", o->prefetch);
	if (optim->kind == SRT_OPTIM_SGD)
		set_text(print, KEY_OPTIMIZER, "SGD momentum %.17g dampening %.9g nesterov %d",
			 optim->momentum, (double)optim->dampening, optim->nesterov);
	else if (optim->kind == SRT_OPTIM_MUON)
		set_text(print, KEY_OPTIMIZER, "Muon momentum %.17g nesterov %d steps %d adjust %d",
			 optim->momentum, optim->nesterov, optim->ns_steps, (int)optim->adjust);
	else
		set_text(print, KEY_OPTIMIZER, "%s betas %.17g %.17g eps %.9g",
			 optimizers[optim->kind], optim->beta1, optim->beta2, (double)optim->eps);
	if (optim->kind == SRT_OPTIM_MUON)
		set_text(print, KEY_VARIANT, "eps %.9g coefficients %.9g %.9g %.9g",
			 (double)optim->eps, (double)optim->ns_coefficients[0],
			 (double)optim->ns_coefficients[1], (double)optim->ns_coefficients[2]);
	else
		set_text(print, KEY_VARIANT, "amsgrad %d maximize %d state_bits %d",
			 optim->amsgrad != 0, optim->maximize != 0, optim->state_bits);
	set_text(print, KEY_SCHEDULE, "%.9g to %.9g, warm-up %d of %d steps, kind %d, decay %d",
		 (double)optim->lr, (double)optim->min_lr, (int)optim->warmup, (int)optim->lr_steps,
		 (int)optim->schedule, (int)optim->decay_steps);
	set_text(print, KEY_NORM, "p %d, at most %.9g, skip %d", o->norm_p, (double)o->max_norm,
		 o->skip_nonfinite != 0);
	set_text(print, KEY_BROADCAST, "%d", o->broadcast_buffers != 0);
	set_text(print, KEY_CHECKS,
		 "SHARDRT_AUDIT %d, SHARDRT_CHECK %d, clear_grads %d, trust_replicas %d",
		 engine->checks.audits, engine->checks.on, o->clear_grads != 0,
		 o->trust_replicas != 0);
}

/* The index of the first of n items that differs between ranks, or n. Collective. */
static srt_status_t find_difference(srt_engine_t *engine, const item_list_t *list, size_t n,
				    size_t *first)
{
	size_t world = (size_t)engine->world;
	uint64_t *mine =
		srt_comm_calloc(engine->comm, n, sizeof(*mine), "comparing the declarations");
	uint64_t *all = srt_comm_calloc(engine->comm, n * world, sizeof(*all),
					"comparing the declarations");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (mine != NULL && all != NULL) {
		for (size_t i = 0; i < n; i++)
			mine[i] = list->hash(engine, i);
		status = srt_comm_oob_allgather_for(engine->comm, "comparing the declarations",
						    mine, n * sizeof(*mine), all);
	}
	*first = n;
	for (size_t i = 0; status == SRT_OK && i < n && *first == n; i++) {
		for (size_t r = 1; r < world; r++) {
			if (all[r * n + i] != all[i])
				*first = i;
		}
	}
	free(mine);
	free(all);
	return status;
}

/* Fails: the error names the first item of list k that differs. Collective. */
static srt_status_t fail_items(srt_engine_t *engine, const fingerprint_t *prints, int k)
{
	const char *what = key_names[lists[k].key];
	char mine[TEXT_NBYTES] = "missing";
	size_t n = (size_t)prints[0].counts[k], first;
	char(*all)[TEXT_NBYTES];
	uint64_t counts[NLISTS];
	srt_status_t status;
	int other = 1;

	for (int r = 0; r < engine->world; r++) {
		if (prints[r].counts[k] < n)
			n = (size_t)prints[r].counts[k];
	}
	SRT_TRY(find_difference(engine, &lists[k], n, &first));
	all = srt_comm_calloc(engine->comm, (size_t)engine->world, sizeof(*all),
			      "comparing the declarations");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	count_items(engine, counts);
	if (first < counts[k])
		lists[k].describe(engine, first, mine);
	status = srt_comm_oob_allgather_for(engine->comm, "comparing the declarations", mine,
					    sizeof(mine), all);
	while (other < engine->world - 1 && strcmp(all[other], all[0]) == 0)
		other++;
	if (status == SRT_OK)
		status = srt_fail(SRT_ERR_MISMATCH,
				  "the ranks declared different %s: index %zu is %s on rank 0 and "
				  "%s on rank %d; declare the same on all ranks",
				  what, first, all[0], all[other], other);
	free(all);
	return status;
}

/* The first list that differs, or -1. */
static int find_list(const fingerprint_t *prints, int world)
{
	for (int k = 0; k < NLISTS; k++) {
		for (int r = 1; r < world; r++) {
			if (prints[r].counts[k] != prints[0].counts[k] ||
			    prints[r].hashes[k] != prints[0].hashes[k])
				return k;
		}
	}
	return -1;
}

static bool is_list(int key)
{
	for (int k = 0; k < NLISTS; k++) {
		if (lists[k].key == key)
			return true;
	}
	return false;
}

static srt_status_t compare_fingerprints(srt_engine_t *engine, const fingerprint_t *prints)
{
	char text[1024];
	int at = 0;
	bool only_lists = true;

	for (int key = 0; key < NKEYS; key++) {
		for (int r = 1; r < engine->world; r++) {
			if (strcmp(prints[r].text[key], prints[0].text[key]) == 0)
				continue;
			only_lists = only_lists && is_list(key);
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
	if (only_lists)
		return fail_items(engine, prints, find_list(prints, engine->world));
	return srt_fail(SRT_ERR_MISMATCH,
			"the ranks declared different engines: %s; declare the same on all ranks",
			text);
}

srt_status_t srt_verify_declaration(srt_engine_t *engine)
{
	fingerprint_t *prints = srt_comm_calloc(engine->comm, (size_t)engine->world + 1,
						sizeof(*prints), "comparing the declared engines");
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
