/* SPDX-License-Identifier: BSD-3-Clause */
/* See gguf_file.h. */
#include "tests/tools/gguf_file.h"

#include <math.h>
#include <string.h>

#include "tests/harness/check.h"

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

static const unsigned char *take(gguf_file_t *f, size_t n)
{
	CHECK_OR_DIE(n <= f->nbytes - f->at);
	f->at += n;
	return f->bytes + f->at - n;
}

static uint64_t take_number(gguf_file_t *f, size_t n)
{
	const unsigned char *from = take(f, n);
	uint64_t value = 0;

	for (size_t i = n; i > 0; i--)
		value = value << 8 | from[i - 1];
	return value;
}

static gguf_text_t take_text(gguf_file_t *f)
{
	const size_t n = take_number(f, 8);

	return (gguf_text_t){ (const char *)take(f, n), n };
}

static void take_name(gguf_file_t *f, char *name, size_t room)
{
	const gguf_text_t text = take_text(f);

	CHECK_OR_DIE(text.n > 0 && text.n < room);
	memcpy(name, text.data, text.n);
	name[text.n] = '\0';
}

static double take_value(gguf_file_t *f, uint32_t type)
{
	const uint64_t bits = take_number(f, type == BOOL ? 1 : 4);
	const uint32_t low = (uint32_t)bits;
	float value;

	CHECK_OR_DIE(type >= U32 && type <= BOOL);
	memcpy(&value, &low, sizeof(value));
	return type == F32 ? (double)value : type == I32 ? (double)(int32_t)low : (double)low;
}

static void take_key(gguf_file_t *f, gguf_key_t *key)
{
	take_name(f, key->name, sizeof(key->name));
	CHECK(gguf_find(f, key->name) == NULL);
	key->type = (uint32_t)take_number(f, 4);
	key->of = key->type == ARRAY ? (uint32_t)take_number(f, 4) : key->type;
	key->n = key->type == ARRAY ? take_number(f, 8) : 1;
	CHECK_OR_DIE(key->n <= f->nbytes); /* each value has a byte */
	key->numbers = calloc(key->n + 1, sizeof(*key->numbers));
	key->texts = calloc(key->n + 1, sizeof(*key->texts));
	CHECK_OR_DIE(key->numbers != NULL && key->texts != NULL);
	for (size_t i = 0; i < key->n; i++) {
		if (key->of == STRING)
			key->texts[i] = take_text(f);
		else
			key->numbers[i] = take_value(f, key->of);
	}
	key->number = key->numbers[0];
}

static size_t size_of(const gguf_tensor_t *t)
{
	size_t n = 1;

	for (uint32_t i = 0; i < t->ndim; i++)
		n *= t->ne[i];
	switch (t->type) {
	case 0:
		return n * 4;
	case 1:
	case 30:
		return n * 2;
	case 8:
		CHECK(t->ne[0] % 32 == 0);
		return n / 32 * 34;
	default:
		CHECK_REPORT("type %u", t->type);
		exit(1);
	}
}

/* Descriptions of tensors, then their data. */
static void take_tensors(gguf_file_t *f)
{
	uint64_t *offsets = calloc(f->ntensors + 1, sizeof(*offsets));
	size_t end = 0;

	CHECK_OR_DIE(offsets != NULL);
	for (size_t i = 0; i < f->ntensors; i++) {
		gguf_tensor_t *t = &f->tensors[i];

		take_name(f, t->name, sizeof(t->name));
		for (size_t k = 0; k < i; k++)
			CHECK_MSG(strcmp(f->tensors[k].name, t->name) != 0, "%s", t->name);
		t->ndim = (uint32_t)take_number(f, 4);
		CHECK_OR_DIE(t->ndim >= 1 && t->ndim <= 2);
		for (uint32_t d = 0; d < t->ndim; d++)
			t->ne[d] = take_number(f, 8);
		t->type = (uint32_t)take_number(f, 4);
		offsets[i] = take_number(f, 8);
	}
	take(f, (32 - f->at % 32) % 32);
	for (size_t i = 0; i < f->ntensors; i++) {
		gguf_tensor_t *t = &f->tensors[i];

		CHECK_MSG(offsets[i] == end, "%s is at %zu, not %zu", t->name, (size_t)offsets[i],
			  end);
		t->nbytes = size_of(t);
		t->data = take(f, t->nbytes);
		take(f, (32 - f->at % 32) % 32);
		end += (t->nbytes + 31) / 32 * 32;
	}
	CHECK(f->at == f->nbytes);
	free(offsets);
}

void gguf_read(const char *path, gguf_file_t *f)
{
	FILE *file = fopen(path, "rb");
	long size;

	*f = (gguf_file_t){ .at = 0 };
	CHECK_OR_DIE(file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0);
	f->nbytes = (size_t)size;
	f->bytes = malloc(f->nbytes);
	rewind(file);
	CHECK_OR_DIE(f->bytes != NULL && fread(f->bytes, 1, f->nbytes, file) == f->nbytes);
	fclose(file);
	CHECK(memcmp(take(f, 4), "GGUF", 4) == 0);
	CHECK_INT(take_number(f, 4), 3);
	f->ntensors = take_number(f, 8);
	const size_t nkeys = take_number(f, 8);
	CHECK_OR_DIE(f->ntensors < f->nbytes && nkeys < f->nbytes);
	f->keys = calloc(nkeys + 1, sizeof(*f->keys));
	f->tensors = calloc(f->ntensors + 1, sizeof(*f->tensors));
	CHECK_OR_DIE(f->keys != NULL && f->tensors != NULL);
	for (size_t i = 0; i < nkeys; i++) {
		take_key(f, &f->keys[i]);
		f->nkeys++;
	}
	take_tensors(f);
}

void gguf_free(gguf_file_t *f)
{
	for (size_t i = 0; i < f->nkeys; i++) {
		free(f->keys[i].numbers);
		free(f->keys[i].texts);
	}
	free(f->keys);
	free(f->tensors);
	free(f->bytes);
}

const gguf_key_t *gguf_find(const gguf_file_t *f, const char *name)
{
	for (size_t i = 0; i < f->nkeys; i++)
		if (strcmp(f->keys[i].name, name) == 0)
			return &f->keys[i];
	return NULL;
}

void gguf_print(const gguf_file_t *f)
{
	static const char *const types[] = {
		[0] = "F32", [1] = "F16", [8] = "Q8_0", [30] = "BF16"
	};

	for (size_t i = 0; i < f->nkeys; i++) {
		const gguf_key_t *k = &f->keys[i];

		if (k->type == ARRAY)
			printf("%s [%zu]\n", k->name, k->n);
		else if (k->type == STRING)
			printf("%s %.*s\n", k->name, (int)k->texts[0].n, k->texts[0].data);
		else if (k->type == BOOL)
			printf("%s %s\n", k->name, k->number != 0 ? "true" : "false");
		else
			printf("%s %.7g\n", k->name, k->number);
	}
	for (size_t i = 0; i < f->ntensors; i++) {
		const gguf_tensor_t *t = &f->tensors[i];

		printf("tensor %s %s [%zu", t->name, types[t->type], (size_t)t->ne[0]);
		if (t->ndim == 2)
			printf(",%zu", (size_t)t->ne[1]);
		printf("]\n");
	}
}

/* ---- numbers ---------------------------------------------------------------------------- */

double gguf_decode(uint16_t bits, int fraction)
{
	const int bias = fraction == 10 ? 15 : 127;
	const int exponent = (bits & 0x7fff) >> fraction;
	const int part = bits & ((1 << fraction) - 1);
	const double value = exponent == 0 ?
				     ldexp(part, 1 - bias - fraction) :
				     ldexp(part + (1 << fraction), exponent - bias - fraction);

	CHECK_OR_DIE(exponent < 2 * bias + 1); /* no infinity */
	return bits & 0x8000 ? -value : value;
}

double gguf_round(double x, int fraction)
{
	const int least = fraction == 10 ? -14 : -126;
	int exponent;

	frexp(x, &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	return ldexp(nearbyint(ldexp(x, fraction - exponent)), exponent - fraction);
}
