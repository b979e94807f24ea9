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
 * scratch, as floats. If heads share a head of keys, a part has heads of one item, and the chains
 * of a group stay in scratch until all are there: their tree is dk and dv.
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
	int64_t group;       /* heads that share a head of keys */
	srt_binding_t lengths, mask, first_keys;

	int64_t unit, nunits, first, rows;
	srt_binding_t p, ds;  /* (nunits,rows,ld), floats */
	srt_binding_t dk, dv; /* (slots,keys,head_dim): unfinished chains */
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
		.first_keys = command->bindings[is_backward ? 12 : 7],
		.group = s->heads / s->kv_heads,
	};
	const int64_t floats = srt_gpu_scratch_floats(&plan->gpu), nscores = nscores_of(&part);
	const int64_t rows = floats / nscores / part.ld / ROWS * ROWS;
	const int64_t chains = part.group > 1 && is_backward ? 2 * s->keys * s->head_dim : 0;

	part.most = srt_min64(s->queries, rows > ROWS ? rows : ROWS);
	part.units = srt_min64(part.group > 1 ? s->heads : s->batch * s->heads,
			       floats / (nscores * part.most * part.ld + chains));
	if (part.most < s->queries || part.units < part.group)
		part.units = 1;
	part.units -= part.units > 1 ? part.units % part.group : 0;
	return part;
}

/* Heads whose chains are in scratch at a time: those of the part, or of a group. */
static int64_t count_slots(const part_t *part)
{
	return part->group > 1 ? srt_max64(part->units, part->group) : 1;
}

/* The item of a part of heads that share heads of keys; else 0, for products find items. */
static int64_t item_of(const part_t *part)
{
	return part->group > 1 ? part->unit / part->shape->heads : 0;
}

/* The part's first query row, and its item's first key row, in a tensor of rows ld apart. */
static srt_binding_t offset_queries(const part_t *part, const srt_binding_t *binding, int64_t ld)
{
	return srt_gpu_at(binding,
			  (item_of(part) * part->shape->queries + part->first) * ld * part->nbytes);
}

static srt_binding_t offset_keys(const part_t *part, const srt_binding_t *binding, int64_t ld)
{
	return srt_gpu_at(binding, item_of(part) * part->shape->keys * ld * part->nbytes);
}

/* Sets the fields that all products share: m and n in C, which are tensors' rows or scores. Where
 * heads share heads of keys, a product's items are these, and lengths are marks. */
static srt_gpu_matmul_t make_product(const part_t *part, int kind)
{
	const srt_k_attention_t *s = part->shape;
	const bool marked = part->mask.mem != NULL || part->first_keys.mem != NULL ||
			    (part->group > 1 && part->lengths.mem != NULL);

	return (srt_gpu_matmul_t){
		.batch = part->nunits,
		.item = part->group > 1 ? part->unit % s->heads : part->unit,
		.inner = part->group > 1 ? part->group : s->heads,
		.alpha = 1.0f,
		.kind = kind,
		.first = s->offset + part->first,
		.causal = s->causal != 0,
		.marked = marked && kind != SRT_GPU_SCORES,
	};
}

/* Distances of items and of heads in them, for rows of queries and of keys ld apart. */
typedef struct distances {
	int64_t stride, inner;
} distances_t;

static distances_t of_queries(const part_t *part, int64_t ld)
{
	const srt_k_attention_t *s = part->shape;

	return (distances_t){ part->group > 1 ? part->group * s->head_dim : s->queries * ld,
			      s->head_dim };
}

static distances_t of_keys(const part_t *part, int64_t ld)
{
	const srt_k_attention_t *s = part->shape;

	return part->group > 1 ? (distances_t){ s->head_dim, 0 } :
				 (distances_t){ s->keys * ld, s->head_dim };
}

/* bindings: c, a, b, start */
static void add_product(const part_t *part, const srt_gpu_matmul_t *args,
			const srt_binding_t bindings[4])
{
	srt_gpu_plan_t *plan = part->plan;

	srt_gpu_choose(&plan->gpu,
		       srt_gpu_add(plan, 0,
				   (srt_binding_t[]){ bindings[0], bindings[1], bindings[2], none,
						      bindings[3],
						      part->group > 1 ? none : part->lengths },
				   6, args, sizeof(*args), 0));
}

/* s = x y^T * scale; x: q or dout, y: k or v */
static void add_scores(const part_t *part, srt_binding_t s, srt_binding_t x, int64_t ldx,
		       srt_binding_t y, int64_t ldy, float scale)
{
	const srt_k_attention_t *shape = part->shape;
	srt_gpu_matmul_t args = make_product(part, SRT_GPU_SCORES);
	const distances_t a = of_queries(part, ldx), b = of_keys(part, ldy);

	args.m = part->rows;
	args.n = shape->keys;
	args.k = shape->head_dim;
	args.lda = ldx;
	args.stride_a = a.stride;
	args.inner_a = a.inner;
	args.ldb = ldy;
	args.stride_b = b.stride;
	args.inner_b = b.inner;
	args.trans_b = 1;
	args.ldc = part->ld;
	args.each_c = part->rows * part->ld;
	args.c_is_f32 = 1;
	args.alpha = scale;
	args.chain = SRT_K_MATMUL_KB;
	add_product(part, &args,
		    (srt_binding_t[]){ s, offset_queries(part, &x, ldx), offset_keys(part, &y, ldy),
				       none });
}

/* y = p x by rising key; y: out or dq, x: v or k */
static void add_by_key(const part_t *part, srt_binding_t y, int64_t ldy, srt_binding_t p,
		       srt_binding_t x, int64_t ldx)
{
	const srt_k_attention_t *shape = part->shape;
	srt_gpu_matmul_t args = make_product(part, SRT_GPU_BY_KEY);
	const distances_t b = of_keys(part, ldx), c = of_queries(part, ldy);

	args.m = part->rows;
	args.n = shape->head_dim;
	args.k = shape->keys;
	args.lda = part->ld;
	args.each_a = part->rows * part->ld;
	args.a_is_f32 = 1;
	args.ldb = ldx;
	args.stride_b = b.stride;
	args.inner_b = b.inner;
	args.ldc = ldy;
	args.stride_c = c.stride;
	args.inner_c = c.inner;
	add_product(part, &args,
		    (srt_binding_t[]){ offset_queries(part, &y, ldy), p, offset_keys(part, &x, ldx),
				       none });
}

/* dk or dv of the part's heads of keys that are complete, from the chains of their heads. */
static void add_heads(const part_t *part, srt_binding_t y, int64_t ldy, srt_binding_t chains)
{
	const srt_k_attention_t *s = part->shape;
	const int64_t head = part->unit % s->heads, end = head + part->nunits;
	const int64_t n = srt_max64(part->nunits / part->group, 1);
	const srt_gpu_heads_t args = {
		.keys = s->keys, .head_dim = s->head_dim, .group = part->group, .ld = ldy
	};

	if (end % part->group != 0)
		return;
	y = offset_keys(part, &y, ldy);
	y = srt_gpu_at(&y, (end / part->group - n) * s->head_dim * part->nbytes);
	srt_gpu_add(part->plan, SRT_GPU_HEADS, (srt_binding_t[]){ y, chains }, 2, &args,
		    sizeof(args), n * s->keys);
}

/* y = p^T x by rising query; y: dk or dv, x: q or dout; chains: of the earlier queries and for the
 * later ones, and of heads that share a head of keys. */
static void add_by_query(const part_t *part, srt_binding_t y, int64_t ldy, srt_binding_t p,
			 srt_binding_t x, int64_t ldx, srt_binding_t chains)
{
	const srt_k_attention_t *shape = part->shape;
	const bool last = part->first + part->rows == shape->queries;
	const bool is_whole = last && part->group == 1;
	const int64_t each = shape->keys * shape->head_dim;
	const srt_binding_t own =
		srt_gpu_at(&chains, part->unit % shape->heads % count_slots(part) * each *
					    (int64_t)sizeof(float));
	srt_gpu_matmul_t args = make_product(part, SRT_GPU_OF_KEY);
	const distances_t b = of_queries(part, ldx);

	args.m = shape->keys;
	args.n = shape->head_dim;
	args.k = part->rows;
	args.lda = part->ld;
	args.each_a = part->rows * part->ld;
	args.a_is_f32 = 1;
	args.trans_a = 1;
	args.ldb = ldx;
	args.stride_b = b.stride;
	args.inner_b = b.inner;
	args.each_start = each;
	if (is_whole) {
		args.ldc = ldy;
		args.stride_c = shape->keys * ldy;
		args.inner_c = shape->head_dim;
	} else {
		args.ldc = shape->head_dim;
		args.each_c = each;
		args.c_is_f32 = 1;
	}
	add_product(part, &args,
		    (srt_binding_t[]){ is_whole ? y : own, p, offset_queries(part, &x, ldx),
				       part->first > 0 ? own : none });
	if (last && part->group > 1)
		add_heads(part, y, ldy, chains);
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

/* Bindings of the command: out, stats, q, k, v, lengths, mask, first. */
static void add_forward(const part_t *part, const srt_binding_t *at)
{
	const srt_k_attention_t *s = part->shape;

	add_scores(part, part->p, at[2], s->ldq, at[3], s->ldk, s->scale);
	add_rows(part, SRT_GPU_WEIGHTS, (srt_binding_t[]){ part->p, at[1], at[5], at[6], at[7] },
		 5);
	add_by_key(part, at[0], part->d, part->p, at[4], s->ldv);
}

/* Bindings of the command: dq, dk, dv, dout, out, q, k, v, stats, scratch, lengths, mask, first.
 */
static void add_backward(const part_t *part, const srt_binding_t *at)
{
	const srt_k_attention_t *s = part->shape;

	add_scores(part, part->p, at[5], s->ldq, at[6], s->ldk, s->scale);
	add_scores(part, part->ds, at[3], part->d, at[7], s->ldv, 1.0f);
	add_rows(part, SRT_GPU_GRADIENTS,
		 (srt_binding_t[]){ part->p, part->ds, at[8], at[3], at[4], at[10], at[11],
				    at[12] },
		 8);
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
	const bool has_chains = (part->most < s->queries || part->group > 1) && part->is_backward;
	const int64_t chains =
		has_chains ? (count_slots(part) * s->keys * s->head_dim + 3) / 4 * 4 : 0;
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
	if (part.group > 1) /* one item's */
		part.nunits =
			srt_min64(part.nunits, part.shape->heads - part.unit % part.shape->heads);
	part.first = plan->next_query;
	part.rows = srt_min64(part.most, part.shape->queries - part.first);
	if (part.is_backward)
		add_backward(&part, plan->command->bindings);
	else
		add_forward(&part, plan->command->bindings);
	plan->next_query += part.most;
	if (plan->next_query >= part.shape->queries) {
		plan->next_query = 0;
		plan->next += part.nunits;
	}
	return true;
}
