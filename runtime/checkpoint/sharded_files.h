/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A save of a sharded checkpoint: sharded_save.c has its calls and what is saved, sharded_files.c
 * writes the files of this rank, also on a thread while training goes on.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_SHARDED_FILES_H
#define SRT_RUNTIME_CHECKPOINT_SHARDED_FILES_H

#include <stdatomic.h>

#include "runtime/checkpoint/entries.h"
#include "runtime/checkpoint/formats/folder.h"
#include "runtime/checkpoint/long_work.h"
#include "runtime/checkpoint/formats/safetensors.h"
#include "runtime/checkpoint/sharded.h"

/* A box that this rank saves. */
typedef struct srt_write_item {
	size_t tensor, box; /* of the manifest */
	size_t entry;       /* of its file's writer */
	srt_view_t view;    /* the rank's shard, or the buffer */
	srt_stream_t *stream;
	srt_walk_t walk;         /* [0]: the box, [1]: the cell */
	int64_t first;           /* element of the cell where the shard begins */
	unsigned char *snapshot; /* NULL: copied from the device when it is written */
} srt_write_item_t;

struct srt_checkpoint_write {
	srt_engine_t *engine; /* NULL: it was destroyed */
	srt_open_save_t open; /* from srt_checkpoint_save_begin() to _end() */
	char *path;           /* without slashes at its end */
	srt_saved_tensor_t *tensors;
	srt_manifest_t manifest;
	srt_packed_entries_t rank_entries;
	srt_saved_file_t *files;
	srt_safetensors_writer_t **writers; /* by file of the manifest; NULL: of another rank */
	srt_write_item_t *items;
	size_t nitems;
	srt_folder_t folder; /* on rank 0 */
	char *temporary;
	unsigned char *block, *snapshot; /* snapshot NULL: written within the call */
	srt_long_work_t work;            /* while the caller waits */

	/* of the thread; status and why are written before is_done is set */
	pthread_t thread;
	bool has_thread;
	atomic_bool is_done;
	srt_status_t status;
	srt_error_text_t why;
};

/* Copies the boxes of this rank from the device to memory of the host, from which they are written.
 * Without memory for them it succeeds without a snapshot, and warns. Local. */
srt_status_t srt_checkpoint_take_snapshot(srt_checkpoint_write_t *s);
/* The boxes are copied when they are written. Local. */
void srt_checkpoint_drop_snapshot(srt_checkpoint_write_t *s);
/* Writes and syncs the files of this rank. Local. */
srt_status_t srt_checkpoint_write_files(srt_checkpoint_write_t *s);
/* All ranks know the sizes and hashes of all files. Collective. */
srt_status_t srt_checkpoint_share_hashes(srt_checkpoint_write_t *s);

#endif
