/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stages of saving and loading one file: a rank that fails or does not answer is reported with
 * the stage. Called by runtime/checkpoint/{checkpoint,load}.c.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_DOING_H
#define SRT_RUNTIME_CHECKPOINT_DOING_H

#include "runtime/engine/engine.h"

/* The current stage, for the error of a rank whose peer does not answer. */
typedef struct srt_doing {
	char text[160];
} srt_doing_t;

/* ---- save.c */
/* path and param may be NULL. */
srt_doing_t srt_describe_doing(const char *verb, const char *path, const srt_param_t *param);
/* The first failure of any rank, on all ranks; collective. */
srt_status_t srt_share_status(srt_engine_t *engine, srt_doing_t what, srt_status_t status);

#endif
