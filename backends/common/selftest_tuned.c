/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs small products, attention and its gradient by a backend's tuned slots and by its portable
 * kernels, and requires equal bits. A recurrence generates the inputs, without NaN.
 */
#include "backends/common/selftest.h"

#include <string.h>

#include "base/base.h"
#include "kernels/table.h"

#define MAX_TENSORS 32
#define MAX_NBYTES ((size_t)1 << 18) /* of one tensor */

typedef struct check {
	const srt_selftest_t *of;
	srt_dtype_t dtype;
	void *stream;
	unsigned char *numbers, *others; /* MAX_NBYTES on the host */
	void *mems[MAX_TENSORS];
	int nmems;
	const char *differs; /* the first result with other bits */
} check_t;

static void drop_tensors(check_t *c)
{
	for (int i = 0; i < c->nmems; i++)
		c->of->mem->free(c->of->device, c->mems[i]);
	c->nmems = 0;
}

static size_t nbytes_of(srt_dtype_t dtype)
{
	return dtype == SRT_F16 || dtype == SRT_BF16 ? 2 : 4;
}

/* The next number of the recurrence: floats in [-1/2, 1/2); halves in (-2, 2), not near 0. */
static void make_number(unsigned char *to, srt_dtype_t dtype, uint32_t state)
{
	const float f = (float)(int32_t)(state >> 8) * 0x1p-24f - 0.5f;
	const uint32_t bits = state >> 16;
	const uint16_t h =
		(uint16_t)(dtype == SRT_F16 ? (bits & 0x8fff) | 0x3000 : (bits & 0x80ff) | 0x3e00);

	if (nbytes_of(dtype) == 4)
		memcpy(to, &f, sizeof(f));
	else
		memcpy(to, &h, sizeof(h));
}

static srt_status_t make_tensor(check_t *c, srt_dtype_t dtype, int64_t nelem, uint32_t seed,
				srt_binding_t *binding)
{
	const size_t each = nbytes_of(dtype), nbytes = (size_t)nelem * each;
	uint32_t state = seed;

	SRT_TRY(c->of->mem->alloc(c->of->device, SRT_MEM_DEVICE, nbytes, "self-test",
				  &c->mems[c->nmems]));
	*binding = (srt_binding_t){ .mem = c->mems[c->nmems++] };
	for (size_t at = 0; at < nbytes; at += each) {
		state = state * 1664525u + 1013904223u;
		make_number(c->numbers + at, dtype, state);
	}
	return srt_selftest_write(c->of, c->stream, binding->mem, 0, c->numbers, nbytes);
}

static srt_status_t compare_results(check_t *c, const char *what, srt_dtype_t dtype,
				    const srt_binding_t *a, const srt_binding_t *b, int64_t nelem)
{
	const size_t nbytes = (size_t)nelem * nbytes_of(dtype);

	SRT_TRY(srt_selftest_read(c->of, c->stream, c->numbers, a->mem, nbytes));
	SRT_TRY(srt_selftest_read(c->of, c->stream, c->others, b->mem, nbytes));
	if (c->differs == NULL && memcmp(c->numbers, c->others, nbytes) != 0)
		c->differs = what;
	return SRT_OK;
}

/* Runs the command, and its portable kernels with `others` as outputs. */
static srt_status_t run_both(const check_t *c, srt_command_t *command, const srt_binding_t *others)
{
	const srt_backend_stream_ops_t *ops = c->of->stream;
	const srt_kernel_id_t kernel = (srt_kernel_id_t)command->kernel;
	srt_command_t kernels[SRT_COMMAND_MAX_KERNELS];
	int n;

	command->dtype = (uint16_t)c->dtype;
	command->exact = 1;
	command->args_nbytes = srt_kernel_info(kernel)->args_nbytes;
	command->ngroups = srt_kernel_grid(kernel, command->args);
	SRT_TRY(ops->submit(c->stream, command));
	for (int i = 0; i < command->nbindings; i++)
		if (others[i].mem != NULL)
			command->bindings[i] = others[i];
	n = srt_command_expand(command, kernels);
	for (int i = 0; i < n; i++)
		SRT_TRY(ops->submit(c->stream, &kernels[i]));
	return SRT_OK;
}

/* ---- matrix product ---------------------------------------------------------------------- */

static srt_status_t check_matmul_to(check_t *c, srt_dtype_t c_dtype, int64_t m, int64_t n,
				    int64_t k, int trans_a, int trans_b)
{
	const srt_dtype_t dtype = c->dtype;
	srt_binding_t a, b, bias, tuned, portable;
	srt_command_t command = {
		.kind = SRT_COMMAND_MATMUL,
		.kernel = SRT_K_MATMUL,
		.nbindings = 4,
		.matmul = {
			.m = m,
			.n = n,
			.k = k,
			.batch = 1,
			.lda = trans_a ? m + 58 : k,
			.ldb = trans_b ? k : n,
			.ldc = n,
			.alpha = 0.75f,
			.trans_a = trans_a,
			.trans_b = trans_b,
			.accumulate = 1,
			.c_is_f32 = c_dtype != dtype,
		},
	};

	SRT_TRY(make_tensor(c, dtype, (trans_a ? k : m) * command.matmul.lda, 1, &a));
	SRT_TRY(make_tensor(c, dtype, n * k, 2, &b));
	SRT_TRY(make_tensor(c, dtype, n, 3, &bias));
	SRT_TRY(make_tensor(c, c_dtype, m * n, 4, &tuned));
	SRT_TRY(make_tensor(c, c_dtype, m * n, 4, &portable));
	memcpy(command.bindings, (srt_binding_t[]){ tuned, a, b, bias }, 4 * sizeof(a));
	SRT_TRY(run_both(c, &command, (srt_binding_t[4]){ portable }));
	SRT_TRY(compare_results(c, "matrix product", c_dtype, &tuned, &portable, m * n));
	drop_tensors(c);
	return SRT_OK;
}

static srt_status_t check_matmul(check_t *c, int64_t m, int64_t n, int64_t k, int trans_a,
				 int trans_b)
{
	return check_matmul_to(c, c->dtype, m, n, k, trans_a, trans_b);
}

/* Each shape of tiles with ragged edges, aligned and not, and with a whole tile and slices; then k
 * cut. In 16 bits also with C of floats. */
static srt_status_t check_products(check_t *c)
{
	for (int tile = 1; tile <= c->of->ntiles; tile++) {
		c->of->force(c->of->device, tile, 1);
		SRT_TRY(check_matmul(c, 18, 20, 36, tile & 1, tile & 1));
		SRT_TRY(check_matmul(c, 5, 19, 33, ~tile & 1, tile & 1));
		SRT_TRY(check_matmul(c, 130, 132, 40, tile & 1, tile & 1));
		SRT_TRY(check_matmul(c, 129, 130, 49, ~tile & 1, tile & 1));
		if (c->dtype != SRT_F32)
			SRT_TRY(check_matmul_to(c, SRT_F32, 130, 132, 17, tile & 1, 0));
	}
	if (c->of->ntiles)
		c->of->force(c->of->device, 0, 2);
	SRT_TRY(check_matmul(c, 13, 37, 520, 0, 1));
	SRT_TRY(check_matmul(c, 13, 37, 520, 1, 0));
	if (c->dtype != SRT_F32)
		SRT_TRY(check_matmul_to(c, SRT_F32, 13, 37, 520, 0, 0));
	if (c->of->ntiles)
		c->of->force(c->of->device, 0, 0);
	return SRT_OK;
}

/* ---- attention --------------------------------------------------------------------------- */

/* Fewer queries than keys of the item, and fewer keys than the tensor holds. */
static const srt_k_attention_t attention_shape = {
	.batch = 1,
	.queries = 29,
	.keys = 41,
	.heads = 2,
	.kv_heads = 2,
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

static srt_status_t compare_attention(check_t *c, const srt_binding_t *out,
				      const srt_binding_t *stats, const srt_binding_t *dq,
				      const srt_binding_t *dk, const srt_binding_t *dv)
{
	const srt_k_attention_t *s = &attention_shape;
	const int64_t rows = s->heads * s->queries, nq = rows * s->head_dim;
	const int64_t nk = s->heads * s->keys * s->head_dim;
	const srt_dtype_t dtype = c->dtype;

	SRT_TRY(compare_results(c, "attention", dtype, &out[0], &out[1], nq));
	SRT_TRY(compare_results(c, "attention", SRT_F32, &stats[0], &stats[1], 2 * rows));
	SRT_TRY(compare_results(c, "gradient of attention", dtype, &dq[0], &dq[1], nq));
	SRT_TRY(compare_results(c, "gradient of attention", dtype, &dk[0], &dk[1], nk));
	return compare_results(c, "gradient of attention", dtype, &dv[0], &dv[1], nk);
}

static srt_status_t check_attention(check_t *c)
{
	const srt_k_attention_t *s = &attention_shape;
	const int64_t rows = s->heads * s->queries, nq = rows * s->head_dim;
	const int64_t nk = s->heads * s->keys * s->head_dim;
	const srt_dtype_t dtype = c->dtype;
	const int32_t length = 23;
	const srt_selftest_t *t = c->of;
	srt_binding_t q, k, v, dout, dsum, lengths, mask = { .mem = NULL };
	srt_binding_t out[2], stats[2], dq[2], dk[2], dv[2];
	srt_command_t command = { .attention = *s };

	SRT_TRY(make_tensor(c, dtype, nq, 5, &q));
	SRT_TRY(make_tensor(c, dtype, nk, 6, &k));
	SRT_TRY(make_tensor(c, dtype, nk, 7, &v));
	SRT_TRY(make_tensor(c, dtype, nq, 8, &dout));
	SRT_TRY(make_tensor(c, SRT_F32, rows, 9, &dsum));
	SRT_TRY(make_tensor(c, SRT_F32, 1, 10, &lengths));
	SRT_TRY(srt_selftest_write(t, c->stream, lengths.mem, 0, &length, sizeof(length)));
	if (t->takes_mask) {
		SRT_TRY(make_tensor(c, SRT_F32, s->keys, 16, &mask));
		SRT_TRY(srt_selftest_write(t, c->stream, mask.mem, 3, "", 1));
		SRT_TRY(srt_selftest_write(t, c->stream, mask.mem, 11, "", 1));
	}
	for (int i = 0; i < 2; i++) {
		SRT_TRY(make_tensor(c, dtype, nq, 11, &out[i]));
		SRT_TRY(make_tensor(c, SRT_F32, 2 * rows, 12, &stats[i]));
		SRT_TRY(make_tensor(c, dtype, nq, 13, &dq[i]));
		SRT_TRY(make_tensor(c, dtype, nk, 14, &dk[i]));
		SRT_TRY(make_tensor(c, dtype, nk, 15, &dv[i]));
	}
	command.kind = SRT_COMMAND_ATTENTION;
	command.kernel = SRT_K_ATTENTION;
	command.nbindings = 8;
	memcpy(command.bindings, (srt_binding_t[]){ out[0], stats[0], q, k, v, lengths, mask },
	       7 * sizeof(q));
	SRT_TRY(run_both(c, &command, (srt_binding_t[8]){ out[1], stats[1] }));
	command.kind = SRT_COMMAND_ATTENTION_BACKWARD;
	command.nbindings = 13;
	memcpy(command.bindings,
	       (srt_binding_t[]){ dq[0], dk[0], dv[0], dout, out[0], q, k, v, stats[0], dsum,
				  lengths, mask },
	       12 * sizeof(q));
	SRT_TRY(run_both(c, &command,
			 (srt_binding_t[13]){ dq[1], dk[1], dv[1], [4] = out[1], [8] = stats[1] }));
	return compare_attention(c, out, stats, dq, dk, dv);
}

/* ---- a type ------------------------------------------------------------------------------ */

static srt_status_t run_checks(check_t *c)
{
	const srt_selftest_t *t = c->of;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	c->numbers = t->host->alloc(MAX_NBYTES);
	c->others = t->host->alloc(MAX_NBYTES);
	if (c->numbers != NULL && c->others != NULL) {
		status = check_products(c);
		if (status == SRT_OK)
			status = check_attention(c);
	}
	drop_tensors(c);
	if (t->force != NULL)
		t->force(t->device, 0, 0);
	t->host->free(c->numbers);
	t->host->free(c->others);
	return status;
}

/* Reports other bits or a failed slot: an error, or a warning and the slot is not used. */
static srt_status_t report_failure(const check_t *c, srt_status_t status)
{
	const srt_selftest_t *t = c->of;
	const srt_host_services_t *host = t->host;
	const char *type = srt_kernel_dtype_name(c->dtype);
	const char *wanted = t->variable != NULL ? host->config(t->variable) : "auto";
	const bool by_name = strcmp(wanted, "auto") != 0;

	if (status != SRT_OK && (t->is_sure || by_name))
		return status;
	if (by_name)
		return host->fail(SRT_ERR_DEVICE,
				  "%s=%s: on %s the bits of its %s in %s are not those of the "
				  "portable kernels; leave it unset",
				  t->variable, wanted, t->what, c->differs, type);
	if (t->variable == NULL && t->exact && c->dtype == SRT_F32)
		return host->fail(SRT_ERR_DEVICE,
				  "the tuned %s in %s gives other bits than the portable kernels "
				  "on %s; the device is refused in exact mode: try %s, or "
				  "SHARDRT_NUMERICS=fast",
				  c->differs, type, t->what, t->remedy);
	host->log(SRT_LOG_WARN,
		  "the tuned matrix product and attention in %s are not used on %s, the portable "
		  "kernels are: %s%s",
		  type, t->what, status != SRT_OK ? host->last_error() : "other bits in the tuned ",
		  status != SRT_OK ? "" : c->differs);
	return SRT_OK;
}

/* Under the lock. */
static srt_status_t check_type(srt_selftest_t *t, srt_dtype_t dtype)
{
	check_t c = { .of = t, .dtype = dtype };
	srt_selftest_stream_t stream;
	srt_status_t status = SRT_OK;

	atomic_store(&t->tuned[dtype], -1);
	if (t->prepare != NULL)
		status = t->prepare(t->device, dtype);
	if (status == SRT_OK && !t->is_off) {
		SRT_TRY(srt_selftest_stream_open(t, &stream));
		c.stream = stream.stream;
		status = run_checks(&c);
		srt_selftest_stream_close(t, &stream);
	}
	if (status != SRT_OK || c.differs != NULL)
		return report_failure(&c, status);
	atomic_store(&t->tuned[dtype], 1);
	return SRT_OK;
}

srt_status_t srt_selftest_tuned(srt_selftest_t *t, srt_dtype_t dtype)
{
	srt_status_t status = SRT_OK;

	/* Concurrent callers wait for the first one's result. */
	pthread_mutex_lock(&t->lock);
	if (atomic_load(&t->tuned[dtype]) == 0)
		status = check_type(t, dtype);
	pthread_mutex_unlock(&t->lock);
	return status;
}

bool srt_selftest_has_tuned(srt_selftest_t *t, srt_dtype_t dtype)
{
	int state = atomic_load_explicit(&t->tuned[dtype], memory_order_acquire);

	/* The portable kernels compute the same: a failure here does not refuse the device. */
	if (state == 0) {
		srt_selftest_tuned(t, dtype);
		state = atomic_load(&t->tuned[dtype]);
	}
	return state > 0;
}
