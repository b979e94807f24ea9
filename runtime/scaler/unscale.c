/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of a step on a gradient scaler (<shardrt/scaler.h>) and their order.
 *
 *     gradients -> this rank's finding -> all ranks' (all-gather, maximum) -> found_inf of the
 *     optimizer's step state, added to the scaler's -> the scale
 *
 * An engine does the first three steps itself (step/finish.c). Errors of order depend on calls
 * alone, never on what was found, so they are the same on all ranks.
 */
#include <stdlib.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/step/step.h"
#include "runtime/scaler/scaler.h"

/* ---- order of calls -------------------------------------------------------------------------- */

static srt_scaler_user_t *find_user(srt_scaler_t *scaler, const void *object, size_t offset)
{
	for (size_t i = 0; i < scaler->nusers; i++)
		if (scaler->users[i].object == object && scaler->users[i].offset == offset)
			return &scaler->users[i];
	return NULL;
}

static srt_status_t check_in_use(const srt_scaler_t *scaler, const char *call)
{
	if (!scaler->in_use)
		return srt_fail(SRT_ERR_STATE,
				"%s() before srt_scaler_scale() or srt_scaler_view(): the loss was "
				"not scaled",
				call);
	return SRT_OK;
}

static srt_status_t check_ready(const char *call, const srt_scaler_user_t *user)
{
	if (user != NULL)
		return srt_fail(SRT_ERR_STATE,
				user->stepped ?
					"%s() after srt_scaler_step(): call srt_scaler_update() "
					"first" :
					"%s() was called before since the last "
					"srt_scaler_update(): the gradients are unscaled",
				call);
	return SRT_OK;
}

static srt_status_t check_not_stepped(const char *call, const srt_scaler_user_t *user)
{
	if (user != NULL && user->stepped)
		return srt_fail(SRT_ERR_STATE,
				"%s() was called before since the last srt_scaler_update()", call);
	return SRT_OK;
}

/* Memory for one more user. Peers unscale, too, and hear of a lack of it. */
static srt_status_t reserve_user(srt_scaler_t *scaler)
{
	static const char what[] = "users of a gradient scaler";
	srt_scaler_user_t *users =
		srt_grow(scaler->users, scaler->nusers + 1, &scaler->room, sizeof(*users), what);

	if (users == NULL)
		return srt_comm_fail_alone(scaler->options.comm, what, SRT_ERR_OUT_OF_MEMORY,
					   srt_error_last());
	scaler->users = users;
	return SRT_OK;
}

/* A user has been checked: the scale will follow its found_inf. */
static srt_status_t add_user(srt_scaler_t *scaler, const void *object, size_t offset,
			     srt_view_t found_inf, srt_stream_t *stream)
{
	SRT_TRY(srt_op_add(scaler->found_inf, scaler->found_inf, found_inf, 1, stream));
	scaler->users[scaler->nusers++] = (srt_scaler_user_t){ .object = object, .offset = offset };
	return srt_scaler_end(scaler, stream);
}

/* Whether gradients of this dtype are refused. */
static bool refuses(const srt_scaler_t *scaler, srt_dtype_t dtype)
{
	return dtype == SRT_F16 && scaler->options.rule == SRT_SCALER_PLAIN &&
	       !scaler->options.allow_f16;
}

static srt_status_t fail_f16(const char *call, const char *name)
{
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: the gradient of '%s' is f16, which SRT_SCALER_PLAIN does not unscale: "
			"use SRT_SCALER_SHARDED, or f32 parameters that are computed with in f16",
			call, name);
}

/* ---- engines --------------------------------------------------------------------------------- */

static srt_status_t check_engine(const srt_scaler_t *scaler, const srt_engine_t *engine,
				 const char *call)
{
	SRT_TRY(srt_engine_require_built(engine, call));
	if (engine->declared.ntrainable == 0)
		return srt_fail(SRT_ERR_STATE,
				"%s: the engine has no parameter with a gradient to be checked",
				call);
	for (size_t i = 0; i < engine->nparams; i++)
		if (!engine->params[i]->frozen && refuses(scaler, engine->params[i]->dtype))
			return fail_f16(call, engine->params[i]->name);
	return SRT_OK;
}

/* What must be equal on all ranks, as the update of the scale depends on it. */
static uint64_t hash_options(const srt_scaler_options_t *options)
{
	const double numbers[] = { options->growth_factor, options->backoff_factor,
				   (double)options->growth_interval, (double)options->rule };

	return srt_hash64(0, numbers, sizeof(numbers));
}

static srt_status_t unscale_engine(srt_scaler_t *scaler, srt_engine_t *engine, const char *call,
				   srt_stream_t *stream)
{
	SRT_TRY(check_engine(scaler, engine, call));
	SRT_TRY(reserve_user(scaler));
	if (!engine->step.finished)
		SRT_TRY(srt_engine_finish_backward(engine, stream));
	SRT_TRY(srt_finish_check_stream(engine, call, stream));
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_UNSCALE, 0, hash_options(&scaler->options)));
	SRT_TRY(srt_scaler_begin(scaler, stream));
	SRT_TRY(srt_engine_unscale(engine, scaler->state, stream));
	return add_user(scaler, engine, 0, srt_found_inf_device(engine), stream);
}

srt_status_t srt_scaler_unscale(srt_scaler_t *scaler, srt_engine_t *engine, srt_stream_t *stream)
{
	static const char call[] = "srt_scaler_unscale";

	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	if (scaler->options.disabled)
		return SRT_OK;
	SRT_TRY(check_in_use(scaler, call));
	SRT_TRY(check_ready(call, find_user(scaler, engine, 0)));
	return unscale_engine(scaler, engine, call, stream);
}

srt_status_t srt_scaler_step(srt_scaler_t *scaler, srt_engine_t *engine, srt_stream_t *stream)
{
	static const char call[] = "srt_scaler_step";

	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	if (scaler->options.disabled)
		return srt_engine_step(engine, stream);
	SRT_TRY(check_in_use(scaler, call));
	SRT_TRY(check_not_stepped(call, find_user(scaler, engine, 0)));
	if (find_user(scaler, engine, 0) == NULL)
		SRT_TRY(unscale_engine(scaler, engine, call, stream));
	SRT_TRY(srt_engine_step(engine, stream));
	find_user(scaler, engine, 0)->stepped = true;
	return SRT_OK;
}

srt_status_t srt_scaler_update(srt_scaler_t *scaler, srt_stream_t *stream)
{
	SRT_NOT_NULL(scaler);
	SRT_NOT_NULL(stream);

	const srt_scaler_options_t *options = &scaler->options;

	if (options->disabled)
		return SRT_OK;
	SRT_TRY(check_in_use(scaler, "srt_scaler_update"));
	if (scaler->nusers == 0)
		return srt_fail(SRT_ERR_STATE,
				"srt_scaler_update() without srt_scaler_unscale() or "
				"srt_scaler_step() since the last one: nothing was checked");
	SRT_TRY(srt_scaler_begin(scaler, stream));
	SRT_TRY(srt_op_scaler_update(scaler->state, options->rule, options->growth_factor,
				     options->backoff_factor, options->growth_interval, stream));
	scaler->nusers = 0;
	return srt_scaler_end(scaler, stream);
}

/* ---- a program's own gradients --------------------------------------------------------------- */

/* *grad, *sparse: copies of gradient i of a program's array; grad->sparse is `sparse` or NULL. */
static srt_status_t read_grad(const srt_scaler_grad_t *grads, size_t i, srt_scaler_grad_t *grad,
			      srt_scaler_sparse_t *sparse)
{
	*grad = (srt_scaler_grad_t)SRT_SCALER_GRAD_INIT;
	*sparse = (srt_scaler_sparse_t)SRT_SCALER_SPARSE_INIT;
	SRT_TRY(srt_struct_read(grad, sizeof(*grad), srt_struct_at(grads, i), "srt_scaler_grad_t"));
	if (grad->sparse == NULL)
		return SRT_OK;
	SRT_TRY(srt_struct_read(sparse, sizeof(*sparse), grad->sparse, "srt_scaler_sparse_t"));
	grad->sparse = sparse;
	return SRT_OK;
}

/* Coalesces the values of a sparse gradient where torch does; what is left to be checked. */
static srt_status_t coalesce(const srt_scaler_t *scaler, const srt_scaler_grad_t *grad,
			     srt_stream_t *stream, srt_view_t *values)
{
	srt_scaler_sparse_t sparse = *grad->sparse;

	*values = grad->grad;
	if (grad->grad.dtype != SRT_F16)
		return SRT_OK;
	sparse.coo.round_each = scaler->options.rule == SRT_SCALER_PLAIN;
	*values = sparse.out_values;
	return srt_op_coo_coalesce(&sparse, grad->grad, stream);
}

static srt_status_t unscale_grad(const srt_scaler_t *scaler, const srt_scaler_grad_t *grad,
				 srt_stream_t *stream)
{
	srt_view_t values = grad->grad;
	int64_t nelem = grad->nelem;

	if (grad->sparse != NULL) {
		SRT_TRY(coalesce(scaler, grad, stream, &values));
		nelem = grad->sparse->coo.nnz * grad->sparse->coo.block;
	}
	return srt_op_unscale(values, scaler->local_found, scaler->state, 0, nelem, stream);
}

static srt_status_t check_grads(const srt_scaler_t *scaler, const char *call, srt_view_t found_inf,
				const srt_scaler_grad_t *grads, size_t ngrads)
{
	if (found_inf.buffer == NULL || found_inf.dtype != SRT_F32)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: found_inf is %s, must be f32", call,
				found_inf.buffer != NULL ? srt_dtype_name(found_inf.dtype) :
							   "absent");
	for (size_t i = 0; i < ngrads; i++) {
		srt_scaler_sparse_t sparse;
		srt_scaler_grad_t grad;
		char number[24];

		SRT_TRY(read_grad(grads, i, &grad, &sparse));
		if (!refuses(scaler, grad.grad.dtype))
			continue;
		snprintf(number, sizeof(number), "%zu", i);
		return fail_f16(call, grad.name != NULL ? grad.name : number);
	}
	return SRT_OK;
}

srt_status_t srt_scaler_unscale_grads(srt_scaler_t *scaler, srt_view_t found_inf,
				      const srt_scaler_grad_t *grads, size_t ngrads,
				      srt_stream_t *stream)
{
	SRT_NOT_NULL(scaler);
	if (ngrads > 0)
		SRT_NOT_NULL(grads);
	SRT_NOT_NULL(stream);

	static const char call[] = "srt_scaler_unscale_grads";
	const srt_view_t local = scaler->local_found;
	srt_scaler_sparse_t sparse;
	srt_scaler_grad_t grad;

	if (scaler->options.disabled)
		return SRT_OK;
	if (ngrads > 0)
		SRT_TRY(srt_struct_check(grads, "srt_scaler_grad_t"));
	SRT_TRY(check_in_use(scaler, call));
	SRT_TRY(check_ready(call, find_user(scaler, found_inf.buffer, found_inf.offset)));
	SRT_TRY(check_grads(scaler, call, found_inf, grads, ngrads));
	SRT_TRY(reserve_user(scaler));
	SRT_TRY(srt_scaler_begin(scaler, stream));
	if (scaler->gather != NULL) /* Edge: peers' reading of the last finding -> the new one. */
		SRT_TRY(srt_coll_wait_readers(scaler->gather, stream));
	SRT_TRY(srt_buffer_zero(local.buffer, local.offset, sizeof(float), stream));
	for (size_t i = 0; i < ngrads; i++) {
		SRT_TRY(read_grad(grads, i, &grad, &sparse));
		SRT_TRY(unscale_grad(scaler, &grad, stream));
	}
	if (scaler->gather != NULL)
		SRT_TRY(srt_coll_start(scaler->gather, NULL, stream));
	SRT_TRY(srt_op_absmax(found_inf, scaler->gather != NULL ? scaler->all_found : local,
			      scaler->world, 0, stream));
	return add_user(scaler, found_inf.buffer, found_inf.offset, found_inf, stream);
}

srt_status_t srt_scaler_step_grads(srt_scaler_t *scaler, srt_view_t found_inf)
{
	static const char call[] = "srt_scaler_step_grads";
	srt_scaler_user_t *user;

	SRT_NOT_NULL(scaler);
	user = find_user(scaler, found_inf.buffer, found_inf.offset);
	if (scaler->options.disabled)
		return SRT_OK;
	SRT_TRY(check_in_use(scaler, call));
	SRT_TRY(check_not_stepped(call, user));
	if (user == NULL)
		return srt_fail(SRT_ERR_STATE,
				"%s() before srt_scaler_unscale_grads(): the gradients are scaled",
				call);
	user->stepped = true;
	return SRT_OK;
}
