/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of shardrt-info: each prints one section to standard output. */
#ifndef SRT_TOOLS_INFO_INFO_H
#define SRT_TOOLS_INFO_INFO_H

#include <stdint.h>

#include <shardrt/engine_options.h>

#include "tools/mesh.h"

/** The configuration table with the values in force. @return 0, or 1 if a value is malformed. */
int info_config(void);

/** docs/environment.md, made from the table; the same on every machine. */
void info_config_page(void);

/** The backends: the file of each, its devices, or the reason why it does not have any. */
void info_backends(void);

/** Whether SHARDRT_BACKEND names a backend that is installed and has no device here; its driver is
 * then not loaded into this process, which it may end.
 * @param[out] why the reason. */
int info_backend_is_unusable(char *why, size_t why_nbytes);

/** Prints the table of optional features, each line after `indent`. @return the exit status. */
int info_features(const char *indent);

/** Packages, cores, caches and memory of this node. */
void info_topology(void);

/** Reads files of the flight recorder, and folders with files rank-N.json, and prints which rank
 * waits for which. @return the exit status. */
int info_flight(char *const *paths, int npaths);

/** Measures speeds of the device, on all ranks of the job at the same time, and prints them.
 * @param seconds about how long. @return the exit status. */
int info_bench(int seconds);

/** Optimizers to plan. */
#define INFO_OPTIMIZERS "adamw|adamw8bit"

/** The job to plan. */
typedef struct info_plan {
	const char *preset;                          /* of a GPT */
	const char *model;                           /* a folder of Hugging Face, or its
						      * config.json, instead; NULL: none */
	int64_t context;                             /* tokens of a sequence; 0: of the model */
	int64_t strategy, flat, dtype, reduce_dtype; /* indices of words of tools/precision.h */
	int64_t optimizer;                           /* of INFO_OPTIMIZERS */
	int reshard;                                 /* of srt_unit_options_t */
	int pure, recompute, plan, tree;             /* plan, tree: what is printed */
	srt_offload_t offload;
	tool_mesh_t mesh;
	int tensor_parts; /* 0: none */
	int sequence_parallel;
	int world_size;
	int accumulate;     /* micro-batches per step */
	const char *lora;   /* as of shardrt-train; NULL: no adapters */
	int64_t base_dtype; /* index of fp32|bf16; -1: that of the others */
} info_plan_t;

/** The memory plan of a model for each rank, and its modules. @return the exit status. */
int info_plan(const info_plan_t *plan);

#endif
