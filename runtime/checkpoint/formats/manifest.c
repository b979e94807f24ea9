/* SPDX-License-Identifier: BSD-3-Clause */
/* A manifest in memory (manifest.h). */
#include "runtime/checkpoint/formats/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/safetensors.h"

#define INT(field)                                                                                 \
	{                                                                                          \
#field, offsetof(srt_k_step_state_t, field), false                                 \
	}
#define FLOAT(field)                                                                               \
	{                                                                                          \
#field, offsetof(srt_k_step_state_t, field), true                                  \
	}

const srt_manifest_field_t srt_manifest_fields[] = {
	INT(step),        FLOAT(lr),        FLOAT(scale),        FLOAT(inv_scale),
	FLOAT(found_inf), FLOAT(clip_coef), FLOAT(grad_norm),    FLOAT(base_lr),
	FLOAT(min_lr),    INT(warmup),      INT(lr_steps),       INT(schedule),
	INT(decay_steps), INT(skipped),     INT(growth_tracker), FLOAT(clipped_by),
};
const size_t srt_manifest_nfields = SRT_ARRAY_LEN(srt_manifest_fields);
_Static_assert(sizeof(srt_k_step_state_t) == 4 * SRT_ARRAY_LEN(srt_manifest_fields),
	       "a field of the step state is not in manifests");

const char *const srt_manifest_kinds[SRT_MANIFEST_NKINDS] = { "value", "buffer", "state0", "state1",
							      "state2" };

void srt_manifest_clear(srt_manifest_t *m)
{
	for (size_t i = 0; i < m->nfiles; i++)
		free(m->files[i].name);
	for (size_t i = 0; i < m->ntensors; i++) {
		for (size_t b = 0; b < m->tensors[i].nboxes; b++)
			free(m->tensors[i].boxes[b].hashes);
		free(m->tensors[i].boxes);
		free(m->tensors[i].name);
	}
	for (size_t i = 0; i < m->ngroups; i++)
		free(m->groups[i].optimizer);
	for (size_t i = 0; i < m->nentries; i++) {
		free(m->entries[i].key);
		free(m->entries[i].data);
	}
	free(m->files);
	free(m->tensors);
	free(m->groups);
	free(m->entries);
	free(m->optimizer);
	memset(m, 0, sizeof(*m));
}

const srt_manifest_tensor_t *srt_manifest_find(const srt_manifest_t *m, srt_manifest_kind_t kind,
					       const char *name)
{
	size_t low = 0, high = m->ntensors;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const srt_manifest_tensor_t *t = &m->tensors[middle];
		const int order =
			t->kind != kind ? (int)t->kind - (int)kind : strcmp(t->name, name);

		if (order == 0)
			return t;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

srt_status_t srt_manifest_add_box(srt_manifest_tensor_t *t, const srt_box_t *box, size_t file)
{
	srt_manifest_box_t *b, *grown = srt_realloc(t->boxes, t->nboxes + 1, sizeof(*grown),
						    "boxes of a checkpoint");

	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	t->boxes = grown;
	b = &grown[t->nboxes];
	*b = (srt_manifest_box_t){ .box = *box, .file = file };
	b->nbytes = (size_t)srt_box_nelem(t->ndim, box->size) * srt_dtype_size(t->dtype);
	b->nblocks = srt_count_blocks(b->nbytes);
	b->hashes = srt_calloc(b->nblocks + 1, sizeof(*b->hashes), "hashes of a checkpoint");
	if (b->hashes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	t->nboxes++;
	return SRT_OK;
}

const srt_manifest_entry_t *srt_manifest_find_entry(const srt_manifest_t *m, const char *key)
{
	for (size_t i = 0; i < m->nentries; i++) {
		if (strcmp(m->entries[i].key, key) == 0)
			return &m->entries[i];
	}
	return NULL;
}

char *srt_manifest_key(srt_manifest_kind_t kind, const char *name)
{
	return kind < SRT_MANIFEST_STATE0 ?
		       srt_strdup(name) :
		       srt_asprintf("optimizer.%s.%s", srt_manifest_kinds[kind], name);
}

srt_manifest_words_t srt_manifest_describe(srt_manifest_kind_t kind, const char *name)
{
	srt_manifest_words_t words;
	const srt_printable_t text = srt_printable(name);

	if (kind < SRT_MANIFEST_STATE0)
		snprintf(words.text, sizeof(words.text), "%s '%s'",
			 kind == SRT_MANIFEST_VALUE ? "tensor" : "buffer", text.text);
	else
		snprintf(words.text, sizeof(words.text), "optimizer state %d of '%s'",
			 (int)kind - (int)SRT_MANIFEST_STATE0, text.text);
	return words;
}

size_t srt_count_blocks(size_t nbytes)
{
	return nbytes / SRT_BLOCK_NBYTES + (nbytes % SRT_BLOCK_NBYTES != 0);
}
