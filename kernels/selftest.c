/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cases of the self-test and their digests. After a change of bits that is meant: raise
 * SRT_NUMERICS_VERSION and take the digests that `tests/test_selftest print` shows.
 */
#include "kernels/selftest.h"

#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>

#define MAX_PLACE_NBYTES 32768

/*
 * One case. places: a letter and a number of elements for each place, in order:
 *   f floats, x floats with special values among them, p positive floats, m fours, z zeros,
 *   i numbers 0..6 (32-bit), d zeros and b multiples of 0.75 (64-bit), s step state, u parameter
 * states,
 *   g segments, h groups, - absent.
 */
typedef struct selftest_case {
	srt_kernel_id_t kernel;
	uint64_t digest;
	const char *places;
	const void *args;
} selftest_case_t;

#define CASE(NAME, digest, places, type, ...)                                                      \
	{                                                                                          \
		SRT_K_##NAME, digest, places, &(const type)                                        \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define ROWS .rows = 3, .n = 131
#define ATTENTION                                                                                  \
	.batch = 1, .context = 67, .heads = 2, .head_dim = 8, .scale = 0.35355338f, .causal = 1

static const selftest_case_t cases[] = {
	CASE(FILL, 0xa1169cc9dfafad66u, "z131", srt_k_elem_t, .nelem = 131, .value = 0.1f),
	CASE(SCALE, 0xdb933578885bed48u, "z131 x131", srt_k_elem_t, .nelem = 131, .value = 0.1f),
	CASE(DIVIDE, 0x0fb4a1373d0e03a7u, "z131 x131", srt_k_elem_t, .nelem = 131, .value = 3.0f),
	CASE(ADD, 0x29c052cb24d29043u, "z131 x131 f131", srt_k_elem_t, .nelem = 131),
	CASE(RELU, 0x7db495f39ce9b665u, "z131 x131", srt_k_elem_t, .nelem = 131),
	CASE(RELU_BACKWARD, 0xc319df028f53b6f3u, "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(GELU_TANH, 0xf45b2ba15e6ae564u, "z131 x131", srt_k_elem_t, .nelem = 131),
	CASE(GELU_TANH_BACKWARD, 0x755c923f0c94a3b9u, "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(REDUCE_RANKS, 0x35b9f90f35c00b7fu, "f131 x131 f131 f131 - - - - -",
	     srt_k_reduce_ranks_t, .nelem = 131, .nranks = 3, .divisor = 3.0f, .accumulate = 1),
	CASE(REDUCE_RANKS, 0x63d87a2c64cabb3fu, "z131 f131 f131 f131 f131 f131 f131 f131 x131",
	     srt_k_reduce_ranks_t, .nelem = 131, .nranks = 8),
	CASE(SOFTMAX, 0x6bbe8a3db63b12f8u, "z393 f393", srt_k_rows_t, ROWS),
	CASE(CROSS_ENTROPY, 0x1bae8dc915b5d944u, "z3 z393 f393 i3", srt_k_rows_t, ROWS,
	     .value = 0.1f),
	CASE(MSE, 0x7db52279c86b03afu, "z3 z393 f393 f393", srt_k_rows_t, ROWS, .value = 0.1f),
	CASE(BIAS_BACKWARD, 0x55a93ce9a4ffa8a5u, "f5 f2000", srt_k_rows_t, .rows = 400, .n = 5,
	     .accumulate = 1),
	CASE(LAYERNORM, 0x558dd3165e3f8fabu, "z393 z3 z3 f393 f131 f131", srt_k_rows_t, ROWS,
	     .value = 1e-5f),
	CASE(LAYERNORM_BACKWARD, 0x2db58387d6e5671du, "f393 f393 f393 f3 p3 f131", srt_k_rows_t,
	     ROWS, .accumulate = 1),
	CASE(LAYERNORM_BACKWARD_PARAMS, 0x1ded89fdad96bb4eu, "z5 f5 f2000 f2000 f400 p400",
	     srt_k_rows_t, .rows = 400, .n = 5, .accumulate2 = 1),
	CASE(EMBEDDING, 0x08b7c093f1364746u, "z700 f490 f140 i10", srt_k_embedding_t, .rows = 10,
	     .n = 70, .vocab = 7, .context = 2),
	CASE(EMBEDDING_BACKWARD, 0x671a7b14ddf120f6u, "f490 f700 i10", srt_k_embedding_t,
	     .rows = 10, .n = 70, .vocab = 7, .context = 2, .accumulate = 1),
	CASE(EMBEDDING_BACKWARD, 0x52e810da64cd5d2eu, "z7 f7200 i7200", srt_k_embedding_t,
	     .rows = 7200, .n = 1, .vocab = 7),
	CASE(POSITION_BACKWARD, 0x43483b4281c78564u, "z210 f700", srt_k_embedding_t, .rows = 10,
	     .n = 70, .vocab = 7, .context = 3),
	CASE(MATMUL, 0x172d0efc8f251d9cu, "f10 f1030 f2575 f5", srt_k_matmul_t, .m = 2, .n = 5,
	     .k = 515, .batch = 1, .lda = 515, .ldb = 5, .ldc = 5, .alpha = 0.3f, .accumulate = 1),
	CASE(MATMUL, 0x18e50cde943d9220u, "z140 f14 f490 -", srt_k_matmul_t, .m = 2, .n = 70,
	     .k = 7, .batch = 1, .lda = 2, .ldb = 7, .ldc = 70, .alpha = 1.0f, .trans_a = 1,
	     .trans_b = 1),
	CASE(ATTENTION, 0xf1e08b75b4687cb1u, "z1072 z268 f3216", srt_k_attention_t, ATTENTION),
	CASE(ATTENTION_BACKWARD_D, 0x89e1effc4c782dc5u, "z134 f1072 f1072", srt_k_attention_t,
	     ATTENTION),
	CASE(ATTENTION_BACKWARD_Q, 0x6665025dd87fd4cdu, "z3216 f1072 f3216 p268 f134",
	     srt_k_attention_t, ATTENTION),
	CASE(ATTENTION_BACKWARD_KV, 0xef890c66846cf413u, "z3216 f1072 f3216 p268 f134",
	     srt_k_attention_t, ATTENTION),
	CASE(NORMAL, 0x3d414711ce2b9207u, "z131", srt_k_normal_t, .seed = 0x123456789abcdefu,
	     .name = 0xfedcba987654321u, .first = 3, .nelem = 131, .mean = 0.5f, .std = 0.02f),
	CASE(ABSMAX, 0x856645ab66a804f7u, "z1 f131", srt_k_bins_t, .nelem = 131),
	CASE(BIN_SUM, 0x6ec9e58cc1b0a1d7u, "d2 m1 f131", srt_k_bins_t, .nelem = 131,
	     .total_nelem = 131, .power = 3),
	CASE(BIN_SUM, 0x3b74042744e70e72u, "d2 m1 f131", srt_k_bins_t, .nelem = 131,
	     .total_nelem = 1000, .power = 2),
	CASE(BIN_TOTAL, 0x8f906db90feda6efu, "z1 b6 m1", srt_k_bins_t, .nelem = 3, .power = 3,
	     .flag = 1),
	CASE(STEP_ADVANCE, 0x5166cd39f2b43440u, "s1 u3 p1", srt_k_step_t, .nparams = 3,
	     .beta1_hi = 0.9f, .beta1_lo = -2.3841857e-8f, .beta2_hi = 0.999f,
	     .beta2_lo = -1.2874603e-8f, .max_norm = 0.1f),
	CASE(SGD, 0x4653e29e965b46bcu, "f131 f131 f131 s1 u3 g2 h2", srt_k_sgd_t, .nelem = 131,
	     .nsegments = 2, .momentum = 0.9f, .undampened = 0.5f, .nesterov = 1),
	CASE(ADAM, 0xd5bb5d96df9a43b3u, "f131 f131 f131 p131 s1 u3 g2 h2 -", srt_k_adam_t,
	     .nelem = 131, .nsegments = 2, .beta2 = 0.999f, .weight1 = 0.1f, .weight2 = 0.001f,
	     .eps = 1e-8f, .decoupled = 1),
	CASE(ADAM, 0x41eed57f433efd63u, "f131 f131 f131 p131 s1 u3 g2 h2 p131", srt_k_adam_t,
	     .nelem = 131, .nsegments = 2, .beta2 = 0.999f, .weight1 = 0.1f, .weight2 = 0.001f,
	     .eps = 1e-8f, .maximize = 1),
};

static const srt_step_state_t sample_state = { .step = 7,
					       .lr = 1e-3f,
					       .clip_coef = 0.75f,
					       .base_lr = 1e-3f,
					       .min_lr = 1e-4f,
					       .warmup = 3,
					       .lr_steps = 50 };
static const srt_param_state_t sample_params[3] = { { 1, 7, 0.4f, 0.01f },
						    { 0, 3, 0.3f, 0.02f },
						    { 1, 1, 0.1f, 0.001f } };
static const srt_optim_segment_t sample_segments[2] = { { 1, 70, 0, 0 }, { 75, 56, 1, 2 } };
static const srt_optim_group_t sample_groups[2] = { { 1.0f, 0.1f }, { 0.5f, 0.0f } };

/* A float in (-1, 1), by 2^-2 .. 2^1: a hash of its number. */
static float sample_float(uint32_t i)
{
	uint32_t h = i * 2654435761u + 0x9e3779b9u;
	int32_t v;

	h ^= h >> 15;
	h *= 0x85ebca6bu;
	h ^= h >> 13;
	v = (int32_t)(h & 0xffffffu) - 0x800000;
	return (float)v * 0x1p-23f * (0.25f * (float)(1 << (h >> 30)));
}

static float sample_special(uint32_t i)
{
	static const uint32_t bits[] = { 0x7f800000u, 0xff800000u, 0x7fc00000u,
					 0x80000000u, 0x00000001u, 0x807fffffu,
					 0x7f7fffffu, 0x42b17218u, 0xc2cff1b5u };
	float v;

	if (i % 11)
		return sample_float(i);
	memcpy(&v, &bits[i / 11 % (sizeof(bits) / sizeof(bits[0]))], sizeof(v));
	return v;
}

/* Fills place number `place` and returns its size in bytes. */
static size_t fill_place(char kind, size_t n, uint32_t place, unsigned char *to)
{
	const void *sample = NULL;
	size_t size = sizeof(float);

	switch (kind) {
	case 's':
		sample = &sample_state;
		size = sizeof(sample_state);
		break;
	case 'u':
		sample = sample_params;
		size = sizeof(sample_params[0]);
		break;
	case 'g':
		sample = sample_segments;
		size = sizeof(sample_segments[0]);
		break;
	case 'h':
		sample = sample_groups;
		size = sizeof(sample_groups[0]);
		break;
	case 'b':
	case 'd':
		size = sizeof(double);
		break;
	default:
		break;
	}
	if (sample)
		memcpy(to, sample, n * size);
	else
		memset(to, 0, n * size);
	for (uint32_t i = 0; i < n; i++) {
		float v = kind == 'x' ? sample_special(i) : sample_float(1000 * place + i);
		int32_t id = (int32_t)(i * 5 % 7);

		if (kind == 'p')
			v = v < 0.0f ? 0.5f - v : 0.5f + v;
		v = kind == 'm' ? 4.0f : v;
		if (kind == 'i')
			memcpy(to + i * size, &id, sizeof(id));
		else if (strchr("fxpm", kind))
			memcpy(to + i * size, &v, sizeof(v));
		else if (kind == 'b')
			memcpy(to + i * size, &(double){ (double)(i + 1) * 0.75 }, size);
	}
	return n * size;
}

/* FNV-1a over 32-bit words; in places of floats every NaN counts as the canonical one. */
static uint64_t digest_place(uint64_t h, const unsigned char *p, size_t nbytes, int floats)
{
	for (size_t i = 0; i < nbytes; i += 4) {
		uint32_t u;

		memcpy(&u, p + i, sizeof(u));
		if (floats && (u & 0x7fffffffu) > 0x7f800000u)
			u = 0x7fc00000u;
		h = (h ^ u) * 0x100000001b3u;
	}
	return h;
}

static srt_status_t run_case(const selftest_case_t *c, unsigned char *memory,
			     srt_selftest_run_fn *run, void *context, uint64_t *digest)
{
	const srt_kernel_info_t *info = srt_kernel_info(c->kernel);
	srt_launch_t launch = { .kernel = (uint16_t)c->kernel,
				.dtype = SRT_F32,
				.nplaces = info->nplaces,
				.args_nbytes = info->args_nbytes,
				.ngroups = srt_kernel_grid(c->kernel, c->args),
				.args = c->args };
	unsigned char *host[SRT_LAUNCH_MAX_PLACES] = { 0 };
	size_t nbytes[SRT_LAUNCH_MAX_PLACES] = { 0 };
	char kinds[SRT_LAUNCH_MAX_PLACES];
	const char *spec = c->places;
	srt_status_t status;

	for (int i = 0; i < info->nplaces; i++) {
		char *end = NULL;

		kinds[i] = *spec++;
		if (kinds[i] != '-') {
			size_t n = strtoul(spec, &end, 10);

			host[i] = memory + (size_t)i * MAX_PLACE_NBYTES;
			nbytes[i] = fill_place(kinds[i], n, (uint32_t)i, host[i]);
			spec = end;
		}
		spec += *spec == ' ';
	}
	status = run(context, &launch, host, nbytes);
	if (status != SRT_OK)
		return status;
	*digest = 0xcbf29ce484222325u;
	for (int i = 0; i < info->nplaces; i++)
		if (host[i] && strchr("WXwx", info->access[i]))
			*digest = digest_place(*digest, host[i], nbytes[i],
					       strchr("fxpz", kinds[i]) != NULL);
	return SRT_OK;
}

int srt_kernels_selftest_count(void)
{
	return (int)(sizeof(cases) / sizeof(cases[0]));
}

srt_status_t srt_kernels_selftest_case(int number, srt_selftest_run_fn *run, void *context,
				       srt_kernel_id_t *kernel, uint64_t *digest,
				       uint64_t *expected)
{
	unsigned char *memory = malloc((size_t)SRT_LAUNCH_MAX_PLACES * MAX_PLACE_NBYTES);
	srt_status_t status;

	if (!memory)
		return SRT_ERR_OUT_OF_MEMORY;
	*kernel = cases[number].kernel;
	*expected = cases[number].digest;
	status = run_case(&cases[number], memory, run, context, digest);
	free(memory);
	return status;
}

srt_status_t srt_kernels_selftest(srt_selftest_run_fn *run, void *context, const char **kernel)
{
	*kernel = NULL;
	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		srt_kernel_id_t id;
		uint64_t digest, expected;
		srt_status_t status =
			srt_kernels_selftest_case(i, run, context, &id, &digest, &expected);

		if (status == SRT_OK && digest != expected)
			status = SRT_ERR_DEVICE;
		if (status != SRT_OK) {
			*kernel = srt_kernel_info(cases[i].kernel)->name;
			return status;
		}
	}
	return SRT_OK;
}
