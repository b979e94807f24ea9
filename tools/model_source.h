/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model that a program reads: the sizes and the values of a file of shardrt-train --save, one of
 * a GPT-2 of Hugging Face, a folder of Hugging Face, a checkpoint, or the folder of checkpoints.
 */
#ifndef SRT_TOOLS_MODEL_SOURCE_H
#define SRT_TOOLS_MODEL_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/families.h>
#include <shardrt/shardrt.h>

#include "tools/why.h"

/** Sizes that options give. 0 or NULL: that of the preset, or of the file. */
typedef struct tool_sizes {
	const char *preset; /* NULL: nano */
	int64_t layers, heads, width, context, vocab;
	int64_t tensor_parts; /* not of files: 0 is none */
} tool_sizes_t;

/** A model. Fields of the first part are the caller's. */
typedef struct tool_model {
	const char *path;   /* as it was named; then what it means; NULL: none, a preset */
	const char *option; /* that names it, for messages: "--init"; "": an argument */
	bool has_adapters;  /* the engine has some, which a load of the base leaves alone */
	bool random;        /* only the config.json of a folder is read */
	tool_sizes_t sizes;

	srt_decoder_config_t config;
	bool has_sizes;             /* the file has them */
	const srt_family_t *family; /* of a model of Hugging Face, else NULL */
	const char *hf_prefix;      /* of the names of a file of GPT-2, else NULL */
	char *config_text;          /* config.json of `family` */
	char *folder;               /* that has this file; NULL: it is in a checkpoint */
	size_t ntensors;
	bool is_checkpoint;
	char found[4096]; /* what `path` means */
} tool_model_t;

/**
 * Reads the sizes, those of the preset if there is no file or it has none. Rank 0 says which
 * checkpoint is meant. Local.
 * @param model all zero but for the fields of the caller. @return 0, or -1 with *why.
 */
int tool_model_open(tool_model_t *model, int rank, tool_why_t *why);

/**
 * Changes the sizes to those that options give, and checks them. A model of Hugging Face keeps its
 * own, and model->sizes.context is up to the caller. Local, after tool_model_open().
 * @return 0, or -1 with *why.
 */
int tool_model_resize(tool_model_t *model, int tensor_ranks, tool_why_t *why);

/** The path of another file of a model of Hugging Face, such as tokenizer.json.
 * @param path TOOL_CONFIG_NBYTES; set for such a model. @return whether it is there. Local. */
bool tool_model_find_file(const tool_model_t *model, const char *name, char *path);

/** Whether tokens below 256 are bytes if the model has no tokenizer. */
bool tool_model_has_bytes(const tool_model_t *model);

/** Loads the values into an engine that is built, with this decoder. Collective.
 * @param why set for a file that does not fit. */
srt_status_t tool_model_load(const tool_model_t *model, srt_engine_t *engine,
			     srt_decoder_t *decoder, srt_stream_t *stream, tool_why_t *why);

/** Frees what it has. */
void tool_model_close(tool_model_t *model);

#endif
