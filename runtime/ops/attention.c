/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of attention of <shardrt/ops.h>: the backend takes its tuned version if it has one for
 * the shape, else kernels/attention.k (one kernel forward, three backward). In exact mode both have
 * the same bits.
 */
#include "runtime/ops/ops.h"

/* The tensors of a pass with how their rows lie; arrays in the order of the command's bindings. */
enum { MAX_TENSORS = 13 };
typedef struct tensors {
	int n;
	srt_op_tensor_t of[MAX_TENSORS];
	srt_op_rows_t rows[MAX_TENSORS];
} tensors_t;

static srt_status_t check_ld(const char *name, const char *of, int64_t ld, int64_t width)
{
	if (ld == 0 || ld >= width)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: ld%s is %lld, less than a row of %lld", name,
			of, (long long)ld, (long long)width);
}

/* Sets kv_heads and offset to what they mean. */
static srt_status_t read_heads(const char *name, srt_attention_t *shape)
{
	if (shape->kv_heads == 0)
		shape->kv_heads = shape->heads;
	if (shape->heads > 0 && (shape->heads % shape->kv_heads != 0 ||
				 shape->heads / shape->kv_heads > SRT_K_ATTENTION_GROUP))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %lld heads cannot share %lld heads of keys: the first must be "
				"a multiple of the second, at most %d times as many",
				name, (long long)shape->heads, (long long)shape->kv_heads,
				SRT_K_ATTENTION_GROUP);
	/* From the number of keys on every query sees all of them. */
	shape->offset = shape->causal ? srt_min64(shape->offset, shape->keys) : 0;
	return SRT_OK;
}

/* *shape: a copy of a program's struct, checked, with what was left 0 set to what it means. */
static srt_status_t read_shape(const char *name, const srt_attention_t *given,
			       srt_attention_t *shape)
{
	int64_t *lds[] = { &shape->ldq,  &shape->lddq, &shape->ldk,
			   &shape->lddk, &shape->ldv,  &shape->lddv };
	static const char *const names[] = { "q", "dq", "k", "dk", "v", "dv" };

	*shape = (srt_attention_t)SRT_ATTENTION_INIT;
	SRT_TRY(srt_struct_read(shape, sizeof(*shape), given, "srt_attention_t"));
	if (shape->batch < 0 || shape->queries < 0 || shape->keys < 0 || shape->heads < 0 ||
	    shape->kv_heads < 0 || shape->head_dim < 0 || shape->offset < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: batch %lld, queries %lld, keys %lld, heads %lld, kv_heads "
				"%lld, head_dim %lld, offset %lld: none may be negative",
				name, (long long)shape->batch, (long long)shape->queries,
				(long long)shape->keys, (long long)shape->heads,
				(long long)shape->kv_heads, (long long)shape->head_dim,
				(long long)shape->offset);
	SRT_TRY(read_heads(name, shape));
	for (size_t i = 0; i < SRT_ARRAY_LEN(lds); i++) {
		const int64_t width =
			srt_op_size(i < 2 ? shape->heads : shape->kv_heads, shape->head_dim);

		SRT_TRY(check_ld(name, names[i], *lds[i], width));
		if (*lds[i] == 0)
			*lds[i] = width;
	}
	return SRT_OK;
}

/* A tensor of any layout that is dense. */
static void add_tensor(tensors_t *t, const char *name, srt_view_t view, int64_t nelem, int dtype)
{
	t->of[t->n] = (srt_op_tensor_t){ .name = name, .view = view, .nelem = nelem };
	t->of[t->n].dtype = dtype;
	t->rows[t->n++] = (srt_op_rows_t){ 0, 0 };
}

/* One of `positions` rows of `heads` heads of each batch item, ld apart. */
static void add_rows(tensors_t *t, const char *name, srt_view_t view, const srt_attention_t *a,
		     int64_t positions, int64_t heads, int64_t ld)
{
	const int64_t rows = srt_op_size(a->batch, positions);
	const int64_t width = srt_op_size(heads, a->head_dim);
	int64_t nelem = 0;

	if (rows != 0 && width != 0) {
		nelem = rows < 0 || width < 0 ? -1 : srt_op_size(rows - 1, ld);
		if (nelem < 0 || __builtin_add_overflow(nelem, width, &nelem))
			nelem = -1;
	}
	add_tensor(t, name, view, nelem, SRT_OP_DTYPE_SAME);
	t->rows[t->n - 1] = (srt_op_rows_t){ width, ld };
}

static int64_t count_rows(const srt_attention_t *a)
{
	return srt_op_size3(a->batch, a->heads, a->queries);
}

static void add_queries(tensors_t *t, const char *name, srt_view_t view, const srt_attention_t *a,
			int64_t ld)
{
	add_rows(t, name, view, a, a->queries, a->heads, ld);
}

static void add_keys(tensors_t *t, const char *name, srt_view_t view, const srt_attention_t *a,
		     int64_t ld)
{
	add_rows(t, name, view, a, a->keys, a->kv_heads, ld);
}

static void add_inputs(tensors_t *t, const srt_attention_t *a, const srt_attention_views_t *v)
{
	add_queries(t, "q", v->q, a, a->ldq);
	add_keys(t, "k", v->k, a, a->ldk);
	add_keys(t, "v", v->v, a, a->ldv);
}

static void add_masks(tensors_t *t, const srt_attention_t *a, const srt_attention_views_t *v)
{
	add_tensor(t, "lengths", v->lengths, a->batch, SRT_OP_DTYPE_I32);
	add_tensor(t, "mask", v->mask, srt_op_size(a->batch, a->keys), SRT_OP_DTYPE_U8);
	add_tensor(t, "first", v->first, srt_op_size(a->batch, a->queries), SRT_OP_DTYPE_I32);
}

static bool is_empty(const srt_attention_t *a)
{
	return a->batch == 0 || a->heads == 0 || a->head_dim == 0;
}

srt_status_t srt_op_attention(const srt_attention_t *shape, const srt_attention_views_t *views,
			      srt_stream_t *stream)
{
	static const char name[] = "srt_op_attention";
	srt_k_attention_t args;
	srt_op_call_t call = { name, stream, SRT_K_ATTENTION, false, &args };
	srt_attention_views_t v = SRT_ATTENTION_VIEWS_INIT;
	tensors_t t = { .n = 0 };
	srt_attention_t a;
	srt_dtype_t dtype;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(views);
	SRT_TRY(read_shape(name, shape, &a));
	SRT_TRY(srt_struct_read(&v, sizeof(v), views, "srt_attention_views_t"));
	args = srt_kernel_attention_args(&a);
	add_queries(&t, "out", v.out, &a, srt_op_size(a.heads, a.head_dim));
	add_tensor(&t, "stats", v.stats, srt_op_size(count_rows(&a), 2), SRT_OP_DTYPE_F32);
	add_inputs(&t, &a, &v);
	add_masks(&t, &a, &v);
	SRT_TRY(srt_op_check_rows(&call, srt_kernel_info(call.kernel)->access, t.of, t.rows,
				  &dtype));
	if (is_empty(&a))
		return SRT_OK;
	return srt_op_put(&call, SRT_COMMAND_ATTENTION, t.of, t.n, dtype);
}

srt_status_t srt_op_attention_backward(const srt_attention_t *shape,
				       const srt_attention_views_t *views, srt_stream_t *stream)
{
	static const char name[] = "srt_op_attention_backward";
	static const char access[] = "wwwRRRRRRWrrr";
	srt_k_attention_t args;
	srt_op_call_t call = { name, stream, SRT_K_ATTENTION_BACKWARD_D, false, &args };
	srt_attention_views_t v = SRT_ATTENTION_VIEWS_INIT;
	tensors_t t = { .n = 0 };
	srt_attention_t a;
	srt_dtype_t dtype;
	int64_t width;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(views);
	SRT_TRY(read_shape(name, shape, &a));
	SRT_TRY(srt_struct_read(&v, sizeof(v), views, "srt_attention_views_t"));
	args = srt_kernel_attention_args(&a);
	width = srt_op_size(a.heads, a.head_dim);
	add_queries(&t, "dq", v.dq, &a, a.lddq);
	add_keys(&t, "dk", v.dk, &a, a.lddk);
	add_keys(&t, "dv", v.dv, &a, a.lddv);
	add_queries(&t, "dout", v.dout, &a, width);
	add_queries(&t, "out", v.out, &a, width);
	add_inputs(&t, &a, &v);
	add_tensor(&t, "stats", v.stats, srt_op_size(count_rows(&a), 2), SRT_OP_DTYPE_F32);
	add_tensor(&t, "scratch", v.scratch, count_rows(&a), SRT_OP_DTYPE_F32);
	add_masks(&t, &a, &v);
	SRT_TRY(srt_op_check_rows(&call, access, t.of, t.rows, &dtype));
	if (is_empty(&a))
		return SRT_OK;
	return srt_op_put(&call, SRT_COMMAND_ATTENTION_BACKWARD, t.of, t.n, dtype);
}

srt_status_t srt_op_attention_scratch(srt_device_t *device, const srt_attention_t *shape,
				      size_t *nbytes)
{
	static const char name[] = "srt_op_attention_scratch";
	srt_attention_t a;
	int64_t rows;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(nbytes);
	SRT_TRY(read_shape(name, shape, &a));
	rows = srt_op_size(count_rows(&a), sizeof(float));
	if (rows < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the shape is too large", name);
	*nbytes = (size_t)rows;
	return SRT_OK;
}

srt_status_t srt_op_attention_memory(srt_device_t *device, const srt_attention_t *shape,
				     srt_dtype_t dtype, int backward, int masked, size_t *nbytes)
{
	static const char name[] = "srt_op_attention_memory";
	srt_command_t command = {
		.kind = backward ? SRT_COMMAND_ATTENTION_BACKWARD : SRT_COMMAND_ATTENTION,
		.dtype = (uint16_t)dtype,
		.nbindings = backward ? 13 : 8,
	};
	srt_binding_t *first;
	srt_attention_t a;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(nbytes);
	SRT_TRY(read_shape(name, shape, &a));
	command.attention = srt_kernel_attention_args(&a);
	if (is_empty(&a) || a.queries == 0 || a.keys == 0)
		return SRT_OK;
	for (int i = 0; i < command.nbindings - 3; i++)
		command.bindings[i].mem = device; /* there */
	srt_op_scratch(device, &command, nbytes);
	if (!masked)
		return SRT_OK;
	first = &command.bindings[command.nbindings - 1]; /* after lengths and mask */
	first->mem = device;
	srt_op_scratch(device, &command, nbytes);
	*first = (srt_binding_t){ .mem = NULL };
	first[-1].mem = first[-2].mem = device;
	srt_op_scratch(device, &command, nbytes);
	return SRT_OK;
}

/* The part of packed rows from a head of n elements on. */
static srt_view_t view_heads(srt_view_t packed, int64_t n, size_t head)
{
	if (packed.buffer != NULL)
		packed.offset += head * (size_t)n * (srt_dtype_bits(packed.dtype) / 8);
	return packed;
}

void srt_attention_set_packed(srt_attention_t *shape, srt_attention_views_t *views, srt_view_t qkv,
			      srt_view_t dqkv)
{
	size_t heads, kv_heads;
	int64_t n, ld;

	if (shape == NULL || views == NULL)
		return;
	heads = (size_t)shape->heads;
	kv_heads = shape->kv_heads != 0 ? (size_t)shape->kv_heads : heads;
	n = shape->head_dim;
	ld = srt_op_size((int64_t)kv_heads, 2);
	if (ld < 0 || __builtin_add_overflow(ld, shape->heads, &ld))
		ld = -1; /* too large, is what the calls refuse */
	ld = srt_op_size(ld, n);
	shape->keys = shape->queries;
	shape->ldq = shape->ldk = shape->ldv = ld;
	shape->lddq = shape->lddk = shape->lddv = ld;
	views->q = qkv;
	views->k = view_heads(qkv, n, heads);
	views->v = view_heads(qkv, n, heads + kv_heads);
	views->dq = dqkv;
	views->dk = view_heads(dqkv, n, heads);
	views->dv = view_heads(dqkv, n, heads + kv_heads);
}
