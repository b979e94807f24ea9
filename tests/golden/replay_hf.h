/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaying recordings of Hugging Face's transformers and tokenizers (replay.h), by the kind of the
 * case:
 *
 *     replay_hf.c            the program
 *     replay_hf_model.c      kinds "hf" and "pack": values, gradients and steps of a decoder
 *     replay_hf_decode.c     kind "decode": tokens that follow prompts
 *     replay_hf_lora.c       kind "lora": steps of adapters, their folders, merged weights
 *     replay_hf_sft.c        kind "sft": steps of pairs of prompts and answers
 *     replay_hf_tokenizer.c  kind "tokenizer": ids of strings, text of ids
 *     replay_hf_muon.c       kind "muon": steps of matrices, whole and in an engine
 *     replay_hf_run.c        a decoder of a folder on an engine, and its rows of tokens
 */
#ifndef SRT_TESTS_REPLAY_HF_H
#define SRT_TESTS_REPLAY_HF_H

#include <shardrt/models/families.h>
#include <shardrt/models/lora.h>
#include "tests/golden/replay.h"

/* How the ranks share a decoder; by options of the program. */
typedef struct hf_options {
	srt_strategy_t strategy;
	srt_flat_t flat;
	int tp;           /* tensor-parallel ranks, 1: none */
	int tensor_parts; /* 1: none */
} hf_options_t;

/* A decoder of a model folder on an engine, with a tape for rows of tokens. */
typedef struct hf_run {
	golden_t *golden;
	srt_context_t *context;
	const hf_options_t *options;
	verdict_t *verdict;
	const srt_family_t *family;
	srt_decoder_config_t config;
	srt_file_t *file; /* the model folder */
	srt_mesh_t *mesh;
	int data_rank, ndata; /* among the ranks with different rows */
	srt_stream_t *stream;
	srt_engine_t *engine;
	srt_decoder_t *decoder;
	srt_tape_t *tape;
	srt_buffer_t *arena;
	srt_decoder_io_t io;
	int64_t rows, context_length; /* of a step, of all ranks */
	int64_t nmine;                /* rows of the tape: those of this rank, then empty ones */
} hf_run_t;

/* How an engine is made for a run. */
typedef struct hf_engine {
	const char *folder; /* of the model, relative to the case's */
	const char *config; /* path of config.json, relative to the case's; NULL: the folder's */
	srt_dtype_t dtype;  /* of parameters */
	float matrix_decay, vector_decay;
	srt_optim_options_t optim;
	float max_norm;         /* 0: no clipping */
	const srt_lora_t *lora; /* NULL: no adapters; they have no values then */
	srt_dtype_t base_dtype; /* with lora */
	int microbatches;       /* of a step; 0: one */
} hf_engine_t;

/* The AdamW of the case, without weight decay. */
srt_optim_options_t hf_read_optim(const golden_t *g);
/* Creates engine and decoder, with the values of the folder. Collective. */
srt_status_t hf_open(hf_run_t *r, const hf_engine_t *how);
/* Records a pass over `rows` rows of all ranks, and gives the tape its memory. Collective. */
srt_status_t hf_record(hf_run_t *r, srt_tape_mode_t mode, int64_t rows,
		       const srt_decoder_pass_t *pass);
/* Frees the tape; all. */
void hf_forget(hf_run_t *r);
void hf_close(hf_run_t *r);

/* The row of the step that a row of this rank's tape has, -1: none. Rows are dealt out in turn. */
int64_t hf_row(const hf_run_t *r, int64_t mine);

/* Fills the tape's inputs from arrays (rows,context_length); targets may be NULL. */
srt_status_t hf_feed(hf_run_t *r, const int32_t *ids, const int32_t *targets,
		     const int32_t *positions);

/* An I64 tensor of a file of the case as a new array of n numbers, each of 32 bits. */
srt_status_t hf_read_ints(const srt_safetensors_t *file, const char *name, size_t n,
			  int32_t **values);
/* Values of a tensor of the tape, widened, as a new array. */
srt_status_t hf_read_tensor(hf_run_t *r, srt_tensor_t *tensor, float **values);
/* Sum of n values of the rows that have data, over all ranks. Collective. */
srt_status_t hf_sum(hf_run_t *r, const float *values, size_t n, double *sum);
/* Compares a parameter, or its gradient, with the recorded one of this key, which is as files have
 * it. Collective; compared on rank 0. */
srt_status_t hf_compare_param(hf_run_t *r, const char *key, const char *name,
			      srt_param_what_t what);
/* The parameters, or gradients, that were recorded with this prefix before their names. */
srt_status_t hf_compare_params(hf_run_t *r, const char *prefix, srt_param_what_t what);

/* Compares the rows of this rank with those of a recorded tensor (rows,...), PREFIXKEY. */
srt_status_t hf_compare_rows(hf_run_t *r, const char *key, const char *prefix,
			     srt_tensor_t *tensor);
/* Compares the mean loss of a step with its recorded value. Collective. */
srt_status_t hf_compare_loss(hf_run_t *r, const char *key, const json_t *recorded, double ntargets);
/* A recorded tensor that does not begin with one of these is as wrong as a deviation. */
void hf_check_keys(hf_run_t *r, const char *const *known, size_t nknown);

/* Kinds of cases. SRT_ERR_UNSUPPORTED: with this build or these options, with the reason. */
srt_status_t replay_hf_model(golden_t *g, srt_context_t *context, const hf_options_t *options,
			     verdict_t *v);
srt_status_t replay_hf_pack(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v);
srt_status_t replay_hf_decode(golden_t *g, srt_context_t *context, const hf_options_t *options,
			      verdict_t *v);
srt_status_t replay_hf_lora(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v);
srt_status_t replay_hf_sft(golden_t *g, srt_context_t *context, const hf_options_t *options,
			   verdict_t *v);
srt_status_t replay_hf_tokenizer(golden_t *g, srt_context_t *context, const hf_options_t *options,
				 verdict_t *v);
srt_status_t replay_hf_muon(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v);

#endif
