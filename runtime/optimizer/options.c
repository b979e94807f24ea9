/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hyper-parameters: read, and checked by the rules of torch.optim.
 */
#include <stdlib.h>

#include "runtime/optimizer/optimizer.h"

static const char *const kind_names[] = {
	[SRT_OPTIM_SGD] = "SGD",
	[SRT_OPTIM_ADAM] = "Adam",
	[SRT_OPTIM_ADAMW] = "AdamW",
	[SRT_OPTIM_MUON] = "Muon",
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

/* Refuses a hyper-parameter of another optimizer: it would have no effect, and the defaults of the
 * other fields are that optimizer's. */
static srt_status_t check_unused(const srt_optim_options_t *o)
{
	enum { SGD = 1, ADAM = 2, MUON = 4 };
	const struct {
		const char *name;
		double value;
		int kinds; /* that have it */
	} options[] = {
		{ "momentum", o->momentum, SGD | MUON },
		{ "dampening", (double)o->dampening, SGD },
		{ "nesterov", o->nesterov, SGD | MUON },
		{ "beta1", o->beta1, ADAM },
		{ "beta2", o->beta2, ADAM },
		{ "eps", (double)o->eps, ADAM | MUON },
		{ "amsgrad", o->amsgrad, ADAM },
		{ "state_bits", o->state_bits, ADAM },
		{ "maximize", o->maximize, SGD | ADAM },
		{ "ns_steps", o->ns_steps, MUON },
		{ "ns_coefficients", (double)o->ns_coefficients[0], MUON },
		{ "adjust", (double)o->adjust, MUON },
	};
	static const char *const have[] = {
		[SGD] = "SGD has it",
		[ADAM] = "Adam and AdamW have it",
		[SGD | ADAM] = "SGD, Adam and AdamW have it",
		[MUON] = "Muon has it",
		[SGD | MUON] = "SGD and Muon have it",
		[ADAM | MUON] = "Adam, AdamW and Muon have it",
	};
	static const char *const inits[] = { [SGD] = "SGD by SRT_OPTIM_SGD_INIT",
					     [ADAM] = "AdamW by SRT_OPTIM_OPTIONS_INIT",
					     [MUON] = "Muon by SRT_OPTIM_MUON_INIT" };
	const int kind = o->kind == SRT_OPTIM_SGD ? SGD : o->kind == SRT_OPTIM_MUON ? MUON : ADAM;

	for (size_t i = 0; i < SRT_ARRAY_LEN(options); i++) {
		if (options[i].value == 0.0 || (options[i].kinds & kind) != 0)
			continue;
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option %s is %g, but the optimizer is %s: only %s; initialise the "
				"options of %s",
				options[i].name, options[i].value, kind_names[o->kind],
				have[options[i].kinds], inits[kind]);
	}
	return SRT_OK;
}

static srt_status_t check_adam(const srt_optim_options_t *o)
{
	if (o->state_bits != 0 && o->state_bits != 8)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option state_bits is %d, must be 0 or 8",
				o->state_bits);
	if (o->state_bits == 8 && o->amsgrad)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"options amsgrad and state_bits 8 are both set: max_exp_avg_sq has "
				"no form in 8 bits");
	if (o->beta1 >= 0.0 && o->beta1 < 1.0 && o->beta2 >= 0.0 && o->beta2 < 1.0)
		return srt_optim_check_amount("option eps", (double)o->eps);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "options beta1 %g and beta2 %g must be in [0, 1)",
			o->beta1, o->beta2);
}

static srt_status_t check_sgd(const srt_optim_options_t *o)
{
	SRT_TRY(srt_optim_check_amount("option momentum", o->momentum));
	if (!is_amount((double)o->dampening) && !is_amount(-(double)o->dampening))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option dampening is %g, must be finite",
				(double)o->dampening);
	if (o->nesterov && (o->momentum == 0.0 || o->dampening != 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option nesterov needs a momentum (now %g) and a dampening of 0 "
				"(now %g)",
				o->momentum, (double)o->dampening);
	return SRT_OK;
}

static srt_status_t check_muon(const srt_optim_options_t *o)
{
	SRT_TRY(srt_optim_check_amount("option momentum", o->momentum));
	SRT_TRY(srt_optim_check_amount("option eps", (double)o->eps));
	if (o->ns_steps < 0 || o->ns_steps > 99)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option ns_steps is %d, must be 0 to 99",
				o->ns_steps);
	for (size_t i = 0; i < SRT_ARRAY_LEN(o->ns_coefficients); i++) {
		const double c = (double)o->ns_coefficients[i];

		if (!is_amount(c) && !is_amount(-c))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"option ns_coefficients[%zu] is %g, must be finite", i, c);
	}
	if ((unsigned)o->adjust > SRT_MUON_SPECTRAL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option adjust is %d, which is not an srt_muon_adjust_t",
				(int)o->adjust);
	return SRT_OK;
}

srt_status_t srt_optim_read_options(const srt_optim_options_t *given, srt_optim_options_t *o)
{
	*o = (srt_optim_options_t)SRT_OPTIM_OPTIONS_INIT;
	SRT_TRY(srt_struct_read(o, sizeof(*o), given, "srt_optim_options_t"));
	if ((unsigned)o->kind > SRT_OPTIM_MUON)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"option kind of an optimizer is %d, which is not an srt_optim_kind_t",
			(int)o->kind);
	SRT_TRY(srt_optim_check_amount("option lr", (double)o->lr));
	SRT_TRY(srt_optim_check_amount("option weight_decay", (double)o->weight_decay));
	SRT_TRY(srt_optim_check_schedule(o->min_lr, o->warmup, o->lr_steps, o->schedule,
					 o->decay_steps));
	if (o->kind == SRT_OPTIM_NONE) {
		o->state_bits = 0;
		return SRT_OK;
	}
	SRT_TRY(check_unused(o));
	if (o->kind == SRT_OPTIM_MUON)
		return check_muon(o);
	return o->kind == SRT_OPTIM_SGD ? check_sgd(o) : check_adam(o);
}

srt_status_t srt_optim_fail_bits(const srt_optim_options_t *one, const srt_optim_options_t *first)
{
	if (one->kind == SRT_OPTIM_MUON || first->kind == SRT_OPTIM_MUON)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"Muon has no states in 8 bits: option state_bits of the groups of "
				"AdamW next to it must be 0");
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"option state_bits of a group is %d, that of group 0 is %d: it must be the "
			"same in all groups",
			one->state_bits, first->state_bits);
}

srt_status_t srt_optim_read_groups(const srt_optim_options_t *given, size_t ngroups,
				   srt_optim_options_t **out)
{
	srt_optim_options_t *groups;
	srt_status_t status = SRT_OK;

	if (ngroups == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"ngroups is 0: an optimizer needs at least one group");
	groups = srt_calloc(ngroups, sizeof(*groups), "optimizer groups");
	if (groups == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t g = 0; status == SRT_OK && g < ngroups; g++) {
		status = srt_optim_read_options(srt_struct_at(given, g), &groups[g]);
		if (status == SRT_OK && groups[g].kind == SRT_OPTIM_NONE)
			status = srt_fail(SRT_ERR_INVALID_ARGUMENT,
					  "option kind of group %zu is %d, SRT_OPTIM_NONE, which "
					  "only an engine has",
					  g, (int)groups[g].kind);
		if (status == SRT_OK)
			status = srt_optim_check_kinds("creating an optimizer", g, groups[0].kind,
						       groups[g].kind);
		if (status == SRT_OK && groups[g].state_bits != groups[0].state_bits)
			status = srt_optim_fail_bits(&groups[g], &groups[0]);
	}
	if (status == SRT_OK)
		*out = groups;
	else
		free(groups);
	return status;
}

srt_status_t srt_optim_check_kinds(const char *call, size_t group, srt_optim_kind_t first,
				   srt_optim_kind_t kind)
{
	const bool mixed = (first == SRT_OPTIM_ADAMW && kind == SRT_OPTIM_MUON) ||
			   (first == SRT_OPTIM_MUON && kind == SRT_OPTIM_ADAMW);

	if (kind == first || mixed)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: option kind of group %zu is %d, that of group 0 is %d: must be the "
			"same, or one of AdamW (%d) and one of Muon (%d)",
			call, group, (int)kind, (int)first, (int)SRT_OPTIM_ADAMW,
			(int)SRT_OPTIM_MUON);
}

float srt_optim_weight_decay(float own, const srt_optim_options_t *group)
{
	return own == SRT_OPTIM_GROUP_WEIGHT_DECAY ? group->weight_decay : own;
}

srt_status_t srt_optim_check_param(const char *name, float weight_decay, float lr_scale)
{
	srt_status_t status = SRT_OK;

	if (weight_decay != SRT_OPTIM_GROUP_WEIGHT_DECAY)
		status = srt_optim_check_amount("option weight_decay", (double)weight_decay);
	if (status == SRT_OK)
		status = srt_optim_check_amount("option lr_scale", (double)lr_scale);
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

int srt_optim_count_states(const srt_optim_options_t *group)
{
	if (group->kind == SRT_OPTIM_NONE)
		return 0;
	if (group->kind == SRT_OPTIM_SGD)
		return group->momentum != 0.0 ? 1 : 0;
	return group->kind == SRT_OPTIM_MUON ? 1 : group->amsgrad ? 3 : 2;
}

int srt_optim_count_states_of(const srt_optim_options_t *groups, size_t ngroups)
{
	int most = 0;

	for (size_t g = 0; g < ngroups; g++) {
		const int n = srt_optim_count_states(&groups[g]);

		most = n > most ? n : most;
	}
	return most;
}
