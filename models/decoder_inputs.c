/* SPDX-License-Identifier: BSD-3-Clause */
/* The inputs of a decoder's passes: tokens, positions, and where a cache has their keys. */
#include "models/decoder_impl.h"

#include <stdlib.h>

#include "models/try.h"

/* Does nothing for an input that the pass does not have. */
static srt_status_t put_input(srt_tensor_t *input, const int32_t *values, srt_stream_t *stream)
{
	return input != NULL ? srt_tensor_put(input, values, stream) : SRT_OK;
}

srt_status_t srt_decoder_put_tokens(const srt_decoder_io_t *io, const int32_t *ids,
				    const int32_t *targets, srt_stream_t *stream)
{
	SRT_TRY(put_input(io->ids, ids, stream));
	return put_input(io->targets, targets, stream);
}

/* ---- positions -------------------------------------------------------------------------- */

/* Positions, and the first key that each token sees: of its document, and within the window. */
static void make_positions(const srt_decoder_io_t *io, const int32_t *given, int32_t *positions,
			   int32_t *first, int32_t *window_first)
{
	for (int64_t i = 0, n = io->batch * io->context; i < n; i++) {
		const int32_t t = (int32_t)(i % io->context);

		positions[i] = given != NULL ? given[i] : t;
		first[i] = t == 0 || positions[i] != positions[i - 1] + 1 ? t : first[i - 1];
		window_first[i] = (int32_t)(t + 1 - io->window);
		if (io->window == 0 || window_first[i] < first[i])
			window_first[i] = first[i];
	}
}

srt_status_t srt_decoder_put_positions(const srt_decoder_io_t *io, const int32_t *positions,
				       srt_stream_t *stream)
{
	const size_t n = (size_t)(io->batch * io->context);
	int32_t *values;
	srt_status_t status;

	if (io->positions == NULL && io->window_first == NULL)
		return SRT_OK;
	values = malloc(3 * n * sizeof(*values));
	if (values == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for the positions of %zu tokens", n);
	make_positions(io, positions, values, values + n, values + 2 * n);
	status = put_input(io->positions, values, stream);
	if (status == SRT_OK)
		status = put_input(io->first, values + n, stream);
	if (status == SRT_OK)
		status = put_input(io->window_first, values + 2 * n, stream);
	free(values);
	return status;
}

/* ---- new tokens of a cache's sequences -------------------------------------------------- */

/* The arrays of a pass, each of as many numbers as it has tokens. */
enum { IDS, POSITIONS, ROWS, LENGTHS, WINDOW_FIRST, NARRAYS };

/* Token i of the pass has this id, and this position of a sequence; below 0: there is none. */
static void set_token(const srt_decoder_io_t *io, int32_t *arrays, int64_t i, int32_t id,
		      int64_t sequence, int64_t position)
{
	const int64_t n = io->batch * io->context;
	const int is_there = position >= 0;

	arrays[IDS * n + i] = is_there ? id : 0;
	arrays[POSITIONS * n + i] = is_there ? (int32_t)position : 0;
	arrays[ROWS * n + i] = is_there ? (int32_t)(sequence * io->cache->length + position) : -1;
	arrays[LENGTHS * n + i] = (int32_t)(position + 1);
	arrays[WINDOW_FIRST * n + i] = (int32_t)(position + 1 - io->window);
}

static srt_status_t create_arrays(const srt_decoder_io_t *io, int32_t **arrays)
{
	*arrays = calloc((size_t)(NARRAYS * io->batch * io->context), sizeof(**arrays));
	return *arrays != NULL ? SRT_OK :
				 srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
						"no host memory for the inputs of a pass");
}

static srt_status_t put_arrays(const srt_decoder_io_t *io, const int32_t *arrays,
			       srt_stream_t *stream)
{
	srt_tensor_t *const inputs[NARRAYS] = { io->ids, io->positions, io->rows, io->lengths,
						io->window_first };

	for (int j = 0; j < NARRAYS; j++)
		SRT_TRY(put_input(inputs[j], arrays + j * io->batch * io->context, stream));
	return SRT_OK;
}

static srt_status_t check_tokens(const srt_decoder_io_t *io, int64_t sequence, int64_t before,
				 int64_t n)
{
	if (sequence >= 0 && sequence < io->cache->sequences && before >= 0 && n >= 1 &&
	    before + n <= io->cache->length)
		return SRT_OK;
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "decoder: %lld new tokens after %lld of sequence %lld, but the cache "
			      "has %lld sequences of %lld tokens",
			      (long long)n, (long long)before, (long long)sequence,
			      (long long)io->cache->sequences, (long long)io->cache->length);
}

/* Whether the pass has a cache, `step` or not, and at least n tokens. */
static srt_status_t check_pass(const srt_decoder_io_t *io, int step, int64_t n)
{
	if (io->cache != NULL && (io->lengths != NULL) == step && n >= 1 &&
	    n <= io->batch * io->context)
		return SRT_OK;
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "decoder: %lld new tokens, but the pass was recorded for %lld, %s",
			      (long long)n, (long long)(io->batch * io->context),
			      io->cache == NULL   ? "without a cache" :
			      io->lengths != NULL ? "one of each sequence" :
						    "of one sequence");
}

srt_status_t srt_decoder_put_chunk(const srt_decoder_io_t *io, int64_t sequence, int64_t before,
				   const int32_t *ids, int64_t n, srt_stream_t *stream)
{
	srt_status_t status;
	int32_t *arrays;

	SRT_TRY(check_pass(io, 0, n));
	SRT_TRY(check_tokens(io, sequence, before, n));
	SRT_TRY(create_arrays(io, &arrays));
	for (int64_t i = 0; i < io->context; i++)
		set_token(io, arrays, i, i < n ? ids[i] : 0, sequence, i < n ? before + i : -1);
	io->cache->at = (srt_attention_at_t){ .sequence = sequence, .offset = before };
	status = put_arrays(io, arrays, stream);
	free(arrays);
	return status;
}

srt_status_t srt_decoder_put_step(const srt_decoder_io_t *io, const int32_t *before,
				  const int32_t *ids, int64_t n, srt_stream_t *stream)
{
	srt_status_t status;
	int32_t *arrays;

	SRT_TRY(check_pass(io, 1, n));
	for (int64_t i = 0; i < n; i++)
		SRT_TRY(check_tokens(io, i, before[i], 1));
	SRT_TRY(create_arrays(io, &arrays));
	for (int64_t i = 0; i < io->batch; i++)
		set_token(io, arrays, i, i < n ? ids[i] : 0, i, i < n ? before[i] : -1);
	status = put_arrays(io, arrays, stream);
	free(arrays);
	return status;
}
