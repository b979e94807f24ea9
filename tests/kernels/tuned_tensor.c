/* SPDX-License-Identifier: BSD-3-Clause */
/* See tuned_tensor.h. */
#include "tests/harness/half.h"
#include "tests/harness/random.h"
#include "tests/kernels/tuned_tensor.h"

#define GUARD (-123.25f)

srt_device_t *tt_device;
srt_stream_t *tt_stream;
const char *tt_form;
size_t tt_nguard = 67;

uint32_t tt_random(void)
{
	return random32();
}

float tt_value(srt_dtype_t dtype, values_t kind)
{
	static const uint32_t hard[] = { 0x00000000, 0x80000000, 0x00000001, 0x80000003,
					 0x007fffff, 0x00800000, 0x80800001, 0x20000000,
					 0x1f800001, 0x3f800000, 0x5f000000, 0xdf000001 };
	uint32_t r = random32();
	float x = (float)((int)(r >> 8) - (1 << 23)) * 0x1p-22f;

	if (kind == TINY && dtype == SRT_F16)
		return x * (r % 3 ? 0x1p-7f : 0x1p-15f);
	if (kind == TINY)
		return x * (r % 3 ? 0x1p-70f : 0x1p-126f);
	if (kind == HARD && r % 7 == 0)
		memcpy(&x, &hard[(r >> 8) % SRT_ARRAY_LEN(hard)], sizeof(x));
	if (kind == HARD && r % 199 == 1)
		x = (r >> 8) % 3 == 0 ? NAN : r & 0x1000 ? INFINITY : -INFINITY;
	return x;
}

static size_t element(const tensor_t *t)
{
	return srt_dtype_bits(t->dtype) / 8;
}

static size_t nbytes_of(const tensor_t *t)
{
	return (t->nelem + 2 * tt_nguard) * element(t);
}

unsigned char *tt_at(const tensor_t *t, int64_t i)
{
	return t->host != NULL ? t->host + (tt_nguard + (size_t)i) * element(t) : NULL;
}

void tt_put(const tensor_t *t, int64_t i, float v)
{
	half_put(t->dtype, tt_at(t, 0), (size_t)i, v);
}

tensor_t tt_tensor(srt_dtype_t dtype, int64_t nelem, const char *name)
{
	tensor_t t = { .dtype = dtype, .nelem = (size_t)nelem };

	t.host = malloc(nbytes_of(&t));
	CHECK_OR_DIE(t.host != NULL);
	half_put(dtype, t.host, 0, GUARD);
	for (size_t i = element(&t); i < nbytes_of(&t); i++)
		t.host[i] = t.host[i - element(&t)];
	t.buffer = test_buffer(tt_device, nbytes_of(&t), name);
	return t;
}

tensor_t tt_random_tensor(srt_dtype_t dtype, int64_t nelem, values_t kind, const char *name)
{
	tensor_t t = tt_tensor(dtype, nelem, name);

	for (int64_t i = 0; i < nelem; i++)
		tt_put(&t, i, tt_value(dtype, kind));
	return t;
}

void tt_upload(tensor_t *t)
{
	test_put(tt_stream, t->buffer, 0, t->host, nbytes_of(t));
}

srt_view_t tt_view(const tensor_t *t)
{
	if (t->buffer == NULL)
		return (srt_view_t){ .buffer = NULL };
	return srt_view(t->buffer, tt_nguard * element(t), t->dtype);
}

/* A NaN of 16 bits has one pattern, one of floats any. */
size_t tt_wrong(const tensor_t *t)
{
	const size_t n = t->nelem + 2 * tt_nguard, of = element(t);
	unsigned char *got = malloc(nbytes_of(t));
	size_t count = 0;

	CHECK_OR_DIE(got != NULL);
	test_get(tt_stream, got, t->buffer, 0, nbytes_of(t));
	for (size_t i = 0; i < n; i++) {
		float a, b;

		if (memcmp(got + i * of, t->host + i * of, of) == 0)
			continue;
		a = half_get(t->dtype, got, i);
		b = half_get(t->dtype, t->host, i);
		count += t->dtype != SRT_F32 || a == a || b == b;
	}
	free(got);
	return count;
}

void tt_drop(tensor_t *t)
{
	srt_buffer_destroy(t->buffer);
	free(t->host);
}

void tt_portable(srt_kernel_id_t kernel, srt_dtype_t dtype, const void *args,
		 tensor_t *const *tensors)
{
	unsigned char *places[SRT_COMMAND_MAX_BINDINGS];
	int isa = SRT_ISA_COUNT - 1;

	while (!srt_cpu_isa_usable((srt_cpu_isa_t)isa))
		isa--;
	for (int i = 0; i < srt_kernel_info(kernel)->nplaces; i++)
		places[i] = tt_at(tensors[i], 0);
	srt_kernel_cpu(kernel, dtype, (srt_cpu_isa_t)isa)(places, args, 0,
							  srt_kernel_grid(kernel, args));
}
