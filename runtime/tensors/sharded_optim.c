/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer of <shardrt/sharded_optim.h>: creation, steps, states. sharded_optim_load.c loads
 * the state of another one.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/optimizer/optimizer.h"
#include "runtime/tensors/sharded_optim.h"

static const char creating[] = "creating a sharded optimizer";

/* ---- checks ------------------------------------------------------------------------------ */

static srt_status_t check_sharded(const srt_comm_t *comm, const srt_sharded_optim_param_t *p)
{
	if (p->value == NULL || p->grad == NULL || p->nelem != 0)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' must have a sharded value and gradient, or be plain",
			p->name);
	if (p->value->comm != comm)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is on communicator \"%s\", the optimizer on \"%s\"",
				p->name, p->value->comm->name, comm->name);
	if (!srt_dtype_is_float(p->value->dtype))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is %s, must be f32, f16 or bf16", p->name,
				srt_dtype_name(p->value->dtype));
	if (!srt_sharded_tensor_matches(p->value, p->grad) ||
	    !srt_sharded_tensor_same_shards(p->value, p->grad))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the gradient of parameter '%s' has another shape, dtype or "
				"sharding than its value",
				p->name);
	return SRT_OK;
}

static srt_status_t check_list(const srt_comm_t *comm, const srt_sharded_optim_param_t *params,
			       size_t nparams)
{
	for (size_t i = 0; i < nparams; i++) {
		const srt_sharded_optim_param_t *p = &params[i];

		if (p->name == NULL || p->name[0] == '\0')
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"parameter %zu of the optimizer has no name", i);
		if (p->value != NULL || p->grad != NULL)
			SRT_TRY(check_sharded(comm, p));
	}
	return SRT_OK;
}

/* What a program gives, as the structs of this library. */
typedef struct inputs {
	srt_optim_options_t *groups; /* to be freed */
	size_t ngroups;
	srt_sharded_optim_param_t *params; /* to be freed */
	size_t nparams;
} inputs_t;

static srt_status_t read_params(const srt_sharded_optim_param_t *given, inputs_t *in)
{
	in->params = srt_calloc(in->nparams + 1, sizeof(*in->params), creating);
	if (in->params == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < in->nparams; i++) {
		in->params[i] = (srt_sharded_optim_param_t)SRT_SHARDED_OPTIM_PARAM_INIT;
		SRT_TRY(srt_struct_read(&in->params[i], sizeof(*in->params),
					srt_struct_at(given, i), "srt_sharded_optim_param_t"));
	}
	return SRT_OK;
}

/* What the number of states and the steps depend on. */
static uint64_t hash_groups(const srt_optim_options_t *groups, size_t ngroups)
{
	uint64_t hash = srt_mix64((uint64_t)groups[0].kind, ngroups);

	for (size_t i = 0; i < ngroups; i++) {
		const srt_optim_options_t *g = &groups[i];
		const float group[] = { g->lr,    g->weight_decay, g->momentum, g->dampening,
					g->beta1, g->beta2,        g->eps,      g->min_lr };
		const int flags[] = { g->nesterov, g->amsgrad,       g->maximize,   g->warmup,
				      g->lr_steps, (int)g->schedule, g->decay_steps };

		hash = srt_hash64(hash, group, sizeof(group));
		hash = srt_hash64(hash, flags, sizeof(flags));
	}
	return hash;
}

/* Collective: all ranks have the same list and options. */
static srt_status_t verify_list(srt_comm_t *comm, const inputs_t *in)
{
	uint64_t hash = hash_groups(in->groups, in->ngroups);

	for (size_t i = 0; i < in->nparams; i++) {
		const srt_sharded_optim_param_t *p = &in->params[i];
		const uint64_t row[] = { p->value != NULL, (uint64_t)p->nelem, (uint64_t)p->group };
		const float own[] = { p->weight_decay, p->lr_scale };

		hash = srt_hash64(hash, p->name, strlen(p->name));
		hash = srt_hash64(hash, row, sizeof(row));
		hash = srt_hash64(hash, own, sizeof(own));
	}
	return srt_verify_list(comm, creating, "parameters or their options", in->nparams, hash);
}

/* ---- states ------------------------------------------------------------------------------ */

const char *srt_sharded_optim_state_name(const srt_sharded_optim_t *optim, int k)
{
	static const char *const adam[] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" };

	if (optim == NULL || k < 0 || k >= optim->nstates)
		return "";
	return optim->kind == SRT_OPTIMIZER_SGD ? "momentum_buffer" : adam[k];
}

/* Copies the list and creates the states of sharded parameters. Collective. */
static srt_status_t create_states(srt_sharded_optim_t *optim,
				  const srt_sharded_optim_param_t *params)
{
	for (size_t i = 0; i < optim->nparams; i++) {
		srt_named_param_t *named = &optim->params[i];
		const srt_sharded_optim_param_t *p = &params[i];

		named->is_sharded = p->value != NULL;
		named->dtype = p->plain_value.dtype;
		named->nelem = p->nelem;
		for (int k = 0; named->is_sharded && k < optim->nstates; k++) {
			char *name = srt_asprintf("%s.%s", p->name,
						  srt_sharded_optim_state_name(optim, k));
			srt_status_t status;

			if (name == NULL)
				return srt_comm_fail_alone(optim->comm, creating,
							   SRT_ERR_OUT_OF_MEMORY, srt_last_error());
			status = srt_sharded_tensor_create_like(p->value, name, &named->states[k]);
			free(name);
			SRT_TRY(status);
		}
	}
	return SRT_OK;
}

/* ---- local optimizers -------------------------------------------------------------------- */

/* The lists of the local optimizers, with memory for all shards. */
typedef struct lists {
	srt_optim_param_t *params[2];
	size_t n[2];
} lists_t;

static size_t count_shards(const srt_sharded_optim_param_t *params, size_t nparams)
{
	size_t n = 0;

	for (size_t i = 0; i < nparams; i++)
		n += params[i].value != NULL ? params[i].value->nlocal : 0;
	return n;
}

/* Adds a shard of parameter i to the list of its device. */
static srt_status_t list_shard(srt_sharded_optim_t *optim, size_t i,
			       const srt_sharded_optim_param_t *p, size_t shard, lists_t *lists)
{
	const srt_sharded_tensor_t *value = p->value;
	const int home = value->views[shard].buffer->device != optim->comm->device;
	srt_optim_param_t *entry = &lists->params[home][lists->n[home]];

	*entry = (srt_optim_param_t){
		.size = sizeof(srt_optim_param_t),
		.name = srt_asprintf("%s[%zu]", p->name, value->local[shard]),
		.nelem = srt_shard_nelem(&value->shards[value->local[shard]], value->ndim),
		.value = value->views[shard],
		.grad = p->grad->views[shard],
		.group = p->group,
		.weight_decay = p->weight_decay,
		.lr_scale = p->lr_scale,
	};
	for (int k = 0; k < optim->nstates; k++)
		entry->state[k] = optim->params[i].states[k]->views[shard];
	optim->shards[optim->nshards++] = (srt_shard_entry_t){ i, home, lists->n[home]++ };
	return entry->name != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static srt_status_t make_lists(srt_sharded_optim_t *optim, const srt_sharded_optim_param_t *params,
			       lists_t *lists)
{
	const size_t nshards = count_shards(params, optim->nparams);

	optim->shards = srt_calloc(nshards + 1, sizeof(*optim->shards), "a sharded optimizer");
	for (int home = 0; home < 2; home++) {
		lists->params[home] = srt_calloc(optim->nparams + nshards + 1,
						 sizeof(**lists->params), "a sharded optimizer");
		if (lists->params[home] == NULL || optim->shards == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < optim->nparams; i++) {
		const srt_sharded_optim_param_t *p = &params[i];

		lists->params[0][lists->n[0]++] = (srt_optim_param_t){
			.size = sizeof(srt_optim_param_t),
			.name = p->name,
			.nelem = p->nelem,
			.value = p->plain_value,
			.grad = p->plain_grad,
			.group = p->group,
			.weight_decay = p->weight_decay,
			.lr_scale = p->lr_scale,
		};
	}
	for (size_t i = 0; i < optim->nparams; i++) {
		const srt_sharded_tensor_t *value = params[i].value;

		for (size_t shard = 0; value != NULL && shard < value->nlocal; shard++) {
			if (value->views[shard].buffer != NULL)
				SRT_TRY(list_shard(optim, i, &params[i], shard, lists));
		}
	}
	return SRT_OK;
}

static srt_status_t create_locals(srt_sharded_optim_t *optim, srt_context_t *context,
				  const inputs_t *in, const lists_t *lists, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_optim_create(optim->comm->device, in->groups, in->ngroups, lists->params[0],
				 lists->n[0], stream, &optim->local[0]));
	if (lists->n[1] == 0)
		return SRT_OK;
	SRT_TRY(srt_host_side_create(context, &optim->host));
	SRT_TRY(srt_host_side_enter(&optim->host, optim->host.device, stream, &home));
	SRT_TRY(srt_optim_create(optim->host.device, in->groups, in->ngroups, lists->params[1],
				 lists->n[1], home, &optim->local[1]));
	return srt_host_side_leave(&optim->host, home, stream);
}

/* What this rank does without the others. */
static srt_status_t build(srt_sharded_optim_t *optim, srt_context_t *context, const inputs_t *in,
			  srt_stream_t *stream)
{
	lists_t lists = { 0 };
	srt_status_t status = make_lists(optim, in->params, &lists);

	if (status == SRT_OK)
		status = create_locals(optim, context, in, &lists, stream);
	for (size_t i = 0; i < optim->nshards; i++) {
		const srt_shard_entry_t *shard = &optim->shards[i];

		free((char *)(uintptr_t)lists.params[shard->home][shard->index].name);
	}
	free(lists.params[0]);
	free(lists.params[1]);
	return status;
}

/* ---- created ----------------------------------------------------------------------------- */

static srt_status_t copy_names(srt_sharded_optim_t *optim, const srt_sharded_optim_param_t *params,
			       size_t nparams)
{
	optim->params = srt_calloc(nparams + 1, sizeof(*optim->params), "a sharded optimizer");
	if (optim->params == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < nparams; i++) {
		optim->params[i].name = srt_strdup(params[i].name);
		if (optim->params[i].name == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		optim->nparams++;
	}
	return SRT_OK;
}

static srt_status_t read_arguments(srt_sharded_optim_t *optim, const srt_optim_options_t *groups,
				   const srt_sharded_optim_param_t *params, inputs_t *in)
{
	SRT_TRY(srt_optim_read_groups(groups, in->ngroups, &in->groups));
	SRT_TRY(read_params(params, in));
	SRT_TRY(check_list(optim->comm, in->params, in->nparams));
	optim->kind = in->groups[0].kind;
	optim->ngroups = in->ngroups;
	optim->nstates = srt_optim_count_states_of(in->groups, in->ngroups);
	return copy_names(optim, in->params, in->nparams);
}

srt_status_t srt_sharded_optim_create(srt_context_t *context, srt_comm_t *comm,
				      const srt_optim_options_t *groups, size_t ngroups,
				      const srt_sharded_optim_param_t *params, size_t nparams,
				      srt_stream_t *stream, srt_sharded_optim_t **out)
{
	inputs_t in = { .ngroups = ngroups, .nparams = nparams };
	srt_sharded_optim_t *optim;
	srt_status_t status;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(groups);
	if (nparams > 0)
		SRT_NOT_NULL(params);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_check_not_null(out, __func__, "optim"));
	if (comm == NULL)
		comm = srt_context_world(context);
	optim = srt_comm_calloc(comm, 1, sizeof(*optim), creating);
	if (optim == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	optim->comm = comm;
	srt_comm_hold(comm);
	status = srt_comm_status_consensus(comm, creating,
					   read_arguments(optim, groups, params, &in));
	if (status == SRT_OK)
		status = verify_list(comm, &in);
	if (status == SRT_OK)
		status = create_states(optim, in.params);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, creating,
						   build(optim, context, &in, stream));
	free(in.groups);
	free(in.params);
	if (status != SRT_OK) {
		srt_sharded_optim_destroy(optim);
		return status;
	}
	*out = optim;
	return SRT_OK;
}

void srt_sharded_optim_destroy(srt_sharded_optim_t *optim)
{
	if (optim == NULL || srt_device_is_inherited(optim->comm->device))
		return;
	srt_optim_destroy(optim->local[0]);
	srt_optim_destroy(optim->local[1]);
	for (size_t i = 0; i < optim->nparams; i++) {
		for (int k = 0; k < SRT_OPTIM_MAX_STATES; k++)
			srt_sharded_tensor_destroy(optim->params[i].states[k]);
		free(optim->params[i].name);
	}
	srt_host_side_destroy(&optim->host);
	srt_comm_release(optim->comm);
	free(optim->params);
	free(optim->shards);
	free(optim);
}

/* ---- steps ------------------------------------------------------------------------------- */

srt_status_t srt_sharded_optim_step(srt_sharded_optim_t *optim, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_optim_step(optim->local[0], stream));
	if (optim->local[1] == NULL)
		return SRT_OK;
	SRT_TRY(srt_host_side_enter(&optim->host, optim->host.device, stream, &home));
	SRT_TRY(srt_optim_step(optim->local[1], home));
	return srt_host_side_leave(&optim->host, home, stream);
}

srt_status_t srt_sharded_optim_set_lr(srt_sharded_optim_t *optim, size_t group, float lr,
				      srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_optim_set_lr(optim->local[0], group, lr, stream));
	if (optim->local[1] == NULL)
		return SRT_OK;
	SRT_TRY(srt_host_side_enter(&optim->host, optim->host.device, stream, &home));
	SRT_TRY(srt_optim_set_lr(optim->local[1], group, lr, home));
	return srt_host_side_leave(&optim->host, home, stream);
}

srt_status_t srt_sharded_optim_get_state(const srt_sharded_optim_t *optim, size_t group,
					 srt_stream_t *stream, srt_step_info_t *info)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(info);
	return srt_optim_get_state(optim->local[0], group, stream, info);
}

srt_status_t srt_sharded_optim_set_state(srt_sharded_optim_t *optim, size_t group,
					 const srt_step_info_t *info, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(info);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_optim_set_state(optim->local[0], group, info, stream));
	if (optim->local[1] == NULL)
		return SRT_OK;
	SRT_TRY(srt_host_side_enter(&optim->host, optim->host.device, stream, &home));
	SRT_TRY(srt_optim_set_state(optim->local[1], group, info, home));
	return srt_host_side_leave(&optim->host, home, stream);
}

/* ---- named parameters and states --------------------------------------------------------- */

size_t srt_sharded_optim_count(const srt_sharded_optim_t *optim)
{
	return optim != NULL ? optim->nparams : 0;
}

const char *srt_sharded_optim_name(const srt_sharded_optim_t *optim, size_t i)
{
	return optim != NULL && i < optim->nparams ? optim->params[i].name : "";
}

size_t srt_sharded_optim_find(const srt_sharded_optim_t *optim, const char *name)
{
	size_t i = 0;

	if (optim == NULL || name == NULL)
		return srt_sharded_optim_count(optim);
	while (i < optim->nparams && strcmp(optim->params[i].name, name) != 0)
		i++;
	return i;
}

int srt_sharded_optim_count_states(const srt_sharded_optim_t *optim)
{
	return optim != NULL ? optim->nstates : 0;
}

srt_sharded_tensor_t *srt_sharded_optim_state(const srt_sharded_optim_t *optim, size_t i, int k)
{
	if (optim == NULL || i >= optim->nparams || k < 0 || k >= optim->nstates)
		return NULL;
	return optim->params[i].states[k];
}

srt_view_t srt_sharded_optim_plain_state(const srt_sharded_optim_t *optim, size_t i, int k)
{
	if (optim == NULL || i >= optim->nparams || optim->params[i].is_sharded)
		return (srt_view_t){ 0 };
	return srt_optim_state(optim->local[0], i, k);
}

srt_status_t srt_sharded_optim_get_steps(const srt_sharded_optim_t *optim, size_t i,
					 srt_stream_t *stream, int32_t *steps)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(steps);
	if (i >= optim->nparams)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the optimizer has %zu parameters, there is no parameter %zu",
				__func__, optim->nparams, i);
	return srt_optim_get_steps(optim->local[0], i, stream, steps);
}

srt_status_t srt_sharded_optim_set_steps(srt_sharded_optim_t *optim, size_t i, int32_t steps,
					 srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	if (i >= optim->nparams)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the optimizer has %zu parameters, there is no parameter %zu",
				__func__, optim->nparams, i);
	SRT_TRY(srt_optim_set_steps(optim->local[0], i, steps, stream));
	for (size_t s = 0; s < optim->nshards; s++) {
		const srt_shard_entry_t *shard = &optim->shards[s];
		srt_stream_t *home = stream;

		if (shard->param != i)
			continue;
		if (shard->home == 1)
			SRT_TRY(srt_host_side_enter(&optim->host, optim->host.device, stream,
						    &home));
		SRT_TRY(srt_optim_set_steps(optim->local[shard->home], shard->index, steps, home));
		SRT_TRY(srt_host_side_leave(&optim->host, home, stream));
	}
	return SRT_OK;
}
