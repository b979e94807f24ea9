/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every case of tests/kernel_cases.def in every dtype, and the operations that have tuned versions,
 * one after the other on one stream without a wait, each on places of its own in one buffer whose
 * bytes are the result. For tests that change what must not matter: threads, kind of streams,
 * instruction set, floating-point environment, a backend that fails.
 */
#ifndef SRT_TESTS_ALL_CASES_H
#define SRT_TESTS_ALL_CASES_H

#include "tests/check.h"
#include "tests/kernel_cases.h"

/* One launch. */
typedef struct all_cases_entry {
	const kernel_case_t *c;
	srt_dtype_t dtype;
	bool operation;
	uint64_t args[SRT_LAUNCH_MAX_ARGS / 8];
	kernel_place_t places[SRT_LAUNCH_MAX_PLACES];
	size_t offset[SRT_LAUNCH_MAX_PLACES];
} all_cases_entry_t;

/* All of them, and what the buffer holds before. */
typedef struct all_cases {
	all_cases_entry_t *entries;
	size_t nentries, nbytes;
	unsigned char *image;
} all_cases_t;

static inline bool all_cases_has_operation(srt_kernel_id_t kernel)
{
	return kernel == SRT_K_MATMUL || kernel == SRT_K_ATTENTION ||
	       kernel == SRT_K_ATTENTION_BACKWARD_Q;
}

static inline void all_cases_add(all_cases_t *all, const kernel_case_t *c, srt_dtype_t dtype,
				 bool operation, const kernel_dims_t *dims)
{
	all_cases_entry_t *e = &all->entries[all->nentries++];

	*e = (all_cases_entry_t){ .c = c, .dtype = dtype, .operation = operation };
	c->make(dims, e->args, e->places);
	for (int i = 0; i < srt_kernel_info(c->kernel)->nplaces; i++) {
		e->offset[i] = all->nbytes;
		all->nbytes =
			srt_align_up(all->nbytes + kernel_place_nbytes(&e->places[i], dtype), 64);
	}
}

/* At the first of the long sizes, or small: at a few elements; in all dtypes, or in float alone.
 * For tests of two threads and of statuses: what fails here ends the program. */
static inline all_cases_t all_cases_make(bool small, bool float_only)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };
	all_cases_t all = { .entries =
				    calloc((size_t)kernel_case_count * 6, sizeof(*all.entries)) };

	CHECK_OR_DIE(all.entries != NULL);
	for (int k = 0; k < kernel_case_count; k++) {
		const kernel_case_t *c = &kernel_cases[k];
		const kernel_dims_t *dims = small ? &c->family->quick[2] : &c->family->more[0];

		for (size_t t = 0; t < (float_only ? 1 : SRT_ARRAY_LEN(dtypes)); t++) {
			if (!srt_kernel_has(c->kernel, dtypes[t]))
				continue;
			all_cases_add(&all, c, dtypes[t], false, dims);
			if (all_cases_has_operation(c->kernel))
				all_cases_add(&all, c, dtypes[t], true, dims);
		}
	}
	all.image = calloc(1, all.nbytes);
	CHECK_OR_DIE(all.image != NULL);
	for (size_t k = 0; k < all.nentries; k++) {
		all_cases_entry_t *e = &all.entries[k];
		int nplaces = srt_kernel_info(e->c->kernel)->nplaces;

		for (int i = nplaces; i-- > 0;)
			kernel_place_fill(e->c, i, e->places, e->dtype, KERNEL_INPUT_EDGE, 0,
					  all.image + e->offset[i],
					  i + 1 < nplaces ? all.image + e->offset[i + 1] : NULL);
	}
	return all;
}

static inline void all_cases_free(all_cases_t *all)
{
	free(all->entries);
	free(all->image);
}

static inline srt_status_t all_cases_launch(const all_cases_entry_t *e, srt_stream_t *stream,
					    srt_buffer_t *buffer)
{
	const srt_kernel_info_t *info = srt_kernel_info(e->c->kernel);
	int64_t ngroups = srt_kernel_grid(e->c->kernel, e->args);
	srt_view_t views[SRT_LAUNCH_MAX_PLACES] = { 0 };

	for (int i = 0; i < info->nplaces; i++)
		if (e->places[i].fill != '-')
			views[i] = srt_view(buffer, e->offset[i], SRT_U8);
	if (!e->operation)
		return srt_launch(stream, e->c->kernel, e->dtype, ngroups, e->args,
				  info->args_nbytes, views, info->nplaces);
	if (e->c->kernel != SRT_K_ATTENTION_BACKWARD_Q)
		return kernel_case_operation(stream, e->c->kernel, e->dtype, e->args, views);
	SRT_TRY(kernel_case_attention_backward(stream, e->dtype, e->args, views));
	/* The contents of its scratch are undefined. */
	return srt_zero(stream, buffer, e->offset[6], kernel_place_nbytes(&e->places[6], e->dtype));
}

/* Runs everything on a stream of its own; *bytes (all->nbytes) is the caller's to free, NULL on
 * failure. */
static inline srt_status_t all_cases_run(const all_cases_t *all, srt_device_t *device,
					 unsigned char **bytes)
{
	srt_buffer_t *buffer = NULL;
	srt_stream_t *stream = NULL;
	srt_status_t status;

	*bytes = NULL;
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, all->nbytes, "all cases", &buffer));
	status = srt_stream_create(device, 0, "all", &stream);
	if (status == SRT_OK)
		status = srt_copy_from_host(stream, buffer, 0, all->image, all->nbytes);
	for (size_t k = 0; status == SRT_OK && k < all->nentries; k++)
		status = all_cases_launch(&all->entries[k], stream, buffer);
	if (status == SRT_OK) {
		*bytes = malloc(all->nbytes);
		status = *bytes ? srt_copy_to_host(stream, *bytes, buffer, 0, all->nbytes) :
				  SRT_ERR_OUT_OF_MEMORY;
	}
	srt_stream_destroy(stream);
	srt_buffer_destroy(buffer);
	if (status != SRT_OK) {
		free(*bytes);
		*bytes = NULL;
		return status;
	}
	for (size_t k = 0; k < all->nentries; k++) {
		const all_cases_entry_t *e = &all->entries[k];

		for (int i = 0; i < srt_kernel_info(e->c->kernel)->nplaces; i++)
			kernel_place_canonical(&e->places[i], e->dtype, *bytes + e->offset[i]);
	}
	return SRT_OK;
}

/* Which launch wrote the first byte that differs; NULL: none does. */
static inline const char *all_cases_differ(const all_cases_t *all, const unsigned char *a,
					   const unsigned char *b)
{
	size_t at = 0, k = all->nentries;

	if (!a || !b)
		return "no results";
	if (!memcmp(a, b, all->nbytes))
		return NULL;
	while (a[at] == b[at])
		at++;
	while (all->entries[--k].offset[0] > at)
		;
	return all->entries[k].c->name;
}

#endif
