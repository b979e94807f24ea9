/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention on GPUs, as products (gpu_matmul.k) and rows (gpu_attention.k) of the scores of some
 * heads and queries, which lie in scratch: few enough to stay in the device's cache, so that
 * nothing grows with the context.
 *
 * forward   S = Q K^T * scale        one chain restarted as a product's
 *           P = weights of S's rows  maximum, sum, in the row shape
 *           out = P V                one chain by rising key
 * backward  S; dP = dout V^T; P and dS of the rows
 *           dq = dS K                one chain by rising key
 *           dv = P^T dout, dk = dS^T Q    one chain by rising query
 *
 * Where a head has more queries than scratch has room for, the chains of dk and dv go on from
 * part to part in scratch, as floats.
 *
 * In numerics mode fast (gpu->product) the products are a vendor's. P and dS are then stored as the
 * type of the tensors, in scratch too, with zeros for what a query does not see; where a head has
 * several parts, a last launch rounds the sums of dk and dv to the type.
 */
#include "backends/gpu/gpu.h"
#include "base/base.h"

#define SCORES ((int64_t)1 << 23) /* floats of scratch for them, unless 128 rows are more */
#define ROWS 128                  /* of queries: a multiple of every tile's */

/* One pass over the heads of all items. */
typedef struct pass {
	const srt_gpu_t *gpu;
	const srt_k_attention_t *shape;
	srt_dtype_t dtype;
	int64_t nbytes; /* of an element */
	int64_t d;      /* distance of rows of out and dout */
	int64_t ld;     /* of rows of scores */
	int64_t rows, units;
	srt_binding_t lengths, mask;
	bool marked;
	bool fast;
} pass_t;

/* The part that is worked on: heads from `unit` on, queries from `first` on. */
typedef struct part {
	int64_t unit, nunits, first, rows;
	srt_binding_t p, ds;  /* (nunits,rows,ld), floats */
	srt_binding_t w, g;   /* the same as products read them: p and ds, or in the type */
	srt_binding_t dk, dv; /* (nunits,keys,head_dim): chains on their way */
} part_t;

static const srt_binding_t none;

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* nscores: arrays of scores. */
static void start_pass(pass_t *pass, int nscores)
{
	const srt_k_attention_t *s = pass->shape;
	const int64_t units = s->batch * s->heads, room = SCORES / nscores;
	int64_t rows;

	pass->nbytes = srt_gpu_nbytes(pass->dtype);
	pass->d = s->heads * s->head_dim;
	pass->ld = (s->keys + 7) / 8 * 8;
	pass->marked = pass->mask.mem != NULL;
	rows = room / pass->ld / ROWS * ROWS;
	pass->rows = min64(s->queries, rows > ROWS ? rows : ROWS);
	pass->units = min64(units, room / (pass->rows * pass->ld));
	if (pass->rows < s->queries || pass->units < 1)
		pass->units = 1;
}

/* Where a part's queries begin in a tensor of rows ld apart. */
static srt_binding_t at_queries(const pass_t *pass, const part_t *part, const srt_binding_t *place,
				int64_t ld)
{
	return srt_gpu_at(place, part->first * ld * pass->nbytes);
}

/* What all products have: m and n in C, which are tensors' rows or scores. */
static srt_gpu_matmul_t product(const pass_t *pass, const part_t *part, int kind)
{
	return (srt_gpu_matmul_t){
		.batch = part->nunits,
		.item = part->unit,
		.inner = pass->shape->heads,
		.alpha = 1.0f,
		.kind = pass->fast ? SRT_GPU_PLAIN : kind,
		.first = part->first,
		.causal = pass->shape->causal != 0,
		.marked = pass->marked && kind != SRT_GPU_SCORES,
	};
}

/* places: c, a, b, start */
static srt_status_t multiply(const pass_t *pass, const srt_gpu_matmul_t *args,
			     const srt_binding_t places[4])
{
	srt_status_t status = SRT_ERR_UNSUPPORTED;

	if (pass->fast)
		status = pass->gpu->product(pass->gpu->stream, args, pass->dtype, places);
	if (status != SRT_ERR_UNSUPPORTED)
		return status;
	return srt_gpu_product(pass->gpu, args, pass->dtype,
			       (srt_binding_t[]){ places[0], places[1], places[2], none, places[3],
						  pass->lengths });
}

/* s = x y^T * scale; x: q or dout, y: k or v */
static srt_status_t scores(const pass_t *pass, const part_t *part, srt_binding_t s, srt_binding_t x,
			   int64_t ldx, srt_binding_t y, int64_t ldy, float scale)
{
	const srt_k_attention_t *shape = pass->shape;
	srt_gpu_matmul_t args = product(pass, part, SRT_GPU_SCORES);

	args.m = part->rows;
	args.n = shape->keys;
	args.k = shape->head_dim;
	args.lda = ldx;
	args.stride_a = shape->queries * ldx;
	args.inner_a = shape->head_dim;
	args.ldb = ldy;
	args.stride_b = shape->keys * ldy;
	args.inner_b = shape->head_dim;
	args.trans_b = 1;
	args.ldc = pass->ld;
	args.each_c = part->rows * pass->ld;
	args.c_is_f32 = 1;
	args.alpha = scale;
	args.chain = SRT_K_MATMUL_KB;
	return multiply(pass, &args,
			(srt_binding_t[]){ s, at_queries(pass, part, &x, ldx), y, none });
}

/* y = p x by rising key; y: out or dq, x: v or k */
static srt_status_t by_key(const pass_t *pass, const part_t *part, srt_binding_t y, int64_t ldy,
			   srt_binding_t p, srt_binding_t x, int64_t ldx)
{
	const srt_k_attention_t *shape = pass->shape;
	srt_gpu_matmul_t args = product(pass, part, SRT_GPU_BY_KEY);

	args.m = part->rows;
	args.n = shape->head_dim;
	args.k = shape->keys;
	args.lda = pass->ld;
	args.each_a = part->rows * pass->ld;
	args.a_is_f32 = !pass->fast;
	args.ldb = ldx;
	args.stride_b = shape->keys * ldx;
	args.inner_b = shape->head_dim;
	args.ldc = ldy;
	args.stride_c = shape->queries * ldy;
	args.inner_c = shape->head_dim;
	return multiply(pass, &args,
			(srt_binding_t[]){ at_queries(pass, part, &y, ldy), p, x, none });
}

/* The sums of all parts, in the type. */
static srt_status_t round_sums(const pass_t *pass, srt_binding_t y, int64_t ldy, srt_binding_t sums)
{
	const srt_gpu_sums_t args = {
		.m = pass->shape->keys,
		.n = pass->shape->head_dim,
		.batch = 1,
		.nplanes = 1,
		.ld = pass->shape->head_dim,
		.ldc = ldy,
		.alpha = 1.0f,
	};
	const int64_t spans = (args.n + SRT_GPU_SUM_ITEMS - 1) / SRT_GPU_SUM_ITEMS;

	return pass->gpu->launch(pass->gpu->stream, SRT_GPU_MATMUL_SUMS, pass->dtype,
				 (srt_binding_t[]){ y, sums, none }, &args, sizeof(args),
				 args.m * spans);
}

/* Where the unit's rows begin in a tensor of keys, in rows ld apart. */
static srt_binding_t at_unit(const pass_t *pass, const part_t *part, const srt_binding_t *place,
			     int64_t ld)
{
	const srt_k_attention_t *s = pass->shape;

	return srt_gpu_at(place, (part->unit / s->heads * s->keys * ld +
				  part->unit % s->heads * s->head_dim) *
					 pass->nbytes);
}

/* y = p^T x by rising query; y: dk or dv, x: q or dout; chains: of the earlier queries and for the
 * later ones. */
static srt_status_t by_query(const pass_t *pass, const part_t *part, srt_binding_t y, int64_t ldy,
			     srt_binding_t p, srt_binding_t x, int64_t ldx, srt_binding_t chains)
{
	const srt_k_attention_t *shape = pass->shape;
	const bool last = part->first + part->rows == shape->queries;
	const bool in_sums = pass->fast && pass->rows < shape->queries;
	const int64_t each = shape->keys * shape->head_dim;
	srt_gpu_matmul_t args = product(pass, part, SRT_GPU_OF_KEY);

	args.m = shape->keys;
	args.n = shape->head_dim;
	args.k = part->rows;
	args.lda = pass->ld;
	args.each_a = part->rows * pass->ld;
	args.a_is_f32 = !pass->fast;
	args.trans_a = 1;
	args.ldb = ldx;
	args.stride_b = shape->queries * ldx;
	args.inner_b = shape->head_dim;
	args.each_start = each;
	if (last && !in_sums) {
		args.ldc = ldy;
		args.stride_c = shape->keys * ldy;
		args.inner_c = shape->head_dim;
	} else {
		args.ldc = shape->head_dim;
		args.each_c = each;
		args.c_is_f32 = 1;
	}
	args.accumulate = in_sums && part->first > 0;
	SRT_TRY(multiply(pass, &args,
			 (srt_binding_t[]){ last && !in_sums ? y : chains, p,
					    at_queries(pass, part, &x, ldx),
					    part->first > 0 && !in_sums ? chains : none }));
	return last && in_sums ? round_sums(pass, at_unit(pass, part, &y, ldy), ldy, chains) :
				 SRT_OK;
}

static srt_status_t rows(const pass_t *pass, const part_t *part, srt_gpu_kernel_t kernel,
			 const srt_binding_t *places)
{
	const srt_gpu_rows_t args = {
		.shape = *pass->shape,
		.unit = part->unit,
		.first = part->first,
		.rows = part->rows,
		.ld = pass->ld,
	};

	return pass->gpu->launch(pass->gpu->stream, kernel, pass->dtype, places, &args,
				 sizeof(args), part->nunits * part->rows);
}

/* ---- forward ------------------------------------------------------------------------------ */

/* Bindings of the command: out, stats, q, k, v, lengths, mask. */
static srt_status_t forward(const pass_t *pass, const part_t *part, const srt_binding_t *at)
{
	const srt_k_attention_t *s = pass->shape;

	SRT_TRY(scores(pass, part, part->p, at[2], s->ldq, at[3], s->ldk, s->scale));
	SRT_TRY(rows(pass, part, SRT_GPU_WEIGHTS,
		     (srt_binding_t[]){ part->p, at[1], at[5], at[6],
					pass->fast ? part->w : none }));
	return by_key(pass, part, at[0], pass->d, part->w, at[4], s->ldv);
}

/* ---- backward ----------------------------------------------------------------------------- */

/* Bindings of the command: dq, dk, dv, dout, out, q, k, v, stats, scratch, lengths, mask. */
static srt_status_t backward(const pass_t *pass, const part_t *part, const srt_binding_t *at)
{
	const srt_k_attention_t *s = pass->shape;

	SRT_TRY(scores(pass, part, part->p, at[5], s->ldq, at[6], s->ldk, s->scale));
	SRT_TRY(scores(pass, part, part->ds, at[3], pass->d, at[7], s->ldv, 1.0f));
	SRT_TRY(rows(pass, part, SRT_GPU_GRADIENTS,
		     (srt_binding_t[]){ part->p, part->ds, at[8], at[3], at[4], at[10], at[11],
					pass->fast ? part->w : none,
					pass->fast ? part->g : none }));
	if (at[0].mem)
		SRT_TRY(by_key(pass, part, at[0], s->lddq, part->g, at[6], s->ldk));
	if (at[1].mem)
		SRT_TRY(by_query(pass, part, at[1], s->lddk, part->g, at[5], s->ldq, part->dk));
	if (at[2].mem)
		SRT_TRY(by_query(pass, part, at[2], s->lddv, part->w, at[3], pass->d, part->dv));
	return SRT_OK;
}

/* ---- both --------------------------------------------------------------------------------- */

typedef srt_status_t pass_fn(const pass_t *pass, const part_t *part, const srt_binding_t *places);

/* Bytes of scratch: nscores arrays of scores, two of chains, and nscores of what products read
 * where these are others. The arrays go to `part`. */
static size_t lay_out(const pass_t *pass, int nscores, part_t *part)
{
	const srt_k_attention_t *s = pass->shape;
	const int64_t f = (int64_t)sizeof(float), n = pass->units * pass->rows * pass->ld;
	const bool has_chains = pass->rows < s->queries && nscores > 1;
	const int64_t chains = has_chains ? (s->keys * s->head_dim + 3) / 4 * 4 : 0;
	const bool in_type = pass->fast && pass->dtype != SRT_F32;
	const srt_binding_t scratch = { .mem = srt_gpu_scratch };
	const int64_t end = nscores * n * f + 2 * chains * f;

	part->p = scratch;
	part->ds = srt_gpu_at(&scratch, n * f);
	part->dk = srt_gpu_at(&scratch, nscores * n * f);
	part->dv = srt_gpu_at(&part->dk, chains * f);
	part->w = in_type ? srt_gpu_at(&scratch, end) : part->p;
	part->g = in_type ? srt_gpu_at(&part->w, n * pass->nbytes) : part->ds;
	return (size_t)(in_type ? end + nscores * n * pass->nbytes : end);
}

static srt_status_t run(const pass_t *pass, pass_fn *fn, const srt_binding_t *places, int nscores)
{
	const srt_k_attention_t *s = pass->shape;
	const int64_t units = s->batch * s->heads;
	part_t part = { .unit = 0 };

	SRT_TRY(pass->gpu->scratch(pass->gpu->stream, lay_out(pass, nscores, &part)));
	for (part.unit = 0; part.unit < units; part.unit += pass->units) {
		part.nunits = min64(pass->units, units - part.unit);
		for (part.first = 0; part.first < s->queries; part.first += pass->rows) {
			part.rows = min64(pass->rows, s->queries - part.first);
			SRT_TRY(fn(pass, &part, places));
		}
	}
	return SRT_OK;
}

srt_status_t srt_gpu_attention(const srt_gpu_t *gpu, const srt_command_t *command)
{
	const bool is_backward = command->kind == SRT_COMMAND_ATTENTION_BACKWARD;
	const srt_binding_t *at = command->bindings;
	const int nscores = is_backward ? 2 : 1;
	pass_t pass = {
		.gpu = gpu,
		.shape = &command->attention,
		.dtype = (srt_dtype_t)command->dtype,
		.lengths = at[is_backward ? 10 : 5],
		.mask = at[is_backward ? 11 : 6],
		.fast = gpu->product != NULL,
	};

	start_pass(&pass, nscores);
	return run(&pass, is_backward ? backward : forward, at, nscores);
}

size_t srt_gpu_attention_scratch(const srt_command_t *command, bool fast)
{
	const int nscores = command->kind == SRT_COMMAND_ATTENTION_BACKWARD ? 2 : 1;
	pass_t pass = {
		.shape = &command->attention,
		.dtype = (srt_dtype_t)command->dtype,
		.fast = fast,
	};
	part_t part;

	start_pass(&pass, nscores);
	return lay_out(&pass, nscores, &part);
}
