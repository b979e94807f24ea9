/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The safetensors reader and writer: bytes against the format's definition, every refusal of the
 * writer, and a reader that survives hostile files (cut at every length, lying about sizes,
 * mutated).
 *
 *     test_safetensors           everything
 *     test_safetensors FILE...   which files the reader accepts
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/safetensors.h"
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
		{ { "x", SRT_DTYPE_NONE, 1, { 1 } }, { "y", SRT_F32, 1, { 1 } } },
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

/*
 * Reliability: a child by fork() that destroys a writer of a file | the parent's file is lost | it
 * is left alone
 */
static void test_fork(void)
{
	srt_safetensors_writer_t *w;
	int status = -1;
	pid_t child;

	unlink(path);
	CHECK_OK_OR_DIE(srt_safetensors_writer_create(path, entries, 1, NULL, 0, &w));
	child = fork();
	CHECK_OR_DIE(child >= 0);
	if (child == 0) {
		srt_safetensors_writer_destroy(w);
		_exit(0);
	}
	CHECK_INT(waitpid(child, &status, 0), child);
	CHECK_INT(status, 0);
	CHECK_OK(srt_safetensors_writer_put(w, 0, f32_data));
	CHECK_OK(srt_safetensors_writer_commit(w));
	srt_safetensors_writer_destroy(w);
	CHECK(access(path, F_OK) == 0);
}

/*
 * What killed savers have left is removed by the next one; what others still write is not.
 *
 * Reliability: temporary files of savers that were killed | stay for ever | removed by the next
 * save
 */
static void test_temporaries(void)
{
	srt_safetensors_writer_t *w;
	char left[96], live[96], stranger[96];

	snprintf(left, sizeof(left), "%s.tmp-1-0", path);
	snprintf(live, sizeof(live), "%s.tmp-%ld-0", path, (long)getpid());
	snprintf(stranger, sizeof(stranger), "%s.tmp", path);
	close(open(left, O_WRONLY | O_CREAT, 0600));
	close(open(stranger, O_WRONLY | O_CREAT, 0600));
	CHECK_OK_OR_DIE(srt_safetensors_writer_create(path, entries, 3, NULL, 0, &w));
	CHECK(access(left, F_OK) != 0);
	CHECK(access(live, F_OK) == 0);
	write_sample();
	CHECK(access(live, F_OK) == 0);
	CHECK(access(stranger, F_OK) == 0);
	srt_safetensors_writer_destroy(w);
	unlink(stranger);
}

/* The file that a link names is replaced, and its mode stays. */
static void test_link(void)
{
	srt_safetensors_writer_t *w = NULL;
	char link[96], *name = strrchr(path, '/');
	struct stat st;

	snprintf(link, sizeof(link), "%s.link", path);
	write_sample();
	CHECK_OR_DIE(chmod(path, 0640) == 0);
	CHECK_OR_DIE(symlink(name != NULL ? name + 1 : path, link) == 0);
	CHECK_OK_OR_DIE(srt_safetensors_writer_create(link, entries, 0, NULL, 0, &w));
	CHECK_OK(srt_safetensors_writer_commit(w));
	srt_safetensors_writer_destroy(w);
	CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
	CHECK_INT(st.st_mode & 0777, 0640);
	CHECK_INT(st.st_size, 16);
	unlink(path);
	CHECK_STATUS(srt_safetensors_writer_create(link, entries, 0, NULL, 0, &w), SRT_ERR_IO);
	CHECK_ERROR_HAS("symbolic link");
	unlink(link);
}

/* A folder that cannot be opened cannot be synced: the error says that the file is there. */
static void test_unsynced(void)
{
	srt_safetensors_writer_t *w;
	const bool is_root = geteuid() == 0;
	char folder[64], file[80];
	const char *tmp = "/tmp";

	snprintf(folder, sizeof(folder), "%s/test_safetensors.%ld", tmp, (long)getpid());
	snprintf(file, sizeof(file), "%s/x", folder);
	CHECK_OR_DIE(mkdir(folder, 0700) == 0 && chmod(folder, 0333) == 0);
	CHECK_OR_DIE(!is_root || seteuid(65534) == 0);
	CHECK_OK_OR_DIE(srt_safetensors_writer_create(file, entries, 0, NULL, 0, &w));
	CHECK_STATUS(srt_safetensors_writer_commit(w), SRT_ERR_IO);
	CHECK_ERROR_HAS("is complete and in place");
	srt_safetensors_writer_destroy(w);
	CHECK(access(file, F_OK) == 0);
	CHECK_OR_DIE(!is_root || seteuid(0) == 0);
	CHECK(unlink(file) == 0 && rmdir(folder) == 0);
}

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

/*
 * An open file may be replaced, but not written to.
 *
 * Reliability: a file that is written to while it is read | a mixture, a success | an error
 */
static void test_changed(void)
{
	const struct timespec old[2] = { { 1000000, 0 }, { 1000000, 0 } };
	srt_safetensors_t *f = NULL;
	char replacement[80];
	int fd;

	write_sample();
	CHECK_OK_OR_DIE(srt_safetensors_open(path, &f));
	snprintf(replacement, sizeof(replacement), "%s.new", path);
	CHECK_OR_DIE(rename(path, replacement) == 0);
	write_sample();
	CHECK_OR_DIE(rename(replacement, path) == 0);
	CHECK_OK(srt_safetensors_check_unchanged(f));
	write_sample();
	CHECK_OK(srt_safetensors_check_unchanged(f));
	srt_safetensors_close(f);
	CHECK_OR_DIE(utimensat(AT_FDCWD, path, old, 0) == 0);
	CHECK_OK_OR_DIE(srt_safetensors_open(path, &f));
	fd = open(path, O_WRONLY);
	CHECK_OR_DIE(fd >= 0 && pwrite(fd, "x", 1, 400) == 1);
	close(fd);
	CHECK_STATUS(srt_safetensors_check_unchanged(f), SRT_ERR_IO);
	CHECK_ERROR_HAS("was written to while it was read");
	srt_safetensors_close(f);
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

static void test_lengths(void)
{
	/* lengths: beyond the file, beyond the limit, of a size that wraps around */
	CHECK_STATUS(open_header("{}", 3, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", SRT_SAFETENSORS_MAX_HEADER + 1, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", UINT64_MAX, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", UINT64_MAX - 7, 0), SRT_ERR_FORMAT);
	CHECK_STATUS(open_header("{}", 0, 1), SRT_ERR_FORMAT);
	CHECK_OK(open_header("{}", 0, 0));
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
		for (size_t i = 0; f != NULL && i < srt_safetensors_count(f); i++) {
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
/* For test_checkpoint_python.sh: prints the status of opening each file. */
static void open_files(char **paths)
{
	for (; *paths != NULL; paths++) {
		srt_safetensors_t *f = NULL;
		srt_status_t status = srt_safetensors_open(*paths, &f);

		printf("%s %s\n", *paths, status == SRT_OK ? "accepted" : srt_error_last());
		srt_safetensors_close(f);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		open_files(argv + 1);
		return 0;
	}
	snprintf(path, sizeof(path), "test_safetensors.%ld", (long)getpid());
	test_bytes();
	test_writer_refuses();
	test_abandoned();
	test_fork();
	test_temporaries();
	test_link();
	test_unsynced();
	test_round_trip();
	test_changed();
	test_lengths();
	test_no_file();
	test_truncated();
	test_mutations();
	unlink(path);
	return check_done();
}
