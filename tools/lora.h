/* SPDX-License-Identifier: BSD-3-Clause */
/* Adapters that a command line asks for: new ones by their sizes, or those of a folder of PEFT. */
#ifndef SRT_TOOLS_LORA_H
#define SRT_TOOLS_LORA_H

#include <stddef.h>

#include <shardrt/models/lora.h>

#include "tools/why.h"

/** Adapters. */
typedef struct tool_lora {
	const srt_lora_t *lora; /* NULL: none */
	srt_lora_t given;       /* of an option */
	char *text;             /* of its targets */
	const char **targets;
	srt_lora_t *read; /* of a folder */
	int64_t nmodules; /* of the model that have adapters */
} tool_lora_t;

/** Room for the text of tool_lora_print(). */
#define TOOL_LORA_NBYTES 96

/**
 * Reads what options say: "r=N,alpha=X,targets=A+B,rslora", where "match=EXPRESSION" at the end may
 * be instead of targets, or a folder. Local.
 * @param spec NULL: none. @param folder NULL: none. At most one is given.
 * @param lora all zero. @return 0, or -1 with *why.
 */
int tool_lora_open(tool_lora_t *lora, const char *spec, const char *folder, tool_why_t *why);

/** Compares the targets with a model, and sets nmodules. Local. @return 0, or -1 with *why. */
int tool_lora_check(tool_lora_t *lora, const srt_decoder_config_t *config, tool_why_t *why);

/** Sets the adapters of a decoder from the folder. Collective. @param why set for files that do not
 * fit. */
srt_status_t tool_lora_load(const char *folder, const srt_family_t *family, srt_decoder_t *decoder,
			    srt_stream_t *stream, tool_why_t *why);

/** Frees what it has. */
void tool_lora_close(tool_lora_t *lora);

/** "lora r=16 alpha=32 modules=7", "" without adapters. After tool_lora_check(). */
void tool_lora_print(const tool_lora_t *lora, char text[TOOL_LORA_NBYTES]);

#endif
