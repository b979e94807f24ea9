/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The safetensors reader and writer: bytes against the format's definition, every refusal of the
 * writer, and a reader that survives hostile files (cut at every length, lying about sizes,
 * mutated).
 */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/harness/check.h"

static char path[64];

static size_t get_file(char *bytes, size_t room)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	CHECK_OR_DIE(fd >= 0);
	n = read(fd, bytes, room);
	close(fd);
	CHECK_OR_DIE(n >= 0 && (size_t)n < room);
	return (size_t)n;
}

/* ---- writer --------------------------------------------------------------------------- */

static const float f32_data[6] = { 1.0f, -2.5f, 0.0f, 3.0e38f, -0.0f, 7.0f };
static const uint8_t u8_data[3] = { 1, 2, 255 };
static const int64_t i64_data[1] = { -9 };

/* Order of the caller, of the file (by element size, then name), a name that must be escaped. */
static const srt_safetensors_entry_t entries[] = {
	{ "b", SRT_F32, 2, { 2, 3 } },
	{ "a\"\\\n\xc3\xa4", SRT_U8, 1, { 3 } },
	{ "empty", SRT_F32, 2, { 0, 7 } },
	{ "last", SRT_I64, 1, { 1 } },
};
static const void *const entry_data[] = { f32_data, u8_data, "", i64_data };
static const srt_file_metadata_t metadata[] = { { "format", "pt" }, { "note", "tab\there" } };

static void write_sample(void)
{
	srt_safetensors_writer_t *w;

	CHECK_OK_OR_DIE(srt_safetensors_writer_create(path, entries, 4, metadata, 2, &w));
	for (size_t i = 0; i < 4; i++)
		CHECK_OK(srt_safetensors_writer_put(w, i, entry_data[i]));
	CHECK_OK(srt_safetensors_writer_commit(w));
	srt_safetensors_writer_destroy(w);
}

static void test_bytes(void)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\",\"note\":\"tab\\u0009here\"},"
		"\"last\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
		"\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[32,32]},"
		"\"a\\\"\\\\\\u000a\xc3\xa4\":{\"dtype\":\"U8\",\"shape\":[3],"
		"\"data_offsets\":[32,35]}}";
	char file[1024], want[1024];
	size_t n = 8 + sizeof(header) - 1, nfile;

	memset(want, ' ', sizeof(want));
	memcpy(want + 8, header, sizeof(header) - 1);
	n = (n + 7) & ~(size_t)7;
	for (int i = 0; i < 8; i++)
		want[i] = (char)((n - 8) >> 8 * i);
	memcpy(want + n, i64_data, 8);
	memcpy(want + n + 8, f32_data, 24);
	memcpy(want + n + 32, u8_data, 3);
	write_sample();
	nfile = get_file(file, sizeof(file));
	CHECK_INT(nfile, n + 35);
	CHECK(!memcmp(file, want, nfile));
}

static void test_writer_refuses(void)
{
	static const srt_safetensors_entry_t bad[][2] = {
		{ { "x", SRT_F32, 1, { 1 } }, { "x", SRT_F32, 1, { 1 } } },
		{ { "x", SRT_F32, 1, { 1 } }, { "x", SRT_U8, 1, { 1 } } },
		{ { "__metadata__", SRT_F32, 1, { 1 } }, { "x", SRT_F32, 1, { 1 } } },
		{ { "\xff", SRT_F32, 1, { 1 } }, { "x", SRT_F32, 1, { 1 } } },
		{ { "\xed\xa0\x80", SRT_F32, 1, { 1 } }, { "x", SRT_F32, 1, { 1 } } },
		{ { "\xc0\x80", SRT_F32, 1, { 1 } }, { "x", SRT_F32, 1, { 1 } } },
		{ { "x", SRT_F32, 1, { -1 } }, { "y", SRT_F32, 1, { 1 } } },
		{ { "x", SRT_F32, 2, { INT64_MAX, 3 } }, { "y", SRT_F32, 1, { 1 } } },
		{ { "x", SRT_F64, 1, { INT64_MAX / 4 } }, { "y", SRT_F32, 1, { 1 } } },
		{ { "x", SRT_U8, 1, { INT64_MAX } }, { "y", SRT_U8, 1, { INT64_MAX } } },
		{ { "x", SRT_DTYPE_COUNT, 1, { 1 } }, { "y", SRT_F32, 1, { 1 } } },
		{ { "x", SRT_F32, SRT_MAX_DIMS + 1, { 1 } }, { "y", SRT_F32, 1, { 1 } } },
	};
	static const srt_file_metadata_t twice[] = { { "k", "1" }, { "k", "2" } };
	static const srt_file_metadata_t binary[] = { { "k", "\x80" } };
	srt_safetensors_writer_t *w = NULL;
	char folder[80];

	for (size_t i = 0; i < SRT_ARRAY_LEN(bad); i++)
		CHECK_STATUS(srt_safetensors_writer_create(path, bad[i], 2, NULL, 0, &w),
			     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_safetensors_writer_create(path, entries, 4, twice, 2, &w),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'k'");
	CHECK_STATUS(srt_safetensors_writer_create(path, entries, 4, binary, 1, &w),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_safetensors_writer_create("/dev/null", entries, 4, NULL, 0, &w),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not a regular file");
	snprintf(folder, sizeof(folder), "%s.none/x", path);
	CHECK_STATUS(srt_safetensors_writer_create(folder, entries, 4, NULL, 0, &w), SRT_ERR_IO);
	CHECK(w == NULL);
}

/* Without a commit, or with one too early, the old file stays and there is no other file. */
static void test_abandoned(void)
{
	srt_safetensors_writer_t *w;
	char before[1024], after[1024], temporary[128];
	size_t n;

	write_sample();
	n = get_file(before, sizeof(before));
	CHECK_OK_OR_DIE(srt_safetensors_writer_create(path, entries, 3, NULL, 0, &w));
	snprintf(temporary, sizeof(temporary), "%s.tmp-%ld-0", path, (long)getpid());
	CHECK(access(temporary, F_OK) == 0);
	CHECK_OK(srt_safetensors_writer_put(w, 0, f32_data));
	CHECK_STATUS(srt_safetensors_writer_put(w, 3, f32_data), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_safetensors_writer_commit(w), SRT_ERR_STATE);
	srt_safetensors_writer_destroy(w);
	CHECK(access(temporary, F_OK) != 0);
	CHECK_INT(get_file(after, sizeof(after)), n);
	CHECK(!memcmp(before, after, n));
	srt_safetensors_writer_destroy(NULL);
}

#ifdef HAVE_JANSSON

/* ---- reader --------------------------------------------------------------------------- */

static void put_file(const void *bytes, size_t nbytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK_OR_DIE(fd >= 0);
	CHECK_OR_DIE(write(fd, bytes, nbytes) == (ssize_t)nbytes);
	close(fd);
}

static void test_round_trip(void)
{
	const srt_safetensors_tensor_t *t;
	srt_safetensors_t *f = NULL;
	float got[6];

	write_sample();
	CHECK_OK_OR_DIE(srt_safetensors_open(path, &f));
	CHECK_INT(srt_safetensors_count(f), 4);
	CHECK(srt_safetensors_tensor(f, 4) == NULL);
	CHECK_STR(srt_safetensors_metadata(f, "note"), "tab\there");
	CHECK(srt_safetensors_metadata(f, "none") == NULL);
	for (size_t i = 0; i < 4; i++) {
		char bytes[32];

		t = srt_safetensors_find(f, entries[i].name);
		CHECK_OR_DIE(t != NULL);
		CHECK_STR(t->name, entries[i].name);
		CHECK_INT(t->dtype, entries[i].dtype);
		CHECK_INT(t->ndim, entries[i].ndim);
		CHECK(!memcmp(t->shape, entries[i].shape, (size_t)t->ndim * sizeof(int64_t)));
		CHECK_OK(srt_safetensors_read(f, t, 0, t->nbytes, bytes));
		CHECK(!memcmp(bytes, entry_data[i], t->nbytes));
	}
	CHECK(srt_safetensors_find(f, "none") == NULL);
	t = srt_safetensors_find(f, "b");
	CHECK_OK(srt_safetensors_read(f, t, 12, 12, got));
	CHECK_BITS(got, f32_data + 3, 3);
	CHECK_STATUS(srt_safetensors_read(f, t, 12, 13, got), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_safetensors_read(f, t, 25, 0, got), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_safetensors_read(f, t, 8, SIZE_MAX - 4, got), SRT_ERR_INVALID_ARGUMENT);
	/* cut while open: an error, not a signal */
	CHECK_OR_DIE(truncate(path, 100) == 0);
	CHECK_STATUS(srt_safetensors_read(f, t, 0, 24, got), SRT_ERR_IO);
	srt_safetensors_close(f);
	srt_safetensors_close(NULL);
}

/* A file with this header (its length taken as `claim`, or true if 0) and nbytes of data. */
static srt_status_t open_header(const char *header, uint64_t claim, size_t nbytes)
{
	size_t n = strlen(header);
	char *file = calloc(8 + n + nbytes + 1, 1);
	srt_safetensors_t *f = NULL;
	srt_status_t status;

	CHECK_OR_DIE(file != NULL);
	if (!claim)
		claim = n;
	for (int i = 0; i < 8; i++)
		file[i] = (char)(claim >> 8 * i);
	memcpy(file + 8, header, n);
	put_file(file, 8 + n + nbytes);
	free(file);
	status = srt_safetensors_open(path, &f);
	CHECK((status == SRT_OK) == (f != NULL));
	srt_safetensors_close(f);
	return status;
}

#define T(dtype, shape, offsets)                                                                   \
	"{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define X "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define Y(offsets) "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" offsets "}"

static const struct {
	const char *header;
	size_t nbytes; /* of data */
	const char *why;
} hostile[] = {
	{ "", 4, "JSON object" },
	{ "[]", 0, "JSON object" },
	{ " {}", 0, "JSON object" },
	{ "\xef\xbb\xbf{}", 0, "JSON object" },
	{ "{}\n", 0, "JSON object" },
	{ "{} {}", 0, "not JSON" },
	{ "{", 0, "JSON object" },
	{ "{\"x\"}", 0, "not JSON" },
	{ "{" X "," X "}", 4, "not JSON" }, /* duplicate key */
	{ "{\"a\\u0000b\":{}}", 0, "not JSON" },
	{ "{\"\xff\":{}}", 0, "not JSON" },
	{ "{\"x\":1}", 0, "exactly" },
	{ "{\"x\":{}}", 0, "exactly" },
	{ "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
	  "exactly" },
	{ "{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
	  "not JSON" },
	{ T("3", "[1]", "[0,4]"), 4, "dtype" },
	{ T("\"F33\"", "[1]", "[0,4]"), 4, "unknown dtype" },
	{ T("\"\"", "[1]", "[0,4]"), 4, "unknown dtype" },
	{ T("\"f32\"", "[1]", "[0,4]"), 4, "unknown dtype" },
	{ T("\"F32\"", "1", "[0,4]"), 4, "shape is not an array" },
	{ T("\"F32\"", "[-1]", "[0,4]"), 4, "at least 0" },
	{ T("\"F32\"", "[1.0]", "[0,4]"), 4, "not an integer" },
	{ T("\"F32\"", "[1e30]", "[0,4]"), 4, "not an integer" },
	{ T("\"F32\"", "[1e999]", "[0,4]"), 4, "not JSON" },
	{ T("\"F32\"", "[NaN]", "[0,4]"), 4, "not JSON" },
	{ T("\"F32\"", "[null]", "[0,4]"), 4, "not an integer" },
	{ T("\"F32\"", "[true]", "[0,4]"), 4, "not an integer" },
	{ T("\"F32\"", "[18446744073709551617]", "[0,4]"), 4, "not JSON" },
	{ T("\"F32\"", "[4611686018427387904]", "[0,4]"), 4, "overflows" },
	{ T("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "overflows" },
	{ T("\"F32\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "overflows" },
	{ T("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "overflows" },
	{ T("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "dimensions" },
	{ T("\"F32\"", "[1]", "[0]"), 4, "two integers" },
	{ T("\"F32\"", "[1]", "[0,4,4]"), 4, "two integers" },
	{ T("\"F32\"", "[1]", "[0,4.0]"), 4, "two integers" },
	{ T("\"F32\"", "[1]", "{}"), 4, "two integers" },
	{ T("\"F32\"", "[1]", "[-4,0]"), 4, "not within" },
	{ T("\"F32\"", "[1]", "[4,0]"), 4, "not within" },
	{ T("\"F32\"", "[1]", "[0,8]"), 4, "not within" },
	{ T("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]"), 4, "not within" },
	{ T("\"F32\"", "[2]", "[0,4]"), 4, "need 8" },
	{ T("\"F64\"", "[1]", "[0,4]"), 4, "need 8" },
	{ T("\"F32\"", "[]", "[0,0]"), 0, "need 4" },
	{ "{" X "}", 8, "the file has 8" },
	{ "{}", 1, "the file has 1" },
	{ "{" X "," Y("[0,4]") "}", 4, "overlap" },
	{ "{" X "," Y("[2,6]") "}", 6, "overlap" },
	{ "{" X "," Y("[5,9]") "}", 9, "gap" },
	{ "{" Y("[4,8]") "}", 8, "gap" },
	{ "{\"__metadata__\":1}", 0, "not an object" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, "not a string" },
	{ "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "not JSON" },
};

static void test_hostile(void)
{
	enum { DEPTH = 1000000 };
	char *deep = malloc(DEPTH + 1);

	for (size_t i = 0; i < SRT_ARRAY_LEN(hostile); i++) {
		srt_status_t s = open_header(hostile[i].header, 0, hostile[i].nbytes);

		CHECK_MSG(s == SRT_ERR_FORMAT || s == SRT_ERR_UNSUPPORTED, "header %s: %s",
			  hostile[i].header, srt_status_string(s));
		CHECK_MSG(strstr(srt_last_error(), hostile[i].why), "header %s: %s",
			  hostile[i].header, srt_last_error());
	}
	/* lengths: beyond the file, beyond the limit, of a size that wraps around */
	CHECK_STATUS(open_header("{}", 3, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", SRT_SAFETENSORS_MAX_HEADER + 1, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", UINT64_MAX, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", UINT64_MAX - 7, 0), SRT_ERR_FORMAT);
	/* nesting must not use up the stack */
	CHECK_OR_DIE(deep != NULL);
	memset(deep, '[', DEPTH);
	memcpy(deep, "{\"x\":", 5);
	deep[DEPTH - 1] = '}';
	deep[DEPTH] = '\0';
	CHECK_STATUS(open_header(deep, 0, 0), SRT_ERR_FORMAT);
	free(deep);
	/* and what is legal though odd */
	CHECK_OK(open_header("{}", 0, 0));
	CHECK_OK(open_header("{}      ", 0, 0));
	CHECK_OK(open_header("{" X "," Y("[4,8]") "}", 0, 8));
	CHECK_OK(open_header("{" Y("[4,8]") "," X "}", 0, 8));
	CHECK_OK(open_header(T("\"I16\"", "[]", "[0,2]"), 0, 2));
	CHECK_OK(open_header(T("\"F8_E4M3\"", "[0,3]", "[0,0]"), 0, 0));
}

static void test_no_file(void)
{
	srt_safetensors_t *f = NULL;

	unlink(path);
	CHECK_STATUS(srt_safetensors_open(path, &f), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS(path);
	CHECK_STATUS(srt_safetensors_open("/dev/zero", &f), SRT_ERR_IO);
	CHECK_STATUS(srt_safetensors_open("/", &f), SRT_ERR_IO);
	CHECK_OR_DIE(mkfifo(path, 0600) == 0);
	CHECK_STATUS(srt_safetensors_open(path, &f), SRT_ERR_IO);
	unlink(path);
	CHECK(f == NULL);
}

static void test_truncated(void)
{
	srt_safetensors_t *f = NULL;
	char file[1024];
	size_t n;

	write_sample();
	n = get_file(file, sizeof(file));
	for (size_t i = 0; i < n; i++) {
		put_file(file, i);
		CHECK_STATUS(srt_safetensors_open(path, &f), SRT_ERR_FORMAT);
	}
	CHECK(f == NULL);
	put_file(file, n + 1); /* one byte too many is as bad */
	CHECK_STATUS(srt_safetensors_open(path, &f), SRT_ERR_FORMAT);
}

/* Random damage: the file is refused, or every tensor of it can be read. */
static void test_mutations(void)
{
	enum { ROUNDS = 5000 };
	static const char tokens[] = "0123456789{}[],:\"\\ -eE.+nulltruF\x00\xff\x80";
	char file[1024], mutant[1024], data[1024];
	uint32_t random = 12345;
	size_t n, naccepted = 0;

	write_sample();
	n = get_file(file, sizeof(file));
	for (int round = 0; round < ROUNDS; round++) {
		srt_safetensors_t *f = NULL;
		srt_status_t status;

		memcpy(mutant, file, n);
		for (int k = 0; k <= round % 4; k++) {
			random = random * 1664525u + 1013904223u;
			mutant[(random >> 8) % n] = tokens[(random >> 20) % (sizeof(tokens) - 1)];
		}
		put_file(mutant, n);
		status = srt_safetensors_open(path, &f);
		CHECK_OR_DIE((status == SRT_OK) == (f != NULL));
		for (size_t i = 0; f && i < srt_safetensors_count(f); i++) {
			const srt_safetensors_tensor_t *t = srt_safetensors_tensor(f, i);

			CHECK_OR_DIE(t->nbytes <= sizeof(data));
			CHECK_OK(srt_safetensors_read(f, t, 0, t->nbytes, data));
		}
		naccepted += f != NULL;
		srt_safetensors_close(f);
	}
	/* damage to data or to names is legal, damage to the structure is not */
	CHECK_MSG(naccepted > ROUNDS / 100 && naccepted < ROUNDS / 2, "%zu accepted", naccepted);
}
#endif

int main(void)
{
	snprintf(path, sizeof(path), "test_safetensors.%ld", (long)getpid());
	test_bytes();
	test_writer_refuses();
	test_abandoned();
#ifdef HAVE_JANSSON
	test_round_trip();
	test_hostile();
	test_no_file();
	test_truncated();
	test_mutations();
#else
	CHECK_STATUS(srt_safetensors_open(path, &(srt_safetensors_t *){ NULL }),
		     SRT_ERR_UNSUPPORTED);
	printf("reading was left out: built without jansson\n");
#endif
	unlink(path);
	return check_done();
}
