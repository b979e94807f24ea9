/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded checkpoints that are damaged, do not fit or cannot be written, run at several world sizes
 * by test_checkpoint_sharded.sh: an error on all ranks that names file and tensor, never other
 * values; and the earlier checkpoint stays.
 *
 *     test_checkpoint_damage FOLDER
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shardrt/checkpoint_file.h>

#include "runtime/checkpoint/formats/safetensors.h"
#include "tests/engine/engine_case.h"
#include "tests/harness/random.h"

static srt_context_t *context;
static int rank, world;
static int nflips;
static char parent[128], folder[192], other[192];

static void declare(engine_case_t *c, srt_strategy_t strategy)
{
	const srt_engine_options_t options = case_adamw(strategy);

	case_declare(c, context, &options, 3);
	case_build(c);
}

static void fill(engine_case_t *c, uint64_t seed)
{
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK_OR_DIE(srt_param_init_normal(c->param[i], seed, 0.0f, 1.0f, c->stream));
}

static void check_values(engine_case_t *c, uint64_t seed)
{
	float *got = case_collect(c, SRT_PARAM_VALUE), *want;
	engine_case_t fresh;

	declare(&fresh, SRT_STRATEGY_DDP);
	fill(&fresh, seed);
	want = case_collect(&fresh, SRT_PARAM_VALUE);
	CHECK_BITS(got, want, case_nelem(c));
	free(got);
	free(want);
	case_destroy(&fresh);
}

static srt_status_t save(engine_case_t *c, const char *path)
{
	return srt_checkpoint_save(c->engine, path, NULL, c->stream);
}

static srt_status_t load(engine_case_t *c, const char *path)
{
	return srt_checkpoint_load(c->engine, path, NULL, c->stream);
}

/* ---- what does not fit ------------------------------------------------------------------- */

static void test_misfits(void)
{
	int64_t number = 7, got = 0;
	const srt_checkpoint_entry_t number_is_7 = { sizeof(srt_checkpoint_entry_t), "number",
						     &number, sizeof(number) };
	const srt_checkpoint_entry_t entries[] = { number_is_7, number_is_7 };
	srt_checkpoint_options_t options = { .size = sizeof(srt_checkpoint_options_t),
					     .entries = entries,
					     .nentries = 1 };
	srt_engine_options_t sgd = { ENGINE_BASE, .strategy = SRT_STRATEGY_DDP,
				     .optim = OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.1f,
						    .momentum = 0.5) };
	srt_engine_options_t none = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
				      .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	const case_types_t groups = { .ngroups = 3 };
	engine_case_t c, d;
	char path[256];
	size_t nbytes;

	declare(&c, SRT_STRATEGY_ZERO3);
	fill(&c, 1);
	options.nentries = 2;
	CHECK_STATUS(srt_checkpoint_save(c.engine, folder, &options, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'number' occurs twice");
	options.nentries = 1;
	snprintf(path, sizeof(path), "%s//", folder); /* slashes at the end */
	CHECK_OK_OR_DIE(srt_checkpoint_save(c.engine, path, &options, c.stream));
	CHECK_OK(srt_checkpoint_latest(parent, path, sizeof(path)));
	CHECK_STR(path, folder);
	CHECK_STATUS(srt_checkpoint_latest(parent, path, 4), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_checkpoint_get_entry(folder, "number", &got, sizeof(got), &nbytes));
	CHECK(got == 7 && nbytes == sizeof(got));
	CHECK_STATUS(srt_checkpoint_get_entry(folder, "number", &got, 4, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_checkpoint_get_entry(folder, "none", &got, 8, NULL), SRT_ERR_NOT_FOUND);

	case_declare_as(&d, context, &sgd, 3, &(case_types_t){ .stored = SRT_F32 });
	case_build(&d);
	CHECK_STATUS(load(&d, folder), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("optimizer adamw, but the engine has sgd");
	case_destroy(&d);
	sgd = case_adamw(SRT_STRATEGY_ZERO3);
	case_declare_as(&d, context, &sgd, 3, &groups);
	case_build(&d);
	CHECK_STATUS(load(&d, folder), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("1 groups of parameters, but the engine 3");
	case_destroy(&d);
	case_declare(&d, context, &sgd, 4);
	case_build(&d);
	fill(&d, 5);
	CHECK_STATUS(load(&d, folder), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("tensor 'root.weight' is [3,3] in the checkpoint, but [4,3] in the engine");
	case_destroy(&d);
	case_declare(&d, context, &sgd, 3);
	case_param(&d, d.root, "more.weight", 3, -1, 0, 0.0f);
	case_build(&d);
	CHECK_STATUS(load(&d, folder), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("no tensor 'more.weight'");
	case_destroy(&d);

	/* Without an optimizer its states are not needed, and groups do not matter. */
	case_declare(&d, context, &none, 3);
	case_build(&d);
	CHECK_OK(load(&d, folder));
	check_values(&d, 1);
	case_destroy(&d);

	CHECK_OK(srt_engine_write_begin(c.engine, c.stream));
	CHECK_STATUS(save(&c, other), SRT_ERR_STATE);
	CHECK_ERROR_HAS("call srt_engine_write_end() first");
	CHECK_STATUS(load(&c, folder), SRT_ERR_STATE);
	CHECK_OK(srt_engine_write_end(c.engine, c.stream));
	CHECK_OK_OR_DIE(case_passes(&c, 0, 1));
	CHECK_STATUS(save(&c, other), SRT_ERR_STATE);
	CHECK_ERROR_HAS("within a step");
	CHECK_STATUS(load(&c, folder), SRT_ERR_STATE);
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	CHECK_STATUS(load(&c, other), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_checkpoint_remove(other), SRT_ERR_NOT_FOUND);
	case_destroy(&c);
}

/* ---- what cannot be written -------------------------------------------------------------- */

/*
 * Reliability: a disk that is full while a sharded checkpoint is saved, on one rank | - | an error
 * on all ranks, which names it; the earlier checkpoint stays
 */
static void test_unwritable(void)
{
	struct rlimit old, small;
	struct stat st;
	srt_checkpoint_write_t *write;
	engine_case_t c;
	char path[256];

	declare(&c, SRT_STRATEGY_ZERO3);
	fill(&c, 1);
	CHECK_OK_OR_DIE(save(&c, folder));
	fill(&c, 2);
	CHECK_OR_DIE(getrlimit(RLIMIT_FSIZE, &old) == 0);
	small = old;
	small.rlim_cur = 512;
	signal(SIGXFSZ, SIG_IGN);
	if (rank == world - 1)
		CHECK_OR_DIE(setrlimit(RLIMIT_FSIZE, &small) == 0);
	CHECK_STATUS(save(&c, folder), SRT_ERR_IO);
	CHECK_OK_OR_DIE(srt_checkpoint_save_begin(c.engine, folder, NULL, &write, c.stream));
	CHECK_STATUS(srt_checkpoint_save_end(write), SRT_ERR_IO);
	CHECK_OR_DIE(setrlimit(RLIMIT_FSIZE, &old) == 0);
	CHECK_ERROR_HAS("File too large");
	if (world > 1) {
		snprintf(path, sizeof(path), "on rank %d", world - 1);
		CHECK_ERROR_HAS(path);
	}
	CHECK_OK(load(&c, folder));
	check_values(&c, 1);
	CHECK_STATUS(save(&c, "/proc/no-folder"), SRT_ERR_IO); /* cannot be written by root, too */
	CHECK_STATUS(save(&c, "no/such/parent"), SRT_ERR_IO);
	CHECK_STATUS(save(&c, ".."), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(save(&c, "/dev/null"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(save(&c, parent), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is not a checkpoint");
	fill(&c, 3);
	if (rank == 0)
		CHECK_OR_DIE(chmod(folder, 0750) == 0);
	case_wait_for_all(context);
	CHECK_OK(save(&c, folder)); /* replaces it, with its mode */
	CHECK_OR_DIE(stat(folder, &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0750);
	CHECK_OK(load(&c, folder));
	check_values(&c, 3);
	case_destroy(&c);
}

/*
 * Reliability: a child by fork() that ends a save of its parent | waits for ever for a thread that
 * is not there | an error; the save goes on in the parent
 */
static void test_fork(void)
{
	srt_checkpoint_write_t *write;
	engine_case_t c;
	int status;
	pid_t child;

	declare(&c, SRT_STRATEGY_ZERO3);
	fill(&c, 4);
	CHECK_OK_OR_DIE(srt_checkpoint_save_begin(c.engine, folder, NULL, &write, c.stream));
	child = fork();
	CHECK_OR_DIE(child >= 0);
	if (child == 0)
		_exit(srt_checkpoint_save_end(write) != SRT_ERR_STATE);
	CHECK_OR_DIE(waitpid(child, &status, 0) == child);
	CHECK_INT(status, 0);
	CHECK_OK(srt_checkpoint_save_end(write));
	CHECK_OK(load(&c, folder));
	check_values(&c, 4);
	case_destroy(&c);
}

/* ---- files of other programs --------------------------------------------------------------- */

static void write_file(const char *dir, const char *name, const char *text)
{
	char path[320];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "we");
	CHECK_OR_DIE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* It is there, with this text; then it is removed. */
static void check_file(const char *dir, const char *name, const char *text)
{
	char path[320], got[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "re");
	CHECK_OR_DIE(file != NULL && fgets(got, sizeof(got), file) != NULL);
	CHECK_STR(got, text);
	CHECK_OR_DIE(fclose(file) == 0 && unlink(path) == 0);
}

/*
 * Reliability: a checkpoint that was moved away, with a symbolic link in its place | its removal
 * fails, and a link of a temporary name stays for ever | the link is removed, what it names stays
 */
static void check_link(void)
{
	char away[208];

	snprintf(away, sizeof(away), "%s.away", other);
	CHECK_OR_DIE(rename(other, away) == 0 && symlink("two.away", other) == 0);
	CHECK_OK(srt_checkpoint_verify(other, NULL, NULL, NULL));
	CHECK_OK(srt_checkpoint_remove(other));
	CHECK_STATUS(srt_checkpoint_remove(other), SRT_ERR_NOT_FOUND);
	CHECK_OK(srt_checkpoint_verify(away, NULL, NULL, NULL));
	CHECK_OR_DIE(rename(away, other) == 0);
}

static void test_foreign(void)
{
	static const char *const names[] = { "latest", ".hidden", "x.tmp-0123456789abcdef",
					     "x.replaced" };
	static const char *const others[] = { "rank-0.log", "rank-00000-of-00001.safetensors.log",
					      "manifest.json.old" };
	static const char manifest[] = "{\"name\":\"a manifest of another program\"}";
	char foreign[192], path[256];
	engine_case_t c;

	declare(&c, SRT_STRATEGY_ZERO3);
	fill(&c, 1);
	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s/", parent, names[i]);
		CHECK_STATUS(save(&c, path), SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("or end in .replaced or in .tmp-");
	}
	snprintf(foreign, sizeof(foreign), "%s/foreign", parent);
	if (rank == 0) {
		CHECK_OR_DIE(mkdir(foreign, 0777) == 0);
		write_file(foreign, "manifest.json", manifest);
	}
	CHECK_STATUS(save(&c, foreign), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is not a checkpoint");
	if (rank == 0) {
		CHECK_STATUS(srt_checkpoint_remove(foreign), SRT_ERR_NOT_FOUND);
		check_file(foreign, "manifest.json", manifest);
		CHECK(rmdir(foreign) == 0);
	}
	CHECK_OK_OR_DIE(save(&c, other));
	if (rank == 0) {
		check_link();
		for (size_t i = 0; i < SRT_ARRAY_LEN(others); i++)
			write_file(other, others[i], names[i]);
		CHECK_OK(srt_checkpoint_remove(other));
		CHECK_STATUS(srt_checkpoint_remove(other), SRT_ERR_NOT_FOUND);
		for (size_t i = 0; i < SRT_ARRAY_LEN(others); i++)
			check_file(other, others[i], names[i]);
		CHECK(rmdir(other) == 0); /* nothing of the checkpoint is left */
	}
	case_wait_for_all(context);
	case_destroy(&c);
}

/* ---- damage ------------------------------------------------------------------------------ */

static void change_byte(const char *path, off_t at, unsigned char by)
{
	const int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char byte;

	CHECK_OR_DIE(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= by;
	CHECK_OR_DIE(pwrite(fd, &byte, 1, at) == 1);
	close(fd);
}

static off_t size_of(const char *path)
{
	struct stat st;

	CHECK_OR_DIE(stat(path, &st) == 0);
	return st.st_size;
}

/* All ranks load while rank 0 has changed a file; then it is as before. */
static void check_refused(engine_case_t *c, const char *words, const char *what)
{
	const srt_status_t status = load(c, folder);

	CHECK_MSG(status == SRT_ERR_FORMAT || status == SRT_ERR_NOT_FOUND, "%s: status %d", what,
		  (int)status);
	CHECK_MSG(strstr(srt_error_last(), words) != NULL, "%s: '%s' has no '%s'", what,
		  srt_error_last(), words);
	case_wait_for_all(context);
}

static void rank_file(char *path, size_t npath, const char *of, int r)
{
	snprintf(path, npath, "%s/rank-%05d-of-%05d.safetensors", of, r, world);
}

/* A bit of each of some bytes; always those of the lengths and of the ends. */
static void test_flips(engine_case_t *c, const char *path, const char *words)
{
	const off_t n = size_of(path);
	const off_t stride = n / 120 + 1;

	case_wait_for_all(context);
	for (off_t at = 0; at < n; at += at < 10 || at > n - 10 ? 1 : stride) {
		const unsigned char by = (unsigned char)(1u << (random32() % 8));
		char what[320];

		snprintf(what, sizeof(what), "byte %lld of %s", (long long)at, path);
		if (rank == 0)
			change_byte(path, at, by);
		case_wait_for_all(context);
		check_refused(c, words, what);
		nflips++;
		if (rank == 0)
			change_byte(path, at, by);
		case_wait_for_all(context);
	}
}

static void exchange(const char *a, const char *b)
{
	char temporary[320];

	snprintf(temporary, sizeof(temporary), "%s.away", a);
	CHECK_OR_DIE(rename(a, temporary) == 0 && rename(b, a) == 0 && rename(temporary, b) == 0);
}

/*
 * Reliability: a bit of a sharded checkpoint that has flipped, in any file | - | an error that
 * names the file, and the tensor if its bytes are damaged
 * Reliability: files of a sharded checkpoint that are missing, cut, exchanged, or of another
 * checkpoint of the same model | - | an error that names the file
 */
static void test_damage(void)
{
	char manifest[256], first[256], last[256], foreign[256], path[320], away[328];
	engine_case_t c;
	off_t n;

	declare(&c, SRT_STRATEGY_ZERO3);
	fill(&c, 1);
	CHECK_OK_OR_DIE(save(&c, folder));
	CHECK_OK_OR_DIE(save(&c, other)); /* the same tensors */
	snprintf(manifest, sizeof(manifest), "%s/manifest.json", folder);
	rank_file(first, sizeof(first), folder, 0);
	rank_file(last, sizeof(last), folder, world - 1);
	rank_file(foreign, sizeof(foreign), other, 0);
	random_state = 5;
	test_flips(&c, manifest, "manifest.json");
	test_flips(&c, first, ".safetensors");
	test_flips(&c, last, ".safetensors");
	n = size_of(last);
	case_wait_for_all(context);
	if (rank == 0)
		change_byte(last, n - 1, 1); /* of a tensor, which is named */
	case_wait_for_all(context);
	check_refused(&c, "' is damaged: bytes", "a flip in a tensor");
	CHECK_ERROR_HAS("some values have changed");
	if (rank == 0) {
		change_byte(last, n - 1, 1);
		CHECK_OR_DIE(truncate(last, n - 3) == 0);
	}
	case_wait_for_all(context);
	check_refused(&c, ".safetensors", "a file that is cut");
	if (rank == 0) {
		CHECK_OR_DIE(truncate(last, n) == 0);
		CHECK_OR_DIE(truncate(manifest, size_of(manifest) - 1) == 0);
	}
	case_wait_for_all(context);
	check_refused(&c, "manifest.json: its checksum is wrong", "a manifest that is cut");
	snprintf(path, sizeof(path), "%s.away", manifest);
	if (rank == 0)
		CHECK_OR_DIE(rename(manifest, path) == 0);
	case_wait_for_all(context);
	check_refused(&c, "manifest.json: No such file", "a missing manifest");
	CHECK_STATUS(srt_checkpoint_get_entry(folder, "x", NULL, 0, NULL), SRT_ERR_NOT_FOUND);
	if (rank == 0) /* the other checkpoint under this name */
		exchange(other, folder);
	case_wait_for_all(context);
	CHECK_OK(load(&c, folder));
	check_values(&c, 1);
	case_wait_for_all(context);
	snprintf(path, sizeof(path), "%s/manifest.json", other);
	snprintf(away, sizeof(away), "%s.away", path);
	if (rank == 0) {
		CHECK_OR_DIE(rename(away, path) == 0);
		exchange(foreign, first);
	}
	case_wait_for_all(context);
	check_refused(&c, "is of another rank or checkpoint", "a file of another checkpoint");
	if (rank == 0)
		exchange(foreign, first);
	if (world > 1) {
		case_wait_for_all(context);
		if (rank == 0)
			exchange(first, last);
		case_wait_for_all(context);
		check_refused(&c, "is of another rank or checkpoint", "exchanged files");
		if (rank == 0)
			exchange(first, last);
	}
	case_wait_for_all(context);
	if (rank == 0)
		CHECK_OR_DIE(rename(last, away) == 0);
	case_wait_for_all(context);
	check_refused(&c, ".safetensors: No such file", "a missing file");
	CHECK_ERROR_HAS("'");
	if (rank == 0)
		CHECK_OR_DIE(rename(away, last) == 0);
	case_wait_for_all(context);
	CHECK_OK(load(&c, folder));
	check_values(&c, 1);
	if (world > 1) { /* each rank another checkpoint */
		fill(&c, 2);
		CHECK_OK(save(&c, other));
		CHECK_STATUS(load(&c, rank == 1 ? other : folder), SRT_ERR_MISMATCH);
		CHECK_ERROR_HAS("have opened different checkpoints");
		check_values(&c, 2); /* nothing has changed */
	}
	case_destroy(&c);
}

int main(int argc, char **argv)
{
	CHECK_OR_DIE(argc == 2);
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	snprintf(parent, sizeof(parent), "%s/%d", argv[1], world);
	if (rank == 0)
		CHECK_OR_DIE(mkdir(parent, 0777) == 0);
	case_wait_for_all(context);
	snprintf(folder, sizeof(folder), "%s/one", parent);
	snprintf(other, sizeof(other), "%s/two", parent);
	test_misfits();
	test_unwritable();
	test_fork();
	test_foreign();
	test_damage();
	if (rank == 0)
		printf("%d flips, each of them found\n", nflips);
	srt_context_destroy(context);
	return check_done();
}
