/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameters of a checkpoint without its optimizer: loaded alone by an engine of another
 * optimizer, and by one that has fewer; their hash, which is that of the engine and of its file.
 * Run by test_checkpoint_sharded.sh.
 *
 *     test_checkpoint_values FOLDER
 */
#include <stdlib.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { NELEM = 5, NPARAMS = 3 };

/* Not in the order of names. */
static const char *const names[NPARAMS] = { "one", "other", "A" };

static srt_context_t *context;
static srt_stream_t *stream;

/* has_buffers: with names between those of the parameters. */
static srt_engine_t *make_engine(srt_optim_kind_t optimizer, int nparams, srt_dtype_t dtype,
				 bool has_buffers)
{
	static const srt_optim_options_t kinds[] = {
		[SRT_OPTIM_SGD] = { .size = sizeof(kinds[0]), .lr = 0.1f, .momentum = 0.9 },
		[SRT_OPTIM_ADAM] = SRT_OPTIM_ADAM_INIT,
		[SRT_OPTIM_ADAMW] = SRT_OPTIM_OPTIONS_INIT,
		[SRT_OPTIM_NONE] = { .size = sizeof(kinds[0]), .kind = SRT_OPTIM_NONE },
	};
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					       .optim = &kinds[optimizer] };
	const int64_t shape[] = { NELEM };
	srt_unit_buffer_t *buffer;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int i = 0; i < nparams; i++)
		CHECK_OK_OR_DIE(srt_param_create(root, names[i], dtype, 1, shape, NULL, &param));
	if (has_buffers) {
		CHECK_OK_OR_DIE(srt_unit_buffer_create(root, "mean", SRT_F32, 1, shape, &buffer));
		CHECK_OK_OR_DIE(srt_unit_buffer_create(root, "p", SRT_I64, 0, NULL, &buffer));
	}
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	return engine;
}

static void set_values(srt_engine_t *engine, float first)
{
	srt_param_t *param;

	for (size_t i = 0; (param = srt_engine_param_at(engine, i)) != NULL; i++)
		CHECK_OK_OR_DIE(srt_param_set(param, SRT_PARAM_VALUE,
					      (const float[NELEM]){ first, 2, 3, 4, (float)i },
					      stream));
}

/* ---- values that the engine does not have ------------------------------------------------- */

static int unused[2]; /* messages of it, others */

static void count_unused(srt_log_level_t level, const char *message, void *arg)
{
	(void)level;
	(void)arg;
	unused[strstr(message, "tensor 'other' is not used by the model") == NULL]++;
}

static void test_unused(const char *folder)
{
	srt_engine_t *both = make_engine(SRT_OPTIM_ADAM, 2, SRT_F32, false);
	srt_engine_t *one = make_engine(SRT_OPTIM_ADAM, 1, SRT_F32, false);

	CHECK_OK_OR_DIE(srt_checkpoint_save(both, folder, NULL, stream));
	srt_log_set(count_unused, SRT_LOG_WARN, NULL);
	CHECK_OK(srt_checkpoint_load(one, folder, NULL, stream));
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	CHECK_INT(unused[0], srt_context_rank(context) == 0);
	CHECK_INT(unused[1], 0);
	srt_engine_destroy(both);
	srt_engine_destroy(one);
}

/* ---- an engine of another optimizer ------------------------------------------------------- */

static void test_values_only(const char *folder)
{
	const srt_checkpoint_options_t values = { .size = sizeof(srt_checkpoint_options_t),
						  .values_only = 1 };
	const srt_checkpoint_entry_t without_size = { .key = "k" };
	const srt_checkpoint_options_t bad = { .size = sizeof(srt_checkpoint_options_t),
					       .entries = &without_size,
					       .nentries = 1 };
	srt_engine_t *from = make_engine(SRT_OPTIM_ADAM, NPARAMS, SRT_F32, true);
	srt_engine_t *to = make_engine(SRT_OPTIM_SGD, NPARAMS, SRT_F32, true);
	srt_step_info_t before = SRT_STEP_INFO_INIT, after = SRT_STEP_INFO_INIT;
	float x[NELEM];
	int32_t steps;

	set_values(from, 7);
	CHECK_STATUS(srt_checkpoint_save(from, folder, &bad, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("srt_checkpoint_entry_t.size is 0");
	CHECK_OK_OR_DIE(srt_checkpoint_save(from, folder, NULL, stream));
	set_values(to, 1);
	for (size_t i = 0; i < NPARAMS; i++) {
		srt_param_t *param = srt_engine_param_at(to, i);

		CHECK_OK_OR_DIE(srt_param_set(param, SRT_PARAM_STATE0,
					      (const float[NELEM]){ 9, 8, 7, 6, 5 }, stream));
		CHECK_OK_OR_DIE(test_set_steps(to, param, 11, stream));
	}
	CHECK_OK(srt_optim_get_step_info(srt_engine_optim(to), 0, &before, stream));
	CHECK_STATUS(srt_checkpoint_load(to, folder, NULL, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is of optimizer adam, but the engine has sgd");
	CHECK_OK(srt_checkpoint_load(to, folder, &values, stream));
	for (size_t i = 0; i < NPARAMS; i++) {
		srt_param_t *param = srt_engine_param_at(to, i);
		const float wanted[] = { 7, 2, 3, 4, (float)i }, state[] = { 9, 8, 7, 6, 5 };

		CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, x, stream));
		CHECK_BITS(x, wanted, NELEM);
		CHECK_OK(srt_param_get(param, SRT_PARAM_STATE0, x, stream));
		CHECK_BITS(x, state, NELEM);
		CHECK_OK(test_get_steps(to, param, &steps, stream));
		CHECK_INT(steps, 11);
	}
	CHECK_OK(srt_optim_get_step_info(srt_engine_optim(to), 0, &after, stream));
	CHECK(memcmp(&before, &after, sizeof(after)) == 0);
	srt_engine_destroy(from);
	srt_engine_destroy(to);
}

/* ---- hashes -------------------------------------------------------------------------------- */

/* Elements with several NaNs, infinity and -0, in the parameter's dtype. */
static void set_special(srt_engine_t *engine, srt_dtype_t dtype)
{
	static const uint32_t wide[NELEM] = { 0x7fc00001, 0xff800001, 0x7f800000, 0x80000000,
					      0x3f800000 };
	static const uint16_t f16[NELEM] = { 0x7e01, 0xfc01, 0x7c00, 0x8000, 0x3c00 };
	static const uint16_t bf16[NELEM] = { 0x7fc1, 0xff81, 0x7f80, 0x8000, 0x3f80 };
	const void *elements = dtype == SRT_F32 ? (const void *)wide :
			       dtype == SRT_F16 ? (const void *)f16 :
						  (const void *)bf16;

	CHECK_OK_OR_DIE(srt_param_set(srt_engine_param_find(engine, "other"), SRT_PARAM_VALUE,
				      elements, stream));
}

static void check_hash(const char *path, const unsigned char wanted[16])
{
	unsigned char params[16], all[16], again[16];
	srt_file_t *file;

	CHECK_OK_OR_DIE(srt_file_open(path, &file));
	CHECK_OK(srt_file_hash_params(file, params, all));
	CHECK_MSG(memcmp(params, wanted, sizeof(params)) == 0, "%s: another hash", path);
	CHECK_OK(srt_file_hash(file, again));
	CHECK_MSG(memcmp(all, again, sizeof(all)) == 0, "%s: another hash of all tensors", path);
	CHECK_OK(srt_file_hash_params(file, params, NULL));
	CHECK(memcmp(params, wanted, sizeof(params)) == 0);
	srt_file_close(file);
}

static void test_hashes(const char *folder, srt_dtype_t dtype, bool has_buffers)
{
	srt_engine_t *engine = make_engine(SRT_OPTIM_SGD, NPARAMS, dtype, has_buffers);
	unsigned char hash[16];
	char path[512];

	snprintf(path, sizeof(path), "%s.safetensors", folder);
	set_special(engine, dtype);
	CHECK_OK_OR_DIE(srt_engine_hash(engine, hash, stream));
	CHECK_OK_OR_DIE(srt_checkpoint_save(engine, folder, NULL, stream));
	CHECK_OK_OR_DIE(srt_engine_save(engine, path, NULL, 0, stream));
	check_hash(folder, hash);
	check_hash(path, hash);
	CHECK_OK_OR_DIE(srt_comm_status_consensus(srt_context_world(context), "meeting", SRT_OK));
	if (srt_context_rank(context) == 0)
		unlink(path);
	srt_engine_destroy(engine);
}

int main(int argc, char **argv)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	CHECK_OR_DIE(argc == 2);
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	test_unused(argv[1]);
	test_values_only(argv[1]);
	for (size_t i = 0; i < SRT_ARRAY_LEN(dtypes); i++) {
		test_hashes(argv[1], dtypes[i], false);
		test_hashes(argv[1], dtypes[i], true);
	}
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
