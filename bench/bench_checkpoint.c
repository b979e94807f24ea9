/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Saving and loading a sharded checkpoint of 400 MB: the values of 50 tensors of 2000 x 1000 floats
 * with zero3, without optimizer states. Each rank prints the seconds of srt_checkpoint_save() and
 * srt_checkpoint_load(), which bench/peer_checkpoint.py compares with PyTorch's:
 *
 *     shardrun -n 2 bench/bench_checkpoint FOLDER [drop]
 *
 * Each call is made twice, and the second one is measured. It saves to a name that was not there.
 * drop: the files leave the page cache before they are loaded.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

enum { UNITS = 10, TENSORS = 5, ROWS = 2000, COLUMNS = 1000 };

static srt_context_t *context;
static srt_stream_t *stream;
static srt_engine_t *engine;
static srt_param_t *params[UNITS * TENSORS];

static double read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The times of a call. */
typedef struct times {
	double s, cpu_s; /* cpu_s: of all threads of this process */
} times_t;

static times_t begin_times(void)
{
	return (times_t){ read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_PROCESS_CPUTIME_ID) };
}

static times_t end_times(times_t begin)
{
	const times_t end = begin_times();

	return (times_t){ end.s - begin.s, end.cpu_s - begin.cpu_s };
}

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_checkpoint: %s\n", srt_error_last());
	exit(1);
}

static void declare(void)
{
	const srt_optim_options_t none = { .size = sizeof(none), .kind = SRT_OPTIM_NONE };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	const int64_t shape[] = { ROWS, COLUMNS };
	srt_unit_t *root, *unit;
	char name[32];

	options.optim = &none;
	check_status(srt_engine_create(context, &options, &engine));
	check_status(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int u = 0; u < UNITS; u++) {
		snprintf(name, sizeof(name), "unit%d", u);
		check_status(srt_unit_create(engine, root, name, NULL, &unit));
		for (int i = 0; i < TENSORS; i++) {
			snprintf(name, sizeof(name), "unit%d.tensor%d", u, i);
			check_status(srt_param_create(unit, name, SRT_F32, 2, shape, NULL,
						      &params[u * TENSORS + i]));
		}
	}
	check_status(srt_engine_build(engine));
}

static void fill(float std)
{
	for (int i = 0; i < UNITS * TENSORS; i++)
		check_status(srt_param_init_normal(params[i], 1, 0.0f, std, stream));
	check_status(srt_stream_sync(stream));
}

/* The other ranks have come here too. */
static void wait_for_all(void)
{
	char mine = 0, *all = calloc((size_t)srt_context_world_size(context), 1);

	if (all == NULL)
		exit(1);
	check_status(srt_comm_oob_allgather(srt_context_world(context), &mine, 1, all));
	free(all);
}

static void drop_files(const char *folder)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		const int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);

		if (fd >= 0) {
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			close(fd);
		}
	}
	if (dir != NULL)
		closedir(dir);
}

int main(int argc, char **argv)
{
	times_t begin, save = { 0 }, load = { 0 };
	const int drops = argc == 3 && strcmp(argv[2], "drop") == 0;
	char folder[4096];

	if (argc < 2 || argc > 3 || (argc == 3 && !drops)) {
		fprintf(stderr, "usage: bench_checkpoint FOLDER [drop]\n");
		return 2;
	}
	snprintf(folder, sizeof(folder), "%s/checkpoint", argv[1]);
	check_status(srt_context_create(NULL, &context));
	check_status(srt_stream_create(srt_context_device(context), 0, "bench", &stream));
	declare();
	for (int round = 0; round < 2; round++) {
		fill(1.0f);
		wait_for_all();
		begin = begin_times();
		check_status(srt_checkpoint_save(engine, folder, NULL, stream));
		save = end_times(begin);
		fill(0.0f);
		if (drops && srt_context_rank(context) == 0)
			drop_files(folder);
		wait_for_all();
		begin = begin_times();
		check_status(srt_checkpoint_load(engine, folder, NULL, stream));
		load = end_times(begin);
		wait_for_all();
		if (srt_context_rank(context) == 0)
			check_status(srt_checkpoint_remove(folder));
		wait_for_all();
	}
	printf("{\"save\": %.6f, \"save cpu\": %.6f, \"load\": %.6f, \"load cpu\": %.6f, "
	       "\"version\": \"%s\"}\n",
	       save.s, save.cpu_s, load.s, load.cpu_s, srt_version_string());
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return 0;
}
