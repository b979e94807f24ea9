/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resolves mixed-precision policies by the rules of <shardrt/precision.h>. A pure function; used
 * where units and parameters are declared.
 */
#include "runtime/engine/declare/declare.h"

srt_dtype_t srt_cast_dtype(srt_cast_t cast, srt_dtype_t otherwise)
{
	static const srt_dtype_t dtypes[] = {
		[SRT_CAST_F32] = SRT_F32,
		[SRT_CAST_F16] = SRT_F16,
		[SRT_CAST_BF16] = SRT_BF16,
	};

	return cast == SRT_CAST_NONE ? otherwise : dtypes[cast];
}

static srt_status_t check_precision(const srt_precision_t *p)
{
	if ((unsigned)p->param > SRT_CAST_BF16 || (unsigned)p->reduce > SRT_CAST_BF16 ||
	    (unsigned)p->buffer > SRT_CAST_BF16 || (unsigned)p->output > SRT_CAST_BF16 ||
	    (unsigned)p->rule > SRT_PRECISION_FSDP1)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"one of param (%d), reduce (%d), buffer (%d), output (%d), rule (%d) "
			"of a precision is not a value of its enum",
			(int)p->param, (int)p->reduce, (int)p->buffer, (int)p->output,
			(int)p->rule);
	if (p->buffer != SRT_CAST_NONE && p->rule != SRT_PRECISION_FSDP1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a precision casts buffers, which only the rule "
				"SRT_PRECISION_FSDP1 does");
	return SRT_OK;
}

srt_status_t srt_precision_resolve(const srt_precision_t *precision, srt_dtype_t stored,
				   srt_unit_types_t *types)
{
	srt_precision_t p = SRT_PRECISION_INIT;
	srt_unit_types_t resolved;
	srt_dtype_t compute, reduce;

	SRT_NOT_NULL(types);
	if (!srt_dtype_is_float(stored))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_precision_resolve: stored is %s, must be f32, f16 or bf16",
				srt_dtype_name(stored));
	SRT_TRY(srt_struct_read(&p, sizeof(p), precision, "srt_precision_t"));
	SRT_TRY(check_precision(&p));
	compute = srt_cast_dtype(p.param, stored);
	reduce = srt_cast_dtype(p.reduce, compute);
	resolved = (srt_unit_types_t){
		.size = sizeof(resolved),
		.stored = stored,
		.compute = compute,
		.accumulate = p.rule == SRT_PRECISION_FSDP1 ? compute : reduce,
		.reduce = reduce,
		.casts_inputs = p.param != SRT_CAST_NONE && !p.keep_inputs,
		.output = p.output,
		.buffer = p.buffer,
	};
	return srt_struct_write(types, &resolved, sizeof(resolved), "srt_unit_types_t");
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t srt_unit_align(const srt_unit_t *unit)
{
	const srt_unit_types_t *t = &unit->types;
	size_t smallest = min_size(srt_dtype_size(t->stored), srt_dtype_size(t->compute));

	return SRT_TENSOR_ALIGN / min_size(smallest, srt_dtype_size(t->reduce));
}
