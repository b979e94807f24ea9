/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines that are saved to folders of Hugging Face, with other names, layouts and dtypes, and
 * loaded from them. Run at several world sizes by test_checkpoint.sh. */
#include <unistd.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "runtime/checkpoint/formats/model_file.h"
#include "runtime/checkpoint/load.h"
#include "tests/engine/file_case.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

static srt_context_t *context;
static srt_stream_t *stream;
static char path[64], folder[80];

static void meet(void)
{
	CHECK_OK_OR_DIE(srt_comm_status_consensus(srt_context_world(context), "meeting", SRT_OK));
}

/* The tensors of the folder, of this dtype, with the rounded values; of rank 0. */
static void check_folder(srt_dtype_t dtype, const char *has, const char *has_not)
{
	const size_t item = srt_dtype_size(dtype);
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	char name[128];
	const char *text;
	srt_file_t *file;

	snprintf(name, sizeof(name), "%s/%s", folder, has);
	CHECK(access(name, F_OK) == 0);
	snprintf(name, sizeof(name), "%s/%s", folder, has_not);
	CHECK(access(name, F_OK) != 0);
	CHECK_OK_OR_DIE(srt_file_open(folder, &file));
	CHECK_OK(srt_file_find_metadata(file, "format", &text));
	CHECK_STR(text, "pt");
	CHECK_OK(srt_file_find_metadata(file, "mine", &text));
	CHECK_INT(srt_file_count(file), FILE_NTENSORS);
	for (int k = 0; k < FILE_NTENSORS; k++) {
		float *want = file_make_values(k);
		char *got = calloc((size_t)file_count(k) + 1, item);
		int64_t wrong = 0;

		CHECK_OR_DIE(got != NULL);
		CHECK_OK_OR_DIE(srt_file_find(file, file_tensors[k].in_file, &t));
		CHECK(t.dtype == dtype && t.nelem == (size_t)file_count(k));
		CHECK_INT(t.shape[0], file_tensors[k].shape[file_tensors[k].transposed]);
		CHECK_OK(srt_file_read(file, t.name, 0, t.nbytes, got));
		for (int64_t i = 0; i < file_count(k); i++)
			wrong += half_get(dtype, got, (size_t)i) != half_round(dtype, want[i]);
		CHECK_MSG(wrong == 0, "%s: %lld elements are wrong", t.name, (long long)wrong);
		free(got);
		free(want);
	}
	srt_file_close(file);
}

static void save_folder(srt_engine_t *engine, srt_dtype_t dtype, size_t max_nbytes)
{
	const srt_file_metadata_t metadata = { "mine", "too" };
	const srt_file_names_t names = { .size = sizeof(names), .find = file_find };
	const srt_folder_options_t options = { .size = sizeof(options),
					       .names = &names,
					       .dtype = dtype,
					       .max_nbytes = max_nbytes,
					       .metadata = &metadata,
					       .nmetadata = 1 };

	CHECK_OK(srt_engine_save_folder(engine, folder, &options, stream));
}

/* An engine whose matrices are cut by columns over all ranks. */
static srt_engine_t *create_cut(srt_mesh_t *mesh)
{
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const srt_param_options_t cut = { PARAM_BASE, .placement = { "tp", 1, 0, 0 } };
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *p;

	options.mesh = mesh;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int k = 0; k < FILE_NTENSORS; k++)
		CHECK_OK_OR_DIE(srt_param_create(root, file_tensors[k].name, SRT_F32,
						 file_tensors[k].ndim, file_tensors[k].shape,
						 file_tensors[k].ndim == 2 ? &cut : NULL, &p));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	return engine;
}

/* Shards of several pieces, the last a short one: rounded, of interleaved heads, cut by columns. */
static void test_pieces(void)
{
	const srt_file_names_t names = { .size = sizeof(names), .find = file_find, .cast = 1 };
	const int64_t nelem = srt_load_piece_nelem;
	const int shape[] = { 1, srt_context_world_size(context) };
	static const char *const dims[] = { "dp", "tp" };
	srt_engine_t *engine;
	srt_mesh_t *mesh;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, dims, &mesh));
	srt_load_piece_nelem = 7;
	for (int is_cut = 0; is_cut < 2; is_cut++) {
		engine = is_cut ? create_cut(mesh) :
				  file_create_engine(context, SRT_STRATEGY_ZERO3, SRT_FLAT_NO);
		CHECK_OK(srt_engine_load_named(engine, folder, &names, stream));
		file_check_values(engine, SRT_BF16, stream);
		meet();
		srt_engine_destroy(engine);
	}
	srt_load_piece_nelem = nelem;
	srt_mesh_destroy(mesh);
}

/* Saved with other names, layouts, dtypes and sizes of files, one over the other, and loaded. */
static void test_folder(void)
{
	srt_file_names_t names = { .size = sizeof(srt_file_names_t), .find = file_find };
	srt_engine_t *engine = file_create_engine(context, SRT_STRATEGY_ZERO3, SRT_FLAT_NO), *other;
	const bool first = srt_context_rank(context) == 0;

	meet();
	if (first)
		file_write(path, -1, -1);
	meet();
	CHECK_OK(srt_engine_load_named(engine, path, &names, stream));
	save_folder(engine, SRT_DTYPE_NONE, 7000000); /* the longest has a separate file */
	if (first)
		check_folder(SRT_F32, "model-00002-of-00003.safetensors", SRT_MODEL_NAME);
	other = file_create_engine(context, SRT_STRATEGY_ZERO3, SRT_FLAT_VIEWS);
	CHECK_OK(srt_engine_load_named(other, folder, &names, stream));
	file_check_values(other, SRT_F32, stream);
	meet();
	save_folder(engine, SRT_F32, 7000000);
	if (first)
		check_folder(SRT_F32, SRT_MODEL_INDEX_NAME, SRT_MODEL_NAME);
	meet();
	save_folder(engine, SRT_BF16, 0);
	if (first)
		check_folder(SRT_BF16, SRT_MODEL_NAME, SRT_MODEL_INDEX_NAME);
	CHECK_STATUS(srt_engine_load_named(other, folder, &names, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is BF16 [5,7]");
	CHECK_ERROR_HAS("set srt_file_names_t.cast to round it");
	names.cast = 1;
	CHECK_OK(srt_engine_load_named(other, folder, &names, stream));
	file_check_values(other, SRT_BF16, stream);
	test_pieces();
	meet();
	save_folder(engine, SRT_F32, 1); /* a file for each */
	if (first)
		check_folder(SRT_F32, "model-00010-of-00010.safetensors", SRT_MODEL_NAME);
	CHECK_OK(srt_engine_load_named(other, folder, &names, stream));
	file_check_values(other, SRT_F32, stream);
	meet();
	srt_engine_destroy(other);
	srt_engine_destroy(engine);
}

static void test_folder_refused(void)
{
	srt_file_names_t names = { .size = sizeof(srt_file_names_t), .find = file_find_none };
	srt_folder_options_t options = { .size = sizeof(options), .names = &names };
	srt_engine_t *engine = file_create_engine(context, SRT_STRATEGY_ZERO3, SRT_FLAT_NO);

	CHECK_STATUS(srt_engine_save_folder(engine, folder, &options, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("names->find has no name in the file for 'a.weight'");
	names.find = file_find_heads;
	CHECK_STATUS(srt_engine_save_folder(engine, folder, &options, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'plain' cannot have the rows of 2 heads");
	options = (srt_folder_options_t){ .size = sizeof(options), .dtype = SRT_I32 };
	CHECK_STATUS(srt_engine_save_folder(engine, folder, &options, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("the dtype of the file is i32, not f32, f16 or bf16");
	CHECK_STATUS(srt_engine_save_folder(engine, path, NULL, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("exists and is not a folder");
	CHECK_STATUS(srt_engine_save_folder(engine, "no/such/folder", NULL, stream), SRT_ERR_IO);
	CHECK_ERROR_HAS("cannot create the folder no/such/folder");
	meet();
	srt_engine_destroy(engine);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	snprintf(path, sizeof(path), "tests/engine/test_save_folder.w%d.tmp",
		 srt_context_world_size(context));
	snprintf(folder, sizeof(folder), "%s.folder", path);
	test_folder();
	test_folder_refused();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
