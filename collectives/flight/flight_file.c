/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of the flight recorder (collectives/flight/flight.h), as docs/errors.md describes them.
 *
 * A failure is written by the thread that finds it, before it is returned: the program may exit
 * after that. SIGUSR1 is written by a thread that waits on an eventfd: nearly nothing that writing
 * a file needs is allowed in a handler, and a single rank has no progress thread. A file is
 * written under a temporary name and renamed, so that readers see all of it.
 */
#include "collectives/flight/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <shardrt/version.h>

#include "collectives/comm_state.h"

struct srt_flight_file {
	srt_flight_file_t *next;
	srt_bootstrap_t *bootstrap;
	int folder; /* descriptor */
	uint64_t job;
	_Atomic uint32_t nrequests, nwritten; /* failures */
};

/* The files of the process. */
static struct {
	pthread_mutex_t lifecycle; /* held while a file is opened or closed */
	pthread_mutex_t mutex;     /* protects the list; held while a file is written */
	srt_flight_file_t *files;
	pid_t pid; /* 0: no file has been opened. A child by fork() writes nothing. */
	int wake;  /* eventfd; never closed, as a handler may be about to write to it */
	pthread_t thread;
	atomic_bool stopping;
} recorder = { .lifecycle = PTHREAD_MUTEX_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER };

/* ---- JSON ----------------------------------------------------------------------------------- */

/* A string; malformed UTF-8 becomes question marks. */
static void print_string(FILE *out, const char *text)
{
	putc('"', out);
	for (size_t n; *text != '\0'; text += n > 0 ? n : 1) {
		n = srt_utf8_length(text);
		if (n == 0)
			putc('?', out);
		else if ((unsigned char)*text < 0x20)
			fprintf(out, "\\u%04x", (unsigned)*text);
		else
			fprintf(out, "%s%.*s", *text == '"' || *text == '\\' ? "\\" : "", (int)n,
				text);
	}
	putc('"', out);
}

/* Integers: printf() writes the decimal sign of the program's locale. */
static void print_us(FILE *out, const char *name, double seconds)
{
	fprintf(out, ", \"%s\": %" PRId64, name, (int64_t)(seconds * 1e6));
}

static void print_call(FILE *out, const srt_flight_t *flight, uint32_t index)
{
	static const char *const states[] = { "running", "complete", "failed" };
	srt_flight_call_t call;
	srt_flight_state_t state;

	if (!srt_flight_read_call(flight, index, &call, &state)) {
		fputs("{\"torn\": true}", out);
		return;
	}
	fprintf(out, "{\"number\": %" PRIu32 ", \"kind\": \"%s\", \"name\": ", call.number,
		call.kind);
	print_string(out, call.name);
	fprintf(out, ", \"dtype\": \"%s\", \"nbytes\": %" PRIu64 ", \"state\": \"%s\"",
		srt_dtype_name((srt_dtype_t)call.dtype), call.nbytes, states[state]);
	print_us(out, "began_us", call.began_s);
	putc('}', out);
}

static void print_wait(FILE *out, const srt_flight_wait_t *wait, bool failed)
{
	static const char *const reasons[] = { "data", "readers", "itself" };

	if (wait->nranks == UINT32_MAX) {
		fputs("{\"torn\": true}", out);
		return;
	}
	fprintf(out, "{\"number\": %" PRIu32 ", \"kind\": \"%s\", \"name\": ", wait->number,
		wait->kind);
	print_string(out, wait->name);
	fprintf(out, ", \"for\": \"%s\", \"failed\": %s", reasons[wait->why],
		failed ? "true" : "false");
	if (wait->round != SRT_FLIGHT_NO_ROUND)
		fprintf(out, ", \"round\": %" PRIu32, wait->round);
	fprintf(out, ", \"nranks\": %" PRIu32 ", \"ranks\": [", wait->nranks);
	for (uint32_t r = 0; r < wait->nranks && r < SRT_FLIGHT_NRANKS; r++)
		fprintf(out, "%s%" PRId32, r > 0 ? ", " : "", wait->ranks[r]);
	putc(']', out);
	print_us(out, "since_us", wait->since_s);
	putc('}', out);
}

static void print_comm(FILE *out, const srt_comm_t *comm)
{
	const srt_flight_t *flight = comm->flight;
	/* In this order: more calls may begin meanwhile. */
	const uint32_t first = srt_flight_first(flight), ncalls = srt_flight_ncalls(flight);
	const uint32_t n = ncalls - first < SRT_FLIGHT_NCALLS ? ncalls - first : SRT_FLIGHT_NCALLS;
	const char *separator = "";

	fprintf(out, "  {\"id\": \"%016" PRIx64 "\", \"name\": ", comm->id);
	print_string(out, comm->name);
	fputs(", \"ranks\": [", out);
	for (int r = 0; r < comm->size; r++)
		fprintf(out, "%s%d", r > 0 ? ", " : "", comm->world_rank[r]);
	putc(']', out);
	if (srt_comm_poisoned(comm)) {
		fputs(",\n   \"failure\": {\"status\": ", out);
		print_string(out, srt_status_string((srt_status_t)atomic_load(
					  &((srt_comm_t *)(uintptr_t)comm)->poison)));
		fputs(", \"text\": ", out);
		print_string(out, comm->poison_text);
		putc('}', out);
	}
	fputs(",\n   \"waits\": [", out);
	for (size_t slot = 0; slot < SRT_FLIGHT_NWAITS; slot++) {
		srt_flight_wait_t wait;
		bool failed;

		if (!srt_flight_read_wait(flight, slot, &wait, &failed))
			continue;
		fputs(separator, out);
		print_wait(out, &wait, failed);
		separator = ",\n    ";
	}
	fputs("],\n   \"calls\": [", out);
	for (uint32_t i = 0; i < n; i++) {
		print_call(out, flight, ncalls - n + i);
		fputs(i + 1 < n ? ",\n    " : "", out);
	}
	fputs("]}", out);
}

/* All of a file. The caller frees it; NULL: no memory. */
static char *print_records(const srt_flight_file_t *file, const char *reason, size_t *nbytes)
{
	srt_bootstrap_t *b = file->bootstrap;
	char *text = NULL, host[256] = "";
	FILE *out = open_memstream(&text, nbytes);
	struct timespec wall;
	bool failed;

	if (out == NULL)
		return NULL;
	gethostname(host, sizeof(host) - 1);
	clock_gettime(CLOCK_REALTIME, &wall);
	fprintf(out,
		"{\"shardrt_flight\": 1, \"library\": \"%s\", \"job\": \"%016" PRIx64
		"\", \"rank\": %d, \"world_size\": %d, \"reason\": \"%s\",\n \"pid\": %ld, "
		"\"host\": ",
		srt_version_string(), file->job, b->rank, b->world_size, reason, (long)getpid());
	print_string(out, host);
	print_us(out, "wall_us", (double)wall.tv_sec + 1e-9 * (double)wall.tv_nsec);
	print_us(out, "monotonic_us", srt_now_s());
	fputs(",\n \"communicators\": [\n", out);
	/* A communicator is freed after it has left the list. */
	pthread_mutex_lock(&b->mutex);
	for (const srt_comm_t *comm = b->comms; comm != NULL; comm = comm->next) {
		print_comm(out, comm);
		fputs(comm->next != NULL ? ",\n" : "\n", out);
	}
	pthread_mutex_unlock(&b->mutex);
	fputs(" ]}\n", out);
	failed = ferror(out) != 0;
	if (fclose(out) == 0 && !failed)
		return text;
	free(text);
	errno = ENOMEM;
	return NULL;
}

/* ---- files ---------------------------------------------------------------------------------- */

static bool write_all(int fd, const char *text, size_t nbytes)
{
	while (nbytes > 0) {
		const ssize_t n = write(fd, text, nbytes);

		if (n < 0 && errno != EINTR)
			return false;
		text += n > 0 ? n : 0;
		nbytes -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Writes the file and gives it its name. False on failure, with errno. */
static bool replace_file(const srt_flight_file_t *file, const char *text, size_t nbytes)
{
	char name[64], temporary[80];
	bool good;
	int fd;

	snprintf(name, sizeof(name), "rank-%d.json", file->bootstrap->rank);
	snprintf(temporary, sizeof(temporary), "%s.tmp", name);
	fd = openat(file->folder, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		    0666);
	if (fd < 0)
		return false;
	good = write_all(fd, text, nbytes);
	good = close(fd) == 0 && good;
	return good && renameat(file->folder, temporary, file->folder, name) == 0;
}

/* Called with the recorder's mutex held. */
static void write_file(const srt_flight_file_t *file, const char *reason)
{
	size_t nbytes;
	char *text = print_records(file, reason, &nbytes);

	if (text == NULL || !replace_file(file, text, nbytes))
		srt_log(SRT_LOG_WARN, "rank %d: the flight recorder cannot write its file: %s",
			file->bootstrap->rank, strerror(errno));
	free(text);
}

void srt_flight_request(srt_bootstrap_t *b)
{
	if (b->flight != NULL)
		atomic_fetch_add(&b->flight->nrequests, 1);
}

void srt_flight_flush(srt_bootstrap_t *b)
{
	srt_flight_file_t *file = b->flight;
	uint32_t n;

	if (file == NULL || atomic_load(&file->nwritten) == atomic_load(&file->nrequests) ||
	    getpid() != recorder.pid)
		return;
	pthread_mutex_lock(&recorder.mutex);
	n = atomic_load(&file->nrequests);
	if (atomic_load(&file->nwritten) != n)
		write_file(file, "error");
	atomic_store(&file->nwritten, n);
	pthread_mutex_unlock(&recorder.mutex);
}

/* ---- SIGUSR1 -------------------------------------------------------------------------------- */

static void wake_recorder(void)
{
	const uint64_t one = 1;
	ssize_t ignored = write(recorder.wake, &one, sizeof(one));
	(void)ignored; /* a full counter also wakes the thread */
}

/* A child by fork() shares the eventfd with its parent. */
static void handle_signal(int number)
{
	const int saved = errno;

	(void)number;
	if (getpid() == recorder.pid)
		wake_recorder();
	errno = saved;
}

static void *run_recorder(void *arg)
{
	uint64_t count;

	(void)arg;
	for (;;) {
		if (read(recorder.wake, &count, sizeof(count)) < 0)
			continue;
		if (atomic_load(&recorder.stopping))
			return NULL;
		pthread_mutex_lock(&recorder.mutex);
		for (srt_flight_file_t *file = recorder.files; file != NULL; file = file->next)
			write_file(file, "signal");
		pthread_mutex_unlock(&recorder.mutex);
	}
}

/* Starts the thread, and handles the signal unless the program does. Returns an errno. */
static int start_recorder(void)
{
	struct sigaction action = { .sa_handler = handle_signal, .sa_flags = SA_RESTART }, present;
	int err;

	if (recorder.pid != getpid()) {
		recorder.files = NULL; /* in a child: those of the parent */
		recorder.wake = eventfd(0, EFD_CLOEXEC);
		if (recorder.wake < 0)
			return errno;
		recorder.pid = getpid();
	}
	atomic_store(&recorder.stopping, false);
	err = srt_thread_create(&recorder.thread, run_recorder, NULL);
	if (err != 0)
		return err;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGUSR1, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
	    present.sa_handler == SIG_DFL)
		sigaction(SIGUSR1, &action, NULL);
	return 0;
}

static void stop_recorder(void)
{
	struct sigaction present;

	if (sigaction(SIGUSR1, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
	    present.sa_handler == handle_signal)
		signal(SIGUSR1, SIG_DFL);
	atomic_store(&recorder.stopping, true);
	wake_recorder();
	pthread_join(recorder.thread, NULL);
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* The folder of this start of the job, without a file of this rank of an earlier job. A descriptor,
 * or -1 with errno. */
static int open_folder(const char *path, int rank)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	const int64_t restart = srt_config_int("SHARDRT_RESTART_COUNT");
	char name[64];
	int folder;

	if (mkdir(path, 0777) != 0 && errno != EEXIST)
		return -1;
	folder = open(path, flags);
	snprintf(name, sizeof(name), "restart-%" PRId64, restart);
	if (folder >= 0 && restart > 0) {
		const int parent = folder;

		folder = -1;
		if (mkdirat(parent, name, 0777) == 0 || errno == EEXIST)
			folder = openat(parent, name, flags);
		close(parent);
	}
	snprintf(name, sizeof(name), "rank-%d.json", rank);
	if (folder >= 0)
		unlinkat(folder, name, 0);
	return folder;
}

void srt_flight_open(srt_bootstrap_t *b, const char *address)
{
	const char *path = srt_config_string("SHARDRT_FLIGHT");
	srt_flight_file_t *file;
	int err = 0;

	if (path[0] == '\0')
		return;
	pthread_mutex_lock(&recorder.lifecycle);
	file = calloc(1, sizeof(*file));
	if (file == NULL || (file->folder = open_folder(path, b->rank)) < 0)
		err = errno;
	else if (recorder.files == NULL || recorder.pid != getpid())
		err = start_recorder();
	if (err == 0) {
		file->bootstrap = b;
		file->job = srt_hash64(0, address, strlen(address));
		pthread_mutex_lock(&recorder.mutex);
		file->next = recorder.files;
		recorder.files = file;
		pthread_mutex_unlock(&recorder.mutex);
		b->flight = file;
	} else {
		srt_log(SRT_LOG_WARN,
			"rank %d: SHARDRT_FLIGHT=%s cannot be used, so there will be no files: %s",
			b->rank, path, strerror(err));
		if (file != NULL && file->folder >= 0)
			close(file->folder);
		free(file);
	}
	pthread_mutex_unlock(&recorder.lifecycle);
}

void srt_flight_close(srt_bootstrap_t *b)
{
	srt_flight_file_t *file = b->flight;
	srt_flight_file_t **link = &recorder.files;

	if (file == NULL || getpid() != recorder.pid)
		return;
	pthread_mutex_lock(&recorder.lifecycle);
	pthread_mutex_lock(&recorder.mutex);
	while (*link != file)
		link = &(*link)->next;
	*link = file->next;
	pthread_mutex_unlock(&recorder.mutex);
	if (recorder.files == NULL)
		stop_recorder();
	pthread_mutex_unlock(&recorder.lifecycle);
	b->flight = NULL;
	close(file->folder);
	free(file);
}
