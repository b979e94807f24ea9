/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserved fields of the structs of operations and sharded tensors; see test_reserved.c. */
#include <shardrt/shardrt.h>

#include "tests/engine/reserved_case.h"
#include "tests/harness/check.h"

static srt_context_t *context;
static srt_stream_t *stream;

static srt_status_t call_matmul(int i, uint64_t value)
{
	srt_matmul_t mm = { .m = 0 };

	mm.reserved[i] = value;
	return srt_op_matmul(stream, &mm);
}

static srt_status_t call_attention(int i, uint64_t value)
{
	const srt_attention_views_t views = { .q = { 0 } };
	srt_attention_t shape = { .batch = 0 };

	shape.reserved[i] = value;
	return srt_op_attention(stream, &shape, &views);
}

static srt_status_t call_attention_views(int i, uint64_t value)
{
	const srt_attention_t shape = { .batch = 0 };
	srt_attention_views_t views = { .q = { 0 } };

	views.reserved[i] = value;
	return srt_op_attention(stream, &shape, &views);
}

static srt_status_t call_attention_views_backward(int i, uint64_t value)
{
	const srt_attention_t shape = { .batch = 0 };
	srt_attention_views_t views = { .q = { 0 } };

	views.reserved[i] = value;
	return srt_op_attention_backward(stream, &shape, &views);
}

static srt_status_t call_strided(int i, uint64_t value)
{
	const srt_view_t absent = { 0 };
	srt_strided_t shape = { .ndim = 1, .size = { 0 } };

	shape.reserved[i] = value;
	return srt_op_copy_strided(stream, absent, absent, &shape);
}

static srt_status_t call_vocab_part(int i, uint64_t value)
{
	const srt_view_t none = srt_view(NULL, 0, SRT_F32), ids = srt_view(NULL, 0, SRT_I32);
	srt_vocab_part_t part = { .vocab = 1, .n = 1 };

	part.reserved[i] = value;
	return srt_op_cross_entropy_part(stream, none, none, ids, 0, &part);
}

static srt_status_t call_coo(int i, uint64_t value)
{
	srt_coo_t coo = { .ndim = 1, .shape = { 1 } };
	size_t nbytes;

	coo.reserved[i] = value;
	return srt_op_coo_scratch(&coo, &nbytes);
}

static srt_status_t call_optim_args(int i, uint64_t value)
{
	const srt_sgd_t sgd = { .momentum = 0 };
	srt_optim_args_t args = { .nelem = 0 };

	args.reserved[i] = value;
	return srt_op_sgd(stream, &args, &sgd);
}

static srt_status_t call_sgd(int i, uint64_t value)
{
	const srt_optim_args_t args = { .nelem = 0 };
	srt_sgd_t sgd = { .momentum = 0 };

	sgd.reserved[i] = value;
	return srt_op_sgd(stream, &args, &sgd);
}

static srt_status_t call_adam(int i, uint64_t value)
{
	const srt_optim_args_t args = { .nelem = 0 };
	srt_adam_t adam = { .beta1 = 0.9, .beta2 = 0.99 };

	adam.reserved[i] = value;
	return srt_op_adam(stream, &args, &adam);
}

static const reserved_case_t structs[] = {
	{ "srt_matmul_t", call_matmul },
	{ "srt_attention_t", call_attention },
	{ "srt_attention_views_t", call_attention_views },
	{ "srt_attention_views_t", call_attention_views_backward },
	{ "srt_strided_t", call_strided },
	{ "srt_vocab_part_t", call_vocab_part },
	{ "srt_coo_t", call_coo },
	{ "srt_optim_args_t", call_optim_args },
	{ "srt_sgd_t", call_sgd },
	{ "srt_adam_t", call_adam },
};

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	reserved_check(structs, sizeof(structs) / sizeof(structs[0]));
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
