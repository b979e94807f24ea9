/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the cases of the self-test: fills their memory, launches, and takes the digest of all of it.
 */
#include "kernels/cases/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static srt_status_t run_launch(const srt_kernel_run_t *r, srt_selftest_run_fn *run, void *context,
			       unsigned char *bytes)
{
	const uint16_t args_nbytes = srt_kernel_info(r->c->kernel)->args_nbytes;
	srt_command_t command = {
		.kind = SRT_COMMAND_KERNEL,
		.kernel = (uint16_t)r->c->kernel,
		.dtype = (uint16_t)r->dtype,
		.nbindings = (uint16_t)r->nplaces,
		.args_nbytes = args_nbytes,
		.ngroups = r->ngroups,
	};

	memcpy(command.args, r->args, args_nbytes);
	for (int i = 0; i < r->nplaces; i++)
		command.bindings[i] = (srt_binding_t){
			.mem = r->places[i].fill == '-' ? NULL : bytes,
			.offset = r->offset[i],
		};
	return run(context, &command, bytes, r->nbytes);
}

static srt_status_t run_size(const srt_kernel_case_t *c, srt_dtype_t dtype,
			     const srt_kernel_dims_t *dims, srt_kernel_input_t input,
			     srt_selftest_run_fn *run, void *context, uint64_t *digest)
{
	srt_kernel_run_t r;
	unsigned char *bytes;
	srt_status_t status;

	srt_kernel_run_init(&r, c, dtype, dims, input != SRT_INPUT_MILD);
	bytes = malloc(r.nbytes);
	if (bytes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_kernel_run_fill(&r, input, false, bytes);
	status = run_launch(&r, run, context, bytes);
	srt_kernel_run_canonical(&r, bytes);
	*digest = srt_kernel_digest(*digest, bytes, r.nbytes);
	free(bytes);
	return status;
}

srt_status_t srt_kernels_selftest_case(const srt_kernel_case_t *c, srt_dtype_t dtype,
				       srt_selftest_run_fn *run, void *context, uint64_t *digest)
{
	const srt_kernel_family_t *f = c->family;

	*digest = SRT_KERNEL_DIGEST;
	for (int i = 0; i < f->nselftest; i++)
		SRT_TRY(run_size(c, dtype, &f->selftest[i], SRT_INPUT_MILD, run, context, digest));
	return run_size(c, dtype, &f->selftest[f->nselftest - 1], SRT_INPUT_HARD, run, context,
			digest);
}

srt_status_t srt_kernels_selftest(srt_kernel_id_t which, srt_dtype_t dtype,
				  srt_selftest_run_fn *run, void *context, const char **name)
{
	*name = NULL;
	for (int i = 0; i < SRT_CASE_COUNT; i++) {
		const srt_kernel_case_t *c = &srt_kernel_cases[i];
		uint64_t digest;

		if ((which != SRT_SELFTEST_ALL && which != c->kernel) ||
		    !srt_kernel_has(c->kernel, dtype))
			continue;
		SRT_TRY(srt_kernels_selftest_case(c, dtype, run, context, &digest));
		if (digest != srt_kernel_selftest_digests[i][dtype]) {
			*name = srt_kernel_info(c->kernel)->name;
			return SRT_ERR_DEVICE;
		}
	}
	return SRT_OK;
}
