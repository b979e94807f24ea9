/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Saving and loading full parameters, run at several world sizes by test_checkpoint.sh: round trips
 * over strategies, refused files that change nothing, failures to write that leave the old file.
 *
 *     test_checkpoint                       everything within one job
 *     test_checkpoint save|load FILE ddp|zero3   one half, for pairs of world sizes
 *     test_checkpoint dies begin|tensor|load|build   rank 1 does, the others' errors say at what
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "runtime/checkpoint/formats/safetensors.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

/* 7 rows cut unevenly, 2 rows leave ranks empty, 0 rows all of them. */
static const struct {
	const char *name;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int unit, frozen;
} declared[] = {
	{ "embed.weight", 2, { 7, 5 }, 0, 0 }, { "blocks.0.weight", 3, { 3, 2, 4 }, 1, 0 },
	{ "blocks.0.bias", 1, { 2 }, 1, 1 },   { "blocks.0.none", 2, { 0, 3 }, 1, 0 },
	{ "a.last", 1, { 1031 }, 1, 0 },       { "blocks.0.five", 5, { 3, 2, 1, 4, 5 }, 1, 0 },
};

static srt_context_t *context;
static srt_stream_t *stream;
static char path[64];

/* rows of the embedding may be changed, to have another model. */
static srt_engine_t *make_engine(srt_strategy_t strategy, int64_t rows, const char *extra)
{
	const srt_engine_options_t options = ENGINE_SGD(strategy, 0);
	srt_param_options_t how = { PARAM_BASE };
	srt_unit_t *units[2];
	srt_engine_t *engine;
	srt_param_t *p;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &units[0]));
	CHECK_OK_OR_DIE(srt_unit_create(engine, units[0], "blocks.0", NULL, &units[1]));
	for (size_t i = 0; i < SRT_ARRAY_LEN(declared); i++) {
		int64_t shape[SRT_MAX_DIMS];

		memcpy(shape, declared[i].shape, sizeof(shape));
		if (i == 0)
			shape[0] = rows;
		how.frozen = declared[i].frozen;
		CHECK_OK_OR_DIE(srt_param_create(units[declared[i].unit], declared[i].name, SRT_F32,
						 declared[i].ndim, shape, &how, &p));
		if (i == 0)
			CHECK_OK_OR_DIE(srt_param_tie(units[0], p, "head.weight"));
	}
	how.frozen = 0;
	if (extra != NULL)
		CHECK_OK_OR_DIE(
			srt_param_create(units[0], extra, SRT_F32, 1, (int64_t[]){ 3 }, &how, &p));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	return engine;
}

static void fill(srt_engine_t *engine, uint64_t seed)
{
	srt_param_t *p;

	for (size_t i = 0; (p = srt_engine_param_at(engine, i)) != NULL; i++)
		CHECK_OK_OR_DIE(srt_param_init_normal(p, seed, 0.0f, 1.0f, stream));
}

/* All ranks are here before one of them changes a file that others look at. */
static void meet(void)
{
	int mine = 0, *all = calloc((size_t)srt_context_world_size(context), sizeof(*all));

	CHECK_OR_DIE(all != NULL);
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), &mine, sizeof(mine), all));
	free(all);
}

static const srt_file_metadata_t metadata[] = { { "format", "pt" }, { "step", "17" } };

static void check_no_temporary(void)
{
	char name[128];

	/* rank 0 wrote; only it knows its process id */
	snprintf(name, sizeof(name), "%s.tmp-%ld-0", path, (long)getpid());
	CHECK(access(name, F_OK) != 0);
}

/* Values must be those that fill(seed) gives at any world size. */
static void check_values(srt_engine_t *engine, uint64_t seed)
{
	srt_engine_t *other = make_engine(SRT_STRATEGY_DDP, 7, NULL);
	srt_param_t *p, *q;

	fill(other, seed);
	for (size_t i = 0; (q = srt_engine_param_at(other, i)) != NULL; i++) {
		size_t n = (size_t)srt_param_nelem(q);
		float *got = calloc(n + 1, sizeof(*got)), *want = calloc(n + 1, sizeof(*want));

		CHECK_OR_DIE(got != NULL && want != NULL);
		p = srt_engine_param_find(engine, srt_param_name(q));
		CHECK_OR_DIE(p != NULL);
		CHECK_OK_OR_DIE(srt_param_get(p, SRT_PARAM_VALUE, got, stream));
		CHECK_OK_OR_DIE(srt_param_get(q, SRT_PARAM_VALUE, want, stream));
		CHECK_BITS(got, want, n);
		free(got);
		free(want);
	}
	srt_engine_destroy(other);
}

static void test_round_trip(void)
{
	static const srt_strategy_t strategies[] = { SRT_STRATEGY_ZERO3, SRT_STRATEGY_DDP };
	const char *value;
	srt_file_t *file;

	for (int from = 0; from < 2; from++) {
		srt_engine_t *engine = make_engine(strategies[from], 7, NULL);

		fill(engine, 11);
		CHECK_OK(srt_engine_save(engine, path, metadata, 2, stream));
		srt_engine_destroy(engine);
		for (int to = 0; to < 2; to++) {
			engine = make_engine(strategies[to], 7, NULL);
			CHECK_OK(srt_engine_load(engine, path, stream));
			check_values(engine, 11);
			srt_engine_destroy(engine);
		}
	}
	CHECK_OK_OR_DIE(srt_file_open(path, &file));
	CHECK_OK(srt_file_find_metadata(file, "step", &value));
	CHECK_STR(value, "17");
	CHECK_STATUS(srt_file_find_metadata(file, "none", &value), SRT_ERR_NOT_FOUND);
	srt_file_close(file);
	check_no_temporary();
}

/* The file has head.weight instead of embed.weight: another name of the same tensor. */
static void test_alias(void)
{
	static const srt_safetensors_entry_t entries[] = {
		{ "head.weight", SRT_F32, 2, { 7, 5 } },
		{ "blocks.0.weight", SRT_F32, 3, { 3, 2, 4 } },
		{ "blocks.0.bias", SRT_F32, 1, { 2 } },
		{ "blocks.0.none", SRT_F32, 2, { 0, 3 } },
		{ "a.last", SRT_F32, 1, { 1031 } },
		{ "blocks.0.five", SRT_F32, 5, { 3, 2, 1, 4, 5 } },
	};
	srt_engine_t *engine = make_engine(SRT_STRATEGY_ZERO3, 7, NULL);
	srt_safetensors_writer_t *w;
	static float values[1031];

	fill(engine, 12);
	if (srt_context_rank(context) == 0)
		CHECK_OK_OR_DIE(srt_safetensors_writer_create(path, entries, 6, NULL, 0, &w));
	for (size_t i = 0; i < 6; i++) {
		srt_param_t *p = srt_engine_param_find(engine, entries[i].name);

		CHECK_OK_OR_DIE(srt_param_get(p, SRT_PARAM_VALUE, values, stream));
		if (srt_context_rank(context) == 0)
			CHECK_OK(srt_safetensors_writer_put(w, i, values));
	}
	if (srt_context_rank(context) == 0) {
		CHECK_OK(srt_safetensors_writer_commit(w));
		srt_safetensors_writer_destroy(w);
	}
	meet();
	fill(engine, 13);
	CHECK_OK(srt_engine_load(engine, path, stream));
	check_values(engine, 12);
	srt_engine_destroy(engine);
}

/* A file that does not fit is refused on all ranks alike, and nothing is changed. */
static void test_refused(void)
{
	srt_engine_t *engine = make_engine(SRT_STRATEGY_ZERO3, 7, NULL);
	srt_engine_t *taller = make_engine(SRT_STRATEGY_DDP, 9, NULL);
	srt_engine_t *richer = make_engine(SRT_STRATEGY_ZERO3, 7, "more.weight");
	int world = srt_context_world_size(context);

	fill(engine, 21);
	fill(taller, 22);
	fill(richer, 23);
	CHECK_OK(srt_engine_save(taller, path, NULL, 0, stream));
	CHECK_STATUS(srt_engine_load(engine, path, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("embed.weight");
	CHECK_ERROR_HAS("[9,5]");
	CHECK_ERROR_HAS("[7,5]");
	check_values(engine, 21);
	CHECK_OK(srt_engine_save(engine, path, NULL, 0, stream));
	CHECK_STATUS(srt_engine_load(richer, path, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("more.weight");
	check_values(richer, 23);
	/* one rank sees no file: an error on all */
	CHECK_STATUS(srt_engine_load(engine,
				     srt_context_rank(context) == world - 1 ? "no/file" : path,
				     stream),
		     SRT_ERR_NOT_FOUND);
	if (world > 1) {
		char rank[16];

		snprintf(rank, sizeof(rank), "rank %d", world - 1);
		CHECK_ERROR_HAS(rank);
	}
	meet();
	if (srt_context_rank(context) == 0)
		CHECK_OR_DIE(truncate(path, 1000) == 0);
	meet();
	CHECK_STATUS(srt_engine_load(engine, path, stream), SRT_ERR_FORMAT);
	check_values(engine, 21);
	srt_engine_destroy(engine);
	srt_engine_destroy(taller);
	srt_engine_destroy(richer);
}

/* What was logged of tensors that are not used. */
typedef struct extra {
	int named, counted, raw;
} extra_t;

static void count_extra(srt_log_level_t level, const char *message, void *arg)
{
	extra_t *extra = arg;

	if (level != SRT_LOG_WARN)
		return;
	extra->named += strstr(message, "more.weight") != NULL;
	extra->counted += strstr(message, ": 3 more tensors are not used") != NULL;
	extra->raw += strpbrk(message, "\n\033\177") != NULL;
}

/* Tensors of the file that the model lacks are reported, not an error. */
static void test_extra(void)
{
	srt_engine_t *engine = make_engine(SRT_STRATEGY_ZERO3, 7, NULL);
	srt_engine_t *richer = make_engine(SRT_STRATEGY_ZERO3, 7, "more.weight");
	extra_t extra = { 0 };

	fill(richer, 31);
	CHECK_OK(srt_engine_save(richer, path, NULL, 0, stream));
	srt_log_set(count_extra, SRT_LOG_WARN, &extra);
	CHECK_OK(srt_engine_load(engine, path, stream));
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	CHECK_INT(extra.named, srt_context_rank(context) == 0);
	CHECK_INT(extra.counted, 0);
	check_values(engine, 31);
	srt_engine_destroy(engine);
	srt_engine_destroy(richer);
}

/* Names from a file may hold anything, and there may be many of them. */
static void test_hostile_extra(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0);
	srt_engine_t *empty, *many;
	extra_t extra = { 0 };
	srt_unit_t *unit;
	srt_param_t *p;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &many));
	CHECK_OK_OR_DIE(srt_unit_create(many, NULL, "root", NULL, &unit));
	for (int i = 0; i < 11; i++) {
		char name[64];

		snprintf(name, sizeof(name), "more.weight\033[2J\n\177%d", i);
		CHECK_OK_OR_DIE(
			srt_param_create(unit, name, SRT_F32, 1, (int64_t[]){ 3 }, NULL, &p));
	}
	CHECK_OK_OR_DIE(srt_engine_build(many));
	CHECK_OK(srt_engine_save(many, path, NULL, 0, stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &empty));
	CHECK_OK_OR_DIE(srt_unit_create(empty, NULL, "root", NULL, &unit));
	CHECK_OK_OR_DIE(srt_engine_build(empty));
	srt_log_set(count_extra, SRT_LOG_WARN, &extra);
	CHECK_OK(srt_engine_load(empty, path, stream));
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	CHECK_INT(extra.named, srt_context_rank(context) == 0 ? 8 : 0);
	CHECK_INT(extra.counted, srt_context_rank(context) == 0);
	CHECK_INT(extra.raw, 0);
	srt_engine_destroy(empty);
	srt_engine_destroy(many);
}

/* Rank 0 cannot write: the same error everywhere, the old file intact, no other file. */
static void test_unwritable(void)
{
	srt_engine_t *engine = make_engine(SRT_STRATEGY_ZERO3, 7, NULL);
	struct rlimit old, small;
	struct stat before, after;

	fill(engine, 41);
	CHECK_OK(srt_engine_save(engine, path, metadata, 2, stream));
	CHECK_OR_DIE(stat(path, &before) == 0);
	CHECK_STATUS(srt_engine_save(engine, "no/such/folder/x", NULL, 0, stream), SRT_ERR_IO);
	CHECK_STATUS(srt_engine_save(engine, "/dev/full", NULL, 0, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	/* a full disk, on rank 0 only */
	fill(engine, 42);
	CHECK_OR_DIE(getrlimit(RLIMIT_FSIZE, &old) == 0);
	small = old;
	small.rlim_cur = 2048;
	signal(SIGXFSZ, SIG_IGN);
	if (srt_context_rank(context) == 0)
		CHECK_OR_DIE(setrlimit(RLIMIT_FSIZE, &small) == 0);
	CHECK_STATUS(srt_engine_save(engine, path, NULL, 0, stream), SRT_ERR_IO);
	CHECK_OR_DIE(setrlimit(RLIMIT_FSIZE, &old) == 0);
	check_no_temporary();
	CHECK_OR_DIE(stat(path, &after) == 0);
	CHECK(before.st_ino == after.st_ino && before.st_size == after.st_size);
	CHECK_OK(srt_engine_load(engine, path, stream));
	check_values(engine, 41);
	/* and once there is room again, it works */
	CHECK_OK(srt_engine_save(engine, path, NULL, 0, stream));
	srt_engine_destroy(engine);
}

static void test_states(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0);
	srt_engine_t *engine;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_STATUS(srt_engine_save(engine, path, NULL, 0, stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_load(engine, path, stream), SRT_ERR_STATE);
	srt_engine_destroy(engine);
}

/* The rank that dies does so when all others are here: each leaves a file, which it waits for. */
static void die_behind(bool dies)
{
	char name[96];

	for (int r = 0; r < srt_context_world_size(context); r++) {
		if (r == 1 || (!dies && r != srt_context_rank(context)))
			continue;
		snprintf(name, sizeof(name), "%s.%d", path, r);
		if (!dies)
			close(open(name, O_CREAT | O_WRONLY, 0600));
		while (dies && unlink(name) != 0)
			usleep(1000);
	}
	if (dies)
		_exit(0);
}

/*
 * Rank 1 dies while the others save, load or build; in the middle of the tensors by doing as
 * srt_engine_save() does up to there. The others' errors say at what: that tensor or, where news
 * of the death came first, the one before.
 */
static void test_death(const char *where)
{
	srt_engine_t *engine = make_engine(SRT_STRATEGY_DDP, 7, NULL);
	bool dies = srt_context_rank(context) == 1;

	if (!strcmp(where, "begin")) {
		die_behind(dies);
		CHECK_STATUS(srt_engine_save(engine, path, NULL, 0, stream), SRT_ERR_PEER_DEAD);
		CHECK_ERROR_HAS("beginning to save tests/engine/test_checkpoint.w");
	} else if (!strcmp(where, "tensor")) {
		if (dies) {
			CHECK_OK_OR_DIE(srt_comm_status_consensus(srt_context_world(context),
								  "beginning", SRT_OK));
			CHECK_OK_OR_DIE(srt_comm_status_consensus(srt_context_world(context),
								  "saving", SRT_OK));
			_exit(0);
		}
		CHECK_STATUS(srt_engine_save(engine, path, NULL, 0, stream), SRT_ERR_PEER_DEAD);
		CHECK_ERROR_HAS("saving tests/engine/test_checkpoint.w");
		CHECK_ERROR_HAS(", tensor '");
	} else if (!strcmp(where, "load")) {
		CHECK_OK(srt_engine_save(engine, path, NULL, 0, stream));
		die_behind(dies);
		CHECK_STATUS(srt_engine_load(engine, path, stream), SRT_ERR_PEER_DEAD);
		CHECK_ERROR_HAS("checking tests/engine/test_checkpoint.w");
	} else {
		srt_engine_t *other;
		srt_unit_t *root;

		die_behind(dies);
		CHECK_OK_OR_DIE(
			srt_engine_create(context,
					  &(srt_engine_options_t)ENGINE_SGD(SRT_STRATEGY_DDP, 0),
					  &other));
		CHECK_OK_OR_DIE(srt_unit_create(other, NULL, "root", NULL, &root));
		CHECK_STATUS(srt_engine_build(other), SRT_ERR_PEER_DEAD);
		CHECK_ERROR_HAS("comparing the declared engines");
		srt_engine_destroy(other);
	}
	CHECK_ERROR_HAS("rank 1 is gone");
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
}

static void run_half(char **argv)
{
	srt_strategy_t strategy = !strcmp(argv[3], "ddp") ? SRT_STRATEGY_DDP : SRT_STRATEGY_ZERO3;
	srt_engine_t *engine = make_engine(strategy, 7, NULL);

	if (!strcmp(argv[1], "save")) {
		fill(engine, 51);
		CHECK_OK(srt_engine_save(engine, argv[2], metadata, 2, stream));
	} else {
		CHECK_OK(srt_engine_load(engine, argv[2], stream));
		check_values(engine, 51);
	}
	srt_engine_destroy(engine);
}

int main(int argc, char **argv)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	/* the same file on all ranks of a job, another one for another job */
	snprintf(path, sizeof(path), "tests/engine/test_checkpoint.w%d.tmp",
		 srt_context_world_size(context));
	if (argc == 3) {
		test_death(argv[2]);
		return check_done();
	}
	if (argc == 4) {
		run_half(argv);
	} else {
		test_round_trip();
		test_alias();
		test_refused();
		test_extra();
		test_hostile_extra();
		test_unwritable();
		test_states();
	}
	meet();
	if (srt_context_rank(context) == 0)
		unlink(path);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
