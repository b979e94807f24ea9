/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Folder -> engine (sharded.h). Every rank checks the manifest against its engine, and the files
 * that it needs against the manifest; if all ranks succeed, each reads its shards.
 */
#include <stdlib.h>
#include <string.h>

#include <shardrt/engine.h>
#include <shardrt/ops_elements.h>
#include <shardrt/version.h>

#include "collectives/comm.h"
#include "runtime/checkpoint/entries.h"
#include "runtime/checkpoint/cast.h"
#include "runtime/checkpoint/formats/box_reader.h"
#include "runtime/checkpoint/formats/folder.h"
#include "runtime/checkpoint/long_work.h"
#include "runtime/checkpoint/sharded.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/values/values.h"

#define MAX_UNREAD 5 /* by name in the log */

typedef struct loader {
	srt_engine_t *engine;
	srt_checkpoint_options_t options;
	srt_box_reader_t reader;
	const char *folder;
	srt_saved_tensor_t *tensors;
	size_t ntensors;
	srt_long_work_t work; /* while this rank reads */
	srt_cast_t cast;
} loader_t;

/* ---- checks ----------------------------------------------------------------------------- */

/* The tensor of the manifest; NULL: it has none. Values may have any name of the parameter. */
static const srt_manifest_tensor_t *find_source(const loader_t *l, const srt_saved_tensor_t *saved)
{
	const srt_param_t *p = saved->param;
	const srt_manifest_tensor_t *t =
		srt_manifest_find(&l->reader.manifest, saved->kind,
				  p != NULL ? p->name : saved->buffer->name);

	for (size_t i = 0; t == NULL && p != NULL && i < p->naliases; i++)
		t = srt_manifest_find(&l->reader.manifest, saved->kind, p->aliases[i]);
	return t;
}

/* "[3,4]". */
static void format_shape(const int64_t *shape, int ndim, char out[128])
{
	size_t used = (size_t)snprintf(out, 128, "[");

	for (int i = 0; i < ndim; i++) /* at most 5 numbers of 20 digits */
		used += (size_t)snprintf(out + used, 128 - used, "%s%lld", i > 0 ? "," : "",
					 (long long)shape[i]);
	snprintf(out + used, 128 - used, "]");
}

/* States of codes and of floats, in an optimizer with state_bits 8: where tensor parallelism cuts
 * rows, they are floats. in_8_bits: the engine's are codes. */
static srt_status_t fail_bits(const srt_param_t *p, bool in_8_bits)
{
	static const char *const forms[] = { "in fp32", "in 8 bits" };

	return srt_fail(
		SRT_ERR_INVALID_ARGUMENT,
		"the optimizer states of parameter '%s' are %s in the checkpoint, but %s in "
		"the engine: load it with the number of tensor-parallel ranks that saved "
		"it, or set srt_checkpoint_options_t.values_only",
		p->name, forms[!in_8_bits], forms[in_8_bits]);
}

static srt_status_t check_tensor(const loader_t *l, const srt_saved_tensor_t *saved)
{
	const srt_manifest_tensor_t *t = find_source(l, saved);
	const srt_param_t *p = saved->param;
	const srt_unit_buffer_t *b = saved->buffer;
	const srt_saved_form_t form = srt_saved_form(saved);
	const srt_manifest_words_t words =
		srt_manifest_describe(saved->kind, p != NULL ? p->name : b->name);
	char have[128], need[128];

	if (t == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the checkpoint has no %s, which the engine needs", words.text);
	format_shape(t->shape, t->ndim, have);
	format_shape(form.shape, form.ndim, need);
	if (t->ndim != form.ndim ||
	    memcmp(t->shape, form.shape, (size_t)form.ndim * sizeof(*form.shape)) != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is %s in the checkpoint, but %s in the engine", words.text,
				have, need);
	if (t->dtype == form.dtype)
		return SRT_OK;
	if (saved->kind >= SRT_MANIFEST_STATE0 && (t->dtype == SRT_U8 || form.dtype == SRT_U8))
		return fail_bits(saved->param, form.dtype == SRT_U8);
	if (!srt_dtype_is_float(t->dtype) || !srt_dtype_is_float(form.dtype) || p == NULL ||
	    !l->options.cast)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is %s in the checkpoint, but %s in the engine%s", words.text,
				srt_dtype_name(t->dtype), srt_dtype_name(form.dtype),
				p != NULL && srt_dtype_is_float(t->dtype) &&
						srt_dtype_is_float(form.dtype) ?
					": set srt_checkpoint_options_t.cast to round it" :
					"");
	return SRT_OK;
}

/* The engine takes what the optimizer had. */
static bool has_optimizer(const loader_t *l)
{
	return l->engine->optim->groups[0].kind != SRT_OPTIM_NONE && !l->options.values_only;
}

static srt_status_t check_optimizer(const loader_t *l)
{
	const char *name = srt_optimizer_name(l->engine->optim);

	if (!has_optimizer(l))
		return SRT_OK;
	if (strcmp(l->reader.manifest.optimizer, name) != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the checkpoint is of optimizer %s, but the engine has %s: create "
				"it with the former, or set srt_checkpoint_options_t.values_only",
				srt_printable(l->reader.manifest.optimizer).text, name);
	if (l->reader.manifest.ngroups != l->engine->optim->ngroups)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the checkpoint has %zu groups of parameters, but the engine %zu",
				l->reader.manifest.ngroups, l->engine->optim->ngroups);
	return SRT_OK;
}

/* A parameter that was in a group of one optimizer is in one of that again. Older checkpoints do
 * not say in which. */
static srt_status_t check_group(const loader_t *l, const srt_param_t *p, int32_t group)
{
	const char *need = srt_group_optimizer_name(&l->engine->optim->groups[p->group]);
	const char *have = group >= 0 ? l->reader.manifest.groups[group].optimizer : NULL;

	if (have == NULL || strcmp(have, need) == 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' was stepped by %s when the checkpoint was saved, but is "
			"stepped by %s in the engine: create it in a group of the former, or set "
			"srt_checkpoint_options_t.values_only",
			p->name, srt_printable(have).text, need);
}

static srt_status_t check_trained(const loader_t *l, const srt_param_t *p,
				  const srt_manifest_tensor_t *t)
{
	if (t->steps < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is trainable, but was frozen when the checkpoint "
				"was saved",
				p->name);
	return check_group(l, p, t->group);
}

/* Logs values that the engine does not have, at most MAX_UNREAD by name. */
static srt_status_t report_unread(const loader_t *l)
{
	const srt_manifest_t *m = &l->reader.manifest;
	bool *is_read = srt_calloc(m->ntensors + 1, sizeof(*is_read), "tensors to be read");
	size_t nunread = 0;

	if (is_read == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < l->ntensors; i++)
		is_read[find_source(l, &l->tensors[i]) - m->tensors] = true;
	for (size_t i = 0; i < m->ntensors; i++) {
		const srt_manifest_tensor_t *t = &m->tensors[i];

		if (!is_read[i] && t->kind < SRT_MANIFEST_STATE0 && nunread++ < MAX_UNREAD)
			srt_log(SRT_LOG_WARN, "%s: %s is not used by the model", l->folder,
				srt_manifest_describe(t->kind, t->name).text);
	}
	if (nunread > MAX_UNREAD)
		srt_log(SRT_LOG_WARN, "%s: %zu more values are not used by the model", l->folder,
			nunread - MAX_UNREAD);
	free(is_read);
	return SRT_OK;
}

static srt_status_t check_rest(const loader_t *l)
{
	const srt_checkpoint_options_t *o = &l->options;

	SRT_TRY(check_optimizer(l));
	if (o->scaler != NULL && !l->reader.manifest.has_scaler)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the checkpoint was saved without a scaler");
	SRT_TRY(srt_entries_load(o, &l->reader.manifest, l->engine->rank, l->engine->world, false));
	for (size_t i = 0; i < l->ntensors; i++) {
		const srt_saved_tensor_t *saved = &l->tensors[i];

		SRT_TRY(check_tensor(l, saved));
		if (has_optimizer(l) && saved->kind == SRT_MANIFEST_VALUE && !saved->param->frozen)
			SRT_TRY(check_trained(l, saved->param, find_source(l, saved)));
	}
	if (l->reader.manifest.numerics_version != srt_numerics_version() &&
	    !l->options.values_only && l->engine->rank == 0)
		srt_log(SRT_LOG_WARN,
			"checkpoint %s was saved with numerics version %d, this library has %d: "
			"the run goes on, but with other bits than it would have had",
			l->folder, l->reader.manifest.numerics_version, srt_numerics_version());
	return l->engine->rank == 0 ? report_unread(l) : SRT_OK;
}

/* ---- tensors ---------------------------------------------------------------------------- */

/* This rank's part of a tensor, in the saved dtype; NULL: checks that it can be read. */
static srt_status_t read_tensor(loader_t *l, const srt_saved_tensor_t *saved, void *elements)
{
	const srt_manifest_tensor_t *t = find_source(l, saved);
	srt_cell_box_t whole = { 0 };
	srt_shard_boxes_t part = { .boxes = &whole, .nboxes = 1 };
	srt_status_t status;

	if (saved->param == NULL) {
		memcpy(part.cell, t->shape, sizeof(t->shape));
		memcpy(whole.box.size, t->shape, sizeof(t->shape));
		return srt_box_reader_read(&l->reader, t, &part, elements);
	}
	status = srt_shard_boxes(saved->param, saved->kind, l->engine->rank, &part);
	if (status == SRT_OK)
		status = srt_box_reader_read(&l->reader, t, &part, elements);
	free(part.boxes);
	return status;
}

static srt_status_t load_tensor(loader_t *l, const srt_saved_tensor_t *saved, void *shard,
				srt_stream_t *stream)
{
	const srt_manifest_tensor_t *t = find_source(l, saved);
	srt_param_t *p = saved->param;

	SRT_TRY(read_tensor(l, saved, shard));
	if (p == NULL)
		return srt_unit_buffer_set(saved->buffer, shard, stream);
	if (srt_saved_is_coded(saved))
		return srt_param_set_state8(p, (int)saved->kind - SRT_MANIFEST_STATE0, shard,
					    stream);
	if (t->dtype != p->dtype && p->shard.nelem > 0)
		SRT_TRY(srt_cast_shard(&l->cast, l->engine, t->dtype, p->dtype,
				       (size_t)p->shard.nelem, shard, stream));
	return srt_param_set_local(p,
				   saved->kind == SRT_MANIFEST_VALUE ?
					   SRT_PARAM_VALUE :
					   (srt_param_what_t)(SRT_PARAM_STATE0 + saved->kind -
							      SRT_MANIFEST_STATE0),
				   shard, stream);
}

/* ---- the call --------------------------------------------------------------------------- */

/* States of the optimizer are not loaded. */
static void drop_states(loader_t *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->ntensors; i++)
		if (l->tensors[i].kind < SRT_MANIFEST_STATE0)
			l->tensors[n++] = l->tensors[i];
	l->ntensors = n;
}

/* All that can be wrong without reading tensors; *most: bytes of the largest shard. */
static srt_status_t prepare(loader_t *l, size_t *most)
{
	*most = 0;
	SRT_TRY(srt_box_reader_open(&l->reader, l->folder));
	l->tensors = srt_saved_tensors(l->engine, &l->ntensors);
	if (l->tensors == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (l->options.values_only)
		drop_states(l);
	SRT_TRY(check_rest(l));
	for (size_t i = 0; i < l->ntensors; i++) {
		const srt_saved_tensor_t *saved = &l->tensors[i];
		const srt_param_t *p = saved->param;
		size_t nbytes =
			p != NULL ? (size_t)p->shard.nelem * sizeof(float) : saved->buffer->nbytes;

		*most = nbytes > *most ? nbytes : *most;
		SRT_TRY(read_tensor(l, saved, NULL));
	}
	return SRT_OK;
}

/* All ranks must have opened the same checkpoint. Collective. */
static srt_status_t compare_manifests(loader_t *l)
{
	srt_comm_t *comm = l->engine->comm;
	uint64_t *all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), "manifests");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (all != NULL)
		status = srt_comm_oob_allgather_for(comm, "comparing the manifests of a checkpoint",
						    &l->reader.manifest.checksum,
						    sizeof(l->reader.manifest.checksum), all);
	for (int r = 1; r < comm->size && status == SRT_OK; r++)
		if (all[r] != all[0])
			status = srt_fail(SRT_ERR_MISMATCH,
					  "rank %d and rank 0 have opened different checkpoints as "
					  "%s: load a folder that all ranks see and that no job "
					  "replaces meanwhile",
					  r, l->folder);
	free(all);
	return status;
}

static srt_status_t set_rest(loader_t *l, srt_stream_t *stream)
{
	srt_engine_t *engine = l->engine;

	for (size_t g = 0; g < engine->optim->ngroups && has_optimizer(l); g++) {
		const srt_manifest_group_t *group = &l->reader.manifest.groups[g];
		srt_step_info_t info = SRT_STEP_INFO_INIT;

		SRT_TRY(srt_step_info_write(&info, &group->state));
		SRT_TRY(srt_optim_set_step_info(engine->optim, g, &info, stream));
		engine->optim->has_lr[g] = group->has_lr;
	}
	for (size_t i = 0; i < l->ntensors && has_optimizer(l); i++) {
		srt_param_t *p = l->tensors[i].param;

		if (l->tensors[i].kind == SRT_MANIFEST_VALUE && !p->frozen)
			SRT_TRY(srt_optim_set_steps(engine->optim, p->listed,
						    find_source(l, &l->tensors[i])->steps, stream));
	}
	if (l->options.scaler != NULL)
		SRT_TRY(srt_scaler_set_state(l->options.scaler, &l->reader.manifest.scaler,
					     stream));
	return srt_entries_load(&l->options, &l->reader.manifest, engine->rank, engine->world,
				true);
}

static srt_status_t load(loader_t *l, void *shard, srt_stream_t *stream)
{
	for (size_t i = 0; i < l->ntensors; i++) {
		if (srt_comm_poisoned(l->engine->comm))
			return srt_comm_fail(l->engine->comm, 0, "%s", l->work.doing.text);
		SRT_TRY(load_tensor(l, &l->tensors[i], shard, stream));
	}
	SRT_TRY(set_rest(l, stream));
	return srt_stream_sync(stream); /* the copies to the device may have failed */
}

srt_status_t srt_checkpoint_load(srt_engine_t *engine, const char *folder,
				 const srt_checkpoint_options_t *options, srt_stream_t *stream)
{
	loader_t l = { .engine = engine };
	char *found = NULL;
	void *shard = NULL;
	size_t most = 0;
	srt_status_t status;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_checkpoint_load"));
	SRT_TRY(srt_full_check(engine, "srt_checkpoint_load"));
	srt_long_work_begin(&l.work, engine->comm,
			    srt_describe_doing("checking checkpoint", folder, NULL));
	status = srt_checkpoint_check(engine, "srt_checkpoint_load", options, &l.options);
	if (status == SRT_OK) {
		l.folder = found = srt_folder_find(folder);
		status = found != NULL ? prepare(&l, &most) : SRT_ERR_OUT_OF_MEMORY;
	}
	if (status == SRT_OK) {
		shard = srt_calloc(most + 1, 1, "a shard to be loaded");
		status = shard == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;
	}
	status = srt_long_work_end(&l.work, status);
	if (status == SRT_OK)
		status = compare_manifests(&l);
	if (status == SRT_OK) {
		srt_long_work_begin(&l.work, engine->comm,
				    srt_describe_doing("loading checkpoint", folder, NULL));
		status = load(&l, shard, stream);
		if (status != SRT_OK)
			srt_fail_prefix(status, "some values have changed: ");
		status = srt_long_work_end(&l.work, status);
	}
	free(shard);
	srt_cast_close(&l.cast);
	free(l.tensors);
	srt_box_reader_close(&l.reader);
	free(found);
	return status;
}

srt_status_t srt_checkpoint_get_entry(const char *folder, const char *key, void *data, size_t ndata,
				      size_t *nbytes)
{
	srt_manifest_t m = { .world = 0 };
	const srt_manifest_entry_t *e = NULL;
	char *found;
	srt_status_t status;

	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(key);
	if (ndata > 0)
		SRT_NOT_NULL(data);
	found = srt_folder_find(folder);
	status = found != NULL ? srt_manifest_read(found, &m) : SRT_ERR_OUT_OF_MEMORY;
	free(found);
	if (status == SRT_OK) {
		e = srt_manifest_find_entry(&m, key);
		if (e == NULL)
			status = srt_fail(SRT_ERR_NOT_FOUND, "checkpoint %s has no entry '%s'",
					  folder, key);
		else if (e->nbytes > ndata)
			status = srt_fail(SRT_ERR_INVALID_ARGUMENT,
					  "entry '%s' of checkpoint %s has %zu bytes, more than "
					  "ndata, %zu",
					  key, folder, e->nbytes, ndata);
	}
	if (status == SRT_OK) {
		if (e->nbytes > 0)
			memcpy(data, e->data, e->nbytes);
		if (nbytes != NULL)
			*nbytes = e->nbytes;
	}
	srt_manifest_clear(&m);
	return status;
}
