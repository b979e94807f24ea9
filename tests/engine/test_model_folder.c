/* SPDX-License-Identifier: BSD-3-Clause */
/* Folders of Hugging Face without an engine: models of one file and of several with an index, what
 * an index may not have, what is said of other folders, and how models are written. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/index.h"
#include "runtime/checkpoint/formats/model_file.h"
#include "tests/harness/check.h"

#define FOLDER "tests/engine/test_model_folder.tmp"
#define ONE FOLDER "/model-00001-of-00002.safetensors"
#define TWO FOLDER "/model-00002-of-00002.safetensors"
#define INDEX FOLDER "/" SRT_MODEL_INDEX_NAME

/* What an index says of the files that write_folder() makes. */
#define A "\"a\":\"model-00001-of-00002.safetensors\""
#define B "\"b\":\"model-00002-of-00002.safetensors\""
#define C "\"c\":\"model-00001-of-00002.safetensors\""

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK_OR_DIE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* A file of tensors with one element each; the name is the first letter, the value the second. */
static void write_tensors(const char *path, const char *const *tensors, size_t n)
{
	const srt_file_metadata_t metadata = { "format", "pt" };
	srt_file_entry_t entries[4] = { 0 };
	char names[4][2] = { "" };
	srt_file_writer_t *writer;

	for (size_t i = 0; i < n; i++) {
		names[i][0] = tensors[i][0];
		entries[i] = (srt_file_entry_t){ names[i], SRT_F32, 1, { 1 } };
	}
	CHECK_OK_OR_DIE(srt_file_writer_create(path, entries, n, &metadata, 1, &writer));
	for (size_t i = 0; i < n; i++) {
		const float value = (float)(tensors[i][1] - '0');

		CHECK_OK(srt_file_writer_put(writer, i, 0, &value, sizeof(value)));
	}
	CHECK_OK_OR_DIE(srt_file_writer_commit(writer));
	srt_file_writer_destroy(writer);
}

/* a and c in one file, b in the other. */
static void write_folder(const char *index)
{
	static const char *const one[] = { "c3", "a1" }, *const two[] = { "b2" };

	write_tensors(ONE, one, 2);
	write_tensors(TWO, two, 1);
	write_text(INDEX, index);
}

static void check_model(const char *path)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	const char *text;
	srt_file_t *file;

	CHECK_OK_OR_DIE(srt_file_open(path, &file));
	CHECK_INT(srt_file_count(file), 3);
	for (size_t i = 0; i < 3; i++) {
		const char name[] = { (char)('a' + i), '\0' };
		float value = 0.0f;

		CHECK_OK(srt_file_at(file, i, &t));
		CHECK_STR(t.name, name);
		CHECK_OK(srt_file_find(file, name, NULL));
		CHECK_OK(srt_file_read(file, name, 0, sizeof(value), &value));
		CHECK(value == (float)(i + 1));
		CHECK_STATUS(srt_file_read(file, name, 0, 5, &value), SRT_ERR_INVALID_ARGUMENT);
	}
	CHECK_STATUS(srt_file_find(file, "d", NULL), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_file_at(file, 3, &t), SRT_ERR_NOT_FOUND);
	CHECK_OK(srt_file_find_metadata(file, "format", &text));
	CHECK_STR(text, "pt");
	CHECK_STATUS(srt_file_find_metadata(file, "none", &text), SRT_ERR_NOT_FOUND);
	srt_file_close(file);
}

/* The hash of several files is that of one file with their tensors. */
static void check_hash(void)
{
	static const char *const all[] = { "a1", "b2", "c3" };
	unsigned char several[16], one[16];
	srt_feature_info_t feature = SRT_FEATURE_INFO_INIT;
	srt_file_t *file;

	CHECK_OK_OR_DIE(srt_feature_get_info(SRT_FEATURE_HASH, &feature));
	if (feature.state != SRT_FEATURE_BUILT)
		return;
	CHECK_OK_OR_DIE(srt_file_open(FOLDER, &file));
	CHECK_OK(srt_file_hash(file, several));
	write_tensors(FOLDER "/all", all, 3);
	srt_file_close(file);
	CHECK_OK_OR_DIE(srt_file_open(FOLDER "/all", &file));
	CHECK_OK(srt_file_hash(file, one));
	srt_file_close(file);
	CHECK(memcmp(several, one, sizeof(one)) == 0);
	unlink(FOLDER "/all");
}

/* A file that is written to while the model is open is found. */
static void check_changed(void)
{
	const struct timespec old[2] = { { 1000000, 0 }, { 1000000, 0 } };
	srt_safetensors_t *file;

	CHECK_OK_OR_DIE(srt_model_file_open(FOLDER, &file));
	CHECK_OK(srt_safetensors_check_unchanged(file));
	CHECK_OR_DIE(utimensat(AT_FDCWD, TWO, old, 0) == 0);
	CHECK_STATUS(srt_safetensors_check_unchanged(file), SRT_ERR_IO);
	CHECK_ERROR_HAS("model-00002-of-00002.safetensors was written to");
	srt_safetensors_close(file);
}

static void test_several(void)
{
	static const char *const single[] = { "x7" };
	srt_file_t *file;

	write_folder("{\"metadata\":{\"total_size\":1.2e1,\"more\":[null]},\"weight_map\":{" C "," A
		     "," B "}}\n");
	check_model(FOLDER);
	check_model(FOLDER "/");
	check_model(INDEX);
	check_hash();
	check_changed();
	/* A tensor that the index does not name is there, as for transformers. */
	write_folder("{\"weight_map\":{" B "," C "}}");
	check_model(FOLDER);
	/* One file comes before an index. */
	write_tensors(FOLDER "/" SRT_MODEL_NAME, single, 1);
	CHECK_OK_OR_DIE(srt_file_open(FOLDER, &file));
	CHECK_INT(srt_file_count(file), 1);
	srt_file_close(file);
	/* The manifest of another program is not of a checkpoint. */
	write_text(FOLDER "/manifest.json", "{\"name\":\"app\"}");
	CHECK_OK_OR_DIE(srt_file_open(FOLDER, &file));
	srt_file_close(file);
	unlink(FOLDER "/manifest.json");
	unlink(FOLDER "/" SRT_MODEL_NAME);
}

/* An index is refused, with the file, the tensor and what to do. */
static void test_refused(void)
{
	static const struct {
		const char *index, *why;
		srt_status_t status;
	} cases[] = {
		{ "", "byte 0 of the index: expected an object", SRT_ERR_FORMAT },
		{ "[]", "expected an object", SRT_ERR_FORMAT },
		{ "{}", "it has no 'weight_map'", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{}}", "its weight_map has no tensor", SRT_ERR_FORMAT },
		{ "{\"weight_map\":[]}", "expected an object", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":1}}", "expected a string", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{" A "}} x", "expected the end", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{" A "},\"weight_map\":{" B "}}", "'weight_map' twice",
		  SRT_ERR_FORMAT },
		{ "{\"weight_map\":{" A "," A "}}", "it has tensor 'a' twice", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":\"../x.safetensors\"}}",
		  "tensor 'a' in '../x.safetensors', which is not the name of a file in its folder",
		  SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not the name", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":\"..\"}}", "not the name", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":\".\"}}", "not the name", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":\"\"}}", "not the name", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{\"a\":\"x\\u0000\"}}", "not of a zero byte", SRT_ERR_FORMAT },
		{ "{\"weight_map\":{" A ",\"b\":\"model-00001-of-00002.safetensors\"}}",
		  "it has tensor 'b' in model-00001-of-00002.safetensors, but that file has no "
		  "such tensor",
		  SRT_ERR_FORMAT },
		{ "{\"weight_map\":{" A ",\"b\":\"gone.safetensors\"}}",
		  "it has tensors in gone.safetensors, which is not in its folder: download all 2 "
		  "files",
		  SRT_ERR_NOT_FOUND },
		{ "{\"weight_map\":{" A ",\"b\":\"" SRT_MODEL_INDEX_NAME "\"}}",
		  "safetensors file " INDEX ": it is the index", SRT_ERR_FORMAT },
	};
	static const char *const twice[] = { "a1", "b2" };
	srt_file_t *file;

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		write_folder(cases[i].index);
		CHECK_STATUS(srt_file_open(FOLDER, &file), cases[i].status);
		CHECK_ERROR_HAS("the index " INDEX ": ");
		CHECK_ERROR_HAS(cases[i].why);
	}
	write_folder("{\"weight_map\":{" A "," B "}}");
	write_tensors(TWO, twice, 2);
	CHECK_STATUS(srt_file_open(FOLDER, &file), SRT_ERR_FORMAT);
	CHECK_ERROR_HAS("tensor 'a' is in " ONE " and in " TWO ": remove the file");
	CHECK_OR_DIE(truncate(TWO, 40) == 0);
	CHECK_STATUS(srt_file_open(FOLDER, &file), SRT_ERR_FORMAT);
	CHECK_ERROR_HAS("safetensors file " TWO ": ");
	CHECK_OR_DIE(truncate(INDEX, (off_t)SRT_INDEX_MAX_NBYTES + 1) == 0);
	CHECK_STATUS(srt_file_open(FOLDER, &file), SRT_ERR_IO);
	CHECK_ERROR_HAS("not a regular file of at most 100000000 bytes");
}

/* Folders without a model: the sentence has what is there instead. */
static void test_other_folders(void)
{
	static const struct {
		const char *name, *why;
	} cases[] = {
		{ "pytorch_model.bin", "but pytorch_model.bin, a pickle of Python" },
		{ "pytorch_model.bin.index.json", "a pickle of Python" },
		{ "model-00001-of-00002.safetensors", "has files of a model, but no "
						      "model.safetensors.index.json" },
		{ "other", "has no model.safetensors, no model.safetensors.index.json and no "
			   "manifest.json" },
	};
	char path[128];
	srt_file_t *file;

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		snprintf(path, sizeof(path), FOLDER "/%s", cases[i].name);
		write_text(path, "");
		CHECK_STATUS(srt_file_open(FOLDER, &file), SRT_ERR_NOT_FOUND);
		CHECK_ERROR_HAS(cases[i].why);
		unlink(path);
	}
	CHECK_STATUS(srt_file_open(INDEX, &file), SRT_ERR_NOT_FOUND);
}

/* ---- writing ---------------------------------------------------------------------------- */

static const srt_file_entry_t written[] = { { "c", SRT_F32, 1, { 1 } },
					    { "a", SRT_F32, 1, { 1 } },
					    { "b", SRT_F32, 1, { 1 } } };
static const float values[] = { 3.0f, 1.0f, 2.0f };

static srt_file_writer_t *create(size_t max_nbytes)
{
	srt_file_writer_t *writer;

	CHECK_OK_OR_DIE(
		srt_file_writer_create_folder(FOLDER, written, 3, NULL, 0, max_nbytes, &writer));
	return writer;
}

static void put(srt_file_writer_t *writer, float add)
{
	for (size_t i = 0; i < 3; i++) {
		const float value = values[i] + add;

		CHECK_OK(srt_file_writer_put(writer, i, 0, &value, sizeof(value)));
	}
}

static void save(size_t max_nbytes)
{
	srt_file_writer_t *writer = create(max_nbytes);

	put(writer, 0.0f);
	CHECK_OK(srt_file_writer_commit(writer));
	srt_file_writer_destroy(writer);
}

static bool has_file(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), FOLDER "/%s", name);
	return access(path, F_OK) == 0;
}

/* The number of names in the folder. */
static int count_names(void)
{
	DIR *dir = opendir(FOLDER);
	const struct dirent *entry;
	int n = 0;

	CHECK_OR_DIE(dir != NULL);
	while ((entry = readdir(dir)) != NULL)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void test_index_text(void)
{
	static const char want[] = "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n"
				   "  \"weight_map\": {\n"
				   "    \"a\": \"model-00001-of-00002.safetensors\",\n"
				   "    \"b\": \"model-00002-of-00002.safetensors\",\n"
				   "    \"c\": \"model-00001-of-00002.safetensors\"\n  }\n}\n";
	char got[512] = "";
	FILE *f = fopen(INDEX, "r");

	CHECK_OR_DIE(f != NULL);
	CHECK_INT(fread(got, 1, sizeof(got) - 1, f), sizeof(want) - 1);
	fclose(f);
	CHECK_STR(got, want);
}

/* Models of one and of several files replace each other, and other files stay. */
static void test_writer(void)
{
	write_text(FOLDER "/config.json", "{}");
	write_text(FOLDER "/model-00001-of-00002.txt", "");
	save(8);
	check_model(FOLDER);
	test_index_text();
	CHECK_INT(count_names(), 5);
	save(4);
	check_model(FOLDER);
	CHECK(has_file("model-00003-of-00003.safetensors") && count_names() == 6);
	save(0);
	check_model(FOLDER);
	CHECK(has_file(SRT_MODEL_NAME) && count_names() == 3);
	save(11);
	check_model(FOLDER);
	CHECK(!has_file(SRT_MODEL_NAME) && count_names() == 5);
	save(8);
	check_model(FOLDER);
	CHECK_INT(count_names(), 5);
}

/*
 * A save that does not come to its end.
 *
 * Reliability: a save to a folder of several files that is killed before they are renamed | a
 * mixture of two models | the old model is complete
 */
static void test_unfinished(void)
{
	srt_file_writer_t *writer = create(8);
	const int before = count_names();
	pid_t child;

	CHECK_STATUS(srt_file_writer_commit(writer), SRT_ERR_STATE);
	put(writer, 5.0f);
	srt_file_writer_destroy(writer);
	check_model(FOLDER);
	child = fork();
	if (child == 0) {
		put(create(8), 5.0f);
		kill(getpid(), SIGKILL);
	}
	CHECK_OR_DIE(waitpid(child, NULL, 0) == child);
	check_model(FOLDER);
	CHECK_INT(count_names(), before);
	save(8); /* removes what the child left */
	CHECK_INT(count_names(), before - 2);
}

/*
 * The index cannot be replaced when the files are there already.
 *
 * Reliability: a save to a folder that fails while its files are renamed | a mixture of two models
 * | no index, and a sentence
 */
static void test_failed_commit(void)
{
	srt_file_writer_t *writer = create(8);
	srt_file_t *file;

	put(writer, 0.0f);
	CHECK_OR_DIE(unlink(INDEX) == 0 && mkdir(INDEX, 0777) == 0);
	CHECK_STATUS(srt_file_writer_commit(writer), SRT_ERR_IO);
	CHECK_ERROR_HAS(FOLDER " may have a part of the new model only, so save it again: cannot");
	srt_file_writer_destroy(writer);
	rmdir(INDEX);
	CHECK_STATUS(srt_file_open(FOLDER, &file), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("a save was interrupted");
	save(8);
	check_model(FOLDER);
}

static void test_writer_refuses(void)
{
	static const srt_file_entry_t twice[] = { { "a", SRT_F32, 1, { 1 } },
						  { "a", SRT_F32, 1, { 1 } } };
	static const srt_file_entry_t large[] = { { "a", SRT_F32, 2, { INT64_MAX, 4 } } };
	static const srt_file_metadata_t format = { "format", "np" };
	srt_file_writer_t *writer;

	CHECK_STATUS(srt_file_writer_create_folder(FOLDER, twice, 2, NULL, 0, 4, &writer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'a' occurs twice among the names to be saved");
	CHECK_STATUS(srt_file_writer_create_folder(FOLDER, large, 1, NULL, 0, 4, &writer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_writer_create_folder(FOLDER, written, 3, &format, 1, 4, &writer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'format' occurs twice");
	CHECK_STATUS(srt_file_writer_create_folder(ONE, written, 3, NULL, 0, 4, &writer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("exists and is not a folder");
	write_text(FOLDER "/manifest.json", "{\"shardrt_checkpoint\":1,");
	CHECK_STATUS(srt_file_writer_create_folder(FOLDER, written, 3, NULL, 0, 4, &writer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is a sharded checkpoint");
	unlink(FOLDER "/manifest.json");
	check_model(FOLDER);
}

/* A file of another format: complete under its name, or not there. */
static void test_plain(void)
{
	char got[8] = "";
	srt_file_writer_t *writer;
	FILE *f;

	write_text(FOLDER "/plain", "old");
	CHECK_OK_OR_DIE(srt_file_writer_create_plain(FOLDER "/plain", 5, &writer));
	CHECK_OK(srt_file_writer_put(writer, 0, 0, "abc", 3));
	CHECK_STATUS(srt_file_writer_put(writer, 0, 4, "e", 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_writer_put(writer, 0, 3, "def", 3), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_writer_put(writer, 1, 3, "de", 2), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_writer_commit(writer), SRT_ERR_STATE);
	CHECK_ERROR_HAS("only 3 of the 5 bytes");
	CHECK_OK(srt_file_writer_put(writer, 0, 3, "de", 2));
	CHECK_OK(srt_file_writer_commit(writer));
	srt_file_writer_destroy(writer);
	f = fopen(FOLDER "/plain", "r");
	CHECK_OR_DIE(f != NULL);
	CHECK_INT(fread(got, 1, sizeof(got), f), 5);
	fclose(f);
	CHECK_STR(got, "abcde");
	CHECK_OK_OR_DIE(srt_file_writer_create_plain(FOLDER "/plain", 1, &writer));
	srt_file_writer_destroy(writer);
	CHECK_INT(access(FOLDER "/plain", F_OK), 0);
	CHECK_STATUS(srt_file_writer_create_plain(FOLDER, 1, &writer), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_file_writer_create_plain(FOLDER "/no/plain", 1, &writer), SRT_ERR_IO);
	unlink(FOLDER "/plain");
}

static void test_copy(void)
{
	char long_text[20001], got[sizeof(long_text)] = "";
	FILE *f;

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	write_text(FOLDER "/config.json", long_text);
	write_text(FOLDER "/copy", "old");
	CHECK_OK(srt_file_copy(FOLDER "/config.json", FOLDER "/copy"));
	f = fopen(FOLDER "/copy", "r");
	CHECK_OR_DIE(f != NULL);
	CHECK_INT(fread(got, 1, sizeof(got), f), sizeof(long_text) - 1);
	fclose(f);
	CHECK_STR(got, long_text);
	CHECK_STATUS(srt_file_copy(FOLDER "/none", FOLDER "/copy"), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_file_copy(FOLDER, FOLDER "/copy"), SRT_ERR_IO);
	CHECK_STATUS(srt_file_copy(FOLDER "/copy", FOLDER), SRT_ERR_INVALID_ARGUMENT);
	unlink(FOLDER "/copy");
}

static void remove_files(void)
{
	unlink(FOLDER "/config.json");
	unlink(FOLDER "/model-00001-of-00002.txt");
	unlink(ONE);
	unlink(TWO);
	unlink(INDEX);
}

int main(void)
{
	CHECK_OR_DIE(mkdir(FOLDER, 0777) == 0 || errno == EEXIST);
	test_several();
	test_refused();
	remove_files();
	test_other_folders();
	test_writer();
	test_unfinished();
	test_failed_commit();
	test_writer_refuses();
	test_plain();
	test_copy();
	remove_files();
	CHECK(rmdir(FOLDER) == 0);
	return check_done();
}
