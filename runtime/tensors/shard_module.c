/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharding parameters of a module by a plan (<shardrt/sharded_layer.h>). */
#include <stdlib.h>
#include <string.h>

#include "runtime/modules/module.h"
#include "runtime/tensors/tensors.h"

#include <shardrt/sharded_layer.h>

static const char sharding[] = "sharding a module";

/* The parameter at a path, such as "linear1.weight"; NULL: there is none. */
static const srt_module_tensor_t *find_param(srt_module_t *module, const char *path)
{
	const char *dot = strrchr(path, '.');
	const srt_module_entry_t *entry;
	char above[256];

	if (dot != NULL) {
		if ((size_t)(dot - path) >= sizeof(above))
			return NULL;
		memcpy(above, path, (size_t)(dot - path));
		above[dot - path] = '\0';
		module = srt_module_find(module, above);
	}
	entry = module != NULL ? srt_module_entry(module, dot != NULL ? dot + 1 : path) : NULL;
	return entry != NULL ? entry->tensor : NULL;
}

static srt_status_t check_row(srt_module_t *module, const srt_shard_plan_t *row, size_t i,
			      bool is_root)
{
	const srt_module_tensor_t *param;

	if (row->param == NULL || row->sharding == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"row %zu of the plan has no parameter or no sharding", i);
	param = find_param(module, row->param);
	if (param == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND, "the module '%s' has no parameter '%s'",
				module->kind, row->param);
	if (is_root && row->whole.dtype != param->dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the values of parameter '%s' are %s, must be %s", row->param,
				srt_dtype_name(row->whole.dtype), srt_dtype_name(param->dtype));
	return SRT_OK;
}

/* A program's plan, checked; local. @param[out] rows nplan. */
static srt_status_t read_plan(srt_module_t *module, const srt_shard_plan_t *plan, size_t nplan,
			      bool is_root, srt_shard_plan_t *rows)
{
	for (size_t i = 0; i < nplan; i++) {
		rows[i] = (srt_shard_plan_t)SRT_SHARD_PLAN_INIT;
		SRT_TRY(srt_struct_read(&rows[i], sizeof(*rows), srt_struct_at(plan, i),
					"srt_shard_plan_t"));
		SRT_TRY(check_row(module, &rows[i], i, is_root));
	}
	return SRT_OK;
}

/* Collective: all or none. */
static srt_status_t shard_rows(srt_context_t *context, srt_comm_t *comm, srt_module_t *module,
			       const srt_shard_plan_t *rows, size_t nrows, int root,
			       srt_stream_t *stream, srt_sharded_tensor_t **tensors)
{
	srt_status_t status = SRT_OK;
	size_t n = 0;

	for (; n < nrows; n++) {
		const srt_module_tensor_t *param = find_param(module, rows[n].param);
		srt_view_t whole = rows[n].whole;

		whole.dtype = param->dtype;
		status = srt_sharded_tensor_create_from(context, comm, rows[n].param, param->ndim,
							param->shape, rows[n].sharding, root, whole,
							&tensors[n], stream);
		if (status != SRT_OK)
			break;
	}
	while (status != SRT_OK && n > 0) {
		srt_sharded_tensor_destroy(tensors[--n]);
		tensors[n] = NULL;
	}
	return status;
}

srt_status_t srt_shard_plan_apply(srt_context_t *context, srt_comm_t *comm, srt_module_t *module,
				  const srt_shard_plan_t *plan, size_t nplan, int root,
				  srt_sharded_tensor_t **tensors, srt_stream_t *stream)
{
	srt_shard_plan_t *rows;
	uint64_t hash = 0;
	srt_status_t status;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(module);
	if (nplan > 0) {
		SRT_NOT_NULL(plan);
		SRT_NOT_NULL(tensors);
	}
	SRT_NOT_NULL(stream);
	if (comm == NULL)
		comm = srt_context_world(context);
	rows = srt_comm_calloc(comm, nplan + 1, sizeof(*rows), sharding);
	if (rows == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status =
		srt_comm_status_consensus(comm, sharding,
					  read_plan(module, plan, nplan, comm->rank == root, rows));
	for (size_t i = 0; status == SRT_OK && i < nplan; i++)
		hash = srt_hash64(hash, rows[i].param, strlen(rows[i].param) + 1);
	if (status == SRT_OK)
		status = srt_verify_list(comm, sharding, "parameters of the plan", nplan, hash);
	if (status == SRT_OK)
		status = shard_rows(context, comm, module, rows, nplan, root, stream, tensors);
	free(rows);
	return status;
}
