/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/all_cases.h"

static bool all_cases_has_operation(srt_kernel_id_t kernel)
{
	return kernel == SRT_K_MATMUL || kernel == SRT_K_ATTENTION ||
	       kernel == SRT_K_ATTENTION_BACKWARD_Q;
}

static void all_cases_add(all_cases_t *all, const srt_kernel_case_t *c, srt_dtype_t dtype,
			  bool operation, const srt_kernel_dims_t *dims)
{
	all_cases_entry_t *e = &all->entries[all->nentries++];

	*e = (all_cases_entry_t){ .base = all->nbytes, .operation = operation };
	srt_kernel_run_init(&e->run, c, dtype, dims, false);
	all->nbytes += e->run.nbytes;
}

all_cases_t all_cases_make(bool small, bool float_only)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };
	all_cases_t all = { .entries = calloc((size_t)SRT_CASE_COUNT * 6, sizeof(*all.entries)) };

	CHECK_OR_DIE(all.entries != NULL);
	for (int k = 0; k < SRT_CASE_COUNT; k++) {
		const srt_kernel_case_t *c = &srt_kernel_cases[k];
		const srt_kernel_dims_t *dims = small ? &c->family->quick[2] : &c->family->more[0];

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
	for (size_t k = 0; k < all.nentries; k++)
		srt_kernel_run_fill(&all.entries[k].run, SRT_INPUT_EDGE, false,
				    all.image + all.entries[k].base);
	return all;
}

void all_cases_free(all_cases_t *all)
{
	free(all->entries);
	free(all->image);
}

static srt_status_t all_cases_launch(const all_cases_entry_t *e, srt_stream_t *stream,
				     srt_buffer_t *buffer)
{
	const srt_kernel_run_t *run = &e->run;
	const srt_kernel_id_t kernel = run->c->kernel;
	srt_view_t views[SRT_COMMAND_MAX_BINDINGS] = { 0 };

	for (int i = 0; i < run->nplaces; i++)
		if (run->places[i].fill != '-')
			views[i] = srt_view(buffer, e->base + run->offset[i], SRT_U8);
	if (!e->operation)
		return srt_launch(stream, kernel, run->dtype, run->ngroups, run->args,
				  srt_kernel_info(kernel)->args_nbytes, views, run->nplaces);
	if (kernel != SRT_K_ATTENTION_BACKWARD_Q)
		return kernel_case_operation(stream, kernel, run->dtype, run->args, views);
	SRT_TRY(kernel_case_attention_backward(stream, run->dtype, run->args, views));
	/* The contents of its scratch are undefined. */
	return srt_buffer_zero(buffer, e->base + run->offset[6],
			       srt_kernel_place_nbytes(&run->places[6], run->dtype), stream);
}

srt_status_t all_cases_run(const all_cases_t *all, srt_device_t *device, unsigned char **bytes)
{
	srt_buffer_t *buffer = NULL;
	srt_stream_t *stream = NULL;
	srt_status_t status;

	*bytes = NULL;
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, all->nbytes, "all cases", &buffer));
	status = srt_stream_create(device, 0, "all", &stream);
	if (status == SRT_OK)
		status = srt_buffer_copy_from_host(buffer, 0, all->image, all->nbytes, stream);
	for (size_t k = 0; status == SRT_OK && k < all->nentries; k++)
		status = all_cases_launch(&all->entries[k], stream, buffer);
	if (status == SRT_OK) {
		*bytes = malloc(all->nbytes);
		status = *bytes != NULL ?
				 srt_buffer_copy_to_host(*bytes, buffer, 0, all->nbytes, stream) :
				 SRT_ERR_OUT_OF_MEMORY;
	}
	srt_stream_destroy(stream);
	srt_buffer_destroy(buffer);
	if (status != SRT_OK) {
		free(*bytes);
		*bytes = NULL;
		return status;
	}
	for (size_t k = 0; k < all->nentries; k++)
		srt_kernel_run_canonical(&all->entries[k].run, *bytes + all->entries[k].base);
	return SRT_OK;
}

const char *all_cases_differ(const all_cases_t *all, const unsigned char *a, const unsigned char *b)
{
	size_t at = 0, k = all->nentries;

	if (a == NULL || b == NULL)
		return "no results";
	if (!memcmp(a, b, all->nbytes))
		return NULL;
	while (a[at] == b[at])
		at++;
	while (all->entries[--k].base > at)
		;
	return all->entries[k].run.c->name;
}
