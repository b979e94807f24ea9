/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel table: descriptions and grids from kernels.def, and the small host-side helpers of
 * the launchers. Constant data only. Modules of backends carry their own copy.
 */
#include "kernels/table.h"

_Static_assert((int)SRT_SCHEDULE_COSINE == SRT_K_SCHEDULE_COSINE, "cosine");
_Static_assert((int)SRT_SCHEDULE_LINEAR == SRT_K_SCHEDULE_LINEAR, "linear");
_Static_assert((int)SRT_SCHEDULE_STABLE == SRT_K_SCHEDULE_STABLE, "stable");
_Static_assert((int)SRT_SCHEDULE_CONSTANT == SRT_K_SCHEDULE_CONSTANT, "constant");
_Static_assert(sizeof(srt_k_step_state_t) == SRT_STEP_INFO_NBYTES, "step state");

/* Every struct is a whole number of its widest member: no compiler pads its end. */
#define K(NAME, name, types, access, args, grid)                                                   \
	_Static_assert(sizeof(args) % 8 == 0, #args);                                              \
	_Static_assert(sizeof(access) - 1 <= SRT_COMMAND_MAX_BINDINGS, #name);                     \
	static int64_t grid_##name(const void *p)                                                  \
	{                                                                                          \
		const args *a = p;                                                                 \
                                                                                                   \
		(void)a;                                                                           \
		return grid;                                                                       \
	}
#include "kernels/kernels.def"

typedef struct srt_kernel_row {
	srt_kernel_info_t info;
	int64_t (*grid)(const void *args);
} srt_kernel_row_t;

static const srt_kernel_row_t kernel_rows[SRT_K_COUNT] = {
#define TYPES_F32 (1u << SRT_F32)
#define TYPES_ALL (1u << SRT_F32 | 1u << SRT_F16 | 1u << SRT_BF16)
#define K(NAME, name, types, access, args, grid)                                                   \
	[SRT_K_##NAME] = { { #name, access, sizeof(access) - 1, sizeof(args), TYPES_##types },     \
			   grid_##name },
#include "kernels/kernels.def"
};

const srt_kernel_info_t *srt_kernel_info(srt_kernel_id_t kernel)
{
	return (unsigned)kernel < SRT_K_COUNT ? &kernel_rows[kernel].info : NULL;
}

int srt_kernel_has(srt_kernel_id_t kernel, srt_dtype_t dtype)
{
	return (unsigned)kernel < SRT_K_COUNT && (unsigned)dtype < SRT_DTYPE_COUNT &&
	       (kernel_rows[kernel].info.dtypes >> dtype & 1);
}

const char *srt_kernel_dtype_name(srt_dtype_t dtype)
{
	return dtype == SRT_F16 ? "f16" : dtype == SRT_BF16 ? "bf16" : "f32";
}

int64_t srt_kernel_grid(srt_kernel_id_t kernel, const void *args)
{
	return kernel_rows[kernel].grid(args);
}

/* Portable kernels of attention's backward pass: one of the outputs `needs`, and which of the
 * command's bindings they have. */
enum { DQ, DK, DV, DOUT, OUT, QUERY, KEY, VALUE, STATS, SCRATCH, LENGTHS, MASK, FIRST };
static const struct {
	srt_kernel_id_t kernel;
	uint8_t needs[2], bindings[SRT_COMMAND_MAX_BINDINGS];
} backward[] = {
	{ SRT_K_ATTENTION_BACKWARD_D,
	  { SCRATCH, SCRATCH },
	  { SCRATCH, DOUT, OUT, QUERY, KEY, VALUE, STATS, LENGTHS, MASK, FIRST } },
	{ SRT_K_ATTENTION_BACKWARD_Q,
	  { DQ, DQ },
	  { DQ, DOUT, QUERY, KEY, VALUE, STATS, SCRATCH, LENGTHS, MASK, FIRST } },
	{ SRT_K_ATTENTION_BACKWARD_KV,
	  { DK, DV },
	  { DK, DV, DOUT, QUERY, KEY, VALUE, STATS, SCRATCH, LENGTHS, MASK, FIRST } },
};

_Static_assert(sizeof(backward) / sizeof(backward[0]) <= SRT_COMMAND_MAX_KERNELS, "kernels");

bool srt_command_is_plain_attention(const srt_command_t *command)
{
	const srt_k_attention_t *a = &command->attention;

	return a->kv_heads == a->heads && a->offset == 0 &&
	       command->bindings[command->nbindings - 1].mem == NULL;
}

int srt_command_expand(const srt_command_t *command, srt_command_t kernels[SRT_COMMAND_MAX_KERNELS])
{
	int n = 0;

	if (command->kind != SRT_COMMAND_ATTENTION_BACKWARD) {
		kernels[0] = *command;
		kernels[0].kind = SRT_COMMAND_KERNEL;
		return command->ngroups > 0;
	}
	for (size_t i = 0; i < sizeof(backward) / sizeof(backward[0]); i++) {
		srt_command_t *kernel = &kernels[n];

		if (command->bindings[backward[i].needs[0]].mem == NULL &&
		    command->bindings[backward[i].needs[1]].mem == NULL)
			continue;
		*kernel = *command;
		kernel->kind = SRT_COMMAND_KERNEL;
		kernel->kernel = (uint16_t)backward[i].kernel;
		kernel->ngroups = srt_kernel_grid(backward[i].kernel, command->args);
		kernel->nbindings = srt_kernel_info(backward[i].kernel)->nplaces;
		for (int b = 0; b < kernel->nbindings; b++)
			kernel->bindings[b] = command->bindings[backward[i].bindings[b]];
		n += kernel->ngroups > 0;
	}
	return n;
}

uint64_t srt_kernel_name_hash(const char *name)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3u;
	return h;
}

void srt_kernel_split(double x, float *hi, float *lo)
{
	*hi = (float)x;
	*lo = (float)(x - (double)*hi);
}

srt_k_attention_t srt_kernel_attention_args(const srt_attention_t *shape)
{
	return (srt_k_attention_t){
		.batch = shape->batch,
		.queries = shape->queries,
		.keys = shape->keys,
		.heads = shape->heads,
		.head_dim = shape->head_dim,
		.kv_heads = shape->kv_heads,
		.offset = shape->offset,
		.ldq = shape->ldq,
		.ldk = shape->ldk,
		.ldv = shape->ldv,
		.lddq = shape->lddq,
		.lddk = shape->lddk,
		.lddv = shape->lddv,
		.scale = shape->scale,
		.causal = shape->causal != 0,
	};
}
