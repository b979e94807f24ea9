/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cases of the self-test and their digests. After a change of bits that is meant: raise
 * SRT_NUMERICS_VERSION and take the digests that `tests/test_selftest print` shows.
 */
#include "kernels/selftest.h"
#include "kernels/dialect.h"

#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>

#define MAX_PLACE_NBYTES 32768

/*
 * One case. places: a letter and a number of elements for each place, in order, and maybe @ and
 * the number of its first sample, which is 1000 times the place's if it is not said:
 *   f numbers, x numbers with special values among them, p positive numbers, m fours, z zeros,
 *   e and y as x, but f16 and bf16 in any case,
 *   F X P M Z the same, but floats where the others are of the launch's dtype,
 *   i numbers 0..6 (32-bit), c bytes of which some are 0, d zeros and b multiples of 0.75
 *   (64-bit), s step state, t one with a scale, u parameter states, g segments, h groups, k keys
 *   (64-bit) that rise in runs of 64, q how many different ones 131 of them are, n even numbers,
 *   - absent.
 * digests: of each dtype, F32(its) or ALL(f32's, f16's, bf16's).
 */
typedef struct selftest_case {
	srt_kernel_id_t kernel;
	uint64_t digests[SRT_DTYPE_COUNT];
	const char *places;
	const void *args;
} selftest_case_t;

#define F32(digest)                                                                                \
	{                                                                                          \
		[SRT_F32] = digest                                                                 \
	}
#define ALL(f32, f16, bf16)                                                                        \
	{                                                                                          \
		[SRT_F32] = f32, [SRT_F16] = f16, [SRT_BF16] = bf16                                \
	}
#define CASE(NAME, digests, places, type, ...)                                                     \
	{                                                                                          \
		SRT_K_##NAME, digests, places, &(const type)                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define ROWS .rows = 3, .n = 131
/* Packed, as places of their own: k and v are the numbers of q's place from 16 and 32 on. */
#define ATTENTION                                                                                  \
	.batch = 1, .queries = 67, .keys = 67, .heads = 2, .head_dim = 8, .ldq = 48, .ldk = 48,    \
	.ldv = 48, .lddq = 48, .lddk = 48, .lddv = 48, .scale = 0.35355338f, .causal = 1
/* Keys of another number, of which an item has fewer, and a mask. */
#define ATTENTION_MASKED                                                                           \
	.batch = 7, .queries = 5, .keys = 9, .heads = 1, .head_dim = 3, .ldq = 3, .ldk = 3,        \
	.ldv = 5, .lddq = 4, .lddk = 3, .lddv = 5, .scale = 0.5f

static const selftest_case_t cases[] = {
	CASE(FILL, ALL(0xa1169cc9dfafad66u, 0x0b683388bffe0951u, 0x3b4742f40d38ce66u), "z131",
	     srt_k_elem_t, .nelem = 131, .value = 0.1f),
	CASE(SCALE, ALL(0xdb933578885bed48u, 0xa868514c8a9d2fccu, 0x2ec4e7d2207602f7u), "z131 x131",
	     srt_k_elem_t, .nelem = 131, .value = 0.1f),
	CASE(DIVIDE, ALL(0x0fb4a1373d0e03a7u, 0x2e70609535bfcee1u, 0xaee1f85a2414d246u),
	     "z131 x131", srt_k_elem_t, .nelem = 131, .value = 3.0f),
	CASE(AXPY, ALL(0xe488316f2d834828u, 0x4ae54f7c90fbfcb4u, 0x88e390df0b97f54cu), "f131 x131",
	     srt_k_elem_t, .nelem = 131, .value = 0.1f),
	CASE(CAST_FROM_F32, ALL(0x85514a9391dd3d1du, 0x812f5df562008adfu, 0x836f29e1828a5463u),
	     "z131 X131", srt_k_elem_t, .nelem = 131),
	CASE(CAST_FROM_F16, ALL(0x98918990b8511db7u, 0x812f5df562008adfu, 0x800eec3f412dff90u),
	     "z131 e131", srt_k_elem_t, .nelem = 131),
	CASE(CAST_FROM_BF16, ALL(0x01f979c0db981db7u, 0x84e631f7993e3287u, 0x836f29e1828a5463u),
	     "z131 y131", srt_k_elem_t, .nelem = 131),
	CASE(ADD, ALL(0x29c052cb24d29043u, 0xbbdc8cde05fd62a0u, 0x7ae84c5ce66f8b32u),
	     "z131 x131 f131", srt_k_elem_t, .nelem = 131),
	CASE(RELU, ALL(0x7db495f39ce9b665u, 0x59f44138f0e4fec0u, 0xea3172d0da768aceu), "z131 x131",
	     srt_k_elem_t, .nelem = 131),
	CASE(RELU_BACKWARD, ALL(0xc319df028f53b6f3u, 0xd7983d2e6a69f6a2u, 0xf8a025b10d593712u),
	     "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(GELU_TANH, ALL(0xf45b2ba15e6ae564u, 0x36fcaddf09a9b6a9u, 0x8bc4a7b0f893647au),
	     "z131 x131", srt_k_elem_t, .nelem = 131),
	CASE(GELU_TANH_BACKWARD, ALL(0x755c923f0c94a3b9u, 0xafe31cae68d0f975u, 0x8711dd30dcf7e440u),
	     "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(TANH, ALL(0xffd748d1c0311aa2u, 0xbc0b73146551ec85u, 0x7fb84cb0a9f06735u), "z131 x131",
	     srt_k_elem_t, .nelem = 131),
	CASE(TANH_BACKWARD, ALL(0xcfde94ba6a2989c2u, 0x09a2a9c458121af8u, 0x402a1a0cb83a38e9u),
	     "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(SIGMOID, ALL(0x88f79023a4209152u, 0x78abf89fcf57a1c5u, 0x09ad9cdcb8033c72u),
	     "z131 x131", srt_k_elem_t, .nelem = 131),
	CASE(SIGMOID_BACKWARD, ALL(0x89cca1789795cb02u, 0x0782c222de94754bu, 0x02228fb7714df715u),
	     "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(SILU, ALL(0x2c9f36f878455d5du, 0x67c2d1c0aa60f1abu, 0xb287b2cf8e6405c0u), "z131 x131",
	     srt_k_elem_t, .nelem = 131),
	CASE(SILU_BACKWARD, ALL(0x2d731af8ad28002du, 0x9d643400cbc3c457u, 0x3dc3ffa463261a97u),
	     "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(GELU_ERF, ALL(0x85890642e94f8325u, 0x84ce34b0ac0e3479u, 0x8e2b5db18cd682b8u),
	     "z131 x131", srt_k_elem_t, .nelem = 131),
	CASE(GELU_ERF_BACKWARD, ALL(0xf6380bcb4e50b414u, 0x1f987b21c92d5612u, 0xd84f8e0bef79ecb7u),
	     "z131 f131 x131", srt_k_elem_t, .nelem = 131),
	CASE(REDUCE_RANKS, ALL(0x35b9f90f35c00b7fu, 0x74a505180b4bb577u, 0xd5a15cc692a89990u),
	     "f131 x131 f131 f131 - - - - -", srt_k_reduce_ranks_t, .nelem = 131, .nranks = 3,
	     .divisor = 3.0f, .accumulate = 1),
	CASE(REDUCE_RANKS, ALL(0x63d87a2c64cabb3fu, 0x82561e82d45ed891u, 0x59171bc2723931b7u),
	     "z131 f131 f131 f131 f131 f131 f131 f131 x131", srt_k_reduce_ranks_t, .nelem = 131,
	     .nranks = 8),
	CASE(REDUCE_RANKS, ALL(0x1087572c67e93b95u, 0xc703c5d099565adbu, 0xcfbad9ffa069751fu),
	     "z131 f131 f131 x131 - - - - -", srt_k_reduce_ranks_t, .nelem = 131, .nranks = 3,
	     .divisor = 1.5f, .predivisor = 2.0f),
	CASE(REDUCE_PARTIAL, ALL(0xc84fa17bd24091b1u, 0x21ee00afed2363a4u, 0xe957dc486e98e180u),
	     "Z131 f131 f131 x131 f131 f131 - - -", srt_k_reduce_ranks_t, .nelem = 131, .nranks = 5,
	     .predivisor = 3.0f),
	CASE(REDUCE_FINISH, ALL(0x9bd0adbf144cdae7u, 0xe384e2e787f7a52du, 0xc67354e1be8d8f88u),
	     "f131 X131", srt_k_reduce_ranks_t, .nelem = 131, .divisor = 3.0f, .accumulate = 1),
	CASE(SOFTMAX, ALL(0x6bbe8a3db63b12f8u, 0xf2bc734e0cad3763u, 0x7ab6690e367a915au),
	     "z393 f393", srt_k_rows_t, ROWS),
	CASE(SOFTMAX_BACKWARD, ALL(0xe391008f4c04f045u, 0xf6dceb11b4282373u, 0x2ef454cf0244d70cu),
	     "z393 f393 p393", srt_k_rows_t, ROWS),
	CASE(LOG_SOFTMAX, ALL(0x4d57dcd62b8ab8a7u, 0x36f2c14f081d4333u, 0x3a49c8960878b434u),
	     "z393 f393", srt_k_rows_t, ROWS),
	CASE(LOG_SOFTMAX_BACKWARD,
	     ALL(0x15bc075a6b53f97cu, 0x8ff12ce36788f4e5u, 0x283b3df869fa49d9u), "z393 f393 f393",
	     srt_k_rows_t, ROWS),
	CASE(CROSS_ENTROPY, ALL(0x1bae8dc915b5d944u, 0x829b0ca6e9acf35cu, 0xfee794b4b04ad227u),
	     "Z3 z393 f393 i3", srt_k_rows_t, ROWS, .value = 0.1f),
	CASE(MSE, ALL(0x7db52279c86b03afu, 0x074a81c3d18097e5u, 0x8657c91457d4e6e5u),
	     "Z3 z393 f393 f393", srt_k_rows_t, ROWS, .value = 0.1f),
	CASE(BIAS_BACKWARD, ALL(0x55a93ce9a4ffa8a5u, 0xf5d02da67802449du, 0xee12b255e3e5e523u),
	     "f5 f2000", srt_k_rows_t, .rows = 400, .n = 5, .accumulate = 1),
	CASE(LAYERNORM, ALL(0x558dd3165e3f8fabu, 0x79b7f81b40f5b8adu, 0xc79d9cc648eb217fu),
	     "z393 Z3 Z3 f393 f131 f131", srt_k_rows_t, ROWS, .value = 1e-5f),
	CASE(LAYERNORM_BACKWARD, ALL(0x2db58387d6e5671du, 0x28006f42dc323865u, 0x210a8080662dc215u),
	     "f393 f393 f393 F3 P3 f131", srt_k_rows_t, ROWS, .accumulate = 1),
	CASE(LAYERNORM_BACKWARD_PARAMS,
	     ALL(0x1ded89fdad96bb4eu, 0x50ea0b66aa69b7eau, 0x0fa2b55184f0ad7eu),
	     "z5 f5 f2000 f2000 F400 P400", srt_k_rows_t, .rows = 400, .n = 5, .accumulate2 = 1),
	CASE(RMSNORM, ALL(0xc1ab5bc2c3b820edu, 0x8a65ac09c429a734u, 0x3671f7ff97617fc9u),
	     "z393 Z3 f393 f131", srt_k_rows_t, ROWS, .value = 1e-5f),
	CASE(RMSNORM_BACKWARD, ALL(0x239570a7b184b518u, 0x0db8cff770b080edu, 0xe4840aad5d3ab06eu),
	     "f393 f393 f393 P3 f131", srt_k_rows_t, ROWS, .accumulate = 1),
	CASE(RMSNORM_BACKWARD_PARAMS,
	     ALL(0x94429412a5868e16u, 0x5496252ff4d53557u, 0x628547b2370faa81u),
	     "f5 f2000 f2000 P400", srt_k_rows_t, .rows = 400, .n = 5, .accumulate = 1),
	CASE(BATCHNORM_STATS, ALL(0xe9a3d8545bb746f0u, 0xeb26b62c24befc5au, 0xc29f4b1f62bab5a9u),
	     "Z5 Z5 F5 P5 f2000", srt_k_batchnorm_t, .rows = 400, .n = 5, .eps = 1e-5f,
	     .momentum = 0.1f),
	CASE(BATCHNORM_RSTD, F32(0x38db1d89cadf2e16u), "Z131 P131", srt_k_elem_t, .nelem = 131,
	     .value = 1e-5f),
	CASE(BATCHNORM, ALL(0x3154ff0ae9f3eb28u, 0x7bf6c3a64a767378u, 0xab7f795607ebada7u),
	     "z393 f393 F131 P131 f131 f131", srt_k_rows_t, ROWS),
	CASE(BATCHNORM_BACKWARD_PARAMS,
	     ALL(0x481503019ce83252u, 0xc5990a760c788019u, 0x0df44f53fc9783ecu),
	     "f5 z5 Z10 f2000 f2000 F5 P5", srt_k_rows_t, .rows = 400, .n = 5, .accumulate = 1),
	CASE(BATCHNORM_BACKWARD, ALL(0x45fd9e89c39cc763u, 0x06606594b932a69eu, 0x280c5c590cd6906fu),
	     "z393 f393 f393 F131 P131 f131 F262", srt_k_rows_t, ROWS),
	CASE(BATCHNORM_BACKWARD, ALL(0x979c151fcc61f504u, 0xc7fbf6dbc1e62b5bu, 0xc81d88894801ababu),
	     "z393 f393 f393 F131 P131 f131 -", srt_k_rows_t, ROWS),
	CASE(EMBEDDING, ALL(0x08b7c093f1364746u, 0xd061f02f41fafc2eu, 0x75ed27555edcb62cu),
	     "z700 f490 f140 i10", srt_k_embedding_t, .rows = 10, .n = 70, .vocab = 7,
	     .context = 2),
	CASE(EMBEDDING_BACKWARD, ALL(0x671a7b14ddf120f6u, 0xc7b611d859fd8be1u, 0x95e5f544e7f4150cu),
	     "f490 f700 i10", srt_k_embedding_t, .rows = 10, .n = 70, .vocab = 7, .context = 2,
	     .accumulate = 1),
	CASE(EMBEDDING_BACKWARD, ALL(0x52e810da64cd5d2eu, 0x10101423b33765d2u, 0x2120d2574736fbc2u),
	     "z7 f7200 i7200", srt_k_embedding_t, .rows = 7200, .n = 1, .vocab = 7),
	CASE(EMBEDDING_BACKWARD, ALL(0x6650d0fcc713c266u, 0x102d85d0dc9192f3u, 0xe350aa5f4f995ff8u),
	     "f490 f700 i10", srt_k_embedding_t, .rows = 10, .n = 70, .vocab = 7, .context = 2,
	     .padding = 1 + 5, .accumulate = 1),
	CASE(POSITION_BACKWARD, ALL(0x43483b4281c78564u, 0xfa2602cf9d62d6cdu, 0xedb9a7f9446a24b9u),
	     "z210 f700", srt_k_embedding_t, .rows = 10, .n = 70, .vocab = 7, .context = 3),
	CASE(MATMUL, ALL(0x172d0efc8f251d9cu, 0x30c307db7dbb75adu, 0x522b2dcdc4321e2bu),
	     "f10 f1030 f2575 f5", srt_k_matmul_t, .m = 2, .n = 5, .k = 515, .batch = 1, .lda = 515,
	     .ldb = 5, .ldc = 5, .alpha = 0.3f, .accumulate = 1),
	CASE(MATMUL, ALL(0x18e50cde943d9220u, 0xa1c03f6b2f50df71u, 0xd818f7c8eb5bdde0u),
	     "z140 f14 f490 -", srt_k_matmul_t, .m = 2, .n = 70, .k = 7, .batch = 1, .lda = 2,
	     .ldb = 7, .ldc = 70, .alpha = 1.0f, .trans_a = 1, .trans_b = 1),
	CASE(ATTENTION, ALL(0xf1e08b75b4687cb1u, 0xa8fc8bf88325e71cu, 0x30419c6c9eb4fc8bu),
	     "z1072 Z268 f3216 f3200@2016 f3184@2032 - -", srt_k_attention_t, ATTENTION),
	CASE(ATTENTION, ALL(0xe0bdd18a9c720df3u, 0x3830c50f4a7ae0aau, 0xa83cc21a6c571c9cu),
	     "f105 Z70 f105 f189 f313 i7 c63", srt_k_attention_t, ATTENTION_MASKED),
	CASE(ATTENTION_BACKWARD_D,
	     ALL(0x89e1effc4c782dc5u, 0x6a04278632e218b3u, 0x044128e49bd334f4u), "Z134 f1072 f1072",
	     srt_k_attention_t, ATTENTION),
	CASE(ATTENTION_BACKWARD_Q,
	     ALL(0x6665025dd87fd4cdu, 0xf522161dcd7fad6au, 0x97d076e1aef9704cu),
	     "z3216 f1072 f3216 f3200@2016 f3184@2032 P268@3000 F134@4000 - -", srt_k_attention_t,
	     ATTENTION),
	CASE(ATTENTION_BACKWARD_Q,
	     ALL(0x1d4eaa9a2d44cd5eu, 0xabd124f3f0a05cfau, 0x24c8d57c7ad96514u),
	     "f139 f105 f105 f189 f313 P70 F35 i7 c63", srt_k_attention_t, ATTENTION_MASKED),
	CASE(ATTENTION_BACKWARD_KV,
	     ALL(0x2e4df9e5dc1b07bfu, 0xf27e633b28e194d6u, 0x16c8bb3da5ff23a7u),
	     "z3200 z3184 f1072@1000 f3216@2000 f3200@2016 f3184@2032 P268@3000 F134@4000 - -",
	     srt_k_attention_t, ATTENTION),
	CASE(ATTENTION_BACKWARD_KV,
	     ALL(0xa4d3782e9f36fec5u, 0x9bb50aa25a7d5147u, 0xeb51355c79801e2bu),
	     "f189 f313 f105 f105 f189 f313 P70 F35 i7 c63", srt_k_attention_t, ATTENTION_MASKED),
	CASE(COPY_STRIDED, F32(0x5d561d6d5fd93028u), "i385 i210", srt_k_strided_t,
	     .size = { 1, 2, 3, 5, 7 }, .stride_y = { 0, 191, 64, 11, 1 },
	     .stride_x = { 0, 105, 7, 21, 1 }, .tile_rows = 2, .tile_columns = 4, .nbytes = 4),
	CASE(COPY_STRIDED, F32(0xb5d95833ef6629bau), "i36 i36", srt_k_strided_t,
	     .size = { 1, 1, 1, 8, 9 }, .stride_y = { 0, 0, 0, 9, 1 },
	     .stride_x = { 0, 0, 0, 1, 8 }, .tile_rows = 64, .tile_columns = 64, .nbytes = 2),
	CASE(NORMAL, ALL(0x3d414711ce2b9207u, 0xd1e896bc16313a4cu, 0xd9a3b364391fe390u), "z131",
	     srt_k_normal_t, .seed = 0x123456789abcdefu, .name = 0xfedcba987654321u, .first = 3,
	     .nelem = 131, .mean = 0.5f, .std = 0.02f),
	CASE(DROPOUT, ALL(0x9a3524213b502cedu, 0x133c64dc8fe8fec8u, 0x79ac820e73fba29du),
	     "z131 x131", srt_k_dropout_t, .seed = 0x123456789abcdefu, .name = 0xfedcba987654321u,
	     .first = 3, .nelem = 131, .rate = 0.3f, .scale = 1.0f / 0.7f),
	CASE(ABSMAX, ALL(0x856645ab66a804f7u, 0x8563bdab66a3b7dfu, 0x8563bdab66a3b7dfu), "Z1 f131",
	     srt_k_bins_t, .nelem = 131),
	CASE(BIN_SUM, ALL(0x6ec9e58cc1b0a1d7u, 0xc7c79b85545d6ed1u, 0x08eec52772292ebdu),
	     "d2 M1 f131", srt_k_bins_t, .nelem = 131, .total_nelem = 131, .power = 3),
	CASE(BIN_SUM, ALL(0x3b74042744e70e72u, 0xa721ac8769a0f433u, 0xb95fb11e6585f570u),
	     "d2 M1 f131", srt_k_bins_t, .nelem = 131, .total_nelem = 1000, .power = 2),
	CASE(BIN_TOTAL, F32(0x8f906db90feda6efu), "Z1 b6 M1", srt_k_bins_t, .nelem = 3, .power = 3,
	     .flag = 1),
	CASE(UNSCALE, ALL(0xf71124206ab43158u, 0x4671f157c09837a4u, 0x6e98e10c4f0709b5u),
	     "x131 - Z1", srt_k_elem_t, .nelem = 131, .value = 0.1f),
	CASE(UNSCALE, ALL(0xc5f6e7ac778cc31fu, 0x9a3451853939ee57u, 0xe28584328a792108u),
	     "x131 t1 -", srt_k_elem_t, .nelem = 131),
	CASE(SCALE_LOSS, ALL(0x9a0ebef97d972fdbu, 0x3cfb6bf30446b781u, 0x623e8047f532ceb1u),
	     "z131 x131 -", srt_k_scale_loss_t, .nelem = 131, .scale = 1000.0f),
	CASE(COO_SORT, F32(0xb23bb4f6024b71b1u), "k131 i131 i262", srt_k_coo_t, .nnz = 131,
	     .shape = { 9, 7 }, .ndim = 2),
	CASE(COO_MERGE, F32(0xe3d230aaa3964b06u), "k131 i131 k131 i131", srt_k_coo_t, .nnz = 131,
	     .width = 64),
	CASE(COO_COUNT, F32(0xaf63a04c86018698u), "i1 k131", srt_k_coo_t, .nnz = 131),
	CASE(COO_HEADS, F32(0x2599d81362692127u), "i131 i262 i1 k131 q1 i131 i262", srt_k_coo_t,
	     .nnz = 131, .shape = { 9, 7 }, .ndim = 2),
	CASE(COO_SUM, ALL(0x3e8ed6b5992b3e96u, 0x9104df53cfda646du, 0x74aa6c25abe27681u),
	     "z393 f393 i131 n131 q1", srt_k_coo_t, .nnz = 131, .block = 3),
	CASE(STEP_ADVANCE, F32(0x5166cd39f2b43440u), "s1 u3 p1", srt_k_step_t, .nparams = 3,
	     .beta1_hi = 0.9f, .beta1_lo = -2.3841857e-8f, .beta2_hi = 0.999f,
	     .beta2_lo = -1.2874603e-8f, .max_norm = 0.1f),
	CASE(SGD, ALL(0x4653e29e965b46bcu, 0x3e3cec6e039dc8a1u, 0x7d5389b1b7c8b550u),
	     "f131 f131 f131 s1 u3 g2 h2", srt_k_sgd_t, .nelem = 131, .nsegments = 2,
	     .momentum = 0.9f, .undampened = 0.5f, .nesterov = 1),
	CASE(ADAM, ALL(0xd5bb5d96df9a43b3u, 0x64ba0cc32c14979du, 0xae49fd18a66587f5u),
	     "f131 f131 f131 p131 s1 u3 g2 h2 -", srt_k_adam_t, .nelem = 131, .nsegments = 2,
	     .beta2 = 0.999f, .weight1 = 0.1f, .weight2 = 0.001f, .eps = 1e-8f, .decoupled = 1),
	CASE(ADAM, ALL(0x41eed57f433efd63u, 0x1745b3ec56772951u, 0x09e39988aea4ce95u),
	     "f131 f131 f131 p131 s1 u3 g2 h2 p131", srt_k_adam_t, .nelem = 131, .nsegments = 2,
	     .beta2 = 0.999f, .weight1 = 0.1f, .weight2 = 0.001f, .eps = 1e-8f, .maximize = 1),
	CASE(SGD_MASTER, ALL(0xa0b9d07713e7f43eu, 0x775a3a626d1f4039u, 0xdb97845a51567c87u),
	     "F131 f131 F131 s1 u3 g2 h2 z131", srt_k_sgd_t, .nelem = 131, .nsegments = 2,
	     .momentum = 0.9f, .undampened = 0.5f, .nesterov = 1),
	CASE(ADAM_MASTER, ALL(0x8b9b45ec28f4742du, 0xc0aa19f0470b2dadu, 0x74d40f17ae1313b5u),
	     "F131 F131 F131 P131 s1 u3 g2 h2 P131 z131", srt_k_adam_t, .nelem = 131,
	     .nsegments = 2, .beta2 = 0.999f, .weight1 = 0.1f, .weight2 = 0.001f, .eps = 1e-8f,
	     .decoupled = 1, .grad_is_f32 = 1),
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

/* Letters whose capital is the same in floats. */
static int is_number(char kind)
{
	return strchr("fxpmz", kind | 0x20) != NULL;
}

/* Number i of a place of numbers. */
static float sample_number(char kind, uint32_t first, uint32_t i)
{
	float v = sample_float(first + i);

	switch (kind | 0x20) {
	case 'x':
		return sample_special(i);
	case 'p':
		return v < 0.0f ? 0.5f - v : 0.5f + v;
	case 'm':
		return 4.0f;
	case 'z':
		return 0.0f;
	default:
		return v;
	}
}

/* Fills a place of numbers and returns their size. */
static size_t fill_numbers(char kind, srt_dtype_t dtype, size_t n, uint32_t first,
			   unsigned char *to)
{
	for (uint32_t i = 0; i < n; i++) {
		float v = sample_number(kind, first, i);
		uint16_t half = dtype == SRT_F16 ? k_to_f16(v) : k_to_bf16(v);

		if (dtype == SRT_F32)
			memcpy(to + i * sizeof(v), &v, sizeof(v));
		else
			memcpy(to + i * sizeof(half), &half, sizeof(half));
	}
	return dtype == SRT_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Fills a place with n elements of a kind, numbers from sample `first` on and of the dtype. Returns
 * the size of an element. */
static size_t fill_place(char kind, srt_dtype_t dtype, size_t n, uint32_t first, unsigned char *to)
{
	if (is_number(kind))
		return fill_numbers(kind, dtype, n, first, to);
	switch (kind) {
	case 'e':
		return fill_numbers('x', SRT_F16, n, first, to);
	case 'y':
		return fill_numbers('x', SRT_BF16, n, first, to);
	case 's':
		memcpy(to, &sample_state, n * sizeof(sample_state));
		return sizeof(sample_state);
	case 't': {
		srt_step_state_t scaled = sample_state;

		scaled.inv_scale = 1.0f / 3.0f;
		memcpy(to, &scaled, sizeof(scaled));
		return sizeof(scaled);
	}
	case 'u':
		memcpy(to, sample_params, n * sizeof(sample_params[0]));
		return sizeof(sample_params[0]);
	case 'g':
		memcpy(to, sample_segments, n * sizeof(sample_segments[0]));
		return sizeof(sample_segments[0]);
	case 'h':
		memcpy(to, sample_groups, n * sizeof(sample_groups[0]));
		return sizeof(sample_groups[0]);
	case 'c':
		for (size_t i = 0; i < n; i++)
			to[i] = (unsigned char)(i * 5 % 3);
		return 1;
	case 'b':
	case 'd':
		for (size_t i = 0; i < n; i++)
			memcpy(to + i * sizeof(double),
			       &(double){ kind == 'b' ? (double)(i + 1) * 0.75 : 0.0 },
			       sizeof(double));
		return sizeof(double);
	case 'k':
		for (size_t i = 0; i < n; i++)
			memcpy(to + i * sizeof(int64_t), &(int64_t){ (int64_t)(i % 64 / 3) },
			       sizeof(int64_t));
		return sizeof(int64_t);
	default:
		for (size_t i = 0; i < n; i++) {
			size_t v = kind == 'q' ? 45 : kind == 'n' ? 2 * i + 4 : i * 5 % 7;

			memcpy(to + i * sizeof(int32_t), &(int32_t){ (int32_t)v }, sizeof(int32_t));
		}
		return sizeof(int32_t);
	}
}

/* FNV-1a over words of 32 bits, or of 16. In places of floats every NaN counts as the canonical
 * one, which 16-bit places must hold. */
static uint64_t digest_place(uint64_t h, const unsigned char *p, size_t nbytes, size_t word,
			     int floats)
{
	for (size_t i = 0; i < nbytes; i += word) {
		uint32_t u = 0;
		uint16_t half;

		memcpy(&u, p + i, sizeof(u));
		if (floats && (u & 0x7fffffffu) > 0x7f800000u)
			u = 0x7fc00000u;
		memcpy(&half, p + i, sizeof(half));
		h = (h ^ (word == sizeof(half) ? half : u)) * 0x100000001b3u;
	}
	return h;
}

static srt_status_t run_case(const selftest_case_t *c, srt_dtype_t dtype, unsigned char *memory,
			     srt_selftest_run_fn *run, void *context, uint64_t *digest)
{
	const srt_kernel_info_t *info = srt_kernel_info(c->kernel);
	srt_launch_t launch = { .kernel = (uint16_t)c->kernel,
				.dtype = (uint16_t)dtype,
				.nplaces = info->nplaces,
				.args_nbytes = info->args_nbytes,
				.ngroups = srt_kernel_grid(c->kernel, c->args),
				.args = c->args };
	unsigned char *host[SRT_LAUNCH_MAX_PLACES] = { 0 };
	size_t nbytes[SRT_LAUNCH_MAX_PLACES] = { 0 }, word[SRT_LAUNCH_MAX_PLACES];
	char kinds[SRT_LAUNCH_MAX_PLACES];
	const char *spec = c->places;
	srt_status_t status;

	for (int i = 0; i < info->nplaces; i++) {
		char *end = NULL;

		kinds[i] = *spec++;
		if (kinds[i] != '-') {
			size_t n = strtoul(spec, &end, 10), size;
			srt_dtype_t own = kinds[i] < 'a' ? SRT_F32 : dtype;
			uint32_t first = 1000 * (uint32_t)i;

			if (*end == '@')
				first = (uint32_t)strtoul(end + 1, &end, 10);

			host[i] = memory + (size_t)i * MAX_PLACE_NBYTES;
			size = fill_place(kinds[i], own, n, first, host[i]);
			nbytes[i] = n * size;
			word[i] = size == sizeof(uint16_t) ? size : sizeof(uint32_t);
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
			*digest = digest_place(*digest, host[i], nbytes[i], word[i],
					       is_number(kinds[i]));
	return SRT_OK;
}

int srt_kernels_selftest_count(void)
{
	return (int)(sizeof(cases) / sizeof(cases[0]));
}

srt_status_t srt_kernels_selftest_case(int number, srt_dtype_t dtype, srt_selftest_run_fn *run,
				       void *context, srt_kernel_id_t *kernel, uint64_t *digest,
				       uint64_t *expected)
{
	unsigned char *memory;
	srt_status_t status;

	*kernel = cases[number].kernel;
	if (!srt_kernel_has(*kernel, dtype))
		return SRT_ERR_UNSUPPORTED;
	*expected = cases[number].digests[dtype];
	memory = malloc((size_t)SRT_LAUNCH_MAX_PLACES * MAX_PLACE_NBYTES);
	if (!memory)
		return SRT_ERR_OUT_OF_MEMORY;
	status = run_case(&cases[number], dtype, memory, run, context, digest);
	free(memory);
	return status;
}

/* All cases of the dtype, or those of one kernel. */
static srt_status_t run_cases(int only, srt_dtype_t dtype, srt_selftest_run_fn *run, void *context,
			      const char **kernel)
{
	*kernel = NULL;
	for (int i = 0; i < srt_kernels_selftest_count(); i++) {
		srt_kernel_id_t id = cases[i].kernel;
		uint64_t digest, expected;
		srt_status_t status;

		if ((only >= 0 && only != (int)id) || !srt_kernel_has(id, dtype))
			continue;
		status = srt_kernels_selftest_case(i, dtype, run, context, &id, &digest, &expected);
		if (status == SRT_OK && digest != expected)
			status = SRT_ERR_DEVICE;
		if (status != SRT_OK) {
			*kernel = srt_kernel_info(id)->name;
			return status;
		}
	}
	return SRT_OK;
}

srt_status_t srt_kernels_selftest(srt_dtype_t dtype, srt_selftest_run_fn *run, void *context,
				  const char **kernel)
{
	return run_cases(-1, dtype, run, context, kernel);
}

srt_status_t srt_kernels_selftest_one(srt_kernel_id_t which, srt_dtype_t dtype,
				      srt_selftest_run_fn *run, void *context, const char **kernel)
{
	return run_cases((int)which, dtype, run, context, kernel);
}
