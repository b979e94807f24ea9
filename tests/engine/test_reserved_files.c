/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserved fields, as in test_reserved.c: the structs of files and checkpoints. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <unistd.h>

#include <shardrt/shardrt.h>

#include "tests/engine/reserved_case.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

static srt_context_t *context;
static srt_stream_t *stream;
static srt_engine_t *engine;
static char path[64];
#if defined HAVE_JANSSON && defined HAVE_XXHASH
static const char folder[] = "test_reserved.checkpoint";
#endif

static uint64_t source_value;
static int source_i;

static int find_same(const char *name, srt_file_source_t *source, void *arg)
{
	(void)arg;
	snprintf(source->name, sizeof(source->name), "%s", name);
	source->reserved[source_i] = source_value;
	return 1;
}

static srt_status_t call_file_names(int i, uint64_t value)
{
	srt_file_names_t names = { .find = find_same };

	names.reserved[i] = value;
	return srt_engine_load_named(engine, path, &names, stream);
}

static srt_status_t call_file_source(int i, uint64_t value)
{
	const srt_file_names_t names = { .find = find_same };
	srt_status_t status;

	source_i = i;
	source_value = value;
	status = srt_engine_load_named(engine, path, &names, stream);
	source_value = 0;
	return status;
}

#if defined HAVE_JANSSON && defined HAVE_XXHASH

/* Of an engine without parameters. */
static srt_status_t save_checkpoint(const srt_checkpoint_options_t *options)
{
	srt_engine_t *built;
	const srt_engine_options_t of_engine = { .size = sizeof(of_engine),
						 .prefetch = 1,
						 .strategy = SRT_STRATEGY_DDP,
						 .microbatches = 1,
						 .optim = OPTIM(.kind = SRT_OPTIMIZER_SGD) };
	srt_status_t status;
	srt_unit_t *root;

	CHECK_OK_OR_DIE(srt_engine_create(context, &of_engine, &built));
	CHECK_OK_OR_DIE(srt_unit_create(built, NULL, "root", NULL, &root));
	CHECK_OK_OR_DIE(srt_engine_build(built));
	status = srt_checkpoint_save(built, folder, options, stream);
	srt_engine_destroy(built);
	if (status == SRT_OK)
		CHECK_OK(srt_checkpoint_remove(folder));
	unlink("latest");
	return status;
}

static srt_status_t call_checkpoint_options(int i, uint64_t value)
{
	srt_checkpoint_options_t options = { .cast = 0 };

	options.reserved[i] = value;
	return save_checkpoint(&options);
}

static srt_status_t call_checkpoint_entry(int i, uint64_t value)
{
	srt_checkpoint_entry_t entry = { .key = "key" };
	const srt_checkpoint_options_t options = { .entries = &entry, .nentries = 1 };

	entry.reserved[i] = value;
	return save_checkpoint(&options);
}

#endif

static const reserved_case_t structs[] = {
#if defined HAVE_JANSSON && defined HAVE_XXHASH
	{ "srt_checkpoint_options_t", call_checkpoint_options },
	{ "srt_checkpoint_entry_t", call_checkpoint_entry },
#endif
	{ "srt_file_names_t", call_file_names },
	{ "srt_file_source_t", call_file_source },
};

/* Fill a struct whose bytes were not zero. */
static void fill_file_tensor(srt_file_t *file, void *result)
{
	CHECK_OK(srt_file_get(file, 0, result));
}

#if defined HAVE_JANSSON && defined HAVE_XXHASH

static void fill_checkpoint(srt_file_t *file, void *result)
{
	CHECK_OK(srt_file_get_checkpoint(file, result));
}

static void fill_saved(srt_file_t *file, void *result)
{
	CHECK_OK(srt_file_get_saved(file, "a", result));
}

static void fill_box(srt_file_t *file, void *result)
{
	CHECK_OK(srt_file_get_box(file, "a", 0, result));
}

static void fill_verified(srt_file_t *file, void *result)
{
	(void)file;
	CHECK_OK(srt_checkpoint_verify(folder, NULL, NULL, result));
}

#endif

static const struct {
	const char *type;
	size_t nbytes, reserved;
	void (*fill)(srt_file_t *file, void *result);
} results[] = {
	{ "srt_file_tensor_t", sizeof(srt_file_tensor_t), offsetof(srt_file_tensor_t, reserved),
	  fill_file_tensor },
#if defined HAVE_JANSSON && defined HAVE_XXHASH
	{ "srt_file_checkpoint_t", sizeof(srt_file_checkpoint_t),
	  offsetof(srt_file_checkpoint_t, reserved), fill_checkpoint },
	{ "srt_file_saved_t", sizeof(srt_file_saved_t), offsetof(srt_file_saved_t, reserved),
	  fill_saved },
	{ "srt_file_box_t", sizeof(srt_file_box_t), offsetof(srt_file_box_t, reserved), fill_box },
	{ "srt_checkpoint_verified_t", sizeof(srt_checkpoint_verified_t),
	  offsetof(srt_checkpoint_verified_t, reserved), fill_verified },
#endif
};

static void check_results(void)
{
	unsigned char result[512];
	uint64_t reserved[4];
	srt_file_t *file;

#if defined HAVE_JANSSON && defined HAVE_XXHASH
	CHECK_OK_OR_DIE(srt_checkpoint_save(engine, folder, NULL, stream));
	CHECK_OK_OR_DIE(srt_file_open(folder, &file));
#else
	CHECK_OK_OR_DIE(srt_file_open(path, &file));
#endif
	for (size_t k = 0; k < sizeof(results) / sizeof(results[0]); k++) {
		CHECK_OR_DIE(results[k].nbytes <= sizeof(result));
		memset(result, 0xa5, sizeof(result));
		results[k].fill(file, result);
		memcpy(reserved, result + results[k].reserved, sizeof(reserved));
		for (int i = 0; i < 4; i++)
			CHECK_MSG(reserved[i] == 0, "%s.reserved[%d]", results[k].type, i);
	}
	srt_file_close(file);
#if defined HAVE_JANSSON && defined HAVE_XXHASH
	CHECK_OK(srt_checkpoint_remove(folder));
	unlink("latest");
#endif
}

static void create_engine(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);
	const int64_t one = 1;
	const float value = 1.0f;
	srt_unit_t *root;
	srt_param_t *param;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_OK_OR_DIE(srt_param_create(root, "a", SRT_F32, 1, &one, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_OK_OR_DIE(srt_param_set(param, &value, stream));
	CHECK_OK_OR_DIE(srt_engine_save(engine, path, NULL, 0, stream));
}

int main(void)
{
	snprintf(path, sizeof(path), "tests/engine/test_reserved.%ld.tmp", (long)getpid());
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	create_engine();
	reserved_check(structs, sizeof(structs) / sizeof(structs[0]));
	check_results();
	unlink(path);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
