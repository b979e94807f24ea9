/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaying what was recorded of Hugging Face's packages: one folder with a case.json, whose `kind`
 * decides the function.
 *
 *     replay_hf.c            the program, the table of kinds
 *     replay_hf_case.c       a case's folder
 *     replay_hf_tokenizer.c  kind "tokenizer": ids of strings, text of ids
 */
#ifndef SRT_TESTS_REPLAY_HF_H
#define SRT_TESTS_REPLAY_HF_H

#include <jansson.h>

#include <shardrt/file.h>
#include <shardrt/status.h>

/* A case. */
typedef struct hf_case {
	const char *folder;
	json_t *json; /* case.json */
} hf_case_t;

/* What a case has shown: 0 if it passed. The functions print what differs. */
enum { HF_PASS = 0, HF_FAIL = 1, HF_SKIP = 77 };

/* Path of a file that case.json names in `files`, freed by the caller; ends the program without. */
char *hf_path(const hf_case_t *c, const char *file);

/* Opens such a file; ends the program without. */
srt_file_t *hf_open(const hf_case_t *c, const char *file);

/* All values of a tensor of this dtype, freed by the caller, and their number; ends the program
 * without. There is room for one more value. */
void *hf_read(const srt_file_t *file, const char *name, srt_dtype_t dtype, size_t *nelem);

/* Ends the program with HF_FAIL after the message and the last error were printed. */
__attribute__((noreturn)) void hf_die(const hf_case_t *c, const char *message);

/* Kinds. */
int hf_replay_tokenizer(const hf_case_t *c);

#endif
