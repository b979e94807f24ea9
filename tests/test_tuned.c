/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device's own matrix product and attention, as srt_op_matmul() and srt_op_attention*() choose
 * them, against the portable kernels on the CPU, bit for bit (NaN as a class): ragged sizes, depths
 * around the blocks of k, distances between rows, batches, all epilogues, hard values also at
 * masked positions. Whole buffers are compared, so the gaps of rows and the guards around the
 * tensors must survive. On OpenCL devices every form that the device can have
 * (backends/opencl/tuned.h).
 */
#include <math.h>

#include "kernels/cpu.h"
#include "tests/device.h"
#include "tests/random.h"

#define GUARD (-123.25f)
#define NGUARD 67 /* odd: tensors are aligned to nothing but a float */

typedef enum values { PLAIN, HARD, TINY, NVALUES } values_t;

static srt_device_t *device;
static srt_stream_t *stream;
static const char *form;
static bool is_tiny;

static float value(values_t kind)
{
	static const uint32_t hard[] = { 0x00000000, 0x80000000, 0x00000001, 0x80000003,
					 0x007fffff, 0x00800000, 0x80800001, 0x20000000,
					 0x1f800001, 0x3f800000, 0x5f000000, 0xdf000001 };
	uint32_t r = random32();
	float x = (float)((int)(r >> 8) - (1 << 23)) * 0x1p-22f;

	if (kind == TINY)
		return x * (r % 3 ? 0x1p-70f : 0x1p-126f);
	if (kind == HARD && r % 7 == 0)
		memcpy(&x, &hard[(r >> 8) % SRT_ARRAY_LEN(hard)], sizeof(x));
	if (kind == HARD && r % 199 == 1)
		x = (r >> 8) % 3 == 0 ? NAN : r & 0x1000 ? INFINITY : -INFINITY;
	return x;
}

/* A tensor on the host (what it should become) and on the device, between guards. */
typedef struct tensor {
	size_t nelem;
	float *host;
	srt_buffer_t *buffer;
} tensor_t;

static float *at(const tensor_t *t)
{
	return t->host ? t->host + NGUARD : NULL;
}

static tensor_t tensor(int64_t nelem, const char *name)
{
	tensor_t t = { .nelem = (size_t)nelem };
	size_t n = t.nelem + 2 * NGUARD;

	t.host = malloc(n * sizeof(float));
	CHECK_OR_DIE(t.host != NULL);
	for (size_t i = 0; i < n; i++)
		t.host[i] = GUARD;
	t.buffer = test_buffer(device, n * sizeof(float), name);
	return t;
}

static tensor_t random_tensor(int64_t nelem, values_t kind, const char *name)
{
	tensor_t t = tensor(nelem, name);

	for (size_t i = 0; i < t.nelem; i++)
		at(&t)[i] = value(kind);
	return t;
}

static void upload(const tensor_t *t)
{
	test_put(stream, t->buffer, 0, t->host, (t->nelem + 2 * NGUARD) * sizeof(float));
}

static srt_view_t view(const tensor_t *t)
{
	if (!t->buffer)
		return (srt_view_t){ .buffer = NULL };
	return srt_view(t->buffer, NGUARD * sizeof(float), SRT_F32);
}

/* Elements of the device's tensor, guards included, that are not as on the host. */
static size_t wrong(const tensor_t *t)
{
	size_t n = t->nelem + 2 * NGUARD, count = 0;
	float *got = malloc(n * sizeof(*got));

	CHECK_OR_DIE(got != NULL);
	test_get(stream, got, t->buffer, 0, n * sizeof(*got));
	for (size_t i = 0; i < n; i++)
		count += memcmp(&got[i], &t->host[i], sizeof(*got)) != 0 &&
			 !(got[i] != got[i] && t->host[i] != t->host[i]);
	free(got);
	return count;
}

static void drop(tensor_t *t)
{
	srt_buffer_destroy(t->buffer);
	free(t->host);
}

/* The portable kernel on the host's side of the tensors. */
static void portable(srt_kernel_id_t kernel, const void *args, tensor_t *const *tensors)
{
	unsigned char *places[SRT_LAUNCH_MAX_PLACES];
	int isa = SRT_ISA_COUNT - 1;

	while (!srt_cpu_isa_usable((srt_cpu_isa_t)isa))
		isa--;
	for (int i = 0; i < srt_kernel_info(kernel)->nplaces; i++)
		places[i] = (unsigned char *)at(tensors[i]);
	srt_kernel_cpu(kernel, SRT_F32, (srt_cpu_isa_t)isa)(places, args, 0,
							    srt_kernel_grid(kernel, args));
}

/* ---- matrix product ---------------------------------------------------------------------- */

/* bits: transpositions, accumulate, bias, alpha, batch; lead: what rows have beyond their length.
 */
static void check_matmul(int64_t m, int64_t n, int64_t k, unsigned bits, values_t kind,
			 int64_t lead)
{
	srt_k_matmul_t args = {
		.m = m,
		.n = n,
		.k = k,
		.batch = bits >> 5 & 1 ? 3 : 1,
		.trans_a = bits & 1,
		.trans_b = bits >> 1 & 1,
		.accumulate = bits >> 2 & 1,
		.alpha = bits >> 4 & 1 ? 0.3f : 1.0f,
	};
	tensor_t a, b, c, bias = { .host = NULL };
	srt_matmul_t mm;
	size_t nwrong;

	args.lda = (args.trans_a ? m : k) + lead;
	args.ldb = (args.trans_b ? k : n) + lead;
	args.ldc = n + lead;
	args.stride_a = (args.trans_a ? k : m) * args.lda + lead;
	args.stride_b = (args.trans_b ? n : k) * args.ldb + lead;
	args.stride_c = m * args.ldc + lead;
	a = random_tensor(args.batch * args.stride_a, kind, "a");
	b = random_tensor(args.batch * args.stride_b, kind, "b");
	c = tensor(args.batch * args.stride_c, "c");
	for (int64_t r = 0; r < args.batch * m; r++)
		for (int64_t j = 0; j < n; j++)
			at(&c)[r / m * args.stride_c + r % m * args.ldc + j] = value(kind);
	if (bits >> 3 & 1)
		bias = random_tensor(n, kind, "bias");
	upload(&a);
	upload(&b);
	upload(&c);
	if (bias.host)
		upload(&bias);
	mm = (srt_matmul_t){
		.m = m,
		.n = n,
		.k = k,
		.batch = args.batch > 1 ? args.batch : 0,
		.trans_a = args.trans_a,
		.trans_b = args.trans_b,
		.a = view(&a),
		.b = view(&b),
		.c = view(&c),
		.lda = args.lda,
		.ldb = args.ldb,
		.ldc = args.ldc,
		.stride_a = args.stride_a,
		.stride_b = args.stride_b,
		.stride_c = args.stride_c,
		.alpha = bits >> 4 & 1 ? 0.3f : 0.0f,
		.bias = view(&bias),
		.accumulate = args.accumulate,
	};
	CHECK_OK(srt_op_matmul(stream, &mm));
	portable(SRT_K_MATMUL, &args, (tensor_t *[]){ &c, &a, &b, &bias });
	nwrong = wrong(&c);
	CHECK_MSG(nwrong == 0, "%s: %zu wrong: m %d n %d k %d options %u values %d lead %d", form,
		  nwrong, (int)m, (int)n, (int)k, bits, (int)kind, (int)lead);
	drop(&a);
	drop(&b);
	drop(&c);
	drop(&bias);
}

/* Every number of rows and many of columns of a tile. */
static void test_tiles(void)
{
	for (int64_t m = 1; m <= 13; m++)
		for (int64_t n = 1; n <= 34; n += 1 + random32() % 3)
			check_matmul(m, n, 1 + random32() % 9, random32() % 64, HARD,
				     random32() % 4);
}

static void test_sizes(void)
{
	static const int64_t sizes[] = { 0, 1, 2, 7, 16, 31, 33, 64, 67, 130, 257 };
	static const int64_t depths[] = { 0, 1, 3, 64, 511, 512, 513, 1024, 1031, 1600 };

	for (int i = 0; i < 60; i++) {
		int64_t m = sizes[random32() % SRT_ARRAY_LEN(sizes)];
		int64_t n = sizes[random32() % SRT_ARRAY_LEN(sizes)];
		int64_t k = depths[random32() % SRT_ARRAY_LEN(depths)];

		if (m * n * k > 2000000)
			k = 33;
		check_matmul(m, n, k, random32() % 64, (values_t)(i % NVALUES), random32() % 9);
	}
}

/* Every depth with every way into and out of a product; spans of k; distances of cache sets. */
static void test_depths(void)
{
	static const int64_t depths[] = { 1, 511, 512, 513, 1024, 2047, 2048, 2049, 4200 };

	for (size_t i = 0; i < SRT_ARRAY_LEN(depths); i++)
		for (unsigned bits = 0; bits < 64; bits += 3)
			check_matmul(5, 9, depths[i], bits, i % 2 ? HARD : PLAIN, 1);
	check_matmul(25, 37, 1024, 2, PLAIN, 0);
	check_matmul(25, 37, 2048, 4 | 32, PLAIN, 0);
}

/* More than is packed at a time: of columns, of rows, of sums, of batch items. */
static void test_stretches(void)
{
	check_matmul(3, 2100, 2049, 4, PLAIN, 0);
	check_matmul(2100, 5, 2049, 1, PLAIN, 0);
	check_matmul(520, 2048, 2049, 4, PLAIN, 0);
	check_matmul(2, 2048, 2048, 2 | 32, PLAIN, 0);
}

/* ---- attention --------------------------------------------------------------------------- */

/* The tensors of one case. Packed: q, k, v are in q, and the gradients in dq. */
typedef struct attention {
	srt_attention_t shape;
	srt_k_attention_t args;
	bool packed;
	tensor_t q, k, v, dout, out, stats, dsum, dq, dk, dv, lengths;
} attention_t;

static attention_t make_attention(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
				  int64_t hd, values_t kind, int form_bits)
{
	const int64_t d = heads * hd, rows = batch * queries;
	attention_t t = { .packed = form_bits >> 2 & 1 };
	const int64_t lead = t.packed ? 2 * d : random32() % 4;

	t.shape = (srt_attention_t){
		.batch = batch,
		.queries = queries,
		.keys = keys,
		.heads = heads,
		.head_dim = hd,
		.scale = kind == TINY ? 0x1p100f : 0.35f,
		.causal = form_bits & 1,
		.ldq = d + lead,
		.ldk = d + lead,
		.ldv = d + 2 * d * t.packed,
		.lddq = d + 2 * d * t.packed,
		.lddk = d + lead,
		.lddv = d + lead,
	};
	t.args = (srt_k_attention_t){ batch,         queries,      keys,
				      heads,         hd,           t.shape.ldq,
				      t.shape.ldk,   t.shape.ldv,  t.shape.lddq,
				      t.shape.lddk,  t.shape.lddv, t.shape.scale,
				      t.shape.causal };
	t.q = random_tensor(rows * (d + lead), kind, "q");
	t.k = random_tensor(t.packed ? 0 : batch * keys * (d + lead), kind, "k");
	t.v = random_tensor(t.packed ? 0 : batch * keys * d, kind, "v");
	t.dout = random_tensor(rows * d, kind, "dout");
	t.out = tensor(rows * d, "out");
	t.stats = tensor(2 * rows * heads, "stats");
	t.dsum = tensor(rows * heads, "D");
	t.dq = tensor(rows * (t.packed ? 3 * d : d), "dq");
	t.dk = tensor(t.packed ? 0 : batch * keys * (d + lead), "dk");
	t.dv = tensor(t.packed ? 0 : batch * keys * (d + lead), "dv");
	t.lengths = tensor(batch, "lengths");
	for (int64_t b = 0; b < batch; b++) {
		const int32_t n =
			(int32_t)(b % 3 ? (int64_t)(random32() % 8) - 2 : keys) - (int32_t)(b % 2);

		memcpy(at(&t.lengths) + b, &n, sizeof(n));
	}
	return t;
}

/* The whole of it, in an array, for what is done to all. */
static void each(attention_t *t, void (*what)(tensor_t *))
{
	tensor_t *const all[] = { &t->q,    &t->k,  &t->v,  &t->dout, &t->out,    &t->stats,
				  &t->dsum, &t->dq, &t->dk, &t->dv,   &t->lengths };

	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++)
		what(all[i]);
}

static void upload_one(tensor_t *t)
{
	upload(t);
}

static srt_attention_views_t views_of(attention_t *t, int with_lengths, srt_view_t scratch)
{
	srt_attention_views_t v = {
		.q = view(&t->q),
		.k = view(&t->k),
		.v = view(&t->v),
		.out = view(&t->out),
		.stats = view(&t->stats),
		.dout = view(&t->dout),
		.dq = view(&t->dq),
		.dk = view(&t->dk),
		.dv = view(&t->dv),
		.scratch = scratch,
	};

	if (t->packed)
		srt_attention_packed(&t->shape, &v, v.q, v.dq);
	if (with_lengths) {
		v.lengths = view(&t->lengths);
		v.lengths.dtype = SRT_I32;
	}
	return v;
}

/* A tensor that is a part of another one's rows. */
static tensor_t part_of(const tensor_t *t, int64_t first)
{
	return (tensor_t){ .nelem = t->nelem, .host = t->host + first };
}

static void portable_attention(attention_t *t, int with_lengths)
{
	const int64_t d = t->args.heads * t->args.head_dim;
	tensor_t none = { .host = NULL }, *lengths = with_lengths ? &t->lengths : &none;
	tensor_t k = t->packed ? part_of(&t->q, d) : t->k;
	tensor_t v = t->packed ? part_of(&t->q, 2 * d) : t->v;
	tensor_t dk = t->packed ? part_of(&t->dq, d) : t->dk;
	tensor_t dv = t->packed ? part_of(&t->dq, 2 * d) : t->dv;

	portable(SRT_K_ATTENTION, &t->args,
		 (tensor_t *[]){ &t->out, &t->stats, &t->q, &k, &v, lengths, &none });
	portable(SRT_K_ATTENTION_BACKWARD_D, &t->args,
		 (tensor_t *[]){ &t->dsum, &t->dout, &t->out });
	portable(SRT_K_ATTENTION_BACKWARD_Q, &t->args,
		 (tensor_t *[]){ &t->dq, &t->dout, &t->q, &k, &v, &t->stats, &t->dsum, lengths,
				 &none });
	portable(SRT_K_ATTENTION_BACKWARD_KV, &t->args,
		 (tensor_t *[]){ &dk, &dv, &t->dout, &t->q, &k, &v, &t->stats, &t->dsum, lengths,
				 &none });
}

/* bits: causal, lengths, packed (as many keys as queries). */
static void check_attention(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t hd,
			    int bits, values_t kind)
{
	attention_t t = make_attention(batch, queries, keys, heads, hd, kind, bits);
	const int with_lengths = bits >> 1 & 1;
	srt_attention_views_t v;
	srt_buffer_t *scratch;
	size_t nbytes, nwrong;

	each(&t, upload_one);
	CHECK_OK_OR_DIE(srt_op_attention_scratch(device, &t.shape, &nbytes));
	scratch = test_buffer(device, nbytes + sizeof(float), "scratch");
	v = views_of(&t, with_lengths, srt_view(scratch, 0, SRT_F32));
	CHECK_OK(srt_op_attention(stream, &t.shape, &v));
	CHECK_OK(srt_op_attention_backward(stream, &t.shape, &v));
	if (batch * heads * hd > 0)
		portable_attention(&t, with_lengths);
	nwrong = wrong(&t.out) + wrong(&t.stats) + wrong(&t.dq) + wrong(&t.dk) + wrong(&t.dv);
	CHECK_MSG(nwrong == 0,
		  "%s: %zu of out, %zu of stats, %zu of dq, %zu of dk, %zu of dv wrong: batch %d, "
		  "%d queries, %d keys, heads %d head_dim %d bits %d values %d",
		  form, wrong(&t.out), wrong(&t.stats), wrong(&t.dq), wrong(&t.dk), wrong(&t.dv),
		  (int)batch, (int)queries, (int)keys, (int)heads, (int)hd, bits, (int)kind);
	srt_buffer_destroy(scratch);
	each(&t, drop);
}

static void test_self_attention(void)
{
	static const int64_t dims[] = { 1, 3, 8, 16, 17, 32, 33, 64, 65 };

	for (int bits = 4; bits < 6; bits++) {
		for (int64_t t = 0; t <= 40; t += 1 + t / 8)
			check_attention(1, t, t, 2, dims[t % 9], bits, (values_t)(t % NVALUES));
		for (int kind = PLAIN; kind < NVALUES; kind++) {
			check_attention(1, 97, 97, 1, 12, bits, (values_t)kind);
			check_attention(2, 64, 64, 2, 32, bits, (values_t)kind);
		}
		check_attention(1, 200, 200, 1, 40, bits, PLAIN);
		check_attention(1, 130, 130, 2, 64, bits, HARD);
		check_attention(3, 5, 5, 5, 9, bits, HARD);
		check_attention(1, 9, 9, 1, 1100, bits, PLAIN);
		check_attention(1, 300, 300, 1, 4, bits, PLAIN);
		check_attention(0, 9, 9, 1, 8, bits, PLAIN);
	}
}

/* Other numbers of keys than of queries, and items with fewer. */
static void test_attention(void)
{
	static const int64_t sizes[] = { 1, 2, 7, 12, 13, 25, 33, 64, 97, 107 };

	for (int i = 0; i < 20; i++)
		check_attention(2, sizes[i % 10], sizes[random32() % 10], 2, 1 + i % 20, i % 4,
				(values_t)(i % NVALUES));
	for (int bits = 1; bits < 4; bits++) {
		check_attention(5, 29, 26, 1, 8, bits, HARD);
		check_attention(5, 26, 26, 1, 8, 4 + bits, HARD);
		check_attention(2, 203, 101, 1, 6, bits, PLAIN);
		check_attention(2, 101, 203, 1, 6, bits, HARD);
	}
}

/* A few groups of each kernel: for a simulator of devices (test_oclgrind.sh). */
static void test_tiny(void)
{
	for (unsigned bits = 0; bits < 64; bits += 7)
		check_matmul(5, 9, 35, bits, HARD, 1);
	check_matmul(25, 37, 40, 2, PLAIN, 0);
	check_matmul(3, 5, 515, 4, PLAIN, 0);
	for (int causal = 0; causal < 2; causal++) {
		check_attention(1, 9, 9, 2, 8, 4 + causal, HARD);
		check_attention(1, 34, 34, 1, 17, 4 + causal, PLAIN);
		check_attention(3, 7, 15, 1, 5, 2 + causal, PLAIN);
	}
}

static void test_form(const char *name, bool stretches)
{
	form = name;
	device = test_device(2, "inline");
	stream = test_stream(device, "test");
	if (is_tiny) {
		test_tiny();
	} else {
		test_tiles();
		test_sizes();
		test_depths();
		test_self_attention();
		test_attention();
		if (stretches)
			test_stretches();
	}
	srt_stream_destroy(stream);
	srt_device_close(device);
}

int main(int argc, char **argv)
{
	/* The form that the lanes' own suits best; portable attention with lanes as a loop is what
	 * the other tests have. */
	static const char *const of_loop[] = { "vector4", "vector8", "vector16", NULL };
	static const char *const of_items[] = { "portable", "tiled8", "tiled", NULL };
	const char *lanes = getenv("SHARDRT_OPENCL_LANES");
	const char *const *forms = lanes && !strcmp(lanes, "items") ? of_items : of_loop;

	is_tiny = argc > 1 && !strcmp(argv[1], "tiny");
	if (strcmp(test_backend(), "opencl") != 0) {
		test_form(test_backend(), true);
		return check_done();
	}
	for (int i = 0; forms[i]; i++) {
		setenv("SHARDRT_OPENCL_TUNED", forms[i], 1);
		test_form(forms[i], strcmp(forms[i], "vector8") == 0);
	}
	return check_done();
}
