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

static srt_status_t create_table(srt_device_t *device, const srt_rope_t *rope, int64_t npositions,
				 srt_buffer_t **table)
{
	srt_rotary_in_t in = { .npositions = npositions };

	return srt_rotary_create(device, rope, &in, table);
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
