/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of shardrt-train.
 *
 *     options_table.c    the options: one row for each
 *     options.c          parses the command line, prints --help
 *     options_check.c    checks that involve several options
 *     engine_options.c   what the options determine of the engine
 *     init.c             the first values: initial ones, or those of a file
 *     setup.c            makes the trainer: sizes, engine, tapes, memory
 *     data.c             opens what is trained on: data.h
 *     saves.c            what is saved between two steps and after the last one
 *     save.c             writes the parameters; the last save, elsewhere if it fails
 *     save_folder.c      writes the folder of a model of Hugging Face
 *     checkpoint.c       saves sharded checkpoints
 *     resume.c           goes on from a checkpoint
 *     folder.c           the names in the folder of checkpoints
 *     steps.c            a training step, validation
 *     generate.c         generated text
 *     report.c           progress, the JSON log
 *     train.c            main program: steps, signals, errors
 *
 * All ranks make the same calls. Only rank 0 prints, and only rank 0 reads results of the device.
 */
#ifndef SRT_TOOLS_TRAIN_TRAIN_H
#define SRT_TOOLS_TRAIN_TRAIN_H

#include <stdbool.h>
#include <stdio.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/generate.h>
#include <shardrt/models/families.h>
#include <shardrt/models/tokenizer.h>
#include "tools/lora.h"
#include "tools/model_sizes.h"
#include "tools/model_source.h"
#include "tools/ranks.h"
#include "tools/train/options.h"

/** All ranks check the losses once in so many steps; no rank waits for them in between. */
#define TRAIN_WATCH 64

/** Training has diverged after this many steps in succession whose loss is not finite, all of them
 * skipped. */
#define TRAIN_STUCK 4

/** Results of a step for the host, in pinned memory. */
typedef struct train_seen {
	float totals[TRAIN_WATCH]; /* sums of losses: step s at (s - 1) % TRAIN_WATCH */
	float scales[TRAIN_WATCH]; /* of a loss scaler after the same steps */
	unsigned char states[TRAIN_WATCH][SRT_STEP_INFO_NBYTES]; /* of the engine */
} train_seen_t;

/** A step whose results are being copied to the host. */
typedef struct train_pending {
	int64_t step; /* 0: none */
	int reported;
	uint64_t launches; /* of all steps so far */
} train_pending_t;

/** Rows of tokens: data.h. */
typedef struct train_data train_data_t;

/** What the ranks' data are compared by, and those of a checkpoint. */
typedef struct train_data_id {
	uint64_t ntokens, hash;
} train_data_id_t;

/** A run. Fields are NULL until they are created. */
typedef struct trainer {
	train_options_t opt;
	srt_decoder_config_t config;
	int64_t length; /* tokens of a sequence, at most config.context */
	int rank, world;
	int data_rank,
		ndata; /* among the ranks with different data; tensor-parallel ranks share it */
	int tensor_ranks;
	srt_context_t *context;
	srt_device_t *device; /* the context's */
	srt_comm_t *comm;     /* the context's */
	srt_mesh_t *mesh;     /* NULL: none */
	srt_stream_t *stream;
	const train_data_t *data; /* NULL: there is nothing to train or to validate on */
	const char *data_path;    /* of it, for messages */
	train_data_id_t data_id;
	int counts_bytes;                  /* tokens are bytes */
	struct srt_text *text;             /* of train_text */
	struct srt_sft *sft, *sft_val;     /* of train_sft: --sft and --val */
	const struct srt_sft *sft_windows; /* that of them which is validated on */
	tool_model_t model;                /* of --init */
	tool_lora_t lora;                  /* of --lora or --adapter */
	srt_engine_t *engine;
	srt_scaler_t *scaler; /* NULL: the loss is not scaled */
	srt_decoder_t *decoder;
	srt_tape_t *train_tape, *eval_tape;
	srt_decoder_io_t train_io, eval_io;
	srt_generator_t *generator;
	srt_tokenizer_t *tokenizer; /* of the generated text; NULL: its tokens are bytes */
	int32_t *prompt;            /* (nprompt) its first tokens */
	size_t nprompt;
	srt_buffer_t *arena;       /* activations, of one tape at a time */
	size_t scratch_nbytes;     /* of the stream, for the tapes */
	srt_buffer_t *losses;      /* (accumulate * micro * context) of a step */
	srt_buffer_t *eval_losses; /* of this rank's part of the validation text */
	srt_buffer_t *results;     /* train_seen_t of the steps since the last check */
	srt_buffer_t *eval_total;  /* (1) sum of losses of a validation */
	srt_buffer_t *seen;        /* train_seen_t of two steps, in turn */
	srt_event_t *arrived[2];   /* recorded after the copy to `seen` */
	train_pending_t pending;
	int overlaps; /* streams are asynchronous: results are read one step later */
	int32_t *ids, *targets, *positions; /* (accumulate * micro * context) of the next step, on
					     * the host; positions of several documents */
	int64_t ntargets[TRAIN_WATCH];      /* predictions of step s at (s - 1) % TRAIN_WATCH */
	int data_failed;                    /* the data cannot be read any more; t->why */
	int64_t micro;                      /* sequences of a micro-batch on this rank */
	int64_t done;         /* steps so far, those of a run that was resumed included */
	int64_t checkpointed; /* last step that a checkpoint has, or will have */
	srt_checkpoint_write_t *writing; /* the checkpoint that is being written; NULL: none */
	int all_written;                 /* by all ranks, when they last agreed */
	int stopping_rank;               /* whose signal or text ends training */
	int made_room;                   /* on rank 0, after a save that found no space */
	int save_failed;     /* the last save is not where it was wanted; this was reported */
	uint64_t run;        /* the number of the run, of its checkpoints too; on rank 0 */
	int knows_run;       /* else checkpoints of any run that is like this one are of the run */
	int checkpoint_lock; /* of the folder, on rank 0; 0: none */
	int64_t watched;     /* last step whose loss was checked */
	int32_t skipped;     /* steps that were skipped until then */
	int nonfinite;       /* steps up to then, in succession, whose loss is not finite */
	int64_t diverged_at; /* first step whose loss is not finite, unless it was skipped and
				 * fewer than TRAIN_STUCK followed; 0: none */
	tool_ranks_t ranks;  /* for what they agree on */
	tool_why_t why;      /* an error in options, data or files */
} trainer_t;

/* Numbers of a step, read back from the device. */
typedef struct train_result {
	int64_t step;
	double loss, grad_norm, lr, step_s, tokens_per_s; /* NaN before the first step */
	double launches; /* of kernels; NaN before the first step */
	double scale;    /* of the loss, in the next step */
	int32_t skipped; /* steps so far */
	double val_loss; /* NaN: not evaluated */
} train_result_t;

/* Progress and log; of rank 0. */
typedef struct train_report {
	FILE *log;
	int on_terminal, line_open, warned;
	int64_t steps, line_every, tokens, last_step;
	double last_s, last_line_s, step_s, validating_s;
	const srt_device_t *device;
	int scales; /* the loss is scaled */
	const char *numerics;
	int64_t tensor_parts;
	uint64_t last_launches;
	double flops;      /* floating-point operations of a step on one rank */
	double peak_flops; /* of one rank, per second; 0: not known */
} train_report_t;

/* ---- setup.c */

/** Options against presets, files and the number of ranks. @return 0, or -1 with t->why. */
int trainer_prepare(trainer_t *t);
/** Engine, tapes and memory. Collective. */
srt_status_t trainer_build(trainer_t *t);
/** Windows of a validation: all, or those of --eval-batches. */
int64_t trainer_eval_windows(const trainer_t *t);
/** Frees everything. */
void trainer_destroy(trainer_t *t);
/** The name of the numerics mode in force. */
const char *train_numerics(const srt_context_t *context);
/** Lines about model, ranks, memory and numerics. */
void trainer_describe(const trainer_t *t, FILE *out);
/** Peak FLOP/s of this rank, measured for some milliseconds; 0: not known. Local. */
double trainer_peak(const trainer_t *t);

/* ---- data.c */

/** Opens what is trained on and checks it against the model. Local. @return 0, or -1 with t->why.
 */
int trainer_open_data(trainer_t *t);
/** Compares the data of all ranks. Collective; the same result on all ranks.
 * @return 0, or -1 with t->why. */
int trainer_compare_data(trainer_t *t);

/* ---- sft_show.c */

/** Prints the examples of --sft-show. Local. @return 0, or -1 with t->why. */
int trainer_show_examples(trainer_t *t, FILE *out);

/* ---- init.c */

/** Sets t->config to the sizes of --init and of the options, and t->length. Local.
 * @return 0, or -1 with t->why. */
int trainer_find_sizes(trainer_t *t);
/** Sets initial or loaded parameters. Collective. t->why: the error of a file that does not fit. */
srt_status_t trainer_start_values(trainer_t *t);

/* ---- save.c */

/** Allocates the space that --save needs in a file of its folder, renames and removes it. Local.
 * @param[out] error errno of the failure; 0: it is not one of the system.
 * @return 0, or -1 with t->why. */
int trainer_try_save(trainer_t *t, int *error);
/** Sets *value to that of rank 0. Collective and blocking. */
srt_status_t trainer_ask_rank0(trainer_t *t, int *value);
/** The status of a save, which all ranks have in common: SRT_ERR_IO, with t->why, if the file
 * cannot be written, also because of something else of its name. Local. */
srt_status_t trainer_check_save(trainer_t *t, srt_status_t status);
/** Writes the parameters. Collective. t->why has the error of a file that cannot be written. */
srt_status_t trainer_save(trainer_t *t, const char *path);
/** As trainer_try_save() and trainer_save(), of a folder with a model of Hugging Face. */
int trainer_try_save_folder(trainer_t *t, int *error);
srt_status_t trainer_save_folder(trainer_t *t, const char *folder);
/** Writes the adapters to a folder of PEFT, as trainer_save(). */
srt_status_t trainer_save_adapter(trainer_t *t, const char *folder);
/** Allocates the space in an open file. Local. @return 0, or errno. */
int trainer_try_space(int fd, int64_t nbytes);
/**
 * Writes --save after the last step. On a full disk it tries again for a minute, then it writes to
 * a new temporary folder. Collective and blocking.
 * @param hurry does not wait for space.
 * @return SRT_ERR_IO, with t->why, also if the parameters are in the temporary folder.
 */
srt_status_t trainer_save_at_end(trainer_t *t, int hurry);
/** Saves the last checkpoint like --save, to a new temporary folder if --checkpoint fails. */
srt_status_t trainer_checkpoint_at_end(trainer_t *t, int hurry);

/* ---- checkpoint.c */

/** Creates and locks the folder of --checkpoint, and tries there what a save needs. Local; on rank
 * 0. @return 0, or -1 with t->why. */
int trainer_open_checkpoints(trainer_t *t);
/** Begins to save a checkpoint of all that this step and those before changed, which is written
 * while training goes on. Collective. t->why: the error of a file that cannot be written. */
srt_status_t trainer_begin_checkpoint(trainer_t *t, int64_t step);
/** Completes the checkpoint that is being written, if there is one, and removes old ones. If there
 * is no space, removes the oldest one all the same, and sets t->made_room. Collective. t->why as
 * above. */
srt_status_t trainer_end_checkpoint(trainer_t *t);
/** Saves a checkpoint of the steps that are done, in this folder. Collective and blocking. t->why
 * as above. */
srt_status_t trainer_save_checkpoint(trainer_t *t, const char *folder);
/** Makes, in the folder of --checkpoint, what a save makes, with the size of a checkpoint, and
 * removes it. Local. @param[out] error errno. @return 0, or -1 with t->why. */
int trainer_try_checkpoint(trainer_t *t, int *error);

/* ---- resume.c */

/** Goes on from the latest checkpoint that is not damaged, if there is a checkpoint. Collective.
 * t->why: all are damaged, or it does not fit. */
srt_status_t trainer_resume(trainer_t *t);

/* ---- steps.c */

/** Reads the batch of a step, which trainer_step() needs. The text may have been changed, which
 * other ranks need not see: all ranks must agree before they begin the step. Local.
 * @return 0, or -1 with t->why and t->data_failed. */
int trainer_load_batch(trainer_t *t, int64_t step);
/** Queues the step (1, 2, ...) whose batch was loaded. Asynchronous. */
srt_status_t trainer_step(trainer_t *t, int64_t step);
/** Copies the results of the queued steps to the host. Asynchronous. Local. */
srt_status_t trainer_post(trainer_t *t, int64_t step);
/**
 * Waits for a step that was posted (at most one step was posted after it), and checks the losses
 * since the last call: sets t->diverged_at. To be called at least once in TRAIN_WATCH steps. Local;
 * the result is the same on all ranks.
 * @param[out] loss per token of the step.
 */
srt_status_t trainer_watch(trainer_t *t, int64_t step, double *loss);
/** The loss (by trainer_watch()), norm and rate of result->step. Local. */
srt_status_t trainer_read(trainer_t *t, train_result_t *result);
/**
 * Called on all ranks before each batch of a validation. Collective and blocking.
 * @param batch 1, 2, ..., nbatches. @param[out] signal that stops all ranks, 0: none.
 */
typedef srt_status_t trainer_batch_fn(trainer_t *t, void *arg, int64_t batch, int64_t nbatches,
				      int *signal);
/** Predictions of a validation. Local. */
int64_t trainer_eval_tokens(const trainer_t *t);
/**
 * Loss per token on the validation text. Collective and blocking.
 * @param arg argument of `before`. @param[out] loss NaN if `before` returned a signal.
 */
srt_status_t trainer_evaluate(trainer_t *t, trainer_batch_fn *before, void *arg, double *loss);

/* ---- generate.c */

/** Encodes the prompt. Local. @return 0, or -1 with t->why. */
int trainer_prepare_prompt(trainer_t *t);
/** Records the passes for --generate or --sample. Local. */
srt_status_t trainer_create_generator(trainer_t *t);
/** Generates n tokens; rank 0 prints prompt and text. Collective and blocking. */
srt_status_t trainer_generate(trainer_t *t, int64_t n, FILE *out);

/* ---- report.c */

/** Opens the log if there is one. @return 0, or -1 with t->why. */
int train_report_open(train_report_t *r, trainer_t *t);
/** Counts the floating-point operations of a step of a trainer that is built. */
void train_report_count(train_report_t *r, const trainer_t *t);
/** Prints the peak that mfu refers to. @param peak_flops 0: not known, then there is no mfu. */
void train_report_peak(train_report_t *r, double peak_flops);
/** Starts the clock, also after a pause that is not training time. */
void train_report_resume(train_report_t *r);
/** Whether the results of this step are reported. */
int train_report_due(const train_report_t *r, int64_t step);
/**
 * Sets the times of the result; to be called right after trainer_read().
 * @param launches srt_device_launches() when the step had been queued.
 */
void train_report_time(train_report_t *r, train_result_t *result, uint64_t launches);
/** Writes progress and log. @return 0, or -1 once if the log cannot be written and was closed. */
int train_report_write(train_report_t *r, const train_result_t *result);
/** Prints the progress of a long validation, before each batch (1, 2, ...). */
void train_report_validating(train_report_t *r, int64_t batch, int64_t nbatches);
/** Ends the progress line, before another line is printed. */
void train_report_end_line(train_report_t *r);
/** Ends the progress line and closes the log, if any. @return 0, or -1 if it cannot be written. */
int train_report_close(train_report_t *r);

/* ---- saves.c */

/** The status of a save between two steps: SRT_OK, with a warning, if a file cannot be written. */
srt_status_t trainer_warn_of_save(trainer_t *t, train_report_t *report, int64_t step,
				  srt_status_t status);
/** Writes --save and --checkpoint between two steps. Collective. */
srt_status_t trainer_save_between(trainer_t *t, train_report_t *report, int64_t step);
/** Writes --save and the last checkpoint, unless training has diverged. Sets t->save_failed, and
 * prints why, if a file cannot be written. Collective and blocking.
 * @param hurry does not wait for space. */
srt_status_t trainer_save_last(trainer_t *t, train_report_t *report, int hurry);

#endif
