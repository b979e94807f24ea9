/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of a GGUF file: a string, the type of the value, the value; numbers are little-endian. */
#include "models/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "models/try.h"

/* Types of values, with the numbers of the format. */
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

static srt_status_t append_number(srt_string_t *s, uint64_t value, size_t nbytes)
{
	char bytes[8];

	for (size_t i = 0; i < nbytes; i++)
		bytes[i] = (char)(value >> 8 * i & 0xff);
	return srt_string_append(s, bytes, nbytes);
}

static srt_status_t append_text(srt_string_t *s, const char *text, size_t nbytes)
{
	SRT_TRY(append_number(s, nbytes, 8));
	return srt_string_append(s, text, nbytes);
}

static srt_status_t begin(srt_gguf_keys_t *keys, const char *key, int type)
{
	keys->n++;
	SRT_TRY(append_text(&keys->bytes, key, strlen(key)));
	return append_number(&keys->bytes, (uint64_t)type, 4);
}

static srt_status_t begin_array(srt_gguf_keys_t *keys, const char *key, int type, size_t n)
{
	SRT_TRY(begin(keys, key, TYPE_ARRAY));
	SRT_TRY(append_number(&keys->bytes, (uint64_t)type, 4));
	return append_number(&keys->bytes, n, 8);
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

srt_status_t srt_gguf_put_u32(srt_gguf_keys_t *keys, const char *key, uint32_t value)
{
	SRT_TRY(begin(keys, key, TYPE_U32));
	return append_number(&keys->bytes, value, 4);
}

srt_status_t srt_gguf_put_f32(srt_gguf_keys_t *keys, const char *key, float value)
{
	SRT_TRY(begin(keys, key, TYPE_F32));
	return append_number(&keys->bytes, bits_of(value), 4);
}

srt_status_t srt_gguf_put_bool(srt_gguf_keys_t *keys, const char *key, bool value)
{
	SRT_TRY(begin(keys, key, TYPE_BOOL));
	return append_number(&keys->bytes, value, 1);
}

srt_status_t srt_gguf_put_string(srt_gguf_keys_t *keys, const char *key, const char *text,
				 size_t nbytes)
{
	SRT_TRY(begin(keys, key, TYPE_STRING));
	return append_text(&keys->bytes, text, nbytes);
}

srt_status_t srt_gguf_put_i32s(srt_gguf_keys_t *keys, const char *key, const int32_t *values,
			       size_t n)
{
	SRT_TRY(begin_array(keys, key, TYPE_I32, n));
	for (size_t i = 0; i < n; i++)
		SRT_TRY(append_number(&keys->bytes, (uint32_t)values[i], 4));
	return SRT_OK;
}

srt_status_t srt_gguf_put_f32s(srt_gguf_keys_t *keys, const char *key, const float *values,
			       size_t n)
{
	SRT_TRY(begin_array(keys, key, TYPE_F32, n));
	for (size_t i = 0; i < n; i++)
		SRT_TRY(append_number(&keys->bytes, bits_of(values[i]), 4));
	return SRT_OK;
}

srt_status_t srt_gguf_begin_strings(srt_gguf_keys_t *keys, const char *key, size_t n)
{
	return begin_array(keys, key, TYPE_STRING, n);
}

srt_status_t srt_gguf_add_string(srt_gguf_keys_t *keys, const char *text, size_t nbytes)
{
	return append_text(&keys->bytes, text, nbytes);
}

void srt_gguf_clear_keys(srt_gguf_keys_t *keys)
{
	free(keys->bytes.data);
	*keys = (srt_gguf_keys_t){ .n = 0 };
}

/* ---- the header ------------------------------------------------------------------------- */

/* Sizes are in the order of memory: columns first. */
static srt_status_t append_tensor(srt_string_t *s, const srt_gguf_tensor_t *t)
{
	SRT_TRY(append_text(s, t->name, strlen(t->name)));
	SRT_TRY(append_number(s, (uint64_t)t->ndim, 4));
	if (t->ndim == 2)
		SRT_TRY(append_number(s, (uint64_t)t->columns, 8));
	SRT_TRY(append_number(s, (uint64_t)t->rows, 8));
	SRT_TRY(append_number(s, (uint64_t)t->type, 4));
	return append_number(s, t->offset, 8);
}

srt_status_t srt_gguf_make_header(const srt_gguf_keys_t *keys, const srt_gguf_tensors_t *tensors,
				  srt_string_t *header)
{
	SRT_TRY(srt_string_append(header, "GGUF", 4));
	SRT_TRY(append_number(header, 3, 4));
	SRT_TRY(append_number(header, tensors->n, 8));
	SRT_TRY(append_number(header, keys->n, 8));
	SRT_TRY(srt_string_append(header, keys->bytes.data, keys->bytes.nbytes));
	for (size_t i = 0; i < tensors->n; i++)
		SRT_TRY(append_tensor(header, &tensors->list[i]));
	while (header->nbytes % SRT_GGUF_ALIGNMENT != 0)
		SRT_TRY(append_number(header, 0, 1));
	return SRT_OK;
}
