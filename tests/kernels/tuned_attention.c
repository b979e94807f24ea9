/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of test_tuned: attention. */
#include "tests/kernels/tuned_tensor.h"

/* A case's options. Packed: q, k, v are parts of one tensor, with as many keys as queries. Shared:
 * one head of keys for two. Offset: the queries are after half of the keys, or after 150 of many: a
 * tile and a part, and tiles that see nothing are left out. */
enum { CAUSAL = 1, LENGTHS = 2, PACKED = 4, MASK = 8, FIRST = 16, SHARED = 32, OFFSET = 64 };

/* The tensors of one case. Packed: q, k, v are in q, and the gradients in dq. */
typedef struct attention {
	srt_attention_t shape;
	srt_k_attention_t args;
	srt_dtype_t dtype;
	bool packed;
	tensor_t q, k, v, dout, out, stats, dsum, dq, dk, dv, lengths, mask, first;
} attention_t;

static attention_t make_attention(srt_dtype_t dtype, int64_t batch, int64_t queries, int64_t keys,
				  int64_t heads, int64_t hd, values_t kind, int form_bits)
{
	const int64_t kv_heads = form_bits & SHARED ? heads / 2 : heads;
	const int64_t d = heads * hd, kv = kv_heads * hd, rows = batch * queries;
	attention_t t = { .dtype = dtype, .packed = form_bits >> 2 & 1 };
	const int64_t lead = t.packed ? 2 * kv : tt_random() % 4;
	const int64_t width = t.packed ? d : kv;

	t.shape = (srt_attention_t){
		.size = sizeof(srt_attention_t),
		.batch = batch,
		.queries = queries,
		.keys = keys,
		.heads = heads,
		.head_dim = hd,
		.scale = kind != TINY     ? 0.35f :
			 dtype == SRT_F16 ? 0x1p14f :
					    0x1p100f,
		.causal = form_bits & 1,
		.ldq = d + lead,
		.ldk = width + lead,
		.ldv = width + lead * t.packed,
		.lddq = d + lead * t.packed,
		.lddk = width + lead,
		.lddv = width + lead,
		.kv_heads = kv_heads,
		.offset = form_bits & OFFSET ? (keys < 300 || check_is_long() ? keys / 2 : 150) : 0,
	};
	t.args = srt_kernel_attention_args(&t.shape);
	t.q = tt_random_tensor(dtype, rows * (d + lead), kind, "q");
	t.k = tt_random_tensor(dtype, t.packed ? 0 : batch * keys * (kv + lead), kind, "k");
	t.v = tt_random_tensor(dtype, t.packed ? 0 : batch * keys * kv, kind, "v");
	t.dout = tt_random_tensor(dtype, rows * d, kind, "dout");
	t.out = tt_tensor(dtype, rows * d, "out");
	t.stats = tt_tensor(SRT_F32, 2 * rows * heads, "stats");
	t.dsum = tt_tensor(SRT_F32, rows * heads, "D");
	t.dq = tt_tensor(dtype, rows * (d + lead * t.packed), "dq");
	t.dk = tt_tensor(dtype, t.packed ? 0 : batch * keys * (kv + lead), "dk");
	t.dv = tt_tensor(dtype, t.packed ? 0 : batch * keys * (kv + lead), "dv");
	t.lengths = tt_tensor(SRT_F32, batch, "lengths");
	t.mask = tt_tensor(SRT_F32, (batch * keys + 3) / 4, "mask");
	t.first = tt_tensor(SRT_F32, rows, "first");
	for (int64_t i = 0; i < rows; i++) { /* windows, and some others */
		const int32_t from = (int32_t)(t.shape.offset + i % queries) -
				     (int32_t)(tt_random() % 9 ? 7 : tt_random() % 40);

		memcpy(tt_at(&t.first, i), &from, sizeof(from));
	}
	for (int64_t b = 0; b < batch; b++) {
		const int32_t n =
			(int32_t)(b % 3 ? (int64_t)(tt_random() % 8) - 2 : keys) - (int32_t)(b % 2);

		memcpy(tt_at(&t.lengths, b), &n, sizeof(n));
	}
	for (int64_t i = 0; i < batch * keys; i++) {
		const uint32_t r = tt_random();

		tt_at(&t.mask, 0)[i] = r % 3 ? (unsigned char)(r >> 8 | 1) : 0;
	}
	return t;
}

/* The whole of it, in an array, for what is done to all. */
static void each(attention_t *t, void (*what)(tensor_t *))
{
	tensor_t *const all[] = { &t->q,       &t->k,    &t->v,    &t->dout, &t->out,
				  &t->stats,   &t->dsum, &t->dq,   &t->dk,   &t->dv,
				  &t->lengths, &t->mask, &t->first };

	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++)
		what(all[i]);
}

static srt_attention_views_t views_of(attention_t *t, int bits, srt_view_t scratch)
{
	srt_attention_views_t v = {
		.size = sizeof(srt_attention_views_t),
		.q = tt_view(&t->q),
		.k = tt_view(&t->k),
		.v = tt_view(&t->v),
		.out = tt_view(&t->out),
		.stats = tt_view(&t->stats),
		.dout = tt_view(&t->dout),
		.dq = tt_view(&t->dq),
		.dk = tt_view(&t->dk),
		.dv = tt_view(&t->dv),
		.scratch = scratch,
	};

	if (t->packed)
		srt_attention_set_packed(&t->shape, &v, v.q, v.dq);
	if (bits & LENGTHS) {
		v.lengths = tt_view(&t->lengths);
		v.lengths.dtype = SRT_I32;
	}
	if (bits & MASK) {
		v.mask = tt_view(&t->mask);
		v.mask.dtype = SRT_U8;
	}
	if (bits & FIRST) {
		v.first = tt_view(&t->first);
		v.first.dtype = SRT_I32;
	}
	return v;
}

/* A tensor that is a part of another one's rows. */
static tensor_t part_of(const tensor_t *t, int64_t first)
{
	return (tensor_t){ .dtype = t->dtype,
			   .nelem = t->nelem,
			   .host = t->host + first * srt_dtype_bits(t->dtype) / 8 };
}

static void portable_attention(attention_t *t, int bits)
{
	const int64_t d = t->args.heads * t->args.head_dim;
	const int64_t kv = t->args.kv_heads * t->args.head_dim;
	tensor_t none = { .host = NULL }, *lengths = bits & LENGTHS ? &t->lengths : &none,
		 *mask = bits & MASK ? &t->mask : &none, *first = bits & FIRST ? &t->first : &none;
	tensor_t k = t->packed ? part_of(&t->q, d) : t->k;
	tensor_t v = t->packed ? part_of(&t->q, d + kv) : t->v;
	tensor_t dk = t->packed ? part_of(&t->dq, d) : t->dk;
	tensor_t dv = t->packed ? part_of(&t->dq, d + kv) : t->dv;

	tt_portable(SRT_K_ATTENTION, t->dtype, &t->args,
		    (tensor_t *[]){ &t->out, &t->stats, &t->q, &k, &v, lengths, mask, first });
	tt_portable(SRT_K_ATTENTION_BACKWARD_D, t->dtype, &t->args,
		    (tensor_t *[]){ &t->dsum, &t->dout, &t->out, &t->q, &k, &v, &t->stats, lengths,
				    mask, first });
	tt_portable(SRT_K_ATTENTION_BACKWARD_Q, t->dtype, &t->args,
		    (tensor_t *[]){ &t->dq, &t->dout, &t->q, &k, &v, &t->stats, &t->dsum, lengths,
				    mask, first });
	tt_portable(SRT_K_ATTENTION_BACKWARD_KV, t->dtype, &t->args,
		    (tensor_t *[]){ &dk, &dv, &t->dout, &t->q, &k, &v, &t->stats, &t->dsum, lengths,
				    mask, first });
}

static void check_attention_as(srt_dtype_t dtype, int64_t batch, int64_t queries, int64_t keys,
			       int64_t heads, int64_t hd, int bits, values_t kind)
{
	attention_t t = make_attention(dtype, batch, queries, keys, heads, hd, kind, bits);
	srt_attention_views_t v;
	srt_buffer_t *scratch;
	size_t nbytes, nwrong;

	each(&t, tt_upload);
	CHECK_OK_OR_DIE(srt_op_attention_scratch(tt_device, &t.shape, &nbytes));
	scratch = test_buffer(tt_device, nbytes + sizeof(float), "scratch");
	v = views_of(&t, bits, srt_view(scratch, 0, SRT_F32));
	CHECK_OK(srt_op_attention(&t.shape, &v, tt_stream));
	CHECK_OK(srt_op_attention_backward(&t.shape, &v, tt_stream));
	if (batch * heads * hd > 0)
		portable_attention(&t, bits);
	nwrong = tt_wrong(&t.out) + tt_wrong(&t.stats) + tt_wrong(&t.dq) + tt_wrong(&t.dk) +
		 tt_wrong(&t.dv);
	CHECK_MSG(
		nwrong == 0,
		"%s, %s: %zu of out, %zu of stats, %zu of dq, %zu of dk, %zu of dv wrong: batch %d, "
		"%d queries, %d keys, heads %d head_dim %d bits %d values %d",
		tt_form, srt_dtype_name(dtype), tt_wrong(&t.out), tt_wrong(&t.stats),
		tt_wrong(&t.dq), tt_wrong(&t.dk), tt_wrong(&t.dv), (int)batch, (int)queries,
		(int)keys, (int)heads, (int)hd, bits, (int)kind);
	srt_buffer_destroy(scratch);
	each(&t, tt_drop);
}

static void check_attention(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t hd,
			    int bits, values_t kind)
{
	check_attention_as(SRT_F32, batch, queries, keys, heads, hd, bits, kind);
}

/* In forms that need not all of it, sizes of several tiles are causal or not, in turn. */
static void test_self_attention(bool all)
{
	static const int64_t dims[] = { 1, 3, 8, 16, 17, 32, 33, 64, 65 };

	for (int bits = PACKED; bits <= (PACKED | CAUSAL); bits++) {
		const bool causal = bits & CAUSAL;

		for (int64_t t = 0; t <= 40; t += 1 + t / 8)
			check_attention(1, t, t, 2, dims[t % 9], bits, (values_t)(t % NVALUES));
		for (int kind = PLAIN; kind < NVALUES; kind++) {
			if (all || causal == kind % 2)
				check_attention(1, 97, 97, 1, 12, bits, (values_t)kind);
			if (all || causal != kind % 2)
				check_attention(2, 64, 64, 2, 32, bits, (values_t)kind);
		}
		if (all || !causal)
			check_attention(1, 200, 200, 1, 40, bits, PLAIN);
		if (all || causal)
			check_attention(1, 130, 130, 2, 64, bits, HARD);
		check_attention(3, 5, 5, 5, 9, bits, HARD);
		check_attention(1, 9, 9, 1, 1100, bits, PLAIN);
		if (all || causal)
			check_attention(1, 300, 300, 1, 4, bits, PLAIN);
		check_attention(0, 9, 9, 1, 8, bits, PLAIN);
	}
}

/* Other numbers of keys than of queries, and items with fewer; in forms that need not all of it,
 * more keys or more queries in turn where they are several tiles. */
static void test_attention(bool all)
{
	static const int64_t sizes[] = { 1, 2, 7, 12, 13, 25, 33, 64, 97, 107 };

	for (int i = 0; i < 20; i++)
		check_attention(2, sizes[i % 10], sizes[tt_random() % 10], 2, 1 + i % 20,
				i % 4 + i / 4 % 2 * MASK, (values_t)(i % NVALUES));
	for (int bits = 1; bits < 16; bits++) {
		if (bits & PACKED)
			continue;
		check_attention(5, 29, 26, 1, 8, bits, HARD);
		check_attention(5, 26, 26, 1, 8, PACKED | bits, HARD);
		if (all || bits % 2)
			check_attention(2, 203, 101, 1, 6, bits, PLAIN);
		if (all || bits % 2 == 0)
			check_attention(2, 101, 203, 1, 6, bits, HARD);
	}
}

/* Heads of keys that queries share, first keys, queries after some of the keys. In forms that need
 * not all of it, all three with each of the others, and each alone with one. */
static void test_grouped(srt_dtype_t dtype, bool all)
{
	static const int forms[] = { FIRST, SHARED, OFFSET, FIRST | SHARED | OFFSET };
	static const int others[] = { 0, CAUSAL, CAUSAL | LENGTHS | PACKED, CAUSAL | MASK };

	for (int i = 0; i < 16; i++) {
		const int bits = forms[i / 4] | others[i % 4];
		const int64_t queries = 29 + 11 * (i % 2);

		if (!all && i / 4 < 3 && i % 4 != i / 4 + 1)
			continue;
		check_attention_as(dtype, 2, queries, bits & PACKED ? queries : 70, 4, 7 + i, bits,
				   (values_t)(i % NVALUES));
	}
}

/* Every option in 16 bits. */
static void test_halves(void)
{
	for (int dtype = SRT_F16; dtype <= SRT_BF16; dtype++) {
		test_grouped((srt_dtype_t)dtype, true);
		for (int bits = 0; bits < 16; bits++) {
			check_attention_as((srt_dtype_t)dtype, 2, 29, bits & PACKED ? 29 : 43, 2,
					   7 + bits, bits, (values_t)(bits % NVALUES));
			check_attention_as((srt_dtype_t)dtype, 3, 97, 97, 1, 33, bits, PLAIN);
		}
	}
}

void tt_test_attention(bool all)
{
	test_grouped(SRT_F32, all || check_is_long());
	test_self_attention(all || check_is_long());
	test_attention(all || check_is_long());
	if (all)
		test_halves();
}

void tt_test_attention_tiny(void)
{
	for (int causal = 0; causal < 2; causal++) {
		check_attention(1, 9, 9, 2, 8, PACKED | causal, HARD);
		check_attention(1, 34, 34, 1, 17, PACKED | causal, PLAIN);
		check_attention(3, 7, 15, 1, 5, LENGTHS | causal, PLAIN);
	}
}

/* Tiles of which some rows see all keys of a slice, some a part of them, and some none. */
void tt_test_attention_large(srt_dtype_t dtype)
{
	check_attention_as(dtype, 1, 250, 250, 1, 128, CAUSAL, PLAIN);
	check_attention_as(dtype, 1, 256, 256, 1, 64, CAUSAL | MASK, PLAIN);
	check_attention_as(dtype, 2, 250, 130, 1, 64, LENGTHS, PLAIN);
	/* The queries take several turns; chains of the gradients go on from turn to turn. */
	check_attention_as(dtype, 1, 300, 32768, 1, 4, CAUSAL, PLAIN);
	check_attention_as(dtype, 1, 300, 32768, 2, 4, CAUSAL | SHARED | FIRST | OFFSET, PLAIN);
}
