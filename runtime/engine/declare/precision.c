/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resolves mixed-precision policies by the rules of <shardrt/engine_options.h>. A pure function;
 * used where units and parameters are declared.
 */
#include "runtime/engine/declare/declare.h"

static srt_status_t check_cast(const char *name, srt_dtype_t dtype)
{
	if (dtype == SRT_DTYPE_NONE || srt_dtype_is_float(dtype))
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s of a precision is %s (%d), must be f32, f16, bf16 or none", name,
			srt_dtype_name(dtype), (int)dtype);
}

static srt_status_t check_precision(const srt_precision_t *p)
{
	SRT_TRY(check_cast("param", p->param));
	SRT_TRY(check_cast("reduce", p->reduce));
	SRT_TRY(check_cast("buffer", p->buffer));
	SRT_TRY(check_cast("output", p->output));
	if ((unsigned)p->rule > SRT_PRECISION_FSDP1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"rule (%d) of a precision is not a value of its enum",
				(int)p->rule);
	if (p->buffer != SRT_DTYPE_NONE && p->rule != SRT_PRECISION_FSDP1)
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
	if (!srt_dtype_is_float(stored) && stored != SRT_U8)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_precision_resolve: stored is %s, must be f32, f16, bf16 or u8",
				srt_dtype_name(stored));
	SRT_TRY(srt_struct_read(&p, sizeof(p), precision, "srt_precision_t"));
	SRT_TRY(check_precision(&p));
	if (stored == SRT_U8)
		p = (srt_precision_t)SRT_PRECISION_INIT;
	compute = srt_dtype_or(p.param, stored);
	reduce = srt_dtype_or(p.reduce, compute);
	resolved = (srt_unit_types_t){
		.size = sizeof(resolved),
		.stored = stored,
		.compute = compute,
		.accumulate = p.rule == SRT_PRECISION_FSDP1 ? compute : reduce,
		.reduce = reduce,
		.casts_inputs = p.param != SRT_DTYPE_NONE && !p.keep_inputs,
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
