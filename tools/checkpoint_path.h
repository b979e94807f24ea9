/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The paths that shardrt-ckpt and shardrt-train --init read parameters from: a safetensors file, a
 * folder of Hugging Face, the folder of a checkpoint, or the folder that was given to shardrt-train
 * --checkpoint, which means its latest checkpoint, the one that --resume goes on from.
 */
#ifndef SRT_TOOLS_CHECKPOINT_PATH_H
#define SRT_TOOLS_CHECKPOINT_PATH_H

/** The file or checkpoint that a path means. */
typedef struct tool_found {
	char path[4096];
	int is_latest;  /* it is the latest checkpoint in the folder that was named */
	char why[8192]; /* what is wrong */
} tool_found_t;

/**
 * Finds the file or checkpoint that a path means; what it contains is not read. A path that names
 * nothing is returned as it is.
 * @return 0, or -1 with found->why: it is a folder without a model and a complete checkpoint.
 */
int tool_find_checkpoint(const char *path, tool_found_t *found);

/** Prints to standard error which checkpoint a path means, if it is the latest one in the folder.
 */
void tool_report_found(const char *path, const tool_found_t *found);

/** Whether a folder has a manifest.json, as that of a checkpoint does. */
int tool_has_manifest(const char *folder);

/** Whether a folder is one of Hugging Face: model.safetensors, or several files with an index. */
int tool_has_model(const char *folder);

#endif
