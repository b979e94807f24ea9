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
		const double group[] = { (double)g->lr,  (double)g->weight_decay,
					 g->momentum,    (double)g->dampening,
					 g->beta1,       g->beta2,
					 (double)g->eps, (double)g->min_lr };
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
		const uint64_t row[] = { p->value != NULL, (uint64_t)p->nelem, p->group };
		const float own[] = { p->weight_decay, p->lr_scale };

		hash = srt_hash64(hash, p->name, strlen(p->name));
		hash = srt_hash64(hash, row, sizeof(row));
		hash = srt_hash64(hash, own, sizeof(own));
	}
	return srt_verify_list(comm, creating, "parameters or their options", in->nparams, hash);
}

/* ---- states ------------------------------------------------------------------------------ */

/* Copies the list and creates the states of sharded parameters. Collective. */
static srt_status_t create_states(srt_sharded_optim_t *optim, srt_optim_kind_t kind,
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
						  srt_optimizer_state_name(kind, (size_t)k));
			srt_status_t status;

			if (name == NULL)
				return srt_comm_fail_alone(optim->comm, creating,
							   SRT_ERR_OUT_OF_MEMORY, srt_error_last());
			status = srt_sharded_tensor_create_like(p->value, name, &named->states[k]);
			free(name);
			SRT_TRY(status);
		}
	}
	return SRT_OK;
}

/* ---- owners of the local optimizers ------------------------------------------------------- */

/* Sets the field of all shards of parameter i. */
static srt_status_t set_field(void *owner, size_t i, size_t field, int32_t value,
			      srt_stream_t *stream)
{
	const srt_sharded_optim_t *optim = owner;

	for (size_t s = 0; s < optim->nshards; s++) {
		const srt_shard_entry_t *shard = &optim->shards[s];
		srt_optim_t *local = optim->local[shard->home];
		srt_stream_t *home;

		if (shard->param != i)
			continue;
		SRT_TRY(srt_optim_enter(local, "srt_optim_set_steps", stream, &home));
		SRT_TRY(srt_optim_set_field(local, shard->index, field, value, home));
		SRT_TRY(srt_optim_leave(local, home, stream));
	}
	return SRT_OK;
}

static void destroy(void *owner)
{
	srt_sharded_optim_t *optim = owner;

	srt_optim_free(optim->local[0]);
	srt_optim_free(optim->local[1]);
	for (size_t i = 0; i < optim->nparams; i++) {
		for (int k = 0; k < SRT_OPTIM_MAX_STATES; k++)
			srt_sharded_tensor_destroy(optim->params[i].states[k]);
	}
	srt_host_side_destroy(&optim->host);
	srt_comm_release(optim->comm);
	free(optim->params);
	free(optim->shards);
	free(optim);
}

static srt_status_t enter_host(void *owner, const char *call, srt_stream_t *stream,
			       srt_stream_t **home)
{
	const srt_sharded_optim_t *optim = owner;

	(void)call;
	return srt_host_side_enter(&optim->host, optim->host.device, stream, home);
}

static srt_status_t leave_host(void *owner, srt_stream_t *home, srt_stream_t *stream)
{
	const srt_sharded_optim_t *optim = owner;

	return srt_host_side_leave(&optim->host, home, stream);
}

static const srt_optim_owner_t owners[] = {
	{ .set_field = set_field, .destroy = destroy },
	{ .enter = enter_host, .leave = leave_host },
};

srt_sharded_optim_t *srt_sharded_optim(const srt_optim_t *optim)
{
	return optim != NULL && optim->owner == &owners[0] ? optim->owner_arg : NULL;
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
				 lists->n[0], &optim->local[0], stream));
	optim->local[0]->nparams = optim->nparams;
	optim->local[0]->owner = &owners[0];
	optim->local[0]->owner_arg = optim;
	if (lists->n[1] == 0)
		return SRT_OK;
	SRT_TRY(srt_host_side_create(context, &optim->host));
	SRT_TRY(srt_host_side_enter(&optim->host, optim->host.device, stream, &home));
	SRT_TRY(srt_optim_create(optim->host.device, in->groups, in->ngroups, lists->params[1],
				 lists->n[1], &optim->local[1], home));
	optim->local[1]->owner = &owners[1];
	optim->local[1]->owner_arg = optim;
	optim->local[0]->twin = optim->local[1];
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

static srt_status_t read_arguments(srt_sharded_optim_t *optim, const srt_optim_options_t *groups,
				   const srt_sharded_optim_param_t *params, inputs_t *in)
{
	SRT_TRY(srt_optim_read_groups(groups, in->ngroups, &in->groups));
	for (size_t g = 0; g < in->ngroups; g++) {
		if (in->groups[g].kind == SRT_OPTIM_MUON)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"group %zu is of Muon, which is not for sharded tensors: use "
				"an engine, or srt_optim_create() on whole matrices",
				g);
	}
	if (in->groups[0].state_bits == 8)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"option state_bits is 8, but the states of sharded tensors are "
				"sharded tensors of the values' dtype: set it to 0, or let an "
				"engine have the parameters");
	SRT_TRY(read_params(params, in));
	SRT_TRY(check_list(optim->comm, in->params, in->nparams));
	optim->nstates = srt_optim_count_states_of(in->groups, in->ngroups);
	optim->params = srt_calloc(in->nparams + 1, sizeof(*optim->params), creating);
	if (optim->params == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	optim->nparams = in->nparams;
	return SRT_OK;
}

srt_status_t srt_sharded_optim_create(srt_context_t *context, srt_comm_t *comm,
				      const srt_optim_options_t *groups, size_t ngroups,
				      const srt_sharded_optim_param_t *params, size_t nparams,
				      srt_optim_t **out, srt_stream_t *stream)
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
		status = create_states(optim, in.groups[0].kind, in.params);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, creating,
						   build(optim, context, &in, stream));
	free(in.groups);
	free(in.params);
	if (status != SRT_OK) {
		destroy(optim);
		return status;
	}
	*out = optim->local[0];
	return SRT_OK;
}

srt_sharded_tensor_t *srt_sharded_optim_state(const srt_optim_t *optim, size_t i, size_t k)
{
	const srt_sharded_optim_t *sharded = srt_sharded_optim(optim);

	if (sharded == NULL || i >= sharded->nparams || k >= (size_t)sharded->nstates)
		return NULL;
	return sharded->params[i].states[k];
}
