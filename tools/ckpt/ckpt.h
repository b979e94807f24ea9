/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of shardrt-ckpt.
 *
 *     ckpt.c        main program: commands and options
 *     files.c       ls, hash
 *     verify.c      all bytes of files and checkpoints
 *     diff.c        compares two files
 *     merge.c       merge, reshard
 *     merge_lora.c  adapters added to the weights of a model
 *     convert.c     names and layouts of this library and of Hugging Face
 *     gguf.c        convert --to gguf
 *
 * A file is a safetensors file or the folder of a sharded checkpoint (<shardrt/file.h>). Of the
 * folder of --checkpoint a command gets the latest one (tools/checkpoint_path.h); verify reads all.
 *
 * Each command returns an exit status: 0, CKPT_DIFFERS or CKPT_TROUBLE. Errors are printed.
 */
#ifndef SRT_TOOLS_CKPT_CKPT_H
#define SRT_TOOLS_CKPT_CKPT_H

#include <stdint.h>

#include <shardrt/shardrt.h>

/** diff: the files differ; verify: there are defects. */
#define CKPT_DIFFERS 1
/** Wrong options, or a file that cannot be read or written. */
#define CKPT_TROUBLE 2
/** Files are read and written in pieces of at least this size. */
#define CKPT_PIECE_NBYTES ((size_t)4 << 20)

/** The command line. Strings are borrowed from it, paths also from what they mean. */
typedef struct ckpt_request {
	char **path; /* the arguments; a folder of checkpoints was replaced by its latest one */
	int npaths;
	int all, boxes; /* flags */
	const char *to; /* convert: "hf", "shardrt" or "gguf" */
	/* convert --to gguf: of matrices, and a folder; NULL: not given */
	const char *dtype, *tokenizer;
	int64_t heads; /* convert; 0: not given */
	int64_t ranks; /* reshard */
} ckpt_request_t;

/** A name of a file fit to be shown: control characters, which could drive a terminal, are question
 * marks. */
typedef struct ckpt_name {
	char text[256];
} ckpt_name_t;

/* ---- ckpt.c */

ckpt_name_t ckpt_name(const char *name);
/** Opens a file; all: with states of the optimizer. @return 0, or CKPT_TROUBLE after the error was
 * printed. */
int ckpt_open(const char *path, int all, srt_file_t **file);
/** Prints srt_error_last(). @return CKPT_TROUBLE. */
int ckpt_fail(void);

/* ---- files.c */

int ckpt_ls(const ckpt_request_t *request);
int ckpt_hash(const ckpt_request_t *request);

/* ---- verify.c */

int ckpt_verify(const ckpt_request_t *request);

/* ---- diff.c */

int ckpt_diff(const ckpt_request_t *request);

/* ---- merge.c */

int ckpt_merge(const ckpt_request_t *request);
int ckpt_reshard(const ckpt_request_t *request);

/* ---- merge_lora.c */

int ckpt_merge_lora(const ckpt_request_t *request);

/* ---- convert.c */

int ckpt_convert(const ckpt_request_t *request);

/* ---- gguf.c */

int ckpt_convert_gguf(const ckpt_request_t *request);

#endif
