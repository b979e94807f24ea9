/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of kernel_cases.def, the sizes of its families, and the cases of operations that have
 * tuned versions. What places hold is in kernel_places.c.
 */
#include "tests/kernel_cases.h"

#include <string.h>

#include "base/base.h"

/* ---- sizes: r, n, k, b ------------------------------------------------------------------- */
#define FAMILY(name, rarity, benched, ...)                                                         \
	static const kernel_dims_t name##_dims[] = { __VA_ARGS__ };                                \
	static const kernel_family_t family_##name = {                                             \
		.quick = name##_dims,                                                              \
		.nquick = SRT_ARRAY_LEN(name##_dims) - name##_nmore,                               \
		.more = name##_dims + SRT_ARRAY_LEN(name##_dims) - name##_nmore,                   \
		.nmore = name##_nmore,                                                             \
		.bench = benched,                                                                  \
		.rare = rarity,                                                                    \
	};
#define OF4(r, n, k, b)                                                                            \
	{                                                                                          \
		r, n, k, b                                                                         \
	}
#define OF(r, n) OF4(r, n, 0, 0)

/* The last so many are those of long runs. */
enum {
	ELEMENTS_nmore = 4,
	ROWS_nmore = 4,
	COLUMNS_nmore = 3,
	TABLE_nmore = 2,
	PRODUCT_nmore = 4,
	HEADS_nmore = 3,
	STEP_nmore = 2,
	FEW_nmore = 1,
	COO_nmore = 1
};

FAMILY(ELEMENTS, 5, OF(0, 16 << 20), OF(0, 0), OF(0, 1), OF(0, 7), OF(0, 131), OF(0, 2048),
       OF(0, 4099), OF(0, 16385), OF(0, 65536), OF(0, 100003), OF(0, 1048583))
FAMILY(ROWS, 150, OF(16384, 1024), OF(0, 3), OF(1, 1), OF(3, 64), OF(5, 131), OF(67, 7),
       OF(2, 1031), OF(1, 4099), OF(131, 257), OF(7, 50257), OF(2053, 96))
FAMILY(COLUMNS, 400, OF(16384, 1024), OF(0, 3), OF(1, 1), OF(3, 67), OF(131, 5), OF(400, 7),
       OF(513, 131), OF(1031, 64), OF(4099, 257))
FAMILY(TABLE, 50, OF4(16384, 1024, 8192, 1024), OF4(0, 3, 2, 1), OF4(1, 1, 1, 1), OF4(13, 70, 7, 3),
       OF4(131, 5, 11, 17), OF4(7, 513, 1031, 7), OF4(7200, 1, 7, 100), OF4(1031, 257, 521, 128))
FAMILY(PRODUCT, 700, OF4(1024, 1024, 1024, 1), OF4(0, 5, 3, 1), OF4(3, 5, 0, 1), OF4(1, 1, 1, 1),
       OF4(2, 5, 515, 1), OF4(13, 67, 7, 2), OF4(7, 131, 67, 1), OF4(3, 70, 1030, 1),
       OF4(131, 67, 601, 1), OF4(1, 257, 600, 3), OF4(37, 64, 512, 2))
FAMILY(HEADS, 2000, OF4(256, 64, 6, 4), OF4(0, 4, 2, 1), OF4(1, 1, 1, 1), OF4(7, 5, 3, 2),
       OF4(67, 8, 1, 1), OF4(131, 20, 2, 1), OF4(64, 64, 2, 2), OF4(257, 16, 1, 1))
FAMILY(STEP, 5, OF(0, 16 << 20), OF(0, 0), OF(0, 1), OF(0, 7), OF(0, 131), OF4(0, 131, 1, 0),
       OF(0, 4099), OF(0, 65536), OF(0, 100003))
FAMILY(FEW, 5, OF(0, 0), OF(0, 0), OF(0, 1), OF(0, 3), OF4(0, 7, 1, 0), OF(0, 131))
FAMILY(COO, 5, OF(0, 1 << 20), OF(0, 0), OF(0, 1), OF(0, 7), OF(0, 131), OF(0, 2048), OF(0, 4099),
       OF(0, 16385))

/* ---- the table ---------------------------------------------------------------------------- */
#define R (d->r)
#define N (d->n)
#define K (d->k)
#define B (d->b)
#define PLACE(n, below, type, fill)                                                                \
	{                                                                                          \
		n, below, type, fill                                                               \
	}
#define OUT(n) PLACE(n, 0, 't', 'o')
#define IN(n) PLACE(n, 0, 't', 'v')
#define OUT_F32(n) PLACE(n, 0, 'f', 'o')
#define IN_F32(n) PLACE(n, 0, 'f', 'v')
#define IN_F16(n) PLACE(n, 0, 'h', 'v')
#define IN_BF16(n) PLACE(n, 0, 'b', 'v')
#define POSITIVE(n) PLACE(n, 0, 'f', '+')
#define IDS(n, below) PLACE(n, below, 'i', 'i')
#define MAX_OF_NEXT PLACE(1, 0, 'f', 'm')
#define BINS(n) PLACE(n, 0, 'd', 'n')
#define NO_BINS(n) PLACE(n, 0, 'd', '0')
#define STATE PLACE(1, 0, 'B', 's')
#define PARAMS PLACE(3, 0, 'B', 'p')
#define SEGMENTS PLACE(2, N, 'B', 'g')
#define GROUPS PLACE(2, 0, 'B', 'h')
#define ABSENT PLACE(0, 0, 't', '-')
#define OUT_KEYS(n) PLACE(n, 0, 'l', 'o')
#define OUT_IDS(n) PLACE(n, 0, 'i', 'o')
#define KEYS(n) PLACE(n, 0, 'l', 'k')
#define COUNTS(n) PLACE(((n) + SRT_K_ELEMENTS - 1) / SRT_K_ELEMENTS, n, 'i', 'c')
#define ORDER(n) PLACE(n, n, 'i', 'j')
#define STARTS(n) PLACE(n, 0, 'i', 'r')
#define COUNT(n) PLACE(1, n, 'i', '#')
#define UNWRAP(...) __VA_ARGS__

#define CASE(name, NAME, FAMILY, type, init, ...)                                                  \
	static void make_##name(const kernel_dims_t *d, void *args, kernel_place_t *places)        \
	{                                                                                          \
		const kernel_place_t all[] = { __VA_ARGS__ };                                      \
                                                                                                   \
		(void)d;                                                                           \
		memcpy(args, &(const type){ UNWRAP init }, sizeof(type));                          \
		memcpy(places, all, sizeof(all));                                                  \
	}
#include "tests/kernel_cases.def"

const kernel_case_t kernel_cases[] = {
#define CASE(name, NAME, FAMILY, type, init, ...)                                                  \
	{ #name, SRT_K_##NAME, &family_##FAMILY, make_##name },
#include "tests/kernel_cases.def"
};
const int kernel_case_count = SRT_ARRAY_LEN(kernel_cases);

#undef R
#undef N
#undef K
#undef B

/* ---- operations with tuned versions --------------------------------------------------------- */
static srt_attention_t attention_shape(const srt_k_attention_t *a)
{
	return (srt_attention_t){ .batch = a->batch,
				  .queries = a->queries,
				  .keys = a->keys,
				  .heads = a->heads,
				  .head_dim = a->head_dim,
				  .scale = a->scale,
				  .causal = a->causal,
				  .ldq = a->ldq,
				  .ldk = a->ldk,
				  .ldv = a->ldv,
				  .lddq = a->lddq,
				  .lddk = a->lddk,
				  .lddv = a->lddv };
}

/* A place as an operation's tensor; absent stays absent. */
static srt_view_t typed(srt_view_t view, srt_dtype_t dtype)
{
	view.dtype = dtype;
	return view;
}

static srt_status_t attention_forward(srt_stream_t *stream, srt_dtype_t dtype, const void *args,
				      const srt_view_t *places)
{
	const srt_attention_t shape = attention_shape(args);
	const srt_attention_views_t views = { .out = typed(places[0], dtype),
					      .stats = typed(places[1], SRT_F32),
					      .q = typed(places[2], dtype),
					      .k = typed(places[3], dtype),
					      .v = typed(places[4], dtype),
					      .lengths = typed(places[5], SRT_I32),
					      .mask = typed(places[6], SRT_U8) };

	return srt_op_attention(stream, &shape, &views);
}

srt_status_t kernel_case_operation(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
				   const void *args, const srt_view_t *views)
{
	srt_view_t of[4] = { { 0 } };

	for (int i = 0; i < srt_kernel_info(kernel)->nplaces && i < 4; i++) {
		of[i] = views[i];
		if (of[i].buffer)
			of[i].dtype = dtype;
	}
	if (kernel == SRT_K_MATMUL) {
		const srt_k_matmul_t *a = args;

		return srt_op_matmul(stream, &(srt_matmul_t){
						     .m = a->m,
						     .n = a->n,
						     .k = a->k,
						     .batch = a->batch,
						     .trans_a = a->trans_a,
						     .trans_b = a->trans_b,
						     .c = of[0],
						     .a = of[1],
						     .b = of[2],
						     .bias = of[3],
						     .lda = a->lda,
						     .ldb = a->ldb,
						     .ldc = a->ldc,
						     .stride_a = a->stride_a,
						     .stride_b = a->stride_b,
						     .stride_c = a->stride_c,
						     .alpha = a->alpha,
						     .accumulate = a->accumulate,
					     });
	}
	if (kernel == SRT_K_ATTENTION)
		return attention_forward(stream, dtype, args, views);
	return SRT_ERR_UNSUPPORTED;
}

srt_status_t kernel_case_attention_backward(srt_stream_t *stream, srt_dtype_t dtype,
					    const void *args, const srt_view_t *places)
{
	const srt_attention_t shape = attention_shape(args);
	const size_t width = (size_t)(shape.heads * shape.head_dim) * srt_dtype_bits(dtype) / 8;
	srt_attention_views_t views = { .dq = typed(places[0], dtype),
					.dout = typed(places[1], dtype),
					.out = typed(places[1], dtype),
					.q = typed(places[2], dtype),
					.k = typed(places[3], dtype),
					.v = typed(places[4], dtype),
					.stats = typed(places[5], SRT_F32),
					.scratch = typed(places[6], SRT_F32),
					.lengths = typed(places[7], SRT_I32),
					.mask = typed(places[8], SRT_U8) };

	if (shape.ldq == 3 * shape.heads * shape.head_dim) { /* packed: room for all three */
		views.dk = views.dv = views.dq;
		views.dk.offset += width;
		views.dv.offset += 2 * width;
	}
	return srt_op_attention_backward(stream, &shape, &views);
}
