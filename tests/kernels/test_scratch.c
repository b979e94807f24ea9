/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a stream keeps for its operations: srt_op_matmul_memory() and srt_op_attention_memory() say
 * what products and attention of many shapes and types take, never less; a stream that was given so
 * much allocates nothing; srt_device_allocated() counts it, and what is taken without having been
 * reserved, until the stream is gone.
 */
#include "tests/harness/device.h"

enum { LEAD = 3 };

static srt_device_t *device;
static int ntook; /* operations that took any */

/* An operation and the bytes that are said for it. */
typedef struct operation {
	srt_matmul_t mm;
	srt_attention_t shape;
	srt_attention_views_t views;
	bool is_attention, backward;
	size_t nbytes;
	char name[128];
} operation_t;

static void put(srt_stream_t *stream, const operation_t *o)
{
	if (!o->is_attention)
		CHECK_OK(srt_op_matmul(&o->mm, stream));
	else if (o->backward)
		CHECK_OK(srt_op_attention_backward(&o->shape, &o->views, stream));
	else
		CHECK_OK(srt_op_attention(&o->shape, &o->views, stream));
	CHECK_OK(srt_stream_sync(stream));
}

/* exact: no more is said than is taken. */
static void check(const operation_t *o, bool exact)
{
	const size_t before = srt_device_allocated(device);
	srt_stream_t *stream = test_stream(device, "unplanned");
	uint64_t n = srt_device_allocations(device);
	size_t took;

	put(stream, o);
	took = srt_device_allocated(device) - before;
	CHECK_MSG(took <= o->nbytes, "%s: %zu bytes are said, %zu taken", o->name, o->nbytes, took);
	if (exact)
		CHECK_MSG(took == o->nbytes, "%s: %zu bytes are said, %zu taken", o->name,
			  o->nbytes, took);
	/* The first of a type may start a self-test of the device on other streams. */
	CHECK(srt_device_allocations(device) - n >= (took > 0));
	ntook += took > 0;
	srt_stream_destroy(stream);
	CHECK_INT(srt_device_allocated(device), before);

	stream = test_stream(device, "planned");
	CHECK_OK(srt_stream_reserve(stream, o->nbytes));
	n = srt_device_allocations(device);
	put(stream, o);
	put(stream, o);
	CHECK_INT(srt_device_allocations(device), n);
	/* A device without tuned operations reserves nothing. */
	took = srt_device_allocated(device) - before;
	CHECK_MSG(took == (device->backend->stream->reserve != NULL ? o->nbytes : 0),
		  "%s: %zu bytes were reserved, %zu are kept", o->name, o->nbytes, took);
	srt_stream_destroy(stream);
	CHECK_INT(srt_device_allocated(device), before);
}

/* bits: transpositions, accumulate, batch, distances between rows, C of floats. */
static void check_product(srt_dtype_t dtype, int64_t m, int64_t n, int64_t k, unsigned bits)
{
	const int64_t lead = bits >> 4 & 1 ? LEAD : 0, items = bits >> 3 & 1 ? 3 : 1;
	operation_t o = { .mm = { .size = sizeof(srt_matmul_t),
				  .alpha = 1.0f,
				  .m = m,
				  .n = n,
				  .k = k,
				  .batch = items,
				  .trans_a = bits & 1,
				  .trans_b = bits >> 1 & 1,
				  .accumulate = bits >> 2 & 1 } };
	srt_matmul_t *mm = &o.mm;
	srt_buffer_t *buffers[4];
	const srt_dtype_t c_dtype = bits >> 5 & 1 ? SRT_F32 : dtype;
	size_t sizes[4], width = srt_dtype_bits(dtype) / 8;

	mm->lda = (mm->trans_a ? m : k) + lead;
	mm->ldb = (mm->trans_b ? k : n) + lead;
	mm->ldc = n + lead;
	mm->stride_a = (mm->trans_a ? k : m) * mm->lda;
	mm->stride_b = (mm->trans_b ? n : k) * mm->ldb;
	mm->stride_c = m * mm->ldc;
	snprintf(o.name, sizeof(o.name), "product of %s, %d x %d x %d, options %u",
		 srt_dtype_name(dtype), (int)m, (int)n, (int)k, bits);
	mm->c.dtype = bits >> 5 & 1 ? SRT_F32 : SRT_DTYPE_NONE;
	CHECK_OK(srt_op_matmul_memory(device, mm, dtype, &o.nbytes));
	sizes[0] = (size_t)(items * mm->stride_c);
	sizes[1] = (size_t)(items * mm->stride_a);
	sizes[2] = (size_t)(items * mm->stride_b);
	sizes[3] = (size_t)n;
	for (int i = 0; i < 4; i++)
		buffers[i] = test_buffer(device, sizes[i] * (i ? width : 4), "tensor");
	mm->c = srt_view(buffers[0], 0, c_dtype);
	mm->a = srt_view(buffers[1], 0, dtype);
	mm->b = srt_view(buffers[2], 0, dtype);
	mm->bias = srt_view(buffers[3], 0, dtype);
	check(&o, true);
	if (bits == 0) {
		mm->bias.buffer = NULL;
		check(&o, false);
	}
	for (int i = 0; i < 4; i++)
		srt_buffer_destroy(buffers[i]);
}

/* The sizes of several tiles have the same scratch in both 16-bit types. */
static bool has_large(int dtype)
{
	return dtype != SRT_F16 || check_is_long();
}

static void test_products(void)
{
	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		for (unsigned bits = 0; bits < 32; bits += dtype == SRT_F32 ? 3 : 7)
			check_product((srt_dtype_t)dtype, 5, 19, 1031, bits);
		check_product((srt_dtype_t)dtype, 70, 130, 40, 2);
		check_product((srt_dtype_t)dtype, 1, 1, 1, 0);
		if (has_large(dtype))
			check_product((srt_dtype_t)dtype, 140, 33, 2100, 1 | 4);
		if (dtype == SRT_F32)
			continue;
		for (unsigned bits = 32; bits < 64; bits += 7)
			check_product((srt_dtype_t)dtype, 5, 19, 1031, bits);
		if (has_large(dtype))
			check_product((srt_dtype_t)dtype, 140, 33, 2100, 1 | 32);
	}
	check_product(SRT_F32, 3, 5, 0, 4);
	check_product(SRT_F32, 0, 5, 3, 4);
}

/* mask: 0: none, 1: lengths, 2: bytes, 3: first keys, and one head of keys. */
static void check_attention(srt_dtype_t dtype, int64_t batch, int64_t queries, int64_t keys,
			    int64_t heads, int64_t head_dim, int mask)
{
	const int64_t d = heads * head_dim;
	const size_t width = srt_dtype_bits(dtype) / 8, rows = (size_t)(batch * queries),
		     nq = rows * (size_t)d * width, nk = (size_t)(batch * keys * d) * width;
	const size_t sizes[] = { nq, nk, nk, nq, nq, nk, nk, nq };
	operation_t o = { .is_attention = true };
	srt_buffer_t *buffers[8], *stats, *scratch, *hidden;
	size_t nbytes;

	o.shape = (srt_attention_t){
		.size = sizeof(srt_attention_t),
		.batch = batch,
		.queries = queries,
		.keys = keys,
		.heads = heads,
		.head_dim = head_dim,
		.scale = 0.5f,
		.causal = queries == keys,
		.ldq = d,
		.ldk = d,
		.ldv = d,
		.lddq = d,
		.lddk = d,
		.lddv = d,
		.kv_heads = mask == 3 ? 1 : heads,
	};
	for (int i = 0; i < 8; i++)
		buffers[i] = test_buffer(device, sizes[i], "tensor");
	CHECK_OK_OR_DIE(srt_op_attention_scratch(device, &o.shape, &nbytes));
	scratch = test_buffer(device, nbytes, "scratch");
	stats = test_buffer(device, 2 * rows * (size_t)heads * sizeof(float), "stats");
	/* One buffer serves as lengths, mask or first keys. */
	hidden = test_buffer(device, (size_t)(batch * (keys > queries ? keys : queries)) * 4,
			     "mask");
	o.views = (srt_attention_views_t){
		.size = sizeof(srt_attention_views_t),
		.q = srt_view(buffers[0], 0, dtype),
		.k = srt_view(buffers[1], 0, dtype),
		.v = srt_view(buffers[2], 0, dtype),
		.out = srt_view(buffers[3], 0, dtype),
		.dq = srt_view(buffers[4], 0, dtype),
		.dk = srt_view(buffers[5], 0, dtype),
		.dv = srt_view(buffers[6], 0, dtype),
		.dout = srt_view(buffers[7], 0, dtype),
		.stats = srt_view(stats, 0, SRT_F32),
		.scratch = srt_view(scratch, 0, SRT_F32),
	};
	if (mask == 1)
		o.views.lengths = srt_view(hidden, 0, SRT_I32);
	else if (mask == 2)
		o.views.mask = srt_view(hidden, 0, SRT_U8);
	else if (mask == 3)
		o.views.first = srt_view(hidden, 0, SRT_I32);
	for (int backward = 0; backward < 2; backward++) {
		snprintf(o.name, sizeof(o.name),
			 "attention%s of %s, %d x %d queries, %d keys, %d x %d, mask %d",
			 backward ? "'s gradients" : "", srt_dtype_name(dtype), (int)batch,
			 (int)queries, (int)keys, (int)heads, (int)head_dim, mask);
		o.backward = backward;
		o.nbytes = 0;
		CHECK_OK(srt_op_attention_memory(device, &o.shape, dtype, backward, mask != 0,
						 &o.nbytes));
		check(&o, mask == 0 && dtype == SRT_F32);
	}
	for (int i = 0; i < 8; i++)
		srt_buffer_destroy(buffers[i]);
	srt_buffer_destroy(stats);
	srt_buffer_destroy(scratch);
	srt_buffer_destroy(hidden);
}

static void test_attention(void)
{
	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		for (int mask = 0; mask < 4; mask++) {
			check_attention((srt_dtype_t)dtype, 2, 33, 33, 2, 8, mask);
			check_attention((srt_dtype_t)dtype, 1, 40, 101, 3, 17, mask);
		}
		if (has_large(dtype))
			check_attention((srt_dtype_t)dtype, 1, 140, 140, 2, 64, 0);
	}
}

/* More, less, nothing, and more than there is. */
static void test_reserve(void)
{
	const size_t before = srt_device_allocated(device);
	const bool reserves = device->backend->stream->reserve != NULL;
	srt_stream_t *stream = test_stream(device, "test");
	uint64_t n = srt_device_allocations(device);

	CHECK_STATUS(srt_stream_reserve(NULL, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_stream_reserve(stream, 0));
	CHECK_INT(srt_device_allocated(device), before);
	CHECK_OK(srt_stream_reserve(stream, 4096));
	CHECK_OK(srt_stream_reserve(stream, 4096));
	CHECK_OK(srt_stream_reserve(stream, 64));
	CHECK_INT(srt_device_allocated(device), before + reserves * 4096);
	CHECK_INT(srt_device_allocations(device), n + reserves);
	CHECK_OK(srt_stream_reserve(stream, 4100)); /* one block, not two */
	CHECK_INT(srt_device_allocated(device), before + reserves * 4100);
	if (reserves) {
		CHECK_STATUS(srt_stream_reserve(stream, (size_t)1 << 60), SRT_ERR_OUT_OF_MEMORY);
		CHECK_ERROR_HAS("scratch of");
	}
	CHECK_OK(srt_stream_sync(stream));
	srt_stream_destroy(stream);
	CHECK_INT(srt_device_allocated(device), before);
}

/* Where the device says what is left, it is no more than all of it. */
static void test_available(void)
{
	const size_t available = srt_device_available(device);
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;

	CHECK_OK(srt_device_get_info(device, &info));
	CHECK(available == 0 || info.mem_nbytes == 0 || available <= info.mem_nbytes);
	CHECK_INT(srt_device_available(NULL), 0);
	if (!strcmp(test_backend(), "cpu") || !strcmp(test_backend(), "cuda"))
		CHECK(available > 0);
}

/* Whether the device is told to go without its tuned kernels; portable ones take nothing. */
static bool is_portable(void)
{
	const char *name =
		strcmp(test_backend(), "cuda") ? "SHARDRT_OPENCL_TUNED" : "SHARDRT_CUDA_TUNED";

	return !test_is_cpu() && !strcmp(srt_config_string(name), "portable");
}

int main(void)
{
	device = test_device(2, "threads");
	test_products();
	test_attention();
	test_reserve();
	test_available();
	/* Else the rest would hold of a device that takes nothing. */
	if (device->backend->stream->reserve != NULL && !is_portable())
		CHECK_MSG(ntook > 20, "only %d operations took anything", ntook);
	else
		CHECK_INT(ntook, 0);
	srt_device_close(device);
	return check_done();
}
