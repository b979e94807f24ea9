/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a process finds its place in a job. Run by test_launchers.sh:
 *
 *     test_launchers             what the options and variables mean that need no launcher
 *     test_launchers job N       a rank of N, on one node, of any launcher; prints its numbers
 *     test_launchers pipes N     N processes with a transport of the program: pipes
 *
 * Reliability: ranks that `mpirun`, `srun` or `torchrun` started | jobs of one rank, without a
 * word | one job; a launcher that tells no rank is refused
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/bootstrap/launcher.h"
#include "tests/collectives/launched.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

/* ---- variables and options -------------------------------------------------------------- */

static const char *const names[] = {
	"SHARDRT_BOOTSTRAP",
	"SHARDRT_RANK",
	"SHARDRT_WORLD_SIZE",
	"SHARDRT_LOCAL_RANK",
	"SHARDRT_LOCAL_SIZE",
	"SHARDRT_TOKEN",
	"SHARDRT_PORT",
	"SHARDRT_RESTART_COUNT",
	"RANK",
	"WORLD_SIZE",
	"LOCAL_RANK",
	"LOCAL_WORLD_SIZE",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_RUN_ID",
	"OMPI_COMM_WORLD_SIZE",
	"PMI_SIZE",
	"PMIX_RANK",
	"SLURM_STEP_NUM_TASKS",
	"TORCHELASTIC_RESTART_COUNT",
};

/* Sets the environment to "NAME=VALUE NAME=VALUE", finds the place. */
static srt_status_t find(const char *variables, const srt_context_options_t *options,
			 srt_place_t *place)
{
	const srt_context_options_t none = { .size = sizeof(none), .threads = 1 };
	char text[512], *rest = text;

	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++)
		unsetenv(names[i]);
	snprintf(text, sizeof(text), "%s", variables);
	for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
		char *equal = strchr(word, '=');

		CHECK_OR_DIE(equal != NULL);
		*equal = '\0';
		setenv(word, equal + 1, 1);
	}
	return srt_launcher_find(options != NULL ? options : &none, place);
}

static void expect(const char *variables, const char *launcher, int rank, int size, int local_rank,
		   int local_size, const char *address)
{
	srt_place_t place;

	CHECK_MSG(find(variables, NULL, &place) == SRT_OK, "%s: %s", variables, srt_error_last());
	CHECK_MSG(strcmp(place.launcher, launcher) == 0, "%s: %s", variables, place.launcher);
	CHECK_MSG(place.rank == rank && place.world_size == size, "%s", variables);
	CHECK_MSG(place.local_rank == local_rank && place.local_size == local_size, "%s",
		  variables);
	CHECK_MSG(strcmp(place.address, address) == 0, "%s: %s", variables, place.address);
}

static void refuse(const char *variables, const char *words)
{
	srt_place_t place;

	CHECK_MSG(find(variables, NULL, &place) == SRT_ERR_INVALID_ARGUMENT, "%s", variables);
	CHECK_MSG(strstr(srt_error_last(), words) != NULL, "%s: %s", variables, srt_error_last());
}

#define FOUR "RANK=2 WORLD_SIZE=4 "
#define OURS "SHARDRT_RANK=1 SHARDRT_WORLD_SIZE=3 "

/* Reliability: an address of a job whose port is above 65535 | another port, that of the number
 * modulo 65536 | refused */
static void test_variables(void)
{
	expect("", "", 0, 1, 0, 1, "");
	expect("SHARDRT_BOOTSTRAP=none " FOUR "PMI_SIZE=4 SHARDRT_WORLD_SIZE=2", "", 0, 1, 0, 1,
	       "");
	expect("SHARDRT_BOOTSTRAP= PMIX_RANK=3 SHARDRT_WORLD_SIZE=2", "", 0, 1, 0, 1, "");
	expect("PMI_SIZE=1 SLURM_STEP_NUM_TASKS=1 OMPI_COMM_WORLD_SIZE=1", "", 0, 1, 0, 1, "");
	/* Reliability: a variable of a launcher that is set to an empty string | refused, as one of
	 * torchrun without its size | counts as not set */
	expect("WORLD_SIZE= RANK= PMIX_RANK= MASTER_ADDR= SHARDRT_RANK= SHARDRT_WORLD_SIZE=", "", 0,
	       1, 0, 1, "");
	/* SHARDRT_BOOTSTRAP is before those of other launchers. */
	expect("SHARDRT_BOOTSTRAP=unix:@a " OURS "SHARDRT_LOCAL_RANK=1 SHARDRT_LOCAL_SIZE=3 " FOUR
	       "PMIX_RANK=0",
	       "shardrun", 1, 3, 1, 3, "unix:@a");
	expect("SHARDRT_BOOTSTRAP=tcp:[::1]:80 " OURS, "SHARDRT_BOOTSTRAP", 1, 3, 0, 0,
	       "tcp:[::1]:80");
	expect("SHARDRT_BOOTSTRAP=tcp:h:80 SHARDRT_LOCAL_RANK=1 SHARDRT_LOCAL_SIZE=2 " OURS,
	       "SHARDRT_BOOTSTRAP", 1, 3, 1, 2, "tcp:h:80");
	/* torchrun: without an address on one node; else never at its own port. */
	expect(FOUR "LOCAL_RANK=2 LOCAL_WORLD_SIZE=4", "torchrun", 2, 4, 2, 4, "");
	expect("SHARDRT_BOOTSTRAP=torchrun PMIX_RANK=0 " FOUR "LOCAL_RANK=2 LOCAL_WORLD_SIZE=4",
	       "torchrun", 2, 4, 2, 4, "");
	expect(FOUR "MASTER_ADDR=h MASTER_PORT=80", "torchrun", 2, 4, 0, 0, "tcp:h:29417");
	expect(FOUR "LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=::1 SHARDRT_PORT=5", "torchrun", 2,
	       4, 0, 2, "tcp:[::1]:5");

	refuse("SHARDRT_WORLD_SIZE=2", "SHARDRT_WORLD_SIZE=2, but SHARDRT_BOOTSTRAP is not set");
	refuse("SHARDRT_BOOTSTRAP=unix:a", "is not of the form unix:@NAME or tcp:HOST:PORT");
	refuse("SHARDRT_BOOTSTRAP=tcp:127.0.0.1 " OURS, "is not of the form HOST:PORT");
	refuse("SHARDRT_BOOTSTRAP=tcp:127.0.0.1:99999 " OURS, "not a number from 1 to 65535");
	refuse("SHARDRT_BOOTSTRAP=tcp:[::1]:65536 " OURS, "not a number from 1 to 65535");
	refuse("SHARDRT_BOOTSTRAP=tcp:h:00000000080 " OURS, "not a number from 1 to 65535");
	refuse("SHARDRT_BOOTSTRAP=tcp:h:-1 " OURS, "not a number from 1 to 65535");
	refuse("SHARDRT_BOOTSTRAP=tcp:h:http " OURS, "not a number from 1 to 65535");
	refuse("SHARDRT_BOOTSTRAP=tcp:h:0 " OURS, "is 0: the other ranks need to know");
	refuse("SHARDRT_BOOTSTRAP=unix:@a SHARDRT_RANK=3 SHARDRT_WORLD_SIZE=3",
	       "SHARDRT_RANK=3 is not below SHARDRT_WORLD_SIZE=3");
	refuse("SHARDRT_BOOTSTRAP=unix:@a SHARDRT_LOCAL_SIZE=4 " OURS,
	       "SHARDRT_LOCAL_SIZE=4 do not fit SHARDRT_WORLD_SIZE=3");
	refuse("SHARDRT_BOOTSTRAP=tcp:h:1 SHARDRT_LOCAL_SIZE=2 SHARDRT_LOCAL_RANK=2 " OURS,
	       "SHARDRT_LOCAL_RANK=2, SHARDRT_LOCAL_SIZE=2 do not fit SHARDRT_WORLD_SIZE=3");
	refuse("SHARDRT_BOOTSTRAP=pmix", "PMIX_RANK is not set");
	refuse("SHARDRT_BOOTSTRAP=torchrun", "RANK is not set");
	refuse("WORLD_SIZE=4", "RANK is not set");
	refuse("RANK=x WORLD_SIZE=4", "RANK=x in the environment: must be a whole number");
	refuse("RANK=4 WORLD_SIZE=4", "RANK=4 is not below WORLD_SIZE=4");
	refuse("RANK=0 WORLD_SIZE=0", "RANK=0 is not below WORLD_SIZE=0");
	refuse(FOUR, "needs MASTER_ADDR");
	refuse(FOUR "LOCAL_WORLD_SIZE=4",
	       "LOCAL_RANK=-1, LOCAL_WORLD_SIZE=4 do not fit WORLD_SIZE=4");
	refuse(FOUR "LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "LOCAL_RANK=1 is not RANK=2");
	refuse("PMIX_RANK=0 " FOUR, "as rank 0, torchrun as rank 2 of 4");
	refuse("PMI_SIZE=2", "PMI_SIZE=2, but PMIX_RANK is not set");
	refuse("SLURM_STEP_NUM_TASKS=2", "srun --mpi=pmix");
	refuse("OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=2");
}

/* Jobs that may run at once, or of which one has failed, have different names. */
static void test_names(void)
{
	static const char *const jobs[] = {
		"MASTER_PORT=1",
		"MASTER_PORT=2",
		"MASTER_PORT=2 TORCHELASTIC_RUN_ID=a",
		"MASTER_PORT=2 TORCHELASTIC_RUN_ID=b",
		"MASTER_PORT=2 TORCHELASTIC_RUN_ID=b TORCHELASTIC_RESTART_COUNT=1",
	};
	char text[256];
	srt_place_t a, b;

	for (size_t i = 0; i < SRT_ARRAY_LEN(jobs); i++) {
		for (size_t j = 0; j < SRT_ARRAY_LEN(jobs); j++) {
			snprintf(text, sizeof(text),
				 "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 %s", jobs[i]);
			CHECK_OK(find(text, NULL, &a));
			snprintf(text, sizeof(text),
				 "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 %s", jobs[j]);
			CHECK_OK(find(text, NULL, &b));
			CHECK((strcmp(a.job, b.job) == 0) == (i == j));
		}
	}
	/* On several nodes, each torchrun counts its restarts. */
	CHECK_OK(find("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h TORCHELASTIC_RESTART_COUNT=1", NULL, &a));
	CHECK_OK(find("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h TORCHELASTIC_RESTART_COUNT=2", NULL, &b));
	CHECK_STR(a.job, b.job);
}

static int fail_broadcast(void *arg, void *data, size_t nbytes)
{
	(void)arg;
	(void)data;
	return nbytes <= 1024 ? 7 : 8;
}

static void refuse_options(const srt_context_options_t *options, const char *words)
{
	srt_context_t *context = NULL;

	CHECK_STATUS(srt_context_create(options, &context), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
	CHECK(context == NULL);
}

static void test_options(void)
{
	const srt_context_options_t alone = { .size = sizeof(alone), .world_size = 1 };
	const srt_context_options_t both = { .size = sizeof(both),
					     .world_size = 1,
					     .bootstrap = "none" };
	const srt_context_options_t no_broadcast = { .size = sizeof(no_broadcast),
						     .world_size = 2 };
	const srt_context_options_t above = {
		.size = sizeof(above), .rank = 2, .world_size = 2, .broadcast = fail_broadcast
	};
	const srt_context_options_t no_size = { .size = sizeof(no_size),
						.broadcast = fail_broadcast };
	const srt_context_options_t fails = { .size = sizeof(fails),
					      .world_size = 2,
					      .broadcast = fail_broadcast };
	srt_context_t *context = NULL;
	char token[140];
	srt_place_t place;

	/* The options are before all variables. */
	CHECK_OK(find("SHARDRT_BOOTSTRAP=unix:@nobody " OURS, &alone, &place));
	CHECK_INT(place.world_size, 1);
	CHECK_OK(find("", NULL, &place));
	refuse_options(&both, "bootstrap (\"none\") and world_size (1) exclude each other");
	refuse_options(&no_broadcast, "broadcast is NULL");
	refuse_options(&above, "rank=2 is not below world_size=2");
	refuse_options(&no_size, "rank=0 is not below world_size=0");
	CHECK_STATUS(srt_context_create(&fails, &context), SRT_ERR_SYSTEM);
	CHECK_ERROR_HAS("the option broadcast returned 7");

	memset(token, 'x', sizeof(token));
	token[128] = '\0';
	setenv("SHARDRT_TOKEN", token, 1);
	CHECK_OK(srt_launcher_find(&alone, &place));
	CHECK_STR(place.token, token);
	token[128] = 'x';
	token[129] = '\0';
	setenv("SHARDRT_TOKEN", token, 1);
	CHECK_STATUS(srt_launcher_find(&alone, &place), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("SHARDRT_TOKEN has 129 characters");
	unsetenv("SHARDRT_TOKEN");
}

/* ---- a transport of the program: rank 0 writes to one pipe for each rank ------------------- */

#define MAX_PIPES 16

typedef struct pipes {
	int rank, size;
	int fds[MAX_PIPES][2];
} pipes_t;

static int broadcast_by_pipes(void *arg, void *data, size_t nbytes)
{
	const pipes_t *pipes = arg;

	if (pipes->rank > 0)
		return read(pipes->fds[pipes->rank][0], data, nbytes) != (ssize_t)nbytes;
	for (int r = 1; r < pipes->size; r++) {
		if (write(pipes->fds[r][1], data, nbytes) != (ssize_t)nbytes)
			return 1;
	}
	return 0;
}

/* Keeps what a rank uses: all writing ends on rank 0, and its reading end on another one. A rank
 * that waits for rank 0 then sees its end. -1 = keeps none. */
static void close_pipes(pipes_t *pipes, int rank)
{
	for (int r = 0; r < pipes->size; r++) {
		if (rank != r)
			close(pipes->fds[r][0]);
		if (rank != 0)
			close(pipes->fds[r][1]);
	}
}

static int run_pipes(int size)
{
	pipes_t pipes = { .size = size };
	int status, failed = 0;

	MUST_BE(size <= MAX_PIPES);
	for (int r = 0; r < size; r++)
		MUST_BE(pipe2(pipes.fds[r], O_CLOEXEC) == 0);
	for (int r = 0; r < size; r++) {
		pid_t pid = fork();

		MUST_BE(pid >= 0);
		if (pid > 0)
			continue;
		pipes.rank = r;
		check_job(CONTEXT(.rank = r, .world_size = size, .broadcast = broadcast_by_pipes,
				  .broadcast_arg = &pipes),
			  r, size);
		exit(0);
	}
	close_pipes(&pipes, -1);
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "pipes") == 0)
		return run_pipes(atoi(argv[2]));
	if (argc == 3) {
		printf("rank %d\n", check_job(NULL, -1, atoi(argv[2])));
		return 0;
	}
	test_variables();
	test_names();
	test_options();
	return check_done();
}
