/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a rank of a sharded checkpoint, from its manifest: a tensor for each box that is in
 * it, and where PyTorch's readers find the boxes. Called for a save and for another number of ranks
 * (sharded_files.c, reshard.c).
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_RANK_FILE_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_RANK_FILE_H

#include "runtime/checkpoint/formats/manifest.h"
#include "runtime/checkpoint/formats/safetensors.h"

/* rank-R-of-N.safetensors, with -partK from the second part on (part 1); to be freed. NULL without
 * memory. */
char *srt_rank_file_name(int rank, int world, size_t part);
/* Creates file i of the manifest in a folder. The entries of its writer are the boxes that the
 * manifest has in it, in the order of tensors and boxes. As srt_safetensors_writer_create(). */
srt_status_t srt_rank_file_create(const srt_manifest_t *manifest, size_t i, const char *folder,
				  srt_safetensors_writer_t **writer);
/* Syncs the file, reads its header back, and sets its size and hash in the manifest. */
srt_status_t srt_rank_file_commit(srt_manifest_t *manifest, size_t i, const char *folder,
				  srt_safetensors_writer_t *writer);

#endif
