/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A document has the same bits alone, packed with others into one item (first keys), and its output
 * in parts against a cache of keys (offset): out, dq, dk and dv, of all three types, with windows
 * and without, heads that share a head of keys. With a mask that hides nothing the cpu has no tuned
 * version of first keys, so there this compares the definition with it too.
 */
#include <shardrt/ops_products.h>

#include "tests/harness/device.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

enum {
	HEADS = 4,
	KV_HEADS = 2,
	HEAD_DIM = 16,
	WIDTH = HEADS * HEAD_DIM,
	KV_WIDTH = KV_HEADS * HEAD_DIM,
	ROW = WIDTH + 2 * KV_WIDTH, /* of qkv */
	POSITIONS = 109,            /* of all documents */
};

static const int64_t documents[] = { 1, 70, 5, 33 };

static srt_device_t *device;
static srt_stream_t *s;
static srt_buffer_t *qkv, *dqkv, *out, *dout, *stats, *scratch, *first, *mask;

typedef struct results {
	unsigned char out[POSITIONS * WIDTH * 4], dqkv[POSITIONS * ROW * 4];
} results_t;

/* One call: of the positions from `query` on, among the keys from `key` on. */
typedef struct call {
	int64_t query, queries, key, keys;
} call_t;

/* How calls are made; window 0: none. */
typedef struct form {
	srt_dtype_t dtype;
	int64_t window;
	bool masked, has_first;
} form_t;

/* Where the position's document begins. */
static int64_t start_of(int64_t position)
{
	int64_t start = 0;

	for (size_t d = 0; position >= start + documents[d]; d++)
		start += documents[d];
	return start;
}

/* The first key that a position sees, among all. */
static int64_t first_of(const form_t *form, int64_t position)
{
	const int64_t start = start_of(position), from = position - form->window + 1;

	return form->window > 0 && from > start ? from : start;
}

static srt_view_t at(srt_buffer_t *buffer, srt_dtype_t dtype, int64_t element)
{
	return srt_view(buffer, (size_t)element * srt_dtype_bits(dtype) / 8, dtype);
}

static void put_first(const form_t *form, const call_t *c)
{
	int32_t values[POSITIONS];

	for (int64_t i = 0; i < c->queries; i++)
		values[i] = (int32_t)(first_of(form, c->query + i) - c->key);
	test_put(s, first, 0, values, (size_t)c->queries * sizeof(values[0]));
}

/* The pass forward, and backward if `backward`. */
static void run(const form_t *form, const call_t *c, bool backward)
{
	const srt_dtype_t t = form->dtype;
	const int64_t q = c->query * ROW, k = c->key * ROW + WIDTH, v = k + KV_WIDTH;
	const srt_attention_t shape = { .size = sizeof(shape),
					.batch = 1,
					.queries = c->queries,
					.keys = c->keys,
					.heads = HEADS,
					.head_dim = HEAD_DIM,
					.scale = 0.25f,
					.causal = 1,
					.ldq = ROW,
					.ldk = ROW,
					.ldv = ROW,
					.lddq = ROW,
					.lddk = ROW,
					.lddv = ROW,
					.kv_heads = KV_HEADS,
					.offset = c->query - c->key };
	srt_attention_views_t views = { .size = sizeof(views),
					.q = at(qkv, t, q),
					.k = at(qkv, t, k),
					.v = at(qkv, t, v),
					.out = at(out, t, c->query * WIDTH),
					.stats = srt_view(stats, 0, SRT_F32),
					.dout = at(dout, t, c->query * WIDTH),
					.dq = at(dqkv, t, q),
					.dk = at(dqkv, t, k),
					.dv = at(dqkv, t, v),
					.scratch = srt_view(scratch, 0, SRT_F32) };

	if (form->has_first) {
		put_first(form, c);
		views.first = srt_view(first, 0, SRT_I32);
	}
	if (form->masked)
		views.mask = srt_view(mask, 0, SRT_U8);
	CHECK_OK(srt_op_attention(&shape, &views, s));
	if (backward)
		CHECK_OK(srt_op_attention_backward(&shape, &views, s));
}

static void clear(void)
{
	CHECK_OK(srt_buffer_zero(out, 0, sizeof(((results_t *)0)->out), s));
	CHECK_OK(srt_buffer_zero(dqkv, 0, sizeof(((results_t *)0)->dqkv), s));
}

static void get(results_t *r)
{
	test_get(s, r->out, out, 0, sizeof(r->out));
	test_get(s, r->dqkv, dqkv, 0, sizeof(r->dqkv));
}

static void run_packed(form_t form)
{
	form.has_first = true;
	run(&form, &(call_t){ 0, POSITIONS, 0, POSITIONS }, true);
}

static void run_alone(form_t form)
{
	int64_t start = 0;

	form.has_first = form.window > 0;
	for (size_t d = 0; d < SRT_ARRAY_LEN(documents); start += documents[d++])
		run(&form, &(call_t){ start, documents[d], start, documents[d] }, true);
}

/* At most `most` positions a call, the keys before them as far back as they see, and unused room
 * for later ones. */
static void run_parts(form_t form, int64_t most)
{
	form.has_first = form.window > 0;
	for (int64_t i = 0, n; i < POSITIONS; i += n) {
		const int64_t key = first_of(&form, i);

		for (n = 1; n < most && i + n < POSITIONS && start_of(i + n) == start_of(i);)
			n++;
		run(&form, &(call_t){ i, n, key, POSITIONS - key }, false);
	}
}

static void check(const form_t *form, const results_t *want, bool backward, const char *what)
{
	static results_t got;

	get(&got);
	CHECK_MSG(!memcmp(got.out, want->out, sizeof(got.out)), "%s: out, %s, window %d, mask %d",
		  what, srt_dtype_name(form->dtype), (int)form->window, form->masked);
	if (backward)
		CHECK_MSG(!memcmp(got.dqkv, want->dqkv, sizeof(got.dqkv)),
			  "%s: gradients, %s, window %d, mask %d", what,
			  srt_dtype_name(form->dtype), (int)form->window, form->masked);
}

static void test_documents(srt_dtype_t dtype, int64_t window)
{
	static results_t want;
	form_t form = { .dtype = dtype, .window = window };

	clear();
	run_packed(form);
	get(&want);
	for (int masked = 0; masked < 2; masked++) {
		form.masked = masked;
		clear();
		run_packed(form);
		check(&form, &want, true, "packed");
		clear();
		run_alone(form);
		check(&form, &want, true, "alone");
		for (int64_t most = dtype == SRT_F32 ? 1 : 7; most < 50; most *= 7) {
			clear();
			run_parts(form, most);
			check(&form, &want, false, "in parts");
		}
	}
}

static void fill(srt_buffer_t *buffer, srt_dtype_t dtype, size_t n)
{
	static float values[POSITIONS * ROW];

	for (size_t i = 0; i < n; i++)
		half_put(dtype, values, i, random_float());
	test_put(s, buffer, 0, values, n * srt_dtype_bits(dtype) / 8);
}

int main(void)
{
	static unsigned char all[POSITIONS];
	srt_buffer_t **const buffers[] = {
		&qkv, &dqkv, &out, &dout, &stats, &scratch, &first, &mask
	};

	device = test_device(2, "inline");
	s = test_stream(device, "documents");
	for (size_t i = 0; i < SRT_ARRAY_LEN(buffers); i++)
		*buffers[i] = test_buffer(device, POSITIONS * ROW * sizeof(float), "tensor");
	memset(all, 1, sizeof(all));
	test_put(s, mask, 0, all, sizeof(all));
	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		fill(qkv, (srt_dtype_t)dtype, POSITIONS * ROW);
		fill(dout, (srt_dtype_t)dtype, POSITIONS * WIDTH);
		test_documents((srt_dtype_t)dtype, 0);
		test_documents((srt_dtype_t)dtype, 1);
		test_documents((srt_dtype_t)dtype, 40);
	}
	for (size_t i = 0; i < SRT_ARRAY_LEN(buffers); i++)
		srt_buffer_destroy(*buffers[i]);
	srt_stream_destroy(s);
	srt_device_close(device);
	return check_done();
}
