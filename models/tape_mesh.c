/* SPDX-License-Identifier: BSD-3-Clause */
/* The tensor-parallel ranks of a tape: how many, what they share, and this rank's part of it. */
#include "models/tape_impl.h"

void srt_tape_set_mesh(srt_tape_t *tape, const srt_mesh_t *mesh, const char *dim)
{
	const int nranks = mesh != NULL ? srt_mesh_size(mesh, dim) : 0;

	if (tape->nnodes > 0) {
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "the mesh of a tape is set before its first layer");
		return;
	}
	tape->nranks = nranks > 1 ? nranks : 1;
	tape->rank = nranks > 1 ? srt_mesh_coordinate(mesh, dim) : 0;
	tape->nparts = 1;
	tape->cuts_rows = 0;
	tape->comm = nranks > 1 ? srt_mesh_comm(mesh, dim) : NULL;
}

void srt_tape_set_tensor_parts(srt_tape_t *tape, int nparts)
{
	if (tape->nnodes > 0) {
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "the tensor parts of a tape are set before its first layer");
		return;
	}
	if (nparts < 1 || nparts > SRT_TAPE_MOST_PARTS || (nparts & (nparts - 1)) != 0 ||
	    (nparts > 1 && nparts % tape->nranks != 0)) {
		srt_tape_fail(
			tape, SRT_ERR_INVALID_ARGUMENT,
			"%d tensor parts for %d tensor-parallel ranks: must be 1 (none), or a "
			"power of two up to %d that the ranks share equally",
			nparts, tape->nranks, SRT_TAPE_MOST_PARTS);
		return;
	}
	tape->nparts = nparts;
}

void srt_tape_set_sequence_parallel(srt_tape_t *tape)
{
	if (tape->nnodes > 0 || (tape->nranks > 1 && tape->nparts == 1)) {
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "sequence parallelism of a tape is set before its first layer, and "
			      "after its tensor parts, which it needs");
		return;
	}
	tape->cuts_rows = tape->nranks > 1;
}

srt_mem_kind_t srt_tape_mem_kind(const srt_tape_t *tape)
{
	return tape->comm != NULL ? srt_comm_mem_kind(tape->comm) : SRT_MEM_DEVICE;
}

srt_vocab_part_t srt_tape_vocab_part(const srt_tape_t *tape, int64_t vocab)
{
	const int nparts = tape->nparts > 1 ? tape->nparts : tape->nranks;
	const int64_t chunk = (vocab / nparts + (vocab % nparts != 0)) * (nparts / tape->nranks);
	const int64_t first = chunk * tape->rank < vocab ? chunk * tape->rank : vocab;
	const int64_t left = vocab - first;

	return (srt_vocab_part_t){ .vocab = vocab,
				   .first = first,
				   .n = chunk < left ? chunk : left };
}

int srt_tape_param_part(srt_tape_t *tape, const char *layer, const srt_param_t *param, int64_t n,
			srt_vocab_part_t *part)
{
	int64_t shape[SRT_MAX_DIMS], cell[SRT_MAX_DIMS];

	if (!srt_tape_param_is(tape, layer, param, 2, -1, n))
		return 0;
	srt_param_shape(param, shape);
	srt_param_partition(param, cell);
	*part = srt_tape_vocab_part(tape, shape[0]);
	if (cell[0] == part->n && cell[0] > 0)
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "%s: tensor-parallel rank %d of %d has %lld of the %lld rows of parameter "
		      "%s, needs %lld, at least 1: cut its dimension 0 over the ranks, in as many "
		      "parts as the tape (srt_placement_t)",
		      layer, tape->rank, tape->nranks, (long long)cell[0], (long long)shape[0],
		      srt_param_name(param), (long long)part->n);
	return 0;
}
