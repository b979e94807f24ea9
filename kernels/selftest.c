/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the cases of the self-test (selftest_cases.c): fills their places with samples, which are
 * the same everywhere, launches, and takes the digest of what was written.
 */
#include "kernels/selftest.h"
#include "kernels/selftest_cases.h"
#include "kernels/dialect.h"

#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>

#define MAX_PLACE_NBYTES 32768

static const srt_step_state_t sample_state = { .step = 7,
					       .lr = 1e-3f,
					       .clip_coef = 0.75f,
					       .base_lr = 1e-3f,
					       .min_lr = 1e-4f,
					       .warmup = 3,
					       .lr_steps = 50 };
static const srt_param_state_t sample_params[3] = { { 1, 7, 0.4f, 0.01f },
						    { 0, 3, 0.3f, 0.02f },
						    { 1, 1, 0.1f, 0.001f } };
static const srt_optim_segment_t sample_segments[2] = { { 1, 70, 0, 0 }, { 75, 56, 1, 2 } };
static const srt_optim_group_t sample_groups[2] = { { 1.0f, 0.1f }, { 0.5f, 0.0f } };

/* A float in (-1, 1), by 2^-2 .. 2^1: a hash of its number. */
static float sample_float(uint32_t i)
{
	uint32_t h = i * 2654435761u + 0x9e3779b9u;
	int32_t v;

	h ^= h >> 15;
	h *= 0x85ebca6bu;
	h ^= h >> 13;
	v = (int32_t)(h & 0xffffffu) - 0x800000;
	return (float)v * 0x1p-23f * (0.25f * (float)(1 << (h >> 30)));
}

static float sample_special(uint32_t i)
{
	static const uint32_t bits[] = { 0x7f800000u, 0xff800000u, 0x7fc00000u,
					 0x80000000u, 0x00000001u, 0x807fffffu,
					 0x7f7fffffu, 0x42b17218u, 0xc2cff1b5u };
	float v;

	if (i % 11)
		return sample_float(i);
	memcpy(&v, &bits[i / 11 % (sizeof(bits) / sizeof(bits[0]))], sizeof(v));
	return v;
}

/* Letters whose capital is the same in floats. */
static int is_number(char kind)
{
	return strchr("fxpmz", kind | 0x20) != NULL;
}

/* Number i of a place of numbers. */
static float sample_number(char kind, uint32_t first, uint32_t i)
{
	float v = sample_float(first + i);

	switch (kind | 0x20) {
	case 'x':
		return sample_special(i);
	case 'p':
		return v < 0.0f ? 0.5f - v : 0.5f + v;
	case 'm':
		return 4.0f;
	case 'z':
		return 0.0f;
	default:
		return v;
	}
}

/* Fills a place of numbers and returns their size. */
static size_t fill_numbers(char kind, srt_dtype_t dtype, size_t n, uint32_t first,
			   unsigned char *to)
{
	for (uint32_t i = 0; i < n; i++) {
		float v = sample_number(kind, first, i);
		uint16_t half = dtype == SRT_F16 ? k_to_f16(v) : k_to_bf16(v);

		if (dtype == SRT_F32)
			memcpy(to + i * sizeof(v), &v, sizeof(v));
		else
			memcpy(to + i * sizeof(half), &half, sizeof(half));
	}
	return dtype == SRT_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Fills a place with n elements of a kind, numbers from sample `first` on and of the dtype. Returns
 * the size of an element. */
static size_t fill_place(char kind, srt_dtype_t dtype, size_t n, uint32_t first, unsigned char *to)
{
	if (is_number(kind))
		return fill_numbers(kind, dtype, n, first, to);
	switch (kind) {
	case 'e':
		return fill_numbers('x', SRT_F16, n, first, to);
	case 'y':
		return fill_numbers('x', SRT_BF16, n, first, to);
	case 's':
		memcpy(to, &sample_state, n * sizeof(sample_state));
		return sizeof(sample_state);
	case 't': {
		srt_step_state_t scaled = sample_state;

		scaled.inv_scale = 1.0f / 3.0f;
		memcpy(to, &scaled, sizeof(scaled));
		return sizeof(scaled);
	}
	case 'u':
		memcpy(to, sample_params, n * sizeof(sample_params[0]));
		return sizeof(sample_params[0]);
	case 'g':
		memcpy(to, sample_segments, n * sizeof(sample_segments[0]));
		return sizeof(sample_segments[0]);
	case 'h':
		memcpy(to, sample_groups, n * sizeof(sample_groups[0]));
		return sizeof(sample_groups[0]);
	case 'c':
		for (size_t i = 0; i < n; i++)
			to[i] = (unsigned char)(i * 5 % 3);
		return 1;
	case 'b':
	case 'd':
		for (size_t i = 0; i < n; i++)
			memcpy(to + i * sizeof(double),
			       &(double){ kind == 'b' ? (double)(i + 1) * 0.75 : 0.0 },
			       sizeof(double));
		return sizeof(double);
	case 'k':
		for (size_t i = 0; i < n; i++)
			memcpy(to + i * sizeof(int64_t), &(int64_t){ (int64_t)(i % 64 / 3) },
			       sizeof(int64_t));
		return sizeof(int64_t);
	default:
		for (size_t i = 0; i < n; i++) {
			size_t v = kind == 'q' ? 45 : kind == 'n' ? 2 * i + 4 : i * 5 % 7;

			memcpy(to + i * sizeof(int32_t), &(int32_t){ (int32_t)v }, sizeof(int32_t));
		}
		return sizeof(int32_t);
	}
}

/* FNV-1a over words of 32 bits, or of 16. In places of floats every NaN counts as the canonical
 * one, which 16-bit places must hold. */
static uint64_t digest_place(uint64_t h, const unsigned char *p, size_t nbytes, size_t word,
			     int floats)
{
	for (size_t i = 0; i < nbytes; i += word) {
		uint32_t u = 0;
		uint16_t half;

		memcpy(&u, p + i, sizeof(u));
		if (floats && (u & 0x7fffffffu) > 0x7f800000u)
			u = 0x7fc00000u;
		memcpy(&half, p + i, sizeof(half));
		h = (h ^ (word == sizeof(half) ? half : u)) * 0x100000001b3u;
	}
	return h;
}

static srt_status_t run_case(const srt_selftest_case_t *c, srt_dtype_t dtype, unsigned char *memory,
			     srt_selftest_run_fn *run, void *context, uint64_t *digest)
{
	const srt_kernel_info_t *info = srt_kernel_info(c->kernel);
	srt_launch_t launch = { .kernel = (uint16_t)c->kernel,
				.dtype = (uint16_t)dtype,
				.nplaces = info->nplaces,
				.args_nbytes = info->args_nbytes,
				.ngroups = srt_kernel_grid(c->kernel, c->args),
				.args = c->args };
	unsigned char *host[SRT_LAUNCH_MAX_PLACES] = { 0 };
	size_t nbytes[SRT_LAUNCH_MAX_PLACES] = { 0 }, word[SRT_LAUNCH_MAX_PLACES];
	char kinds[SRT_LAUNCH_MAX_PLACES];
	const char *spec = c->places;
	srt_status_t status;

	for (int i = 0; i < info->nplaces; i++) {
		char *end = NULL;

		kinds[i] = *spec++;
		if (kinds[i] != '-') {
			size_t n = strtoul(spec, &end, 10), size;
			srt_dtype_t own = kinds[i] < 'a' ? SRT_F32 : dtype;
			uint32_t first = 1000 * (uint32_t)i;

			if (*end == '@')
				first = (uint32_t)strtoul(end + 1, &end, 10);

			host[i] = memory + (size_t)i * MAX_PLACE_NBYTES;
			size = fill_place(kinds[i], own, n, first, host[i]);
			nbytes[i] = n * size;
			word[i] = size == sizeof(uint16_t) ? size : sizeof(uint32_t);
			spec = end;
		}
		spec += *spec == ' ';
	}
	status = run(context, &launch, host, nbytes);
	if (status != SRT_OK)
		return status;
	*digest = 0xcbf29ce484222325u;
	for (int i = 0; i < info->nplaces; i++)
		if (host[i] && strchr("WXwx", info->access[i]))
			*digest = digest_place(*digest, host[i], nbytes[i], word[i],
					       is_number(kinds[i]));
	return SRT_OK;
}

int srt_kernels_selftest_count(void)
{
	return srt_selftest_ncases;
}

srt_status_t srt_kernels_selftest_case(int number, srt_dtype_t dtype, srt_selftest_run_fn *run,
				       void *context, srt_kernel_id_t *kernel, uint64_t *digest,
				       uint64_t *expected)
{
	unsigned char *memory;
	srt_status_t status;

	*kernel = srt_selftest_cases[number].kernel;
	if (!srt_kernel_has(*kernel, dtype))
		return SRT_ERR_UNSUPPORTED;
	*expected = srt_selftest_cases[number].digests[dtype];
	memory = malloc((size_t)SRT_LAUNCH_MAX_PLACES * MAX_PLACE_NBYTES);
	if (!memory)
		return SRT_ERR_OUT_OF_MEMORY;
	status = run_case(&srt_selftest_cases[number], dtype, memory, run, context, digest);
	free(memory);
	return status;
}

/* All cases of the dtype, or those of one kernel. */
static srt_status_t run_cases(int only, srt_dtype_t dtype, srt_selftest_run_fn *run, void *context,
			      const char **kernel)
{
	*kernel = NULL;
	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		srt_kernel_id_t id = srt_selftest_cases[i].kernel;
		uint64_t digest, expected;
		srt_status_t status;

		if ((only >= 0 && only != (int)id) || !srt_kernel_has(id, dtype))
			continue;
		status = srt_kernels_selftest_case(i, dtype, run, context, &id, &digest, &expected);
		if (status == SRT_OK && digest != expected)
			status = SRT_ERR_DEVICE;
		if (status != SRT_OK) {
			*kernel = srt_kernel_info(id)->name;
			return status;
		}
	}
	return SRT_OK;
}

srt_status_t srt_kernels_selftest(srt_dtype_t dtype, srt_selftest_run_fn *run, void *context,
				  const char **kernel)
{
	return run_cases(-1, dtype, run, context, kernel);
}

srt_status_t srt_kernels_selftest_one(srt_kernel_id_t which, srt_dtype_t dtype,
				      srt_selftest_run_fn *run, void *context, const char **kernel)
{
	return run_cases((int)which, dtype, run, context, kernel);
}
