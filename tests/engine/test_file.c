/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Safetensors files without an engine, and engines that are loaded from other names, transposed
 * matrices and interleaved heads. Run at several world sizes by test_checkpoint.sh.
 */
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "tests/engine/file_case.h"

static srt_context_t *context;
static srt_stream_t *stream;
static char path[64];

static void meet(void)
{
	CHECK_OK_OR_DIE(srt_comm_status_consensus(srt_context_world(context), "meeting", SRT_OK));
}
static void write_for_all(int missing, int wrong)
{
	meet();
	if (srt_context_rank(context) == 0)
		file_write(path, missing, wrong);
	meet();
}

static int warnings;

static void count_warning(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	if (level <= SRT_LOG_WARN && strstr(message, "is not used by the model") != NULL)
		warnings++;
}

static int ignore(const char *name, void *arg)
{
	(void)arg;
	return strcmp(name, "theirs/constant") == 0;
}

static void test_named(void)
{
	static const struct {
		srt_strategy_t strategy;
		srt_flat_t flat;
	} forms[] = { { SRT_STRATEGY_DDP, SRT_FLAT_NO },
		      { SRT_STRATEGY_ZERO3, SRT_FLAT_NO },
		      { SRT_STRATEGY_ZERO3, SRT_FLAT_VIEWS } };
	srt_file_names_t names = { .size = sizeof(srt_file_names_t), .find = file_find };

	write_for_all(-1, -1);
	for (size_t i = 0; i < SRT_ARRAY_LEN(forms); i++) {
		srt_engine_t *engine =
			file_create_engine(context, forms[i].strategy, forms[i].flat);

		warnings = 0;
		names.ignores = i == 0 ? NULL : ignore;
		CHECK_OK(srt_engine_load_named(engine, path, &names, stream));
		CHECK_INT(warnings, i == 0 && srt_context_rank(context) == 0);
		file_check_values(engine, SRT_F32, stream);
		meet();
		srt_engine_destroy(engine);
	}
}

static int find_vector(const char *name, srt_file_source_t *source, void *arg)
{
	const int found = file_find(name, source, arg);

	source->transposed = strcmp(name, "a.bias") == 0;
	return found;
}

static void test_refused(void)
{
	srt_file_names_t names = { .size = sizeof(srt_file_names_t), .find = file_find };
	srt_engine_t *engine = file_create_engine(context, SRT_STRATEGY_ZERO3, SRT_FLAT_NO);

	CHECK_OK(srt_engine_load_named(engine, path, &names, stream));
	names.find = file_find_heads;
	CHECK_STATUS(srt_engine_load_named(engine, path, &names, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'plain' cannot have the rows of 2 heads interleaved in a file");
	names.find = file_find;
	write_for_all(3, -1);
	CHECK_STATUS(srt_engine_load_named(engine, path, &names, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("has no tensor 'theirs/one'");
	write_for_all(-1, 0);
	CHECK_STATUS(srt_engine_load_named(engine, path, &names, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("tensor 'theirs/A' is F32 [7,5]");
	CHECK_ERROR_HAS("but f32 [5,7] in the model, which has it as the transpose of 'a.weight'");
	names.find = find_vector;
	CHECK_STATUS(srt_engine_load_named(engine, path, &names, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'a.bias' is not a parameter of two dimensions");
	names.find = file_find_none;
	CHECK_STATUS(srt_engine_load_named(engine, path, &names, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("has no tensor 'a.weight'");
	names.find = NULL;
	CHECK_STATUS(srt_engine_load_named(engine, path, &names, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("names->find is NULL");
	file_check_values(engine, SRT_F32, stream);
	meet();
	srt_engine_destroy(engine);
}

/* ---- folders ---------------------------------------------------------------------------- */
static bool has_hash(void)
{
	srt_feature_info_t feature = SRT_FEATURE_INFO_INIT;

	CHECK_OK_OR_DIE(srt_feature_get_info(SRT_FEATURE_HASH, &feature));
	return feature.state == SRT_FEATURE_BUILT;
}

/* Names, sizes, values and hash by the public reader; of rank 0. */
static void test_reader(void)
{
	unsigned char hash[16], again[16];
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	const char *text;
	srt_file_t *file;
	float x[2];

	file_write(path, 6, -1); /* without the largest: it is hashed twice */
	CHECK_OK_OR_DIE(srt_file_open(path, &file));
	CHECK_INT(srt_file_count(file), FILE_NTENSORS);
	CHECK_OK_OR_DIE(srt_file_find_metadata(file, "format", &text));
	CHECK(strcmp(text, "pt") == 0);
	CHECK_STATUS(srt_file_find_metadata(file, "other", &text), SRT_ERR_NOT_FOUND);
	CHECK_OK(srt_file_at(file, 0, &t));
	CHECK(strcmp(t.name, "plain") == 0 && strcmp(t.dtype_name, "F32") == 0);
	CHECK(t.dtype == SRT_F32 && t.ndim == 2 && t.shape[0] == 5 && t.shape[1] == 3);
	CHECK(t.nelem == 15 && t.nbytes == 60);
	CHECK_STATUS(srt_file_at(file, FILE_NTENSORS, &t), SRT_ERR_NOT_FOUND);
	CHECK_OK(srt_file_read(file, "plain", 8, 8, x));
	CHECK(x[0] == file_value(5, 2) && x[1] == file_value(5, 3));
	CHECK_STATUS(srt_file_read(file, "plain", 56, 8, x), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_read(file, "other", 0, 0, x), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_file_find(file, "other", NULL), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_file_hash(file, hash), has_hash() ? SRT_OK : SRT_ERR_UNSUPPORTED);
	srt_file_close(file);

	/* The sizes of a matrix are in the hash, though its bytes are the same. */
	file_write(path, 6, 4);
	CHECK_OK_OR_DIE(srt_file_open(path, &file));
	CHECK_STATUS(srt_file_hash(file, again), has_hash() ? SRT_OK : SRT_ERR_UNSUPPORTED);
	CHECK(!has_hash() || memcmp(hash, again, sizeof(hash)) != 0);
	srt_file_close(file);
	srt_file_close(NULL);
	srt_file_writer_destroy(NULL);
	CHECK_STATUS(srt_file_open("/nonexistent", &file), SRT_ERR_NOT_FOUND);
}

/* A file of a parameter in f32 and a count, of which the letters of `kinds` tell what they are. */
static srt_status_t hash_counted(const char *kinds, uint32_t bits, unsigned char params[16],
				 unsigned char *all)
{
	const srt_file_metadata_t metadata = { SRT_FILE_KINDS_KEY, kinds };
	const srt_file_entry_t entries[] = { { "weight", SRT_F32, 1, { 1 } },
					     { "count", SRT_I64, 0, { 0 } } };
	const int64_t n = 5;
	srt_file_writer_t *writer;
	srt_file_t *file;
	srt_status_t status;

	CHECK_OK_OR_DIE(
		srt_file_writer_create(path, entries, 2, &metadata, kinds != NULL, &writer));
	CHECK_OK_OR_DIE(srt_file_writer_put(writer, 0, 0, &bits, sizeof(bits)));
	CHECK_OK_OR_DIE(srt_file_writer_put(writer, 1, 0, &n, sizeof(n)));
	CHECK_OK_OR_DIE(srt_file_writer_commit(writer));
	srt_file_writer_destroy(writer);
	CHECK_OK_OR_DIE(srt_file_open(path, &file));
	status = srt_file_hash_params(file, params, all);
	srt_file_close(file);
	return status;
}

/* The hash of the parameters, as far as the file tells which tensors are parameters; of rank 0. */
static void test_hash_params(void)
{
	static const char *const refused[] = { NULL, "", "p", "bpp", "bx", "pp", "pb" };
	unsigned char params[16], again[16], all[16], other[16];

	if (!has_hash()) {
		CHECK_STATUS(hash_counted("bp", 0, params, all), SRT_ERR_UNSUPPORTED);
		CHECK_ERROR_HAS("srt_file_hash_params needs libxxhash");
		return;
	}
	for (size_t i = 0; i < SRT_ARRAY_LEN(refused); i++) {
		CHECK_STATUS(hash_counted(refused[i], 0, params, all), SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("it is not known which tensors are parameters");
	}
	CHECK_OK(hash_counted("bp", 0x7fc00000, params, all));
	CHECK_OK(hash_counted("sp", 0x7f800001, again, other)); /* another NaN */
	CHECK(memcmp(params, again, sizeof(params)) == 0);
	CHECK(memcmp(all, other, sizeof(all)) != 0);
	CHECK_OK(hash_counted("bp", 0x7f800000, again, NULL)); /* infinity */
	CHECK(memcmp(params, again, sizeof(params)) != 0);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	srt_log_set(count_warning, SRT_LOG_WARN, NULL);
	snprintf(path, sizeof(path), "tests/engine/test_file.w%d.tmp",
		 srt_context_world_size(context));
	test_named();
	test_refused();
	meet();
	if (srt_context_rank(context) == 0) {
		test_reader();
		test_hash_params();
		unlink(path);
	}
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
