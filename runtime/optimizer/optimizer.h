/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of the optimizer, shared by the files of this folder and used by the engine:
 *
 *     options.c     options checked by the rules of torch.optim, and completed
 *     optimizer.c   created over a list of parameters, destroyed
 *     runs.c        the list cut into launches, and their tables
 *     coded.c       states in 8 bits
 *     step.c        a step: scalars advanced, launches
 *     muon.c        what Muon does to whole matrices; its steps
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
	size_t segments; /* srt_k_segment_t, or with states in 8 bits srt_k_segment8_t [nparams] */
	size_t groups;   /* srt_k_group_t [nparams]: pairs of decay and factor, at most */
	size_t total;
} srt_optim_layout_t;

/* Parameters that one launch steps: of one group, in the same buffers at equal distances. */
typedef struct srt_optim_run {
	size_t group;
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

/* Who keeps an optimizer, an engine or an optimizer of sharded tensors, and what it does in the
 * functions of <shardrt/optimizer.h>. A function that it does not need is NULL. */
typedef struct srt_optim_owner {
	const char
		*stepped_by; /* the function that steps instead of srt_optim_step(); NULL: none */
	/* Before tables are read or changed. @param[out] home the stream for that. */
	srt_status_t (*enter)(void *owner, const char *call, srt_stream_t *stream,
			      srt_stream_t **home);
	/* After a change on `home`. */
	srt_status_t (*leave)(void *owner, srt_stream_t *home, srt_stream_t *stream);
	/* A learning rate is about to be set, of a group or of SRT_OPTIM_ALL_GROUPS. */
	srt_status_t (*set_lr)(void *owner, size_t group, float lr);
	/* The step info of a group was set. */
	void (*set_info)(void *owner, size_t group);
	/* A field of srt_k_param_state_t was set, which entries past nparams have too. */
	srt_status_t (*set_field)(void *owner, size_t i, size_t field, int32_t value,
				  srt_stream_t *stream);
	/* The updates of all matrices of Muon, of which entries may have parts, are orthogonalised;
	 * NULL: entries are whole, and the optimizer does it. */
	srt_status_t (*orthogonalise)(void *owner, srt_stream_t *stream);
	void (*destroy)(void *owner); /* by srt_optim_destroy() */
} srt_optim_owner_t;

struct srt_optim {
	const srt_optim_owner_t *owner; /* NULL: the program */
	void *owner_arg;                /* of its functions */
	srt_optim_t *twin; /* of parameters on another device, with the same groups; NULL: none */
	size_t nparams;    /* entries that the program counts and names: the first ones */
	srt_device_t *device;
	srt_optim_options_t *groups; /* ngroups, of one kind or of Muon and AdamW */
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
	srt_buffer_t *muon_buffer; /* updates, then srt_muon_work_nbytes(); NULL: as above */
	size_t muon_work;          /* offset of the second part */
};

/* ---- options.c */
/* SRT_ERR_INVALID_ARGUMENT, naming it, unless x is finite and at least 0. */
srt_status_t srt_optim_check_amount(const char *name, double x);
/* A program's options, NULL: the defaults; refuses what torch.optim refuses. */
srt_status_t srt_optim_read_options(const srt_optim_options_t *given, srt_optim_options_t *options);
/* A program's array of options, of kinds that go together. @param[out] groups to be freed. */
srt_status_t srt_optim_read_groups(const srt_optim_options_t *given, size_t ngroups,
				   srt_optim_options_t **groups);
srt_status_t srt_optim_check_schedule(float min_lr, int32_t warmup, int32_t lr_steps,
				      srt_schedule_t schedule, int32_t decay_steps);
srt_status_t srt_optim_check_param(const char *name, float weight_decay, float lr_scale);
/* The weight decay of a parameter: its own, or that of its group. */
float srt_optim_weight_decay(float own, const srt_optim_options_t *group);
/* SRT_ERR_INVALID_ARGUMENT, naming the call and the group, unless groups of both kinds may be in
 * one optimizer. */
srt_status_t srt_optim_check_kinds(const char *call, size_t group, srt_optim_kind_t first,
				   srt_optim_kind_t kind);
/* States of a parameter of the group. */
int srt_optim_count_states(const srt_optim_options_t *group);
/* States of a parameter: those of the group with most. */
int srt_optim_count_states_of(const srt_optim_options_t *groups, size_t ngroups);
/* Sets the error for groups with different state_bits. */
srt_status_t srt_optim_fail_bits(const srt_optim_options_t *one, const srt_optim_options_t *first);

/* ---- optimizer.c */
void srt_optim_plan_tables(size_t nparams, size_t ngroups, bool in_8_bits,
			   srt_optim_layout_t *layout);
/* An optimizer without groups and parameters. */
srt_status_t srt_optim_new(srt_device_t *device, srt_optim_t **optim);
/* Adds a group, of options that were read. */
srt_status_t srt_optim_add_group(srt_optim_t *optim, const srt_optim_options_t *options);
/* Adds the parameters, which were read and checked, and completes the optimizer.
 * @param tables memory for its tables; absent: allocated. */
srt_status_t srt_optim_complete(srt_optim_t *optim, const srt_optim_param_t *params, size_t nparams,
				srt_view_t tables, srt_stream_t *stream);
/* Frees an optimizer of any owner. */
void srt_optim_free(srt_optim_t *optim);

/* ---- runs.c */
/* Sets runs and entries; fails without memory only. */
srt_status_t srt_optim_make_runs(srt_optim_t *optim);
srt_status_t srt_optim_allocate_states(srt_optim_t *optim);
srt_status_t srt_optim_upload_tables(srt_optim_t *optim, srt_stream_t *stream);

/* ---- coded.c: states in 8 bits. state[0] and state[1] of a parameter are codes (SRT_U8), state[2]
 * has pairs of absmax, of exp_avg and exp_avg_sq, by block; or the states are SRT_F32. In a run m
 * and v are bytes and vmax is absmax, from the start of their buffers. */
bool srt_optim_in_8_bits(const srt_optim_t *optim);
/* Whether the states of a tensor with these elements, and rows, are codes. */
bool srt_coded_fits(int64_t whole_nelem, int64_t row_nelem);
/* Blocks of whole rows. */
int64_t srt_coded_blocks(int64_t nelem, int64_t row_nelem);
bool srt_optim_is_coded(const srt_optim_t *optim, const srt_optim_param_t *p);
/* Sets the states of all parameters in state_buffer, unless the caller gave them, and the runs'. */
srt_status_t srt_coded_place_states(srt_optim_t *optim);
/* The segment of an entry; *nblocks: blocks of its run before it, then with it. */
srt_k_segment8_t srt_coded_segment(const srt_optim_t *optim, const srt_optim_entry_t *entry,
				   int64_t *nblocks);
/* Values of state k (0 or 1) of whole rows; absmax is of both states. */
srt_status_t srt_coded_read(srt_view_t codes, srt_view_t absmax, int k, int64_t nelem,
			    int64_t row_nelem, float *elements, srt_stream_t *stream);
srt_status_t srt_coded_write(srt_view_t codes, srt_view_t absmax, int k, int64_t nelem,
			     int64_t row_nelem, const float *elements, srt_stream_t *stream);

/* ---- state.c */
/* The stream for the tables: the owner's. */
srt_status_t srt_optim_enter(const srt_optim_t *optim, const char *call, srt_stream_t *stream,
			     srt_stream_t **home);
srt_status_t srt_optim_leave(const srt_optim_t *optim, srt_stream_t *home, srt_stream_t *stream);
/* The step state of a group in the tables. */
srt_view_t srt_optim_state_view(const srt_optim_t *optim, size_t group);
/* SRT_ERR_STATE if another function steps the parameters. */
srt_status_t srt_optim_check_owner(const srt_optim_t *optim, const char *call);
/* Sets a field of type int32_t of a parameter's srt_k_param_state_t. */
srt_status_t srt_optim_set_field(srt_optim_t *optim, size_t i, size_t field, int32_t value,
				 srt_stream_t *stream);
/* The kind of the optimizer as a whole: Muon if it has such a group. */
srt_optim_kind_t srt_optim_kind(const srt_optim_t *optim);
/* PyTorch's name of state k; "" if the kind has no such state. */
const char *srt_optimizer_state_name(srt_optim_kind_t kind, size_t k);

/* ---- step.c */
/* SRT_ERR_STATE if a group with parameters never got a learning rate. */
srt_status_t srt_optim_check_lr(const srt_optim_t *optim, const char *call);
/* Step counts, learning rates and the clip coefficient: srt_op_step_advance(). */
srt_status_t srt_optim_advance(srt_optim_t *optim, srt_view_t norm, float max_norm,
			       srt_stream_t *stream);
/* Values and states of all but matrices of Muon, then of these. */
srt_status_t srt_optim_apply(srt_optim_t *optim, srt_stream_t *stream);

/* ---- muon.c */
bool srt_optim_has_muon(const srt_optim_t *optim);
/* Bytes of device memory that srt_muon_orthogonalise() works in. */
size_t srt_muon_work_nbytes(int64_t rows, int64_t cols);
/* Raises *nbytes to the scratch that its products need on a stream. */
srt_status_t srt_muon_scratch(srt_device_t *device, int64_t rows, int64_t cols, size_t *nbytes);
/* Orthogonalises x (rows,cols), SRT_BF16, in place. work: SRT_U8, contents undefined. */
srt_status_t srt_muon_orthogonalise(const srt_optim_options_t *options, int64_t rows, int64_t cols,
				    srt_view_t x, srt_view_t work, srt_stream_t *stream);
/* The memory that the list does not give; after srt_optim_make_runs(). */
srt_status_t srt_muon_allocate(srt_optim_t *optim);
/* Steps the matrices of Muon. */
srt_status_t srt_muon_apply(srt_optim_t *optim, srt_stream_t *stream);

#endif
