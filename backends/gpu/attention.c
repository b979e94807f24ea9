/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention on GPUs, by products (gpu_matmul.k) and kernels on rows (gpu_attention.k). The scores
 * of a part (some heads and queries) are in scratch, which does not grow with the context unless
 * 128 rows are more.
 *
 * forward   S = Q K^T * scale        one chain restarted as a product's
 *           P = weights of S's rows  maximum, sum, in the row shape
 *           out = P V                one chain by rising key
 * backward  S; dP = dout V^T; P and dS of the rows
 *           dq = dS K                one chain by rising key
 *           dv = P^T dout, dk = dS^T Q    one chain by rising query
 *
 * If a head has more queries than a part, the chains of dk and dv continue from part to part in
 * scratch, as floats.
 */
#include "backends/gpu/gpu.h"
#include "base/base.h"

#define ROWS 128 /* of queries: a multiple of every tile's */

/* One pass, and the part of the next step: heads from `unit` on, queries from `first` on. */
typedef struct part {
	srt_gpu_plan_t *plan;
	const srt_k_attention_t *shape;
	bool is_backward;
	int64_t nbytes;      /* of an element */
	int64_t d;           /* distance of rows of out and dout */
	int64_t ld;          /* of rows of scores */
	int64_t most, units; /* queries and heads of a part, at most */
	srt_binding_t lengths, mask;

	int64_t unit, nunits, first, rows;
	srt_binding_t p, ds;  /* (nunits,rows,ld), floats */
	srt_binding_t dk, dv; /* (nunits,keys,head_dim): unfinished chains */
} part_t;

static const srt_binding_t none;

/* Number of arrays of scores. */
static int64_t nscores_of(const part_t *part)
{
	return part->is_backward ? 2 : 1;
}

static part_t make_part(srt_gpu_plan_t *plan)
{
	const srt_command_t *command = plan->command;
	const srt_k_attention_t *s = &command->attention;
	const bool is_backward = command->kind == SRT_COMMAND_ATTENTION_BACKWARD;
	part_t part = {
		.plan = plan,
		.shape = s,
		.is_backward = is_backward,
		.nbytes = srt_gpu_nbytes((srt_dtype_t)command->dtype),
		.d = s->heads * s->head_dim,
		.ld = (s->keys + 3) / 4 * 4,
		.lengths = command->bindings[is_backward ? 10 : 5],
		.mask = command->bindings[is_backward ? 11 : 6],
	};
	const int64_t most = srt_gpu_scratch_floats(&plan->gpu) / nscores_of(&part);
	const int64_t rows = most / part.ld / ROWS * ROWS;

	part.most = srt_min64(s->queries, rows > ROWS ? rows : ROWS);
	part.units = srt_min64(s->batch * s->heads, most / (part.most * part.ld));
	if (part.most < s->queries || part.units < 1)
		part.units = 1;
	return part;
}

/* The first query row of the part, in a tensor of rows ld apart. */
static srt_binding_t offset_queries(const part_t *part, const srt_binding_t *binding, int64_t ld)
{
	return srt_gpu_at(binding, part->first * ld * part->nbytes);
}

/* Sets the fields that all products share: m and n in C, which are tensors' rows or scores. */
static srt_gpu_matmul_t make_product(const part_t *part, int kind)
{
	return (srt_gpu_matmul_t){
		.batch = part->nunits,
		.item = part->unit,
		.inner = part->shape->heads,
		.alpha = 1.0f,
		.kind = kind,
		.first = part->first,
		.causal = part->shape->causal != 0,
		.marked = part->mask.mem != NULL && kind != SRT_GPU_SCORES,
	};
}

/* bindings: c, a, b, start */
static void add_product(const part_t *part, const srt_gpu_matmul_t *args,
			const srt_binding_t bindings[4])
{
	srt_gpu_plan_t *plan = part->plan;

	srt_gpu_choose(&plan->gpu,
		       srt_gpu_add(plan, 0,
				   (srt_binding_t[]){ bindings[0], bindings[1], bindings[2], none,
						      bindings[3], part->lengths },
				   6, args, sizeof(*args), 0));
}

/* s = x y^T * scale; x: q or dout, y: k or v */
static void add_scores(const part_t *part, srt_binding_t s, srt_binding_t x, int64_t ldx,
		       srt_binding_t y, int64_t ldy, float scale)
{
	const srt_k_attention_t *shape = part->shape;
	srt_gpu_matmul_t args = make_product(part, SRT_GPU_SCORES);

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
	args.ldc = part->ld;
	args.each_c = part->rows * part->ld;
	args.c_is_f32 = 1;
	args.alpha = scale;
	args.chain = SRT_K_MATMUL_KB;
	add_product(part, &args, (srt_binding_t[]){ s, offset_queries(part, &x, ldx), y, none });
}

/* y = p x by rising key; y: out or dq, x: v or k */
static void add_by_key(const part_t *part, srt_binding_t y, int64_t ldy, srt_binding_t p,
		       srt_binding_t x, int64_t ldx)
{
	const srt_k_attention_t *shape = part->shape;
	srt_gpu_matmul_t args = make_product(part, SRT_GPU_BY_KEY);

	args.m = part->rows;
	args.n = shape->head_dim;
	args.k = shape->keys;
	args.lda = part->ld;
	args.each_a = part->rows * part->ld;
	args.a_is_f32 = 1;
	args.ldb = ldx;
	args.stride_b = shape->keys * ldx;
	args.inner_b = shape->head_dim;
	args.ldc = ldy;
	args.stride_c = shape->queries * ldy;
	args.inner_c = shape->head_dim;
	add_product(part, &args, (srt_binding_t[]){ offset_queries(part, &y, ldy), p, x, none });
}

/* y = p^T x by rising query; y: dk or dv, x: q or dout; chains: of the earlier queries and for the
 * later ones. */
static void add_by_query(const part_t *part, srt_binding_t y, int64_t ldy, srt_binding_t p,
			 srt_binding_t x, int64_t ldx, srt_binding_t chains)
{
	const srt_k_attention_t *shape = part->shape;
	const bool last = part->first + part->rows == shape->queries;
	const int64_t each = shape->keys * shape->head_dim;
	srt_gpu_matmul_t args = make_product(part, SRT_GPU_OF_KEY);

	args.m = shape->keys;
	args.n = shape->head_dim;
	args.k = part->rows;
	args.lda = part->ld;
	args.each_a = part->rows * part->ld;
	args.a_is_f32 = 1;
	args.trans_a = 1;
	args.ldb = ldx;
	args.stride_b = shape->queries * ldx;
	args.inner_b = shape->head_dim;
	args.each_start = each;
	if (last) {
		args.ldc = ldy;
		args.stride_c = shape->keys * ldy;
		args.inner_c = shape->head_dim;
	} else {
		args.ldc = shape->head_dim;
		args.each_c = each;
		args.c_is_f32 = 1;
	}
	add_product(part, &args,
		    (srt_binding_t[]){ last ? y : chains, p, offset_queries(part, &x, ldx),
				       part->first > 0 ? chains : none });
}

static void add_rows(const part_t *part, srt_gpu_kernel_t kernel, const srt_binding_t *bindings,
		     int nbindings)
{
	const srt_gpu_rows_t args = {
		.shape = *part->shape,
		.unit = part->unit,
		.first = part->first,
		.rows = part->rows,
		.ld = part->ld,
	};

	srt_gpu_add(part->plan, kernel, bindings, nbindings, &args, sizeof(args),
		    part->nunits * part->rows);
}

/* Bindings of the command: out, stats, q, k, v, lengths, mask. */
static void add_forward(const part_t *part, const srt_binding_t *at)
{
	const srt_k_attention_t *s = part->shape;

	add_scores(part, part->p, at[2], s->ldq, at[3], s->ldk, s->scale);
	add_rows(part, SRT_GPU_WEIGHTS, (srt_binding_t[]){ part->p, at[1], at[5], at[6] }, 4);
	add_by_key(part, at[0], part->d, part->p, at[4], s->ldv);
}

/* Bindings of the command: dq, dk, dv, dout, out, q, k, v, stats, scratch, lengths, mask. */
static void add_backward(const part_t *part, const srt_binding_t *at)
{
	const srt_k_attention_t *s = part->shape;

	add_scores(part, part->p, at[5], s->ldq, at[6], s->ldk, s->scale);
	add_scores(part, part->ds, at[3], part->d, at[7], s->ldv, 1.0f);
	add_rows(part, SRT_GPU_GRADIENTS,
		 (srt_binding_t[]){ part->p, part->ds, at[8], at[3], at[4], at[10], at[11] }, 7);
	if (at[0].mem != NULL)
		add_by_key(part, at[0], s->lddq, part->ds, at[6], s->ldk);
	if (at[1].mem != NULL)
		add_by_query(part, at[1], s->lddk, part->ds, at[5], s->ldq, part->dk);
	if (at[2].mem != NULL)
		add_by_query(part, at[2], s->lddv, part->p, at[3], part->d, part->dv);
}

/* ---- plans -------------------------------------------------------------------------------- */

/* Lays out the arrays in scratch: nscores of scores, two of chains. Returns their bytes. */
static size_t lay_out_scratch(part_t *part)
{
	const srt_k_attention_t *s = part->shape;
	const int64_t f = (int64_t)sizeof(float), n = part->units * part->most * part->ld;
	const int64_t nscores = nscores_of(part);
	const bool has_chains = part->most < s->queries && part->is_backward;
	const int64_t chains = has_chains ? (s->keys * s->head_dim + 3) / 4 * 4 : 0;
	const srt_binding_t scratch = { .mem = srt_gpu_scratch };

	part->p = scratch;
	part->ds = srt_gpu_at(&scratch, n * f);
	part->dk = srt_gpu_at(&scratch, nscores * n * f);
	part->dv = srt_gpu_at(&part->dk, chains * f);
	return (size_t)(nscores * n * f + 2 * chains * f);
}

void srt_gpu_attention_plan(srt_gpu_plan_t *plan)
{
	part_t part = make_part(plan);

	plan->scratch_nbytes = lay_out_scratch(&part);
}

bool srt_gpu_attention_next(srt_gpu_plan_t *plan)
{
	part_t part = make_part(plan);
	const int64_t units = part.shape->batch * part.shape->heads;

	if (plan->next >= units)
		return false;
	lay_out_scratch(&part);
	part.unit = plan->next;
	part.nunits = srt_min64(part.units, units - part.unit);
	part.first = plan->next_query;
	part.rows = srt_min64(part.most, part.shape->queries - part.first);
	if (part.is_backward)
		add_backward(&part, plan->command->bindings);
	else
		add_forward(&part, plan->command->bindings);
	plan->next_query += part.most;
	if (plan->next_query >= part.shape->queries) {
		plan->next_query = 0;
		plan->next += part.units;
	}
	return true;
}
