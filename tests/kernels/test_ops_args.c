/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of the operations: bad sizes, views, dtypes and overlaps are refused with a message
 * that names operation and tensor, and leave all else alone; sizes of 0 write nothing or sums of 0.
 */
#include <math.h>

#include "runtime/ops/step.h"
#include "tests/kernels/ops_check.h"

static srt_view_t bytes_at(size_t offset)
{
	return srt_view(a, offset, SRT_U8);
}

static srt_layernorm_t valid_layernorm(void)
{
	return (srt_layernorm_t){
		.size = sizeof(srt_layernorm_t),
		.y = at(b, 0),
		.mean = at(b, 100),
		.rstd = at(b, 104),
		.x = at(a, 0),
		.gamma = at(a, 500),
		.rows = 4,
		.n = 25,
		.eps = 1e-5f,
	};
}

static srt_loss_t valid_loss(void)
{
	return (srt_loss_t){
		.size = sizeof(srt_loss_t),
		.loss = at(a, 0),
		.x = at(a, 100),
		.target = srt_view(b, 0, SRT_I32),
		.rows = 4,
		.n = 5,
		.grad_scale = 1,
	};
}

static srt_embedding_t valid_embedding(void)
{
	return (srt_embedding_t){
		.size = sizeof(srt_embedding_t),
		.y = at(a, 0),
		.table = at(a, 200),
		.dtable = at(a, 0),
		.dy = at(a, 200),
		.ids = srt_view(b, 0, SRT_I32),
		.rows = 4,
		.n = 10,
		.vocab = 5,
	};
}

static void test_elementwise(void)
{
	REFUSED(srt_op_fill(at(a, 0), 1, 1, NULL), "srt_op_fill: stream is NULL");
	REFUSED(srt_op_fill(absent, 1, 1, s), "srt_op_fill: y is absent");
	REFUSED(srt_op_fill(at(a, 0), 1, -1, s), "srt_op_fill: the size of y is negative");
	REFUSED(srt_op_fill(at(a, 1), 1, 1000, s),
		"srt_op_fill: y: 1000 elements of f32 from byte 4");
	REFUSED(srt_op_fill(at(a, 0), 1, INT64_MAX, s), "do not fit into buffer \"a\"");
	REFUSED(srt_op_fill(srt_view(a, 2, SRT_F32), 1, 1, s), "offset 2 is not a multiple of 4");
	REFUSED(srt_op_add(at(a, 0), at(b, 0), srt_view(b, 400, SRT_F64), 5, s),
		"srt_op_add: b is f64, must be f32");
	REFUSED(srt_op_add(at(a, 0), at(a, 1), at(b, 0), 10, s), "y overlaps a in buffer \"a\"");
	REFUSED(srt_op_scale(at(a, 9), at(a, 0), 2, 10, s), "srt_op_scale: y overlaps x");
	REFUSED(srt_op_relu_backward(at(a, 0), at(b, 0), absent, 10, s), "y is absent");
	CHECK_STATUS(srt_op_fill(srt_view(a, 0, SRT_F64), 1, 10, s), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("srt_op_fill: there is no kernel \"fill\" for f64");
	CHECK_STATUS(srt_op_fill(srt_view(a, 0, (srt_dtype_t)50), 1, 10, s),
		     SRT_ERR_INVALID_ARGUMENT);
	REFUSED(srt_op_cast(at(b, 0), srt_view(a, 0, SRT_I32), 10, s),
		"srt_op_cast: x is i32, must be f32, f16 or bf16");
	REFUSED(srt_op_cast(srt_view(a, 0, SRT_F16), at(a, 0), 10, s), "y overlaps x");
	CHECK_OK(srt_op_cast(srt_view(b, 0, SRT_F16), at(a, 0), 10, s));
	CHECK_OK(srt_op_cast(at(a, 0), srt_view(b, 0, SRT_F16), 10, s));
	REFUSED(srt_op_accumulate(at(b, 0), srt_view(a, 0, SRT_I32), 10, s),
		"srt_op_accumulate: x is i32, must be f32, f16 or bf16");
	REFUSED(srt_op_accumulate(at(a, 0), at(a, 0), 10, s), "y overlaps x");
	CHECK_OK(srt_op_accumulate(srt_view(b, 0, SRT_BF16), at(a, 0), 10, s));
	CHECK_OK(srt_op_axpy(at(a, 0), at(a, 0), 2, 10, s));
	REFUSED(srt_op_axpy(at(a, 0), at(a, 1), 2, 10, s), "srt_op_axpy: y overlaps x");
	/* Allowed: in place, neighbours, nothing at all. */
	CHECK_OK(srt_op_scale(at(a, 0), at(a, 0), 2, 10, s));
	CHECK_OK(srt_op_add(at(a, 0), at(a, 0), at(a, 0), 10, s));
	CHECK_OK(srt_op_scale(at(a, 10), at(a, 0), 2, 10, s));
	CHECK_OK(srt_op_fill(at(a, 1000), 1, 0, s));
	CHECK_OK(srt_op_fill(absent, 1, 0, s));
}

static void test_rows(void)
{
	const srt_view_t ids = srt_view(b, 0, SRT_I32);
	srt_loss_t loss = valid_loss();
	srt_layernorm_t norm = valid_layernorm();

	REFUSED(srt_op_softmax(at(b, 0), at(a, 0), INT64_MAX, 3, s), "size of y is negative or");
	REFUSED(srt_op_softmax(at(b, 0), at(a, 0), -1, 3, s), "size of y is negative or");
	REFUSED(srt_op_softmax(at(b, 0), at(a, 0), 10, 101, s), "do not fit");
	REFUSED_WITH(srt_op_cross_entropy, loss, target = at(b, 0),
		     "srt_op_cross_entropy: target is f32, must be i32");
	REFUSED_WITH(srt_op_cross_entropy, loss, loss = at(a, 101), "loss overlaps x");
	/* Output and input begin together, but are not element by element the same. */
	REFUSED_WITH(srt_op_cross_entropy, loss, loss = at(a, 100), "loss overlaps x");
	ACCEPTED_WITH(srt_op_cross_entropy, loss, dx = loss.x);
	CHECK_OK(srt_op_cross_entropy(&loss, s));
	loss.target = at(b, 0);
	REFUSED_WITH(srt_op_mse, loss, dx = loss.x, "srt_op_mse: dx overlaps x");
	REFUSED_WITH(srt_op_sum_loss, loss, dx = loss.x, "srt_op_sum_loss: dx overlaps x");
	loss.dx = at(a, 100);
	loss.x = at(b, 0);
	REFUSED_WITH(srt_op_sum_loss, loss, scale = at(a, 102),
		     "srt_op_sum_loss: dx overlaps scale");
	REFUSED_WITH(srt_op_sum_loss, loss, scale = ids,
		     "srt_op_sum_loss: scale is i32, must be f32");
	REFUSED_WITH(srt_op_layernorm, norm, gamma = absent, "gamma is absent");
	REFUSED_WITH(srt_op_layernorm, norm, rstd = at(b, 102), "mean overlaps rstd");
	CHECK_OK(srt_op_layernorm(&norm, s));
	norm.dbeta = at(b, 200);
	norm.dy = at(a, 0);
	norm.x = at(a, 100);
	CHECK_OK(srt_op_layernorm_backward_params(&norm, s));
	REFUSED(srt_op_bias_backward(at(b, 0), at(a, 0), 3, -2, 0, s), "db is negative");
	CHECK_OK(srt_op_softmax(absent, absent, 0, 7, s));
	CHECK_OK(srt_op_softmax(at(b, 0), at(a, 0), 7, 0, s));
}

static void test_norms(void)
{
	const srt_view_t x = at(a, 0), gamma = at(a, 500), y = at(b, 0), stats = at(b, 100);
	srt_rmsnorm_t rms = {
		.size = sizeof(rms),
		.y = y,
		.rstd = stats,
		.x = x,
		.gamma = gamma,
		.rows = 4,
		.n = 25,
		.eps = 1e-5f,
	};
	srt_batchnorm_t batch = {
		.size = sizeof(batch),
		.y = y,
		.mean = stats,
		.rstd = at(b, 125),
		.x = x,
		.gamma = gamma,
		.rows = 4,
		.n = 25,
		.eps = 1e-5f,
		.momentum = 0.1f,
	};
	srt_dropout_t drop = { .size = sizeof(drop),
			       .y = y,
			       .x = x,
			       .seed = 1,
			       .name = "d",
			       .nelem = 10,
			       .rate = 0.5f };

	REFUSED_WITH(srt_op_rmsnorm, rms, gamma = absent, "gamma is absent");
	REFUSED_WITH(srt_op_rmsnorm, rms, rstd = at(b, 99), "y overlaps rstd");
	REFUSED_WITH(srt_op_rmsnorm, rms, n = 0,
		     "srt_op_rmsnorm: n is 0: the 4 rows have no elements");
	CHECK_OK(srt_op_rmsnorm(&(srt_rmsnorm_t)SRT_RMSNORM_INIT, s));
	CHECK_OK(srt_op_rmsnorm(&rms, s));
	rms.dgamma = at(b, 200);
	rms.dy = x;
	CHECK_OK(srt_op_rmsnorm_backward_params(&rms, s));
	REFUSED_WITH(srt_op_batchnorm, batch, rows = 1,
		     "srt_op_batchnorm: rows is 1; a batch must have at least 2");
	REFUSED_WITH(srt_op_batchnorm, batch, rstd = at(b, 124), "mean overlaps rstd");
	/* found by the second of the two launches, before the first */
	REFUSED_WITH(srt_op_batchnorm, batch, gamma = absent, "srt_op_batchnorm: gamma is absent");
	CHECK_OK(srt_op_batchnorm(&batch, s));
	batch.running_mean = batch.running_var = stats;
	ACCEPTED_WITH(srt_op_batchnorm_evaluation, batch, rows = 1);
	REFUSED_WITH(srt_op_batchnorm_evaluation, batch, running_mean = absent, "mean is absent");
	batch.dx = batch.dy = y;
	CHECK_OK(srt_op_batchnorm_backward(&batch, s));
	REFUSED_WITH(srt_op_dropout, drop, rate = 1.5f, "rate is 1.5, must be from 0 to 1");
	REFUSED_WITH(srt_op_dropout, drop, rate = NAN, "must be from 0 to 1");
	REFUSED_WITH(srt_op_dropout, drop, name = NULL, "srt_op_dropout: name is NULL");
	REFUSED_WITH(srt_op_dropout, drop, first = -1, "is invalid");
	drop.x = y;
	ACCEPTED_WITH(srt_op_dropout, drop, rate = 1.0f);
	REFUSED(srt_op_softmax_backward(y, x, at(b, 1), 4, 25, s), "dx overlaps y");
	CHECK_OK(srt_op_log_softmax(y, x, 4, 25, s));
	CHECK_OK(srt_op_log_softmax_backward(y, y, x, 4, 25, s));
	REFUSED(srt_op_silu_backward(y, x, absent, 10, s), "srt_op_silu_backward: x is absent");
}

static void test_gated(void)
{
	srt_gated_t glu = { .size = sizeof(srt_gated_t),
			    .rows = 4,
			    .n = 5,
			    .g = at(a, 0),
			    .u = at(a, 5),
			    .y = at(b, 0),
			    .dy = at(b, 0),
			    .dg = at(b, 20),
			    .du = at(b, 25),
			    .ldg = 10,
			    .ldu = 10,
			    .lddg = 10,
			    .lddu = 10 };

	CHECK_OK(srt_op_glu(&glu, s));
	CHECK_OK(srt_op_glu_backward(&glu, s));
	REFUSED_WITH(srt_op_glu, glu, act = (srt_glu_t)3, "srt_op_glu: act is 3");
	REFUSED_WITH(srt_op_glu, glu, ldg = 4, "rows of 5 elements are 4 elements apart");
	REFUSED_WITH(srt_op_glu_backward, glu, lddu = 4, "rows of 5 elements are 4 elements apart");
	REFUSED_WITH(srt_op_glu_backward, glu, du = at(b, 24), "dg overlaps du");
	REFUSED_WITH(srt_op_glu_backward, glu, dg = absent, "dg is absent");
	REFUSED_WITH(srt_op_glu, glu, y = at(a, 1), "y overlaps g");
	/* both in place of the inputs that they are the gradients of */
	glu.dg = glu.g;
	glu.du = glu.u;
	CHECK_OK(srt_op_glu_backward(&glu, s));
	REFUSED(srt_op_softcap(at(b, 0), at(a, 0), 0.0f, 4, s), "cap is 0, must be above 0");
	REFUSED(srt_op_softcap_backward(at(b, 0), at(a, 0), at(a, 9), -1.0f, 4, s), "cap is -1");
	CHECK_OK(srt_op_softcap(at(b, 0), at(b, 0), 30.0f, 4, s));
	CHECK_OK(srt_op_softcap_backward(at(b, 0), at(b, 0), at(a, 0), 30.0f, 4, s));
}

static void test_dequantize(void)
{
	const srt_view_t codes = srt_view(b, 0, SRT_U8);

	CHECK_OK(srt_op_dequantize(at(a, 0), codes, at(b, 100), 3, 65, s));
	REFUSED(srt_op_dequantize(at(a, 0), codes, at(b, 100), 3, -1, s),
		"the size of y is negative");
	REFUSED(srt_op_dequantize(at(a, 0), at(b, 0), at(b, 100), 3, 65, s),
		"codes is f32, must be u8");
	REFUSED(srt_op_dequantize(at(a, 0), codes, codes, 3, 65, s), "scales is u8, must be f32");
	REFUSED(srt_op_dequantize(at(a, 0), codes, at(a, 100), 3, 65, s), "y overlaps scales");
	REFUSED(srt_op_dequantize(at(a, 0), codes, absent, 3, 65, s), "scales is absent");
	CHECK_OK(srt_op_dequantize(absent, absent, absent, 0, 65, s));
}

static void test_rotary(void)
{
	srt_rotary_t rotary = { .size = sizeof(srt_rotary_t),
				.rows = 4,
				.heads = 2,
				.head_dim = 5,
				.dim = 4,
				.npositions = 3,
				.x = at(a, 0),
				.y = at(a, 0),
				.positions = srt_view(b, 0, SRT_I32),
				.cos = at(b, 100),
				.sin = at(b, 106) };

	CHECK_OK(srt_op_rotary(&rotary, s));
	REFUSED_WITH(srt_op_rotary, rotary, dim = 3, "dim is 3, must be even");
	REFUSED_WITH(srt_op_rotary, rotary, dim = 6, "at most the head_dim of 5");
	REFUSED_WITH(srt_op_rotary, rotary, npositions = 0, "npositions is 0");
	REFUSED_WITH(srt_op_rotary, rotary, ldx = 9, "rows of 10 elements are 9 elements apart");
	REFUSED_WITH(srt_op_rotary, rotary, sin = absent, "sin is absent");
	REFUSED_WITH(srt_op_rotary, rotary, y = at(a, 1), "y overlaps x");
	REFUSED_WITH(srt_op_rotary, rotary, heads = -1, "is negative");
	rotary.ldx = rotary.ldy = 10;
	REFUSED_WITH(srt_op_rotary, rotary, heads = -1, "the size of y is negative");
	CHECK_OK(srt_op_rotary(&(srt_rotary_t)SRT_ROTARY_INIT, s));
}

/* Rows without elements: no mean, no maximum, a sum of +0; without rows there is nothing to do. */
static void test_empty_rows(void)
{
	const float five[4] = { 5, 5, 5, 5 }, zero[4] = { 0, 0, 0, 0 };
	srt_layernorm_t norm = valid_layernorm();
	srt_loss_t loss = valid_loss(), none = SRT_LOSS_INIT;
	float got[4];

	REFUSED_WITH(srt_op_layernorm, norm, n = 0,
		     "srt_op_layernorm: n is 0: the 4 rows have no elements");
	REFUSED_WITH(srt_op_cross_entropy, loss, n = 0,
		     "srt_op_cross_entropy: n is 0: the 4 rows have no elements");
	CHECK_OK(srt_op_layernorm(&(srt_layernorm_t)SRT_LAYERNORM_INIT, s));
	CHECK_OK(srt_op_cross_entropy(&none, s));
	CHECK_OK(srt_buffer_copy_from_host(a, 0, five, sizeof(five), s));
	norm = (srt_layernorm_t)SRT_LAYERNORM_INIT;
	norm.mean = at(b, 100);
	norm.rstd = at(b, 104);
	ACCEPTED_WITH(srt_op_layernorm_backward, norm, rows = 4);
	CHECK_OK(srt_op_mse(&none, s));
	CHECK_OK(srt_buffer_copy_to_host(got, a, 0, sizeof(got), s));
	CHECK_BITS(got, five, 4);
	none.loss = at(a, 0);
	ACCEPTED_WITH(srt_op_mse, none, rows = 4);
	CHECK_OK(srt_buffer_copy_to_host(got, a, 0, sizeof(got), s));
	CHECK_BITS(got, zero, 4);
	CHECK_OK(srt_buffer_copy_from_host(a, 0, five, sizeof(five), s));
	CHECK_OK(srt_op_bias_backward(at(a, 0), absent, 0, 4, 0, s));
	CHECK_OK(srt_buffer_copy_to_host(got, a, 0, sizeof(got), s));
	CHECK_BITS(got, zero, 4);
}

static void test_embedding(void)
{
	srt_embedding_t good = valid_embedding();

	REFUSED_WITH(srt_op_embedding, good, position = at(a, 400),
		     "srt_op_embedding: context is 0");
	REFUSED_WITH(srt_op_embedding, good, ids = at(b, 0), "ids is f32");
	REFUSED_WITH(srt_op_embedding, good, table = absent, "table is absent");
	REFUSED_WITH(srt_op_embedding_backward, good, dy = at(a, 990), "do not fit");
	REFUSED_WITH(srt_op_embedding_backward, good, padding = 5, "padding is 5");
	REFUSED_WITH(srt_op_embedding_backward, good, padding = -2, "padding is -2");
	CHECK_OK(srt_op_embedding(&good, s));
	good.dposition = at(a, 0);
	good.dy = at(a, 500);
	REFUSED_WITH(srt_op_position_backward, good, context = -1, "context is -1");
}

static void test_vocab_part(void)
{
	const srt_vocab_part_t part = { .vocab = 9, .first = 4, .n = 5 }, none = { .vocab = 9 };
	const srt_vocab_part_t bad = { .vocab = 9, .first = 5, .n = 5 };
	srt_embedding_t embedding = valid_embedding();
	srt_loss_t loss = valid_loss();

	REFUSED_WITH(srt_op_embedding, embedding, part = &bad,
		     "5 elements from element 5 on are not a part of a vocabulary of 9");
	REFUSED_WITH(srt_op_cross_entropy, loss, ld = 4, "rows of 5 elements are 4 elements apart");
	REFUSED(srt_op_cross_entropy_part(at(a, 0), at(a, 100), loss.target, 4, &none, s),
		"srt_op_cross_entropy_part: n is 0");
	REFUSED(srt_op_cross_entropy_part(at(a, 0), at(a, 11), loss.target, 4, &part, s),
		"stats overlaps x");
	CHECK_OK(srt_op_cross_entropy_part(at(a, 0), at(a, 100), loss.target, 4, &part, s));
	embedding.part = &part;
	REFUSED_WITH(srt_op_embedding, embedding, position = at(a, 300),
		     "srt_op_embedding: context is 0");
	REFUSED_WITH(srt_op_embedding_backward, embedding, padding = 9,
		     "srt_op_embedding_backward: padding is 9");
	CHECK_OK(srt_op_embedding(&embedding, s));
	embedding.table = absent;
	ACCEPTED_WITH(srt_op_embedding, embedding, part = &none);
	loss.stats = at(a, 200);
	loss.part = &part;
	loss.stride = 12;
	REFUSED_WITH(srt_op_cross_entropy_merge, loss, nparts = 0,
		     "statistics of 0 parts that are 12 elements apart");
	REFUSED_WITH(srt_op_cross_entropy_merge, loss, nparts = 100, "stats: 1200 elements");
	loss.nparts = 2;
	REFUSED_WITH(srt_op_cross_entropy_merge, loss, stride = 11,
		     "needs a part or more, and 3 elements for each of 4 rows");
	ACCEPTED_WITH(srt_op_cross_entropy_merge, loss, dx = loss.x);
}

static void test_sums(void)
{
	const srt_view_t bins = srt_view(b, 0, SRT_F64), max = at(b, 100), x = at(a, 0);
	srt_bin_sum_t sum = {
		.bins = bins, .max = max, .x = x, .nelem = 10, .total_nelem = 10, .power = 2
	};
	srt_bin_total_t total = {
		.out = at(b, 200), .bins = bins, .max = max, .nbins = 1, .power = 2, .root = 1
	};
	srt_normal_t normal = {
		.size = sizeof(normal), .y = x, .seed = 1, .name = "w", .nelem = 10, .std = 1
	};
	srt_uniform_t uniform = {
		.size = sizeof(uniform), .y = x, .seed = 1, .name = "w", .nelem = 10, .high = 1
	};
	float host[101];

	REFUSED(srt_op_absmax(absent, x, 10, 0, s), "max is absent");
	REFUSED(srt_op_absmax(srt_view(b, 0, SRT_F64), x, 10, 0, s), "max is f64");
	REFUSED_WITH(srt_op_bin_sum, sum, power = 4, "power is 4");
	REFUSED_WITH(srt_op_bin_sum, sum, is_signed = 1, "a signed sum has power 1");
	REFUSED_WITH(srt_op_bin_sum, sum, total_nelem = 0, "total_nelem is 0");
	REFUSED_WITH(srt_op_bin_sum, sum, bins = at(b, 0), "bins is f32");
	REFUSED_WITH(srt_op_bin_total, total, nbins = -1, "bins is negative");
	REFUSED_WITH(srt_op_bin_total, total, power = 0, "power is 0");
	REFUSED_WITH(srt_op_normal, normal, name = NULL, "name is NULL");
	REFUSED_WITH(srt_op_normal, normal, first = -1, "is invalid");
	REFUSED_WITH(srt_op_normal, normal, first = INT64_MAX, "is invalid");
	REFUSED_WITH(srt_op_uniform, uniform, name = NULL, "name is NULL");
	REFUSED_WITH(srt_op_uniform, uniform, first = -1, "is invalid");
	REFUSED_WITH(srt_op_uniform, uniform, high = INFINITY, "must be finite");
	uniform.low = 1;
	REFUSED_WITH(srt_op_uniform, uniform, high = 0.5f, "the range is from 1 to 0.5;");
	uniform.low = -3e38f;
	REFUSED_WITH(srt_op_uniform, uniform, high = 3e38f, "their difference");
	uniform.y = srt_view(a, 0, SRT_BF16);
	uniform.low = 1.001f;
	REFUSED_WITH(srt_op_uniform, uniform, high = 1.002f,
		     "bf16 has no value from 1.00100005 to below 1.00199997");
	uniform.y = srt_view(a, 0, SRT_F16);
	uniform.low = 65505.0f;
	REFUSED_WITH(srt_op_uniform, uniform, high = 1e6f, "f16 has no value");
	/* An empty shard has a maximum and bins all the same: zero. */
	memset(host, 0xff, sizeof(host));
	test_put(s, b, 0, host, sizeof(host));
	CHECK_OK(srt_op_absmax(max, absent, 0, 0, s));
	sum.x = absent;
	ACCEPTED_WITH(srt_op_bin_sum, sum, nelem = 0);
	test_get(s, host, b, 0, sizeof(host));
	CHECK(host[100] == 0.0f);
	CHECK(host[0] == 0.0f && host[1] == 0.0f && host[2] == 0.0f && host[3] == 0.0f);
}

static void test_optimizers(void)
{
	const srt_adam_t adam = { .beta1 = .9, .beta2 = .999, .eps = 1e-8f };
	const srt_sgd_t sgd = { .momentum = 0.9f };
	const srt_optim_args_t good = {
		.state = bytes_at(0),
		.params = bytes_at(64),
		.segments = bytes_at(128),
		.groups = bytes_at(192),
		.nsegments = 1,
		.nelem = 10,
		.param = at(b, 0),
		.grad = at(b, 10),
		.m = at(b, 20),
		.v = at(b, 30),
	};
	srt_step_advance_t step = {
		.state = bytes_at(0),
		.params = bytes_at(64),
		.nparams = 1,
		.max_norm = 1,
		.beta1 = .9,
		.beta2 = .999,
	};
	srt_optim_args_t args = good;

	CHECK_OK(srt_buffer_zero(a, 0, 1024, s)); /* tables without a state, a segment or a group */
	REFUSED_WITH(srt_op_step_advance, step, state = bytes_at(4), "state starts at byte 4");
	REFUSED_WITH(srt_op_step_advance, step, state = at(a, 0), "state is f32, must be u8");
	REFUSED_WITH(srt_op_step_advance, step, params = absent, "params is absent");
	REFUSED_WITH(srt_op_step_advance, step, nparams = 1000, "params: 16000 elements");
	REFUSED_WITH(srt_op_step_advance, step, params = bytes_at(56), "state overlaps params");
	step.params = absent;
	ACCEPTED_WITH(srt_op_step_advance, step, nparams = 0);
	REFUSED(srt_op_clip(at(b, 0), bytes_at(0), absent, 1, 10, s),
		"srt_op_clip: norm is absent");
	REFUSED(srt_op_clip(at(a, 0), bytes_at(0), at(b, 0), 1, 10, s), "g overlaps state");
	CHECK_OK(srt_op_clip(absent, bytes_at(0), at(b, 0), 1, 0, s));
	REFUSED(srt_op_scaler_update(absent, SRT_SCALER_PLAIN, 2, .5, 1, s), "state is absent");
	REFUSED(srt_op_scaler_update(bytes_at(0), (srt_scaler_rule_t)7, 2, .5, 1, s), "no rule 7");
	CHECK_OK(srt_op_scaler_update(bytes_at(0), SRT_SCALER_SHARDED, 2, .5, 1, s));
	args.v = absent;
	REFUSED(srt_op_adam(&args, &adam, s), "srt_op_adam: v is absent");
	args = good;
	REFUSED(srt_op_adam(&args, &(srt_adam_t){ .beta1 = .9, .beta2 = .999, .amsgrad = 1 }, s),
		"srt_op_adam: amsgrad is set, but its buffer vmax is absent");
	args.vmax = at(b, 29);
	REFUSED(srt_op_adam(&args, &(srt_adam_t){ .beta1 = .9, .beta2 = .999, .amsgrad = 1 }, s),
		"m overlaps vmax");
	args = good;
	args.grad = at(b, 9);
	REFUSED(srt_op_adam(&args, &adam, s), "param overlaps grad");
	args = good;
	args.m = absent;
	REFUSED(srt_op_sgd(&args, &sgd, s), "momentum is 0.9, but its buffer m is absent");
	CHECK_OK(srt_op_sgd(&args, &(srt_sgd_t){ 0 }, s));
	REFUSED(srt_op_sgd(NULL, &sgd, s), "srt_op_sgd: args is NULL");
	REFUSED(srt_op_adam(&args, NULL, s), "srt_op_adam: adam is NULL");
	args = (srt_optim_args_t){ .state = good.state };
	CHECK_OK(srt_op_adam(&args, &adam, s)); /* a rank without parameters */
	CHECK_OK(srt_op_sgd(&args, &sgd, s));
}

int main(void)
{
	ops_open();
	test_elementwise();
	test_rows();
	test_norms();
	test_gated();
	test_dequantize();
	test_rotary();
	test_empty_rows();
	test_embedding();
	test_vocab_part();
	test_sums();
	test_optimizers();
	ops_close();
	return check_done();
}
