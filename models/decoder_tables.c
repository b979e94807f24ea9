/* SPDX-License-Identifier: BSD-3-Clause */
/* The angles of rotary positions: tables on the device, which the tapes of a decoder share. */
#include "models/decoder_impl.h"

#include <stdlib.h>

#include "models/try.h"

void srt_decoder_tables_destroy(srt_decoder_tables_t *tables)
{
	while (tables != NULL) {
		srt_decoder_tables_t *next = tables->next;

		srt_buffer_destroy(tables->all);
		srt_buffer_destroy(tables->windows);
		free(tables);
		tables = next;
	}
}

static srt_status_t fill_table(srt_device_t *device, const srt_rope_t *rope, int64_t npositions,
			       float *host, srt_buffer_t *table)
{
	const int64_t half = npositions * (rope->dim / 2);
	srt_stream_t *stream;
	srt_status_t status;

	SRT_TRY(srt_rope_tables(rope, npositions, host, host + half));
	SRT_TRY(srt_stream_create(device, 0, "tables", &stream));
	status =
		srt_buffer_copy_from_host(table, 0, host, (size_t)half * 2 * sizeof(*host), stream);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	srt_stream_destroy(stream);
	return status;
}

static srt_status_t create_table(srt_device_t *device, const srt_rope_t *rope, int64_t npositions,
				 srt_buffer_t **table)
{
	const size_t nbytes = (size_t)(npositions * rope->dim) * sizeof(float);
	float *host = malloc(nbytes);
	srt_status_t status;

	if (host == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for the angles of %lld positions",
				      (long long)npositions);
	status = srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "rotary positions", table);
	if (status == SRT_OK)
		status = fill_table(device, rope, npositions, host, *table);
	free(host);
	return status;
}

srt_status_t srt_decoder_find_tables(srt_decoder_t *d, srt_device_t *device, int64_t npositions,
				     const srt_decoder_tables_t **found)
{
	srt_decoder_tables_t *t;
	srt_status_t status = SRT_OK;

	for (t = d->tables; t != NULL; t = t->next) {
		*found = t;
		if (t->device == device && t->npositions >= npositions)
			return SRT_OK;
	}
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for tables");
	*t = (srt_decoder_tables_t){ .device = device, .npositions = npositions };
	if (d->config.has_window_rope)
		status = create_table(device, &d->config.window_rope, npositions, &t->windows);
	if (status == SRT_OK)
		status = create_table(device, &d->config.rope, npositions, &t->all);
	if (status != SRT_OK) {
		srt_decoder_tables_destroy(t);
		return status;
	}
	t->next = d->tables;
	d->tables = t;
	*found = t;
	return SRT_OK;
}

size_t srt_decoder_tables_nbytes(const srt_decoder_t *d)
{
	size_t nbytes = 0;

	for (const srt_decoder_tables_t *t = d->tables; t != NULL; t = t->next)
		nbytes += (size_t)(t->npositions * d->config.rope.dim) * sizeof(float) *
			  (1 + (t->windows != NULL));
	return nbytes;
}
