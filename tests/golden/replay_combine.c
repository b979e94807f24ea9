/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library does where features meet (replay_net.h): each function does one kind of
 * combination on all ranks, checks what every one of its rows must hold, and gives the fact.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_net.h"

#define CHECK_ROW(holds, ...) verdict_exact(job->verdict, holds, __VA_ARGS__)

static bool is_near(double got, double want, double tolerance)
{
	return fabs(got - want) <= tolerance * fabs(want);
}

/* ---- rows that are refused -------------------------------------------------------------- */

srt_status_t combine_refuse(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	double *all = job->all[0];
	srt_status_t status;
	net_t net;

	status = net_create(&net, job, recipe);
	if (status == SRT_OK)
		status = net_pass(&net, 0, 1);
	if (status == SRT_OK)
		status = net_step(&net);
	ours->works = status == SRT_OK;
	CHECK_ROW(status == SRT_OK || strstr(srt_error_last(), recipe->words) != NULL,
		  "%s: the message is '%s', without '%s'", job->row, srt_error_last(),
		  recipe->words);
	SRT_TRY(net_gather(job, (double)status, all));
	for (int r = 0; r < job->world; r++)
		CHECK_ROW(all[r] == (double)SRT_ERR_INVALID_ARGUMENT, "%s: rank %d has status %g",
			  job->row, r, all[r]);
	net_destroy(&net);
	return SRT_OK;
}

/* ---- rows about a step ------------------------------------------------------------------ */

/* By parameter. */
typedef struct values {
	float *x[16];
} values_t;

static void values_free(values_t *v)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(v->x); i++)
		free(v->x[i]);
}

static srt_status_t values_get(net_t *net, values_t *v)
{
	srt_param_t *p;

	for (size_t i = 0; (p = net_param(net, i)) != NULL; i++)
		SRT_TRY(net_get(net, p, SRT_PARAM_VALUE, &v->x[i]));
	return SRT_OK;
}

/* A step changes all parameters that are not frozen; offload and resharding change no bit of it. */
srt_status_t combine_step(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	values_t before = { 0 }, after[2] = { 0 };
	net_recipe_t variant = *recipe;
	srt_param_t *p;
	net_t net;

	ours->works = true;
	variant.offload = false;
	variant.reshard = 0;
	for (int k = 0; k < 2; k++) {
		SRT_TRY(net_create(&net, job, k == 0 ? &variant : recipe));
		if (k == 0)
			SRT_TRY(values_get(&net, &before));
		SRT_TRY(net_pass(&net, 0, 1));
		SRT_TRY(net_finish(&net));
		SRT_TRY(net_step(&net));
		SRT_TRY(values_get(&net, &after[k]));
		for (size_t i = 0; k == 1 && (p = net_param(&net, i)) != NULL; i++) {
			const size_t nbytes = (size_t)srt_param_nelem(p) * sizeof(float);
			const bool has_changed = memcmp(before.x[i], after[1].x[i], nbytes) != 0;

			CHECK_ROW(has_changed == (srt_param_requires_grad(p) == 1), "%s: '%s' %s",
				  job->row, srt_param_name(p),
				  has_changed ? "was changed" : "was not changed");
			CHECK_ROW(!memcmp(after[0].x[i], after[1].x[i], nbytes),
				  "%s: '%s' has other bits", job->row, srt_param_name(p));
		}
		net_destroy(&net);
	}
	values_free(&before);
	values_free(&after[0]);
	values_free(&after[1]);
	return SRT_OK;
}

/* Resharding to groups whose size divides the number of shards is accepted, other sizes are
 * refused. One shard is not divided: all sizes are accepted. */
srt_status_t combine_reshard(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	const int nshards = net_count_shards(job, recipe), group = net_reshard(job, recipe);

	return nshards > 1 && nshards % group != 0 ? combine_refuse(job, recipe, ours) :
						     combine_step(job, recipe, ours);
}

/* The dtype of the output; statistics are updated, and the step changes the parameters. */
srt_status_t combine_normalise(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	unsigned char mean[64] = { 0 };
	static const unsigned char zero[64];
	net_t net;

	SRT_TRY(combine_step(job, recipe, ours));
	SRT_TRY(net_create(&net, job, recipe));
	SRT_TRY(net_pass(&net, 0, 1));
	SRT_TRY(srt_unit_buffer_get(net.mean, mean, job->stream));
	CHECK_ROW(memcmp(mean, zero, sizeof(zero)) != 0, "%s: running_mean is 0", job->row);
	snprintf(ours->fact, ours->nfact, "torch.%s",
		 net.output_dtype == SRT_F16  ? "float16" :
		 net.output_dtype == SRT_BF16 ? "bfloat16" :
						"float32");
	net_destroy(&net);
	return SRT_OK;
}

/* ---- rows about the norm ---------------------------------------------------------------- */

/* Clips the gradients of one engine: the norm counts each parameter once, on all ranks alike. */
static srt_status_t clip_engine(net_t *net, srt_engine_t *engine, double *norm)
{
	net_job_t *job = net->job;
	const int p = net->recipe->norm_p;
	const double most = 0.125, tolerance = net_stored(net->recipe) == SRT_F32 ? 1e-5 : 1e-2;
	double *all = job->all[0], clipped;
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	SRT_TRY(net_norm(net, engine, p, norm));
	SRT_TRY(srt_engine_clip(engine, p, (float)most, job->stream));
	SRT_TRY(srt_engine_get_step_info(engine, &state, job->stream));
	SRT_TRY(net_norm(net, engine, p, &clipped));
	CHECK_ROW(is_near((double)state.grad_norm, *norm, 1e-5), "%s: the norm is %.9g, not %.9g",
		  job->row, (double)state.grad_norm, *norm);
	CHECK_ROW(*norm > 2 * most && is_near(clipped, most, tolerance),
		  "%s: the norm is %.9g, then %.9g", job->row, *norm, clipped);
	SRT_TRY(net_gather(job, (double)state.grad_norm, all));
	for (int r = 0; r < job->world; r++)
		CHECK_ROW(all[r] == all[0], "%s: the norm is %.9g on rank %d, not %.9g", job->row,
			  all[r], r, all[0]);
	return SRT_OK;
}

static srt_status_t clip_net(net_job_t *job, const net_recipe_t *recipe, double *norm)
{
	double of_ignored;
	net_t net;

	SRT_TRY(net_create(&net, job, recipe));
	SRT_TRY(net_pass(&net, 0, 1));
	SRT_TRY(net_finish(&net));
	SRT_TRY(clip_engine(&net, net.engine, norm));
	if (net.ignored != NULL)
		SRT_TRY(clip_engine(&net, net.ignored, &of_ignored));
	SRT_TRY(net_step(&net));
	net_destroy(&net);
	return SRT_OK;
}

/* The norm, also on a mesh: that of the same layers on all ranks without one. */
srt_status_t combine_clip(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	const double tolerance = net_stored(recipe) == SRT_F32 ? 1e-5 : 1e-2;
	net_recipe_t flat = *recipe;
	double norm, want;

	flat.mesh = NET_FLAT;
	SRT_TRY(clip_net(job, recipe, &norm));
	SRT_TRY(clip_net(job, &flat, &want));
	CHECK_ROW(is_near(norm, want, tolerance), "%s: the norm is %.9g, and %.9g without a mesh",
		  job->row, norm, want);
	ours->works = true;
	snprintf(ours->fact, ours->nfact, "DTensor float32 (Replicate(),%s",
		 recipe->mesh == NET_FLAT ? ")" : " Replicate())");
	return SRT_OK;
}

/* ---- rows about the scaler -------------------------------------------------------------- */

/* What a scaler found on each rank, and which ranks skip the step. */
static srt_status_t describe_found(net_t *net, net_fact_t *ours)
{
	net_job_t *job = net->job;
	double *all = job->all[0], *skipped = job->all[1];
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	float found;
	size_t used;

	SRT_TRY(srt_scaler_get_found_inf(net->scaler, &found, job->stream));
	SRT_TRY(net_gather(job, found != 0, all));
	SRT_TRY(net_step(net));
	SRT_TRY(srt_engine_get_step_info(net->engine, &state, job->stream));
	SRT_TRY(net_gather(job, state.skipped, skipped));
	used = (size_t)snprintf(ours->fact, ours->nfact, "found_inf.item() by rank [");
	for (int r = 0; r < job->world; r++) {
		used += (size_t)snprintf(ours->fact + used, ours->nfact - used, "%s%.1f",
					 r ? ", " : "", all[r]);
		CHECK_ROW(all[r] == (net->recipe->spoiled != NULL ? 1 : 0), "%s: rank %d found %g",
			  job->row, r, all[r]);
		CHECK_ROW(net->ignored != NULL || skipped[r] == all[r],
			  "%s: rank %d found %g, skipped %g", job->row, r, all[r], skipped[r]);
	}
	snprintf(ours->fact + used, ours->nfact - used, "]");
	return SRT_OK;
}

srt_status_t combine_find(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	net_t net;

	ours->works = true;
	SRT_TRY(net_create(&net, job, recipe));
	SRT_TRY(net_pass(&net, 0, 1));
	SRT_TRY(net_finish(&net));
	SRT_TRY(srt_scaler_unscale(net.scaler, net.engine, job->stream));
	SRT_TRY(describe_found(&net, ours));
	net_destroy(&net);
	return SRT_OK;
}

/* A gradient that no other rank has is checked as one of the program's own: all ranks find what one
 * of them has, and found_inf tells the program's optimizer. */
srt_status_t combine_find_ignored(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	net_recipe_t variant = *recipe;
	srt_buffer_t *found_inf;
	float found;
	net_t net;

	ours->works = true;
	SRT_TRY(srt_buffer_create(srt_context_device(job->context), SRT_MEM_DEVICE, sizeof(float),
				  "found_inf", &found_inf));
	for (int k = 0; k < 2; k++) {
		srt_scaler_grad_t grad = { .size = sizeof(srt_scaler_grad_t), .name = "0.bias" };

		variant.spoiled = k == 0 ? NULL : "0.bias";
		SRT_TRY(net_create(&net, job, &variant));
		SRT_TRY(net_pass(&net, 0, 1));
		SRT_TRY(net_finish(&net));
		grad.grad = test_local(net_find(&net, "0.bias"), SRT_PARAM_GRAD);
		grad.nelem = srt_param_nelem(net_find(&net, "0.bias"));
		SRT_TRY(srt_scaler_unscale(net.scaler, net.engine, job->stream));
		SRT_TRY(srt_scaler_unscale_grads(net.scaler, srt_view(found_inf, 0, SRT_F32), &grad,
						 1, job->stream));
		SRT_TRY(srt_scaler_step_grads(net.scaler, srt_view(found_inf, 0, SRT_F32)));
		SRT_TRY(describe_found(&net, ours));
		SRT_TRY(srt_buffer_copy_to_host(&found, found_inf, 0, sizeof(found), job->stream));
		CHECK_ROW((found != 0) == (k == 1), "%s: the optimizer is told %g", job->row,
			  (double)found);
		net_destroy(&net);
	}
	srt_buffer_destroy(found_inf);
	return SRT_OK;
}

/* ---- rows about gradients of several micro-batches ---------------------------- */

/* The gradients that a program can read after a micro-batch that is not all-reduced. */
srt_status_t combine_count(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	int ngrads = 0, nlast = 0, nparams = 0;
	srt_param_t *p;
	net_t net;

	ours->works = true;
	SRT_TRY(net_create(&net, job, recipe));
	SRT_TRY(net_pass(&net, 0, 2));
	for (size_t i = 0; (p = net_param(&net, i)) != NULL; i++, nparams++)
		ngrads += test_local(p, SRT_PARAM_GRAD).buffer != NULL;
	SRT_TRY(net_pass(&net, 1, 2));
	SRT_TRY(net_finish(&net));
	for (size_t i = 0; (p = net_param(&net, i)) != NULL; i++)
		nlast += test_local(p, SRT_PARAM_GRAD).buffer != NULL;
	CHECK_ROW(nlast == nparams, "%s: %d gradients of %d in the end", job->row, nlast, nparams);
	snprintf(ours->fact, ours->nfact, "parameters with .grad: %d of %d", ngrads, nparams);
	net_destroy(&net);
	return SRT_OK;
}

/* srt_engine_reset() after a micro-batch that is not reduced. */
srt_status_t combine_drop(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours)
{
	double sum[2];
	net_t net;

	ours->works = true;
	for (int k = 0; k < 2; k++) {
		SRT_TRY(net_create(&net, job, recipe));
		if (k == 1) {
			SRT_TRY(net_pass(&net, 0, 2));
			SRT_TRY(srt_engine_reset(net.engine));
		}
		SRT_TRY(net_pass(&net, 0, 1));
		SRT_TRY(net_finish(&net));
		SRT_TRY(net_sum(&net, &sum[k]));
		net_destroy(&net);
	}
	CHECK_ROW(fabs(sum[0]) > 1, "%s: the gradients add up to %g", job->row, sum[0]);
	snprintf(ours->fact, ours->nfact,
		 "gradient after zero_grad and one more micro-batch / "
		 "gradient of one micro-batch: %.3g",
		 sum[1] / sum[0]);
	return SRT_OK;
}
