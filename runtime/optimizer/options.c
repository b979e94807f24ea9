/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hyper-parameters: checked by the rules of torch.optim, and completed with its defaults.
 */
#include "runtime/optimizer/optimizer.h"

static const char *const kind_names[] = {
	[SRT_OPTIMIZER_SGD] = "SGD",
	[SRT_OPTIMIZER_ADAM] = "Adam",
	[SRT_OPTIMIZER_ADAMW] = "AdamW",
};

/* Finite and at least 0; the comparisons are false for NaN. */
static bool is_amount(double x)
{
	return x >= 0.0 && x <= 0x1.fffffep127;
}

srt_status_t srt_optim_check_amount(const char *name, double x)
{
	if (is_amount(x))
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s is %g, must be finite and at least 0", name,
			x);
}

double srt_optim_value(double option)
{
	return option == SRT_OPTION_ZERO ? 0.0 : option;
}

/* Refuses a hyper-parameter of another optimizer: it would have no effect. */
static srt_status_t check_unused(srt_optimizer_t kind, const srt_group_options_t *o)
{
	const struct {
		const char *name;
		double value;
		bool of_sgd;
	} options[] = {
		{ "momentum", (double)o->momentum, true },
		{ "dampening", (double)o->dampening, true },
		{ "nesterov", o->nesterov, true },
		{ "beta1", o->beta1, false },
		{ "beta2", o->beta2, false },
		{ "eps", (double)o->eps, false },
		{ "amsgrad", o->amsgrad, false },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(options); i++) {
		if (options[i].value == 0.0 || options[i].of_sgd == (kind == SRT_OPTIMIZER_SGD))
			continue;
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option %s is %g, but the optimizer is %s: only %s",
				options[i].name, options[i].value, kind_names[kind],
				options[i].of_sgd ? "SGD has it" : "Adam and AdamW have it");
	}
	return SRT_OK;
}

static srt_status_t check_adam(const srt_group_options_t *o)
{
	const double beta1 = srt_optim_value(o->beta1), beta2 = srt_optim_value(o->beta2);

	if (beta1 >= 0.0 && beta1 < 1.0 && beta2 >= 0.0 && beta2 < 1.0)
		return srt_optim_check_amount("option eps", srt_optim_value((double)o->eps));
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"options beta1 %g and beta2 %g must be in [0, 1), or SRT_OPTION_ZERO",
			beta1, beta2);
}

static srt_status_t check_sgd(const srt_group_options_t *o)
{
	SRT_TRY(srt_optim_check_amount("option momentum", (double)o->momentum));
	if (!is_amount((double)o->dampening) && !is_amount(-(double)o->dampening))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option dampening is %g, must be finite",
				(double)o->dampening);
	if (o->nesterov && (o->momentum == 0.0f || o->dampening != 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option nesterov needs a momentum (now %g) and a dampening of 0 "
				"(now %g)",
				(double)o->momentum, (double)o->dampening);
	return SRT_OK;
}

srt_status_t srt_optim_check_group(srt_optimizer_t kind, const srt_group_options_t *o)
{
	SRT_TRY(srt_check_reserved(o->reserved, "srt_group_options_t"));
	SRT_TRY(srt_optim_check_amount("option lr", (double)o->lr));
	SRT_TRY(srt_optim_check_amount("option weight_decay", (double)o->weight_decay));
	if (kind == SRT_OPTIMIZER_NONE)
		return SRT_OK;
	SRT_TRY(check_unused(kind, o));
	return kind == SRT_OPTIMIZER_SGD ? check_sgd(o) : check_adam(o);
}

srt_status_t srt_optim_check_param(const char *name, float weight_decay, float lr_scale)
{
	srt_status_t status;

	status = srt_optim_check_amount("option weight_decay",
					srt_optim_value((double)weight_decay));
	if (status == SRT_OK)
		status = srt_optim_check_amount("option lr_scale",
						srt_optim_value((double)lr_scale));
	if (status != SRT_OK)
		srt_fail_prefix(status, "parameter '%s': ", name);
	return status;
}

srt_status_t srt_optim_check_schedule(float min_lr, int32_t warmup, int32_t lr_steps,
				      srt_schedule_t schedule, int32_t decay_steps)
{
	SRT_TRY(srt_optim_check_amount("option min_lr", (double)min_lr));
	if (warmup < 0 || lr_steps < 0 || decay_steps < 0 ||
	    (unsigned)schedule > SRT_SCHEDULE_CONSTANT)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"options warmup %d, lr_steps %d and decay_steps %d must be at least "
			"0, option schedule (%d) a value of its enum",
			(int)warmup, (int)lr_steps, (int)decay_steps, (int)schedule);
	if (lr_steps > 0 && (warmup > lr_steps || decay_steps > lr_steps))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options warmup %d and decay_steps %d must be at most lr_steps, "
				"which is %d: the schedule ends there",
				(int)warmup, (int)decay_steps, (int)lr_steps);
	return SRT_OK;
}

void srt_optim_complete_group(srt_optimizer_t kind, srt_group_options_t *o)
{
	if (kind == SRT_OPTIMIZER_SGD || kind == SRT_OPTIMIZER_NONE)
		return;
	if (o->beta1 == 0.0)
		o->beta1 = 0.9;
	if (o->beta2 == 0.0)
		o->beta2 = 0.999;
	if (o->eps == 0.0f)
		o->eps = 1e-8f;
}

int srt_optim_count_states_of(srt_optimizer_t kind, const srt_group_options_t *groups,
			      size_t ngroups)
{
	int most = 0;

	for (size_t g = 0; g < ngroups; g++) {
		int n = 0;

		if (kind == SRT_OPTIMIZER_SGD)
			n = groups[g].momentum != 0.0f ? 1 : 0;
		else if (kind != SRT_OPTIMIZER_NONE)
			n = groups[g].amsgrad ? 3 : 2;
		most = n > most ? n : most;
	}
	return most;
}
