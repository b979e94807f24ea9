/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded tensors on any number of ranks: chunks by PyTorch's rule, random shardings (more ranks
 * than rows, empty shards, several or no shards on a rank, shards on the host), values, scatter,
 * gather, copy and resharding, bit for bit; what is refused, on all ranks. Run by
 * test_sharded_tensor.sh.
 */
#include <math.h>

#include <shardrt/ops.h>

#include "base/base.h"
#include "tests/harness/random.h"
#include "tests/tensors/tensor_case.h"

static tensor_case_t c;

/* ---- random shardings -------------------------------------------------------------------- */

/* The tensor, gathered to a rank, has these bytes. */
static void check_gathered(const srt_sharded_tensor_t *tensor, int root, const void *whole,
			   size_t nbytes, srt_dtype_t dtype)
{
	unsigned char *zeros = calloc(nbytes + 1, 1), *got = malloc(nbytes + 1);
	srt_buffer_t *buffer = tensor_upload(&c, zeros, c.rank == root ? nbytes : 0);

	CHECK_OK(srt_sharded_tensor_gather(tensor, root, srt_view(buffer, 0, dtype), c.stream));
	if (c.rank == root) {
		CHECK_OK(srt_buffer_copy_to_host(got, buffer, 0, nbytes, c.stream));
		CHECK_MSG(memcmp(got, whole, nbytes) == 0, "gathered to rank %d", root);
	}
	srt_buffer_destroy(buffer);
	free(zeros);
	free(got);
}

/* All shards together have each element once. */
static void check_metadata(const srt_sharded_tensor_t *tensor, const tensor_sharding_t *s, int ndim,
			   const int64_t *shape)
{
	const size_t n = srt_sharded_tensor_shard_count(tensor);
	srt_shard_t shards[TENSOR_MAX_SHARDS], shard;
	size_t nlocal = 0;

	CHECK_INT(n, s->sharding.kind == SRT_SHARDING_CHUNK ? s->sharding.nlocations :
							      s->sharding.nshards);
	CHECK_OK(srt_sharding_resolve(&s->sharding, c.world, ndim, shape, shards, n));
	for (size_t i = 0; i < n; i++) {
		CHECK_OK(srt_sharded_tensor_shard_at(tensor, i, &shard));
		CHECK(memcmp(&shard, &shards[i], sizeof(shard)) == 0);
		if (shard.location.rank == c.rank)
			CHECK_INT(srt_sharded_tensor_local_index(tensor, nlocal++), i);
	}
	CHECK_INT(srt_sharded_tensor_local_count(tensor), nlocal);
	CHECK_INT(srt_sharded_tensor_local_index(tensor, nlocal), n);
}

static void test_random(uint64_t seed)
{
	static const srt_dtype_t dtypes[] = {
		SRT_F32, SRT_F16, SRT_BF16, SRT_I32, SRT_I64, SRT_U8
	};
	tensor_sharding_t first, second;
	int64_t shape[SRT_MAX_DIMS];
	srt_sharded_tensor_t *a, *b, *copy;
	srt_dtype_t dtype;
	unsigned char *whole, *other;
	srt_buffer_t *buffer;
	size_t nbytes;
	int ndim, root;

	random_state = seed;
	dtype = dtypes[random32() % SRT_ARRAY_LEN(dtypes)];
	ndim = 1 + (int)(random32() % SRT_MAX_DIMS);
	nbytes = srt_dtype_bits(dtype) / 8;
	for (int d = 0; d < ndim; d++) {
		shape[d] = (int64_t)(random32() % (ndim > 3 ? 4 : 9));
		nbytes *= (size_t)shape[d];
	}
	tensor_random_sharding(&first, &c, ndim, shape);
	tensor_random_sharding(&second, &c, ndim, shape);
	root = (int)(random32() % (unsigned)c.world);
	whole = tensor_random_bytes(nbytes);
	other = tensor_random_bytes(nbytes);
	buffer = tensor_upload(&c, whole, c.rank == root ? nbytes : 0);

	a = tensor_create(&c, "a", dtype, ndim, shape, &first.sharding);
	check_metadata(a, &first, ndim, shape);
	CHECK_OK(srt_sharded_tensor_scatter(a, root, srt_view(buffer, 0, dtype), c.stream));
	tensor_check(&c, a, whole, "scattered");
	CHECK_OK(srt_sharded_tensor_reshard(a, &second.sharding, &b, c.stream));
	check_metadata(b, &second, ndim, shape);
	tensor_check(&c, b, whole, "resharded");
	check_gathered(b, c.world - 1 - root, whole, nbytes, dtype);
	tensor_set(&c, b, other);
	copy = tensor_create(&c, "copy", dtype, ndim, shape, &second.sharding);
	CHECK_OK(srt_sharded_tensor_copy(copy, b, c.stream));
	tensor_check(&c, copy, other, "copied");
	CHECK_OK(srt_sharded_tensor_copy(a, copy, c.stream));
	tensor_check(&c, a, other, "copied to another sharding");
	tensor_check(&c, b, other, "set");

	srt_sharded_tensor_destroy(a);
	srt_sharded_tensor_destroy(b);
	srt_sharded_tensor_destroy(copy);
	srt_buffer_destroy(buffer);
	free(whole);
	free(other);
}

/* ---- values ------------------------------------------------------------------------------ */

#define RANDOM_SEED UINT64_C(0x123456789abcdef0)

/* What one launch over the whole tensor gives. */
static void whole_values(int kind, srt_dtype_t dtype, int64_t nelem, void *whole)
{
	const size_t nbytes = (size_t)nelem * srt_dtype_bits(dtype) / 8;
	srt_buffer_t *buffer = tensor_upload(&c, whole, nbytes);
	const srt_view_t y = srt_view(buffer, 0, dtype);

	CHECK_OK(kind == 0 ? srt_op_uniform(&(srt_uniform_t){ .size = sizeof(srt_uniform_t),
							      .y = y,
							      .seed = RANDOM_SEED,
							      .name = "w",
							      .nelem = nelem,
							      .low = -2.0f,
							      .high = 3.0f },
					    c.stream) :
		 kind == 1 ? srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
							    .y = y,
							    .seed = RANDOM_SEED,
							    .name = "w",
							    .nelem = nelem,
							    .mean = 1.0f,
							    .std = 0.5f },
					   c.stream) :
			     srt_op_fill(y, 0.75f, nelem, c.stream));
	CHECK_OK(srt_buffer_copy_to_host(whole, buffer, 0, nbytes, c.stream));
	srt_buffer_destroy(buffer);
}

/* Random numbers do not depend on the sharding. */
static void test_values(uint64_t seed)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };
	const int64_t shape[] = { 3, 5, 2, 4 };
	tensor_sharding_t s;
	unsigned char whole[3 * 5 * 2 * 4 * 4] = { 0 };

	random_state = seed;
	for (size_t k = 0; k < SRT_ARRAY_LEN(dtypes); k++) {
		srt_sharded_tensor_t *w;

		tensor_random_sharding(&s, &c, 4, shape);
		w = tensor_create(&c, "w", dtypes[k], 4, shape, &s.sharding);
		CHECK_OK(srt_sharded_tensor_uniform(w, RANDOM_SEED, -2.0f, 3.0f, c.stream));
		whole_values(0, dtypes[k], 120, whole);
		tensor_check(&c, w, whole, "uniform");
		CHECK_OK(srt_sharded_tensor_normal(w, RANDOM_SEED, 1.0f, 0.5f, c.stream));
		whole_values(1, dtypes[k], 120, whole);
		tensor_check(&c, w, whole, "normal");
		CHECK_OK(srt_sharded_tensor_fill(w, 0.75f, c.stream));
		whole_values(2, dtypes[k], 120, whole);
		tensor_check(&c, w, whole, "filled");
		srt_sharded_tensor_destroy(w);
	}
}

/* ---- groups ------------------------------------------------------------------------------ */

/* A communicator of some ranks: the others are not needed. */
static void test_group(void)
{
	const int64_t shape[] = { 7, 3 };
	float whole[21];
	tensor_sharding_t s;
	srt_comm_t *group;
	srt_sharded_tensor_t *t;
	int ranks[64];

	for (int r = 1; r < c.world; r++)
		ranks[r - 1] = r;
	for (int i = 0; i < 21; i++)
		whole[i] = (float)i - 9.5f;
	if (c.world < 2)
		return;
	CHECK_OK_OR_DIE(srt_comm_create_group(srt_context_world(c.context), ranks, c.world - 1,
					      "all but rank 0", &group));
	if (group == NULL)
		return;
	tensor_chunks(&s, 0, c.world - 1);
	for (int i = 0; i < c.world - 1; i++)
		s.locations[i].rank = c.world - 2 - i;
	CHECK_OK_OR_DIE(srt_sharded_tensor_create(c.context, group, "in a group", SRT_F32, 2, shape,
						  &s.sharding, &t));
	c.rank--;
	tensor_set(&c, t, whole);
	tensor_check(&c, t, whole, "in a group");
	check_gathered(t, c.world - 2, whole, sizeof(whole), SRT_F32);
	c.rank++;
	srt_sharded_tensor_destroy(t);
	srt_comm_destroy(group);
}

/* ---- PyTorch's test ---------------------------------------------------------------------- */

/* shard_parameter() from a source rank, by rows and by columns. */
static void test_shard_parameter(void)
{
	const int64_t shape[] = { 12, 17 };
	const int root = c.world - 1;
	float whole[12 * 17];
	tensor_sharding_t s;
	srt_buffer_t *buffer;

	for (int i = 0; i < 12 * 17; i++)
		whole[i] = sinf((float)i);
	buffer = tensor_upload(&c, whole, c.rank == root ? sizeof(whole) : 0);
	for (int dim = 0; dim < 2; dim++) {
		srt_sharded_tensor_t *w;

		tensor_chunks(&s, dim, c.world);
		CHECK_OK_OR_DIE(srt_sharded_tensor_create_from(c.context, NULL, "linear1.weight", 2,
							       shape, &s.sharding, root,
							       srt_view(buffer, 0, SRT_F32), &w,
							       c.stream));
		tensor_check(&c, w, whole, "sharded from a rank");
		check_gathered(w, 0, whole, sizeof(whole), SRT_F32);
		srt_sharded_tensor_destroy(w);
	}
	srt_buffer_destroy(buffer);
}

/* Two weights of a module by a plan; its biases stay. */
static void test_shard_module(void)
{
	const int64_t shape1[] = { 12, 17 }, shape2[] = { 3, 12 }, bias[] = { 12 };
	const bool is_root = c.rank == 0;
	float whole[12 * 17];
	tensor_sharding_t rows, columns;
	srt_module_t *model, *linear1, *linear2;
	srt_buffer_t *buffer;

	for (int i = 0; i < 12 * 17; i++)
		whole[i] = (float)i * 0.5f;
	tensor_chunks(&rows, 0, c.world);
	tensor_chunks(&columns, 1, c.world);
	buffer = tensor_upload(&c, whole, is_root ? sizeof(whole) : 0);
	CHECK_OK_OR_DIE(srt_module_create(NULL, NULL, "MyLinear", &model));
	CHECK_OK_OR_DIE(srt_module_create(model, "linear1", "Linear", &linear1));
	CHECK_OK_OR_DIE(srt_module_create(model, "linear2", "Linear", &linear2));
	CHECK_OK(srt_module_add_param(linear1, "weight", SRT_F32, 2, shape1, NULL));
	CHECK_OK(srt_module_add_param(linear1, "bias", SRT_F32, 1, bias, NULL));
	CHECK_OK(srt_module_add_param(linear2, "weight", SRT_F32, 2, shape2, NULL));

	srt_shard_plan_t plan[] = {
		{ sizeof(plan[0]), "linear1.weight", &rows.sharding, srt_view(buffer, 0, SRT_F32) },
		{ sizeof(plan[0]), "linear2.weight", &columns.sharding,
		  srt_view(buffer, 0, SRT_F32) },
	};
	srt_sharded_tensor_t *tensors[2];

	CHECK_OK_OR_DIE(
		srt_shard_plan_apply(c.context, NULL, model, plan, 2, 0, tensors, c.stream));
	for (int i = 0; i < 2; i++) {
		CHECK_STR(srt_sharded_tensor_name(tensors[i]), plan[i].param);
		tensor_check(&c, tensors[i], whole, "sharded by a plan");
		srt_sharded_tensor_destroy(tensors[i]);
		tensors[i] = NULL;
	}
	if (c.world > 1) {
		srt_shard_plan_t turned[] = { plan[is_root], plan[!is_root] };

		REFUSED(srt_shard_plan_apply(c.context, NULL, model, turned, 2, 0, tensors,
					     c.stream),
			SRT_ERR_MISMATCH, "the parameters of the plan differ: rank 0 has 2");
		REFUSED(srt_shard_plan_apply(c.context, NULL, model, plan, is_root ? 2 : 1, 0,
					     tensors, c.stream),
			SRT_ERR_MISMATCH, "the parameters of the plan differ: rank 0 has 2");
		CHECK(tensors[0] == NULL && tensors[1] == NULL);
	}
	plan[1].whole.dtype = is_root ? SRT_F16 : SRT_F32;
	REFUSED(srt_shard_plan_apply(c.context, NULL, model, plan, 2, 0, tensors, c.stream),
		SRT_ERR_INVALID_ARGUMENT, "'linear2.weight' are f16, must be f32");
	plan[1].whole.dtype = SRT_F32;
	plan[1].whole.offset = is_root ? sizeof(whole) : 0;
	REFUSED(srt_shard_plan_apply(c.context, NULL, model, plan, 2, 0, tensors, c.stream),
		SRT_ERR_INVALID_ARGUMENT, "the whole tensor");
	plan[1].param = is_root ? "linear2.bias" : plan[1].param;
	REFUSED(srt_shard_plan_apply(c.context, NULL, model, plan, 2, 0, tensors, c.stream),
		SRT_ERR_NOT_FOUND, "the module 'MyLinear' has no parameter 'linear2.bias'");
	CHECK(tensors[0] == NULL && tensors[1] == NULL);
	srt_module_destroy(model);
	srt_buffer_destroy(buffer);
}

/* ---- errors ------------------------------------------------------------------------------ */

static srt_status_t try_create(const srt_sharding_t *sharding, int ndim)
{
	const int64_t shape[SRT_MAX_DIMS + 1] = { 6, 4, 1, 1, 1, 1 };
	srt_sharded_tensor_t *t = NULL;
	const srt_status_t status =
		srt_sharded_tensor_create(c.context, NULL, "w", SRT_F32, ndim, shape, sharding, &t);

	CHECK((t != NULL) == (status == SRT_OK));
	srt_sharded_tensor_destroy(t);
	return status;
}

/* What every rank's own checks refuse; bad on the last rank alone, or on all of them. */
static void test_refused(bool alone)
{
	static const srt_shard_location_t here = { 0, 0 }, far = { 99, 0 }, before = { -1, 0 },
					  odd = { 0, 2 };
	static const srt_shard_t whole = { .size = { 6, 4 } },
				 beyond = { .offset = { 4 }, .size = { 3, 4 } },
				 negative = { .offset = { 0, -1 }, .size = { 6, 4 } };
	static const srt_shard_t overlap[] = { { .size = { 4, 4 } },
					       { .offset = { 3 }, .size = { 3, 4 } } };
	static const srt_shard_t hole[] = { { .size = { 3, 4 } },
					    { .offset = { 4 }, .size = { 2, 4 } } };
	static const struct {
		srt_sharding_t sharding; /* but for the size */
		const char *words;
	} cases[] = {
		{ { .dim = 2, .locations = &here, .nlocations = 1 },
		  "cuts dimension 2 of a tensor" },
		{ { .dim = -3, .locations = &here, .nlocations = 1 }, "must be -2 to 1" },
		{ { .locations = &here }, "the sharding has no locations" },
		{ { .nlocations = 1 }, "the sharding has no locations" },
		{ { .locations = &here, .nlocations = (size_t)INT32_MAX + 1 },
		  "must have at most" },
		{ { .kind = SRT_SHARDING_BOXES, .shards = &whole, .nshards = SIZE_MAX },
		  "must have at most" },
		{ { .locations = &far, .nlocations = 1 }, "shard 0 is rank 99" },
		{ { .locations = &before, .nlocations = 1 }, "shard 0 is rank -1" },
		{ { .locations = &odd, .nlocations = 1 },
		  "on_host of the location of shard 0 is 2" },
		{ { .kind = (srt_sharding_kind_t)2, .shards = &whole, .nshards = 1 },
		  "2 is not a kind of sharding" },
		{ { .kind = SRT_SHARDING_BOXES, .shards = &whole }, "the sharding has no shards" },
		{ { .kind = SRT_SHARDING_BOXES, .shards = &beyond, .nshards = 1 },
		  "3 indices from 4 on of dimension 0, which has 6" },
		{ { .kind = SRT_SHARDING_BOXES, .shards = &negative, .nshards = 1 },
		  "4 indices from -1 on of dimension 1" },
		{ { .kind = SRT_SHARDING_BOXES, .shards = overlap, .nshards = 2 },
		  "shards 0 and 1 of the sharding overlap" },
		{ { .kind = SRT_SHARDING_BOXES, .shards = hole, .nshards = 2 },
		  "20 elements together, the tensor has 24" },
	};
	const srt_sharding_t good = { .size = sizeof(good), .locations = &here, .nlocations = 1 };
	const bool bad_here = !alone || c.rank == c.world - 1;

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		srt_sharding_t sharding = cases[i].sharding;

		sharding.size = sizeof(sharding);
		REFUSED(try_create(bad_here ? &sharding : &good, 2), SRT_ERR_INVALID_ARGUMENT,
			cases[i].words);
	}
	REFUSED(try_create(&good, bad_here ? 0 : 2), SRT_ERR_INVALID_ARGUMENT,
		"has 0 dimensions, must have 1 to");
	REFUSED(try_create(&good, bad_here ? SRT_MAX_DIMS + 1 : 2), SRT_ERR_INVALID_ARGUMENT,
		"dimensions, must have 1 to");
}

/* The last rank describes another tensor. */
static void test_mismatch(void)
{
	const int64_t shape[] = { 6, 4 }, other[] = { 6, 5 };
	const bool last = c.rank == c.world - 1;
	srt_sharded_tensor_t *t = NULL, *good;
	tensor_sharding_t a, b, turned;
	srt_buffer_t *buffer, *enough;

	tensor_chunks(&a, 0, c.world);
	tensor_chunks(&b, 1, c.world);
	tensor_chunks(&turned, 0, c.world);
	good = tensor_create(&c, "w", SRT_F32, 2, shape, &a.sharding);
	buffer = tensor_upload(&c, other, 0);
	if (c.world > 1) {
		turned.locations[0].rank = 1;
		turned.locations[1].rank = 0;
		REFUSED(srt_sharded_tensor_create(c.context, NULL, last ? "v" : "w", SRT_F32, 2,
						  shape, &a.sharding, &t),
			SRT_ERR_MISMATCH, "rank 0 'w', rank");
		REFUSED(srt_sharded_tensor_create(c.context, NULL, "w", last ? SRT_F16 : SRT_F32, 2,
						  shape, &a.sharding, &t),
			SRT_ERR_MISMATCH, "'w' is f32 (6,4) on rank 0, f16 (6,4) on rank");
		REFUSED(srt_sharded_tensor_create(c.context, NULL, "w", SRT_F32, 2,
						  last ? other : shape, &a.sharding, &t),
			SRT_ERR_MISMATCH, "f32 (6,5) on rank");
		REFUSED(srt_sharded_tensor_create(c.context, NULL, "w", SRT_F32, 2, shape,
						  last ? &b.sharding : &a.sharding, &t),
			SRT_ERR_MISMATCH,
			"chunks of dimension 0 on rank 0, in chunks of dimension "
			"1");
		REFUSED(srt_sharded_tensor_create(c.context, NULL, "w", SRT_F32, 2, shape,
						  last ? &turned.sharding : &a.sharding, &t),
			SRT_ERR_MISMATCH, "the shards or their locations differ");
		REFUSED(srt_sharded_tensor_scatter(good, last ? -1 : c.world - 1, (srt_view_t){ 0 },
						   c.stream),
			SRT_ERR_INVALID_ARGUMENT, "the root -1 of sharded tensor 'w'");
		enough = tensor_upload(&c, (float[24]){ 0 }, 24 * sizeof(float));
		REFUSED(srt_sharded_tensor_scatter(good, last ? 1 : 0, srt_view(enough, 0, SRT_F32),
						   c.stream),
			SRT_ERR_MISMATCH, "the messages differ");
		srt_buffer_destroy(enough);
	}
	REFUSED(srt_sharded_tensor_scatter(good, 0, srt_view(buffer, 0, SRT_F32), c.stream),
		SRT_ERR_INVALID_ARGUMENT, "the whole tensor");
	REFUSED(srt_sharded_tensor_gather(good, c.world, srt_view(buffer, 0, SRT_F32), c.stream),
		SRT_ERR_INVALID_ARGUMENT, "is not a rank of the communicator");
	CHECK(t == NULL);
	tensor_check(&c, good, (float[24]){ 0 }, "after refused calls");
	srt_buffer_destroy(buffer);
	srt_sharded_tensor_destroy(good);
}

static void test_local_errors(void)
{
	const int64_t shape[] = { 6, 4 }, other[] = { 4, 6 };
	tensor_sharding_t s;
	srt_sharded_tensor_t *t, *turned, *ints, *empty;
	srt_shard_t shard;
	float x[24];

	tensor_chunks(&s, 0, c.world);
	REFUSED(srt_sharded_tensor_create(c.context, NULL, "large", SRT_F32, 2,
					  (const int64_t[]){ 0, INT64_MAX / 16 + 1 }, &s.sharding,
					  &t),
		SRT_ERR_INVALID_ARGUMENT, "'large' is too large");
	t = tensor_create(&c, "w", SRT_F32, 2, shape, &s.sharding);
	turned = tensor_create(&c, "turned", SRT_F32, 2, other, &s.sharding);
	ints = tensor_create(&c, "ints", SRT_I32, 2, shape, &s.sharding);
	empty = tensor_create(&c, "empty", SRT_F32, 2, (const int64_t[]){ 0, 4 }, &s.sharding);
	REFUSED(srt_sharded_tensor_shard_at(t, (size_t)c.world, &shard), SRT_ERR_INVALID_ARGUMENT,
		"there is no shard");
	REFUSED(srt_sharded_tensor_get(t, 1, x, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"has 1 shards of sharded tensor 'w', there is no shard 1");
	REFUSED(srt_sharded_tensor_set(t, 1, x, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"there is no shard 1");
	CHECK(srt_sharded_tensor_local(t, 1).buffer == NULL);
	CHECK_OK(srt_sharded_tensor_get(empty, 0, NULL, c.stream));
	CHECK_OK(srt_sharded_tensor_set(empty, 0, NULL, c.stream));
	REFUSED(srt_sharded_tensor_copy(turned, t, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"'turned' has another shape or dtype than 'w'");
	REFUSED(srt_sharded_tensor_copy(ints, t, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"another shape or dtype");
	REFUSED(srt_sharded_tensor_fill(ints, 1.0f, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"'ints' is i32, must be f32");
	REFUSED(srt_sharded_tensor_uniform(t, 1, 2.0f, 1.0f, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"the range is from 2 to 1");
	REFUSED(srt_sharded_tensor_normal(t, 1, 0.0f, -1.0f, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"std is -1");
	REFUSED(srt_sharded_tensor_normal(t, 1, NAN, 1.0f, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"mean is nan");
	srt_sharded_tensor_destroy(t);
	srt_sharded_tensor_destroy(turned);
	srt_sharded_tensor_destroy(ints);
	srt_sharded_tensor_destroy(empty);
}

int main(void)
{
	const uint64_t nseeds = check_is_long() ? 400 : 40;

	tensor_case_open(&c);
	for (uint64_t seed = 1; seed <= nseeds; seed++)
		test_random(seed * 7919);
	for (uint64_t seed = 1; seed <= nseeds / 8; seed++)
		test_values(seed * 104729);
	test_group();
	test_shard_parameter();
	test_shard_module();
	test_refused(false);
	test_refused(true);
	test_mismatch();
	test_local_errors();
	tensor_case_close(&c);
	return check_done();
}
