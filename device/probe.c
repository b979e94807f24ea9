/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asks the drivers of backends for their devices in a separate process: a driver that is only asked
 * must not end or hang the program, and some do, e.g. PoCL without /sys or with little memory.
 *
 * The process is the program shardrt-probe, which is installed with the modules. A child by fork()
 * alone would not do: in a program with threads it may call functions that are safe in signal
 * handlers only, and a driver that the program has opened already does not work in the child.
 *
 * Called by backend_registry.c for SHARDRT_BACKEND=auto, and by enumerate.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "device/device.h"

#define PROGRAM "shardrt-probe"
#define MAX_PROBES 4
#define MAX_ANSWER_NBYTES ((size_t)64 << 10)
#define BEGIN "begin\n"
#define END "\nend\n"

extern char **environ;

/* Answers so far; one process runs at a time. */
static struct {
	pthread_mutex_t lock;
	size_t n;
	struct {
		const char *name; /* of a family */
		srt_probe_t probe;
	} done[MAX_PROBES];
} probes = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A process that asks a driver. */
typedef struct child {
	pid_t pid;   /* 0: its end is known */
	int reply;   /* the pipe's end that is read */
	int status;  /* as waitpid() gives it; -1: the program does not learn it */
	char *text;  /* what it has written, with a terminating zero */
	size_t used; /* bytes of it */
} child_t;

static srt_status_t start(child_t *child, const char *program, const char *backend)
{
	char *const argv[] = { (char *)program, (char *)backend, NULL };
	posix_spawn_file_actions_t actions;
	int fds[2], code;

	if (pipe2(fds, O_CLOEXEC))
		return srt_fail(SRT_ERR_SYSTEM, "pipe2: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	code = posix_spawn(&child->pid, program, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	child->reply = fds[0];
	if (code == 0)
		return SRT_OK;
	close(fds[0]);
	return srt_fail(SRT_ERR_SYSTEM, "%s does not start: %s", program, strerror(code));
}

/* Whether the process has ended. */
static bool has_ended(child_t *child)
{
	pid_t pid;

	if (!child->pid)
		return true;
	do
		pid = waitpid(child->pid, &child->status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		return false;
	if (pid < 0) /* the program ignores SIGCHLD, or has waited for all children */
		child->status = -1;
	child->pid = 0;
	return true;
}

static bool is_complete(const child_t *child)
{
	const size_t n = strlen(END);

	return child->used >= n && strcmp(child->text + child->used - n, END) == 0;
}

/* Waits for a part of the answer. false: there is no more. */
static bool read_answer(child_t *child)
{
	struct pollfd fd = { .fd = child->reply, .events = POLLIN };
	const bool ended = has_ended(child); /* before the read: nothing comes after it */
	ssize_t n;

	if (poll(&fd, 1, ended ? 0 : SRT_AWAKE_SLICE_MS) <= 0)
		return !ended;
	n = read(child->reply, child->text + child->used, MAX_ANSWER_NBYTES - 1 - child->used);
	if (n < 0)
		return errno == EINTR;
	child->used += (size_t)n;
	child->text[child->used] = '\0';
	return n > 0 && !is_complete(child);
}

/* Ends the process if it still runs. One that the system does not let go is left. */
static void stop(child_t *child)
{
	const double deadline = srt_awake_s() + 1;

	while (!has_ended(child) && srt_awake_s() < deadline) {
		kill(child->pid, SIGKILL);
		poll(NULL, 0, 1);
	}
	close(child->reply);
}

static void explain_end(srt_probe_t *probe, const child_t *child)
{
	char how[128];

	if (child->status >= 0 && WIFSIGNALED(child->status))
		snprintf(how, sizeof(how), "signal %d (%s)", WTERMSIG(child->status),
			 strsignal(WTERMSIG(child->status)));
	else if (child->status >= 0)
		snprintf(how, sizeof(how), "exit status %d", WEXITSTATUS(child->status));
	else
		snprintf(how, sizeof(how), "an unknown cause");
	snprintf(probe->why_none, sizeof(probe->why_none),
		 "its driver ended the process that asked for devices, by %s: see what the driver "
		 "has printed, or set SHARDRT_BACKEND=cpu to go without it",
		 how);
}

/* Adds a line of the answer. */
static srt_status_t add_line(srt_probe_t *probe, const char *line, size_t len)
{
	const size_t word = strcspn(line, " \n"), n = (size_t)probe->ndevices;
	const int text = (int)(len - word - 1);
	srt_device_description_t *devices;

	if (strncmp(line, "none ", 5) == 0 || strncmp(line, "failed ", 7) == 0) {
		probe->failed = *line == 'f';
		snprintf(probe->why_none, sizeof(probe->why_none), "%.*s", text, line + word + 1);
		return SRT_OK;
	}
	devices = realloc(probe->devices, (n + 1) * sizeof(*devices));
	if (devices == NULL)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY, "no memory for a list of devices");
	devices[n] = (srt_device_description_t)SRT_DEVICE_DESCRIPTION_INIT;
	devices[n].accelerator = *line == 'a';
	snprintf(devices[n].name, sizeof(devices[n].name), "%.*s", text, line + word + 1);
	probe->devices = devices;
	probe->ndevices++;
	return SRT_OK;
}

static srt_status_t read_lines(srt_probe_t *probe, const char *text)
{
	while (*text) {
		const size_t len = strcspn(text, "\n");

		if (memchr(text, ' ', len) != NULL) /* not BEGIN and END */
			SRT_TRY(add_line(probe, text, len));
		text += len + (text[len] == '\n');
	}
	if (probe->failed)
		probe->ndevices = 0;
	return SRT_OK;
}

/* SRT_OK: the driver has answered, or failed to. */
static srt_status_t ask(srt_probe_t *probe, const char *program, const char *backend, double limit)
{
	child_t child = { .text = srt_calloc(1, MAX_ANSWER_NBYTES, "a list of devices") };
	const double deadline = srt_awake_s() + limit;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (child.text != NULL)
		status = start(&child, program, backend);
	if (status != SRT_OK)
		goto free_text;
	while (read_answer(&child) && srt_awake_s() < deadline)
		continue;
	probe->failed = !is_complete(&child);
	/* The pipe is closed before the process has ended. */
	while (probe->failed && !has_ended(&child) && srt_awake_s() < deadline)
		poll(NULL, 0, 1);
	if (!probe->failed)
		status = read_lines(probe, child.text);
	else if (has_ended(&child) && strncmp(child.text, BEGIN, strlen(BEGIN)) != 0)
		status = srt_fail(SRT_ERR_SYSTEM, "%s ended before it asked the driver", program);
	else if (has_ended(&child))
		explain_end(probe, &child);
	else
		snprintf(probe->why_none, sizeof(probe->why_none),
			 "its driver has not listed its devices for %g s (SHARDRT_PROBE_TIMEOUT); "
			 "set SHARDRT_BACKEND=cpu to go without it",
			 limit);
	stop(&child);
free_text:
	free(child.text);
	return status;
}

/* The files of the backend's module and of the program. false: one is not installed. */
static bool find_files(const char *name, char **module, char **program)
{
	*program = NULL;
	return srt_backend_module_find(name, module) == SRT_OK && *module != NULL &&
	       srt_module_file_find(PROGRAM, program) == SRT_OK && *program != NULL;
}

/* Called with the lock held. */
static const srt_probe_t *ask_once(const char *name, double limit)
{
	srt_probe_t *probe;
	char *program;

	for (size_t i = 0; i < probes.n; i++)
		if (strcmp(probes.done[i].name, name) == 0)
			return &probes.done[i].probe;
	if (probes.n == MAX_PROBES)
		return NULL;
	probe = &probes.done[probes.n].probe;
	*probe = (srt_probe_t){ .module = NULL };
	if (find_files(name, &probe->module, &program) &&
	    ask(probe, program, name, limit) == SRT_OK) {
		probes.done[probes.n++].name = name;
	} else {
		srt_log(SRT_LOG_DEBUG, "backend \"%s\" is asked in this process: %s", name,
			srt_error_last());
		free(probe->module);
		free(probe->devices);
		probe = NULL;
	}
	free(program);
	return probe;
}

void srt_backend_probe_apart(const char *name, const srt_probe_t **probe)
{
	const double limit = srt_config_seconds("SHARDRT_PROBE_TIMEOUT");
	srt_error_text_t before;

	*probe = NULL;
	if (limit <= 0 || srt_backend_is_loaded(name))
		return;
	srt_error_save(&before);
	pthread_mutex_lock(&probes.lock);
	*probe = ask_once(name, limit);
	pthread_mutex_unlock(&probes.lock);
	srt_error_restore(&before);
}
