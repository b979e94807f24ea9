/* SPDX-License-Identifier: BSD-3-Clause */
/* Which rank saves which boxes of which tensors (sharded.h). Functions of the declaration alone. */
#include "runtime/checkpoint/sharded.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/entries.h"
#include "runtime/checkpoint/formats/rank_file.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

/* The kind is that of absmax, which has the blocks of states in 8 bits as rows. */
static bool is_absmax(const srt_param_t *param, srt_manifest_kind_t kind)
{
	return kind == SRT_MANIFEST_STATE0 + 2 && srt_state8_is_coded(param);
}

static int64_t blocks_of_row(const srt_param_t *param)
{
	return srt_coded_blocks(srt_state8_row(param), srt_state8_row(param));
}

srt_status_t srt_shard_boxes(const srt_param_t *param, srt_manifest_kind_t kind, int rank,
			     srt_shard_boxes_t *shard)
{
	const bool absmax = is_absmax(param, kind);
	const int64_t rows = absmax ? blocks_of_row(param) : 1; /* for each row of the parameter */
	const int ndim = absmax ? 2 : param->ndim;
	const srt_engine_t *engine = param->unit->engine;
	const int cell = srt_cell_index(engine, rank);
	srt_box_cut_t cut = { .nblocks = 1 };

	*shard = (srt_shard_boxes_t){ 0 };
	srt_cell_shape(param, cell, shard->cell);
	shard->nelem = srt_shard_range(param, rank, engine->world, &shard->first);
	if (absmax) {
		shard->cell[0] *= rows;
		shard->cell[1] = 2;
		shard->first = shard->first / srt_state8_row(param) * rows * 2;
		shard->nelem = shard->nelem / srt_state8_row(param) * rows * 2;
	}
	cut.chunk = cut.extent = shard->cell[0];
	if (param->is_cut)
		cut = (srt_box_cut_t){
			.dim = param->cut.dim,
			.nblocks = param->cut.nblocks,
			.chunk = shard->cell[param->cut.dim] / param->cut.nblocks,
			.extent = param->cut.extent * rows,
			.offset = srt_cell_offset(param, cell) * rows,
		};
	shard->nboxes = srt_boxes_cut(ndim, shard->cell, &cut, shard->first, shard->nelem, NULL);
	shard->boxes = srt_calloc(shard->nboxes + 1, sizeof(*shard->boxes), param->name);
	if (shard->boxes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_boxes_cut(ndim, shard->cell, &cut, shard->first, shard->nelem, shard->boxes);
	return SRT_OK;
}

bool srt_saved_is_coded(const srt_saved_tensor_t *saved)
{
	return saved->kind >= SRT_MANIFEST_STATE0 && srt_state8_is_coded(saved->param);
}

srt_saved_form_t srt_saved_form(const srt_saved_tensor_t *saved)
{
	const srt_param_t *p = saved->param;
	const srt_unit_buffer_t *b = saved->buffer;
	srt_saved_form_t form = { .dtype = p != NULL ? p->dtype : b->dtype,
				  .ndim = p != NULL ? p->ndim : b->ndim };

	memcpy(form.shape, p != NULL ? p->shape : b->shape, sizeof(form.shape));
	if (!srt_saved_is_coded(saved))
		return form;
	if (is_absmax(p, saved->kind))
		return (srt_saved_form_t){ SRT_F32, 2, { p->shape[0] * blocks_of_row(p), 2 } };
	form.dtype = SRT_U8;
	return form;
}

/* The rank writes its shard of the parameter: no rank before it has the same one. */
static bool is_saved(const srt_param_t *param, int rank)
{
	const srt_engine_t *engine = param->unit->engine;

	return srt_shard_replica(engine, rank) == 0 &&
	       (param->is_cut || srt_cell_index(engine, rank) == 0);
}

srt_saved_tensor_t *srt_saved_tensors(srt_engine_t *engine, size_t *n)
{
	const size_t nstates = (size_t)engine->memory.nstates;
	srt_saved_tensor_t *list =
		srt_calloc(engine->nparams * (2 + nstates) + engine->unit_buffers.n + 1,
			   sizeof(*list), "the tensors of a checkpoint");

	*n = 0;
	if (list == NULL)
		return NULL;
	for (size_t i = 0; i < engine->nparams; i++) {
		srt_param_t *p = engine->params[i];

		list[(*n)++] = (srt_saved_tensor_t){ .param = p };
		for (size_t k = 0; k < nstates + srt_state8_is_coded(p) && !p->frozen; k++)
			list[(*n)++] = (srt_saved_tensor_t){
				.param = p,
				.kind = (srt_manifest_kind_t)(SRT_MANIFEST_STATE0 + k),
			};
	}
	for (size_t i = 0; i < engine->unit_buffers.n; i++)
		list[(*n)++] = (srt_saved_tensor_t){
			.buffer = engine->unit_buffers.all[i],
			.kind = SRT_MANIFEST_BUFFER,
		};
	return list;
}

/* The most boxes that the rank saves of one tensor: each is in another file, as a name occurs once
 * in a file. */
static srt_status_t count_parts(srt_engine_t *engine, int rank, size_t *nparts)
{
	*nparts = rank == 0 && engine->unit_buffers.n > 0;
	for (size_t i = 0; i < engine->nparams; i++) {
		srt_shard_boxes_t shard;

		if (!is_saved(engine->params[i], rank))
			continue;
		SRT_TRY(srt_shard_boxes(engine->params[i], SRT_MANIFEST_VALUE, rank, &shard));
		if (shard.nboxes > *nparts)
			*nparts = shard.nboxes;
		free(shard.boxes);
	}
	return SRT_OK;
}

/* first[rank]: its first file; first[world]: all. */
static srt_status_t list_files(srt_engine_t *engine, srt_manifest_t *m, srt_saved_file_t **files,
			       size_t *first)
{
	for (int r = 0; r < engine->world; r++) {
		size_t nparts;

		SRT_TRY(count_parts(engine, r, &nparts));
		first[r + 1] = first[r] + nparts;
	}
	m->files = srt_calloc(first[engine->world] + 1, sizeof(*m->files), "files");
	*files = srt_calloc(first[engine->world] + 1, sizeof(**files), "files");
	if (m->files == NULL || *files == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int r = 0; r < engine->world; r++) {
		for (size_t k = 0; k < first[r + 1] - first[r]; k++) {
			(*files)[m->nfiles] = (srt_saved_file_t){ r, k };
			m->files[m->nfiles].name = srt_rank_file_name(r, engine->world, k);
			if (m->files[m->nfiles++].name == NULL)
				return SRT_ERR_OUT_OF_MEMORY;
		}
	}
	return SRT_OK;
}

static srt_status_t add_shards(const srt_param_t *p, const size_t *first, srt_manifest_tensor_t *t)
{
	for (int r = 0; r < p->unit->engine->world; r++) {
		srt_shard_boxes_t shard;
		srt_status_t status;

		if (!is_saved(p, r))
			continue;
		status = srt_shard_boxes(p, t->kind, r, &shard);
		for (size_t i = 0; i < shard.nboxes && status == SRT_OK; i++)
			status = srt_manifest_add_box(t, &shard.boxes[i].box, first[r] + i);
		free(shard.boxes);
		SRT_TRY(status);
	}
	return SRT_OK;
}

static srt_status_t add_tensor(const srt_saved_tensor_t *saved, const size_t *first,
			       srt_manifest_tensor_t *t)
{
	const srt_param_t *p = saved->param;
	const srt_unit_buffer_t *b = saved->buffer;
	const srt_saved_form_t form = srt_saved_form(saved);
	srt_box_t whole = { 0 };

	t->name = srt_strdup(p != NULL ? p->name : b->name);
	t->kind = saved->kind;
	t->dtype = form.dtype;
	t->ndim = form.ndim;
	t->steps = -1;
	t->group = saved->kind == SRT_MANIFEST_VALUE && !p->frozen ? (int32_t)p->group : -1;
	memcpy(t->shape, form.shape, sizeof(t->shape));
	if (t->name == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (p != NULL)
		return add_shards(p, first, t);
	memcpy(whole.size, t->shape, sizeof(whole.size));
	return b->nelem > 0 ? srt_manifest_add_box(t, &whole, 0) : SRT_OK;
}

srt_status_t srt_saved_manifest(srt_engine_t *engine, const srt_saved_tensor_t *tensors, size_t n,
				srt_manifest_t *m, srt_saved_file_t **files)
{
	size_t *first = srt_calloc((size_t)engine->world + 1, sizeof(*first), "files");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	m->tensors = srt_calloc(n + 1, sizeof(*m->tensors), "the tensors of a checkpoint");
	if (first != NULL && m->tensors != NULL)
		status = list_files(engine, m, files, first);
	while (status == SRT_OK && m->ntensors < n) {
		status = add_tensor(&tensors[m->ntensors], first, &m->tensors[m->ntensors]);
		m->ntensors++; /* also what was begun is cleared */
	}
	free(first);
	return status;
}

const char *srt_group_optimizer_name(const srt_optim_options_t *group)
{
	const bool in_8_bits = group->state_bits == 8;

	switch (group->kind) {
	case SRT_OPTIM_SGD:
		return "sgd";
	case SRT_OPTIM_ADAM:
		return in_8_bits ? "adam8bit" : "adam";
	case SRT_OPTIM_ADAMW:
		return in_8_bits ? "adamw8bit" : "adamw";
	case SRT_OPTIM_MUON:
		return "muon";
	case SRT_OPTIM_NONE:
		break;
	}
	return "none";
}

const char *srt_optimizer_name(const srt_optim_t *optim)
{
	if (srt_optim_has_muon(optim))
		return "muon";
	return srt_group_optimizer_name(&optim->groups[0]);
}

srt_status_t srt_checkpoint_check(const srt_engine_t *engine, const char *call,
				  const srt_checkpoint_options_t *given,
				  srt_checkpoint_options_t *options)
{
	*options = (srt_checkpoint_options_t)SRT_CHECKPOINT_OPTIONS_INIT;
	if (engine->step.any_backward || engine->step.microbatch > 0)
		return srt_fail(SRT_ERR_STATE,
				"%s() within a step: the gradients that it has so far are not in a "
				"checkpoint; end the step first, or drop it by srt_engine_reset()",
				call);
	if (engine->writes.open)
		return srt_fail(SRT_ERR_STATE,
				"%s() after srt_engine_write_begin(): values may be changing; call "
				"srt_engine_write_end() first",
				call);
	for (size_t u = 0; u < engine->nunits; u++) {
		if (srt_unit_in_use(engine->units[u]))
			return srt_fail(SRT_ERR_STATE,
					"%s() while unit '%s' is in use: call it outside of passes",
					call, engine->units[u]->name);
	}
	SRT_TRY(srt_struct_read(options, sizeof(*options), given, "srt_checkpoint_options_t"));
	return srt_entries_check(call, options);
}
