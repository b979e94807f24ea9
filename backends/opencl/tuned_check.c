/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tries the tuned kernels at start-up against the portable ones, which the self-test has compared
 * with their digests: a small product of each kind and attention with its gradient. Where the
 * driver's compiler fails on a tuned kernel, or makes other bits of it, the device works with the
 * portable ones and the log says so; a form that was asked for by name is then an error. Called by
 * device.c.
 */
#include <string.h>

#include "backends/opencl/tuned.h"
#include "base/base.h"

#define MAX_TENSORS 32
#define MAX_FLOATS ((int64_t)1 << 16) /* of one tensor */

typedef struct check {
	srt_ocl_device_t *device;
	void *stream;
	float *numbers, *others; /* MAX_FLOATS on the host */
	void *mems[MAX_TENSORS];
	int nmems;
	const char *differs; /* the first result that does */
} check_t;

/* A tensor of numbers in [-1/2, 1/2) that follow from the seed. */
static srt_status_t make_tensor(check_t *c, int64_t nelem, uint32_t seed, srt_place_t *place)
{
	const size_t nbytes = (size_t)nelem * sizeof(float);
	uint32_t state = seed;

	SRT_TRY(srt_ocl_mem_ops.alloc(c->device, SRT_MEM_DEVICE, nbytes, "self-test",
				      &c->mems[c->nmems]));
	*place = (srt_place_t){ .mem = c->mems[c->nmems++] };
	for (int64_t i = 0; i < nelem; i++) {
		state = state * 1664525u + 1013904223u;
		c->numbers[i] = (float)(int32_t)(state >> 8) * 0x1p-24f - 0.5f;
	}
	return srt_ocl_work_ops.from_host(c->stream, place->mem, 0, c->numbers, nbytes);
}

static srt_status_t compare(check_t *c, const char *what, const srt_place_t *a,
			    const srt_place_t *b, int64_t nelem)
{
	const size_t nbytes = (size_t)nelem * sizeof(float);

	SRT_TRY(srt_ocl_work_ops.to_host(c->stream, c->numbers, a->mem, 0, nbytes));
	SRT_TRY(srt_ocl_work_ops.to_host(c->stream, c->others, b->mem, 0, nbytes));
	if (!c->differs && memcmp(c->numbers, c->others, nbytes) != 0)
		c->differs = what;
	return SRT_OK;
}

static srt_status_t run_portable(check_t *c, srt_kernel_id_t kernel, const void *args,
				 const srt_place_t *const *places)
{
	srt_launch_t launch = {
		.kernel = (uint16_t)kernel,
		.dtype = SRT_F32,
		.nplaces = srt_kernel_info(kernel)->nplaces,
		.args_nbytes = srt_kernel_info(kernel)->args_nbytes,
		.ngroups = srt_kernel_grid(kernel, args),
		.args = args,
	};

	for (int i = 0; i < launch.nplaces; i++)
		launch.places[i] = *places[i];
	return srt_ocl_work_ops.launch(c->stream, &launch);
}

static srt_status_t check_matmul(check_t *c, int trans_a, int trans_b)
{
	const srt_k_matmul_t args = {
		.m = 13,
		.n = 37,
		.k = 520,
		.batch = 1,
		.lda = trans_a ? 71 : 520,
		.ldb = trans_b ? 520 : 37,
		.ldc = 37,
		.alpha = 0.75f,
		.trans_a = trans_a,
		.trans_b = trans_b,
		.accumulate = 1,
	};
	const srt_matmul_t mm = {
		.m = args.m,
		.n = args.n,
		.k = args.k,
		.batch = 1,
		.trans_a = trans_a,
		.trans_b = trans_b,
		.lda = args.lda,
		.ldb = args.ldb,
		.ldc = args.ldc,
		.alpha = args.alpha,
		.accumulate = 1,
	};
	const int64_t nc = args.m * args.n;
	srt_place_t a, b, bias, tuned, portable;

	SRT_TRY(make_tensor(c, trans_a ? args.k * args.lda : args.m * args.lda, 1, &a));
	SRT_TRY(make_tensor(c, args.n * args.k, 2, &b));
	SRT_TRY(make_tensor(c, args.n, 3, &bias));
	SRT_TRY(make_tensor(c, nc, 4, &tuned));
	SRT_TRY(make_tensor(c, nc, 4, &portable));
	SRT_TRY(srt_ocl_put_matmul(c->stream, &mm, SRT_F32, (srt_place_t[]){ tuned, a, b, bias },
				   1));
	SRT_TRY(run_portable(c, SRT_K_MATMUL, &args,
			     (const srt_place_t *[]){ &portable, &a, &b, &bias }));
	return compare(c, "matrix product", &tuned, &portable, nc);
}

/* Fewer queries than the item has keys, and fewer of these than there is room for. */
static const srt_attention_t attention_shape = {
	.batch = 1,
	.queries = 29,
	.keys = 41,
	.heads = 2,
	.head_dim = 19,
	.ldq = 38,
	.ldk = 38,
	.ldv = 38,
	.lddq = 38,
	.lddk = 38,
	.lddv = 38,
	.scale = 4.0f,
	.causal = 1,
};

static srt_status_t check_attention(check_t *c)
{
	const srt_k_attention_t args = srt_kernel_attention_args(&attention_shape);
	const int64_t rows = args.heads * args.queries, nq = rows * args.head_dim;
	const int64_t nk = args.heads * args.keys * args.head_dim;
	const int32_t length = 23;
	const srt_place_t none = { .mem = NULL };
	srt_place_t q, k, v, dout, dsum, lengths, out[2], stats[2], dq[2], dk[2], dv[2];

	SRT_TRY(make_tensor(c, nq, 5, &q));
	SRT_TRY(make_tensor(c, nk, 6, &k));
	SRT_TRY(make_tensor(c, nk, 7, &v));
	SRT_TRY(make_tensor(c, nq, 8, &dout));
	SRT_TRY(make_tensor(c, rows, 9, &dsum));
	SRT_TRY(make_tensor(c, 1, 10, &lengths));
	SRT_TRY(srt_ocl_work_ops.from_host(c->stream, lengths.mem, 0, &length, sizeof(length)));
	for (int i = 0; i < 2; i++) {
		SRT_TRY(make_tensor(c, nq, 11, &out[i]));
		SRT_TRY(make_tensor(c, 2 * rows, 12, &stats[i]));
		SRT_TRY(make_tensor(c, nq, 13, &dq[i]));
		SRT_TRY(make_tensor(c, nk, 14, &dk[i]));
		SRT_TRY(make_tensor(c, nk, 15, &dv[i]));
	}
	SRT_TRY(srt_ocl_put_attention(c->stream, &attention_shape, SRT_F32,
				      (srt_place_t[]){ out[0], stats[0], q, k, v, lengths, none },
				      1));
	SRT_TRY(srt_ocl_put_attention_backward(c->stream, &attention_shape, SRT_F32,
					       (srt_place_t[]){ dq[0], dk[0], dv[0], dout, out[0],
								q, k, v, stats[0], none, lengths,
								none },
					       1));
	SRT_TRY(run_portable(c, SRT_K_ATTENTION, &args,
			     (const srt_place_t *[]){ &out[1], &stats[1], &q, &k, &v, &lengths,
						      &none }));
	SRT_TRY(run_portable(c, SRT_K_ATTENTION_BACKWARD_D, &args,
			     (const srt_place_t *[]){ &dsum, &dout, &out[1] }));
	SRT_TRY(run_portable(c, SRT_K_ATTENTION_BACKWARD_Q, &args,
			     (const srt_place_t *[]){ &dq[1], &dout, &q, &k, &v, &stats[1], &dsum,
						      &lengths, &none }));
	SRT_TRY(run_portable(c, SRT_K_ATTENTION_BACKWARD_KV, &args,
			     (const srt_place_t *[]){ &dk[1], &dv[1], &dout, &q, &k, &v, &stats[1],
						      &dsum, &lengths, &none }));
	SRT_TRY(compare(c, "attention", &out[0], &out[1], nq));
	SRT_TRY(compare(c, "attention", &stats[0], &stats[1], 2 * rows));
	SRT_TRY(compare(c, "gradient of attention", &dq[0], &dq[1], nq));
	SRT_TRY(compare(c, "gradient of attention", &dk[0], &dk[1], nk));
	return compare(c, "gradient of attention", &dv[0], &dv[1], nk);
}

static srt_status_t run_checks(check_t *c)
{
	const size_t nbytes = (size_t)MAX_FLOATS * sizeof(float);

	c->numbers = c->device->host->alloc(nbytes);
	c->others = c->device->host->alloc(nbytes);
	if (!c->numbers || !c->others)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(srt_ocl_stream_ops.create(c->device, 0, "self-test", &c->stream));
	SRT_TRY(check_matmul(c, 0, 1));
	SRT_TRY(check_matmul(c, 1, 0));
	if (c->device->tuning.form == SRT_OCL_VECTOR)
		SRT_TRY(check_attention(c));
	return srt_ocl_stream_sync(c->stream);
}

/* What to do about a form that does not work: another where the choice was ours, else an error. */
static srt_status_t judge(srt_ocl_device_t *device, srt_status_t status, const char *differs)
{
	const srt_host_services_t *host = device->host;
	const char *wanted = host->config("SHARDRT_OPENCL_TUNED");

	if (strcmp(wanted, "auto") != 0 && status != SRT_OK)
		return status;
	if (strcmp(wanted, "auto") != 0)
		return host
			->fail(SRT_ERR_DEVICE,
			       "SHARDRT_OPENCL_TUNED=%s: on OpenCL device \"%s\" the bits of its "
			       "%s are not those of the portable kernels; leave it unset",
			       wanted, device->name, differs);
	host->log(SRT_LOG_WARN,
		  "the tuned matrix product and attention are not used on OpenCL device \"%s\", "
		  "the portable kernels are: %s%s",
		  device->name, status != SRT_OK ? host->last_error() : "other bits in the tuned ",
		  status != SRT_OK ? "" : differs);
	device->tuning.form = SRT_OCL_PORTABLE;
	return SRT_OK;
}

srt_status_t srt_ocl_tuned_check(srt_ocl_device_t *device)
{
	const srt_host_services_t *host = device->host;
	check_t c = { .device = device };
	srt_status_t status;

	if (device->tuning.form == SRT_OCL_PORTABLE)
		return SRT_OK;
	status = run_checks(&c);
	if (status != SRT_OK || c.differs)
		status = judge(device, status, c.differs);
	if (c.stream)
		srt_ocl_stream_ops.destroy(c.stream);
	for (int i = 0; i < c.nmems; i++)
		srt_ocl_mem_ops.free(device, c.mems[i]);
	host->free(c.numbers);
	host->free(c.others);
	return status;
}
