/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call that is refused on all ranks, in a program that ends at once, without
 * srt_context_destroy(): test_refused MODE FOLDER [SEED]. MODE "hash" is a call that succeeds. With
 * a seed a quarter of the messages of the call, which the seed chooses, is sent 40 ms late: ranks
 * end while others still exchange the reason. Prints "rank R: ERROR" or "rank R: done". Run by
 * test_refused.sh.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <shardrt/shardrt.h>

#include "tests/harness/options.h"
#include "tests/harness/random.h"

#define TRY(call)                                                                                  \
	do {                                                                                       \
		if ((call) != SRT_OK)                                                              \
			return srt_error_last();                                                   \
	} while (0)

static int delays;

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (delays && random32() % 4 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = 40000000 }, NULL);
	return __real_sendmsg(fd, m, flags);
}

static const char *run(const char *mode, const char *folder, uint64_t seed)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);
	const int build = strcmp(mode, "build") == 0;
	srt_context_t *context;
	srt_stream_t *stream;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	unsigned char hash[16];
	char path[512];
	int rank;

	TRY(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	TRY(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	TRY(srt_engine_create(context, &options, &engine));
	TRY(srt_unit_create(engine, NULL, "model", NULL, &unit));
	TRY(srt_param_create(unit, "w", SRT_F32, 1, (const int64_t[]){ build ? 8 + rank : 8 }, NULL,
			     &param));
	if (!build)
		TRY(srt_engine_build(engine));
	random_state = seed * 64 + (uint64_t)rank + 1;
	delays = seed > 0;
	snprintf(path, sizeof(path), "%s/missing/file", folder);
	if (build)
		TRY(srt_engine_build(engine));
	else if (strcmp(mode, "load") == 0)
		TRY(srt_engine_load(engine, path, stream));
	else if (strcmp(mode, "save") == 0)
		TRY(srt_engine_save(engine, path, NULL, 0, stream));
	else if (strcmp(mode, "resume") == 0)
		TRY(srt_checkpoint_load(engine, path, NULL, stream));
	else if (strcmp(mode, "checkpoint") == 0)
		TRY(srt_checkpoint_save(engine, path, NULL, stream));
	else
		TRY(srt_engine_hash(engine, hash, stream));
	return "done";
}

int main(int argc, char **argv)
{
	const char *rank = getenv("SHARDRT_RANK");

	if (argc < 3)
		return 2;
	printf("rank %s: %s\n", rank,
	       run(argv[1], argv[2], argc > 3 ? strtoull(argv[3], 0, 10) : 0));
	fflush(stdout);
	_exit(0); /* a sanitizer does not look for leaks: no object is destroyed */
}
