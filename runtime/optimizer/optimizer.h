/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of the optimizer, shared by the files of this folder and used by the engine:
 *
 *     options.c     options checked by the rules of torch.optim, and completed
 *     optimizer.c   created over a list of parameters, destroyed
 *     runs.c        the list cut into launches, and their tables
 *     step.c        a step: scalars advanced, launches
 *     state.c       what a step changes, read and set
 *
 * A group has its own hyper-parameters and its own srt_k_step_state_t, so it has launches of its
 * parameters only. A table of srt_k_param_state_t has the parameters sorted by group.
 */
#ifndef SRT_RUNTIME_OPTIMIZER_OPTIMIZER_H
#define SRT_RUNTIME_OPTIMIZER_OPTIMIZER_H

#include <stdbool.h>

#include <shardrt/optimizer.h>

#include "base/base.h"
#include "device/device.h"
#include "kernels/step_info.h"
#include "runtime/ops/step.h"

/* Alignment of tables and states, in bytes. */
#define SRT_OPTIM_ALIGN ((size_t)64)

/* Tables of an optimizer in one piece of device memory: offsets in bytes. */
typedef struct srt_optim_layout {
	size_t states;   /* srt_k_step_state_t [ngroups] */
	size_t params;   /* srt_k_param_state_t [nparams] */
	size_t segments; /* srt_k_segment_t [nparams] */
	size_t groups;   /* srt_k_group_t [nparams]: pairs of decay and factor, at most */
	size_t total;
} srt_optim_layout_t;

/* Parameters that one launch steps: of one group, in the same buffers at equal distances. */
typedef struct srt_optim_run {
	int32_t group;
	bool allocates; /* the states are in state_buffer */
	srt_optim_args_t args;
} srt_optim_run_t;

/* A parameter of the list. */
typedef struct srt_optim_entry {
	srt_optim_param_t param; /* with its own weight decay */
	char *name;              /* owned; what param.name points to */
	int32_t slot;            /* index in the table of parameter states */
	int32_t run;             /* index; -1: no elements, or nothing to step */
	int64_t first;           /* elements, from the start of the run */
} srt_optim_entry_t;

struct srt_optim {
	srt_device_t *device;
	srt_optim_options_t *groups; /* ngroups, of one kind */
	size_t ngroups;
	size_t *first_slot; /* by group, and the end: its parameters in the table */
	bool *has_lr;       /* by group: an option or a call set a learning rate */
	int nstates;
	srt_optim_entry_t *entries;
	size_t nentries;
	srt_optim_run_t *runs;
	size_t nruns;
	srt_view_t tables; /* the caller's, or table_buffer */
	srt_optim_layout_t layout;
	srt_buffer_t *table_buffer, *state_buffer; /* NULL: the caller's memory */
};

/* ---- options.c */
/* SRT_ERR_INVALID_ARGUMENT, naming it, unless x is finite and at least 0. */
srt_status_t srt_optim_check_amount(const char *name, double x);
/* A program's options, NULL: the defaults; refuses what torch.optim refuses. */
srt_status_t srt_optim_read_options(const srt_optim_options_t *given, srt_optim_options_t *options);
/* A program's array of options, which must be of one kind. @param[out] groups to be freed. */
srt_status_t srt_optim_read_groups(const srt_optim_options_t *given, size_t ngroups,
				   srt_optim_options_t **groups);
srt_status_t srt_optim_check_schedule(float min_lr, int32_t warmup, int32_t lr_steps,
				      srt_schedule_t schedule, int32_t decay_steps);
srt_status_t srt_optim_check_param(const char *name, float weight_decay, float lr_scale);
/* The weight decay of a parameter: its own, or that of its group. */
float srt_optim_weight_decay(float own, const srt_optim_options_t *group);
/* States of a parameter: those of the group with most. */
int srt_optim_count_states_of(const srt_optim_options_t *groups, size_t ngroups);

/* ---- optimizer.c */
void srt_optim_plan_tables(size_t nparams, size_t ngroups, srt_optim_layout_t *layout);
/* As srt_optim_create(), of groups and parameters that were read and checked, with tables in the
 * caller's memory; absent: allocated. */
srt_status_t srt_optim_create_in(srt_device_t *device, const srt_optim_options_t *groups,
				 size_t ngroups, const srt_optim_param_t *params, size_t nparams,
				 srt_view_t tables, srt_stream_t *stream, srt_optim_t **optim);

/* ---- runs.c */
/* Sets runs and entries; fails without memory only. */
srt_status_t srt_optim_make_runs(srt_optim_t *optim);
srt_status_t srt_optim_allocate_states(srt_optim_t *optim);
srt_status_t srt_optim_upload_tables(srt_optim_t *optim, srt_stream_t *stream);

/* ---- state.c */
/* The step state of a group in device memory: srt_k_step_state_t, SRT_U8. */
srt_view_t srt_optim_step_state(const srt_optim_t *optim, size_t group);

/* ---- step.c */
/* SRT_ERR_STATE if a group with parameters never got a learning rate, which `setter` sets. */
srt_status_t srt_optim_check_lr(const srt_optim_t *optim, const char *call, const char *setter);
/* Step counts, learning rates and the clip coefficient: srt_op_step_advance(). */
srt_status_t srt_optim_advance(srt_optim_t *optim, srt_view_t norm, float max_norm,
			       srt_stream_t *stream);
/* Values and states. */
srt_status_t srt_optim_apply(srt_optim_t *optim, srt_stream_t *stream);

#endif
