/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharding parameters of a module by a plan (<shardrt/sharded_layer.h>). */
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

static srt_status_t check_plan(srt_module_t *module, const srt_shard_plan_t *plan, size_t nplan,
			       bool is_root)
{
	for (size_t i = 0; i < nplan; i++) {
		const srt_module_tensor_t *param;

		if (plan[i].param == NULL || plan[i].sharding == NULL)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"row %zu of the plan has no parameter or no sharding", i);
		param = find_param(module, plan[i].param);
		if (param == NULL)
			return srt_fail(SRT_ERR_NOT_FOUND, "the module '%s' has no parameter '%s'",
					module->kind, plan[i].param);
		if (is_root && plan[i].whole.dtype != param->dtype)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"the values of parameter '%s' are %s, must be %s",
					plan[i].param, srt_dtype_name(plan[i].whole.dtype),
					srt_dtype_name(param->dtype));
	}
	return SRT_OK;
}

srt_status_t srt_shard_module(srt_context_t *context, srt_comm_t *comm, srt_module_t *module,
			      srt_shard_plan_t *plan, size_t nplan, int root, srt_stream_t *stream)
{
	uint64_t hash = 0;
	srt_status_t status;
	size_t n = 0;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(module);
	if (nplan > 0)
		SRT_NOT_NULL(plan);
	SRT_NOT_NULL(stream);
	if (comm == NULL)
		comm = srt_context_world(context);
	status = srt_comm_status_consensus(comm, sharding,
					   check_plan(module, plan, nplan, comm->rank == root));
	for (size_t i = 0; status == SRT_OK && i < nplan; i++)
		hash = srt_hash64(hash, plan[i].param, strlen(plan[i].param) + 1);
	if (status == SRT_OK)
		status = srt_verify_list(comm, sharding, "parameters of the plan", nplan, hash);
	for (; status == SRT_OK && n < nplan; n++) {
		const srt_module_tensor_t *param = find_param(module, plan[n].param);
		srt_view_t whole = plan[n].whole;

		whole.dtype = param->dtype;
		status =
			srt_shard_parameter(context, comm, plan[n].param, param->ndim, param->shape,
					    plan[n].sharding, root, whole, stream, &plan[n].tensor);
		if (status != SRT_OK)
			break;
	}
	while (status != SRT_OK && n > 0) {
		srt_sharded_tensor_destroy(plan[--n].tensor);
		plan[n].tensor = NULL;
	}
	return status;
}
